"""What cannot be moved without breaking it, refused in words before anything changes. Reads only. Runs on the jobs thread."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from devexplorer.core.errors import BadInput
from devexplorer.core.virtual.books import KIND
from devexplorer.core.virtual.tensor import VirtualTensor

_PLAIN = (Tensor, nn.Parameter, VirtualTensor)


def refuse_special(name: str, tensor: Tensor, gradient: Tensor | None, device: torch.device, dtype: torch.dtype) -> None:
    """Raise `BadInput` when the tensor or its gradient is of a kind whose move to this device and dtype would fail, or change the kind."""
    for title, one in ((f"'{name}'", tensor), (f"the gradient of '{name}'", gradient)):
        if one is None:
            continue
        if one.is_quantized:
            raise BadInput(f"{title} is quantised; only dense tensors can be moved, and dequantize() makes one")
        if one.is_nested or one.layout is not torch.strided:
            kind = "nested" if one.is_nested else str(one.layout).removeprefix("torch.").strip("_")
            way = "to_padded_tensor()" if one.is_nested else "to_dense()"
            raise BadInput(f"{title} is {kind}; only dense tensors can be moved, and {way} makes one")
        if one.is_meta:
            raise BadInput(f"{title} has no values: it is on the device meta, which only knows shapes; create it on the CPU")
    if tensor.is_complex() and not dtype.is_complex:
        raise BadInput(f"'{name}' is complex and cannot become real without losing its imaginary part")
    if device.type == KIND and type(tensor) not in _PLAIN:
        raise BadInput(
            f"'{name}' is a {type(tensor).__name__}, and a virtual GPU would make a plain tensor of it; it can go to real devices only"
        )


def refuse_dispatched(title: str, root: nn.Module) -> None:
    """A model that accelerate dispatched has hooks that move its inputs; moving its layers away from under them breaks it."""
    if hasattr(root, "hf_device_map"):
        why = "it has an hf_device_map"
    else:
        hooked = next((path or "the model itself" for path, m in root.named_modules() if hasattr(m, "_hf_hook")), None)
        if hooked is None:
            return
        why = f"{hooked} has a hook of accelerate"
    raise BadInput(
        f"'{title}' was dispatched by accelerate ({why}) and stays where its map says; "
        "remove the hooks first with accelerate.hooks.remove_hook_from_submodules(model)"
    )
