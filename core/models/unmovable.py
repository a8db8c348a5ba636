"""What a move would break, refused in words before anything changes; what a change of dtype does: which tensors it
concerns, and whether it can lose anything. Reads only. Runs on the jobs thread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, parse_dtype, parse_model_dtype
from devexplorer.core.models.walk import device_id
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.virtual.operators.tensor import VirtualParameter, VirtualTensor


class Dispatched(BadInput):
    """A model, or the part of one, that accelerate has dispatched."""

    def __init__(self, finding: str, title: str) -> None:
        super().__init__(finding)
        self.name = title.partition(":")[0]
        """The model."""


QUANTISED = frozenset({torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4})
_PLAIN = (Tensor, nn.Parameter, VirtualTensor, VirtualParameter)


def refuse_not_dense(title: str, tensor: Tensor, done: str) -> None:
    """Raise `BadInput` for a quantised, nested or sparse tensor; `done` says what only dense ones can be."""
    if tensor.is_quantized:
        kind, dense = "quantised", "dequantize()"
    elif tensor.is_nested:
        kind, dense = "nested", "to_padded_tensor()"
    elif tensor.layout is not torch.strided:
        kind, dense = str(tensor.layout).removeprefix("torch.").strip("_"), "to_dense()"
    else:
        return
    raise BadInput(f"{title} is {kind}; only dense tensors can be {done}, and {dense} makes one")


def refuse_special(
    name: str, tensor: Tensor, gradient: Tensor | None, device: torch.device, dtype: torch.dtype
) -> None:
    """Raise `BadInput` when the tensor or its gradient is of a kind whose move to this device and dtype would fail, or
    change the kind."""
    for item in (tensor, gradient):
        if item is None or not (
            item.is_quantized or item.is_nested or item.is_meta or item.layout is not torch.strided
        ):
            continue
        title = f"'{name}'" if item is tensor else f"the gradient of '{name}'"
        refuse_not_dense(title, item, "moved")
        if item.is_meta:
            raise BadInput(
                f"{title} has no values: it is on the device meta, which only knows shapes; create it on the CPU"
            )
    if tensor.is_complex() and not dtype.is_complex:
        raise BadInput(f"'{name}' is complex and cannot become real without losing its imaginary part")
    if device.type == KIND and type(tensor) not in _PLAIN:
        raise BadInput(
            f"'{name}' is a {type(tensor).__name__}, and a virtual GPU would make a plain tensor of it; it can go to"
            " real devices only"
        )


def refuse_dispatched(title: str, modules: Sequence[tuple[str, nn.Module]]) -> None:
    """A model that accelerate dispatched has hooks that move its inputs; moving its layers away from under them breaks
    it."""
    why = _hooked_by_accelerate(modules)
    if why is not None:
        raise Dispatched(
            f"'{title}' was dispatched by accelerate ({why}) and stays where its map says; "
            "remove the hooks first: Join does that, and accelerate.hooks.remove_hook_from_submodules(model) in Python",
            title,
        )


def dispatched(modules: Sequence[tuple[str, nn.Module]]) -> str | None:
    """One sentence about a model (itself and everything below it, by path) whose parts accelerate placed; None when it
    did not."""
    why = _hooked_by_accelerate(modules)
    if why is None:
        return None
    places: Mapping[str, object] = getattr(modules[0][1], "hf_device_map", {})
    tensors = (tensor for _, module in modules for tensor in module._parameters.values() if tensor is not None)
    cards = next((tensor.device.type for tensor in tensors if tensor.device.type not in ("cpu", "meta")), "cuda")
    by_device: dict[str, list[str]] = {}
    for part, device in places.items():
        by_device.setdefault(f"{cards}:{device}" if isinstance(device, int) else str(device), []).append(
            part or "the whole model"
        )
    where = ", ".join(f"{_listed(parts)} on {device}" for device, parts in by_device.items()) or why
    crossed = [f"{path} ({before} to {after})" for path, before, after in crossings(modules)]
    across = f"; activations change devices at {_listed(crossed)}" if crossed else ""
    return (
        f"accelerate dispatched this model: {where}{across}; its hooks move activations and have to be removed before a"
        " move: Join does that"
    )


def crossings(modules: Sequence[tuple[str, nn.Module]]) -> list[tuple[str, str, str]]:
    """Where a model changes devices, in the order of its modules: the path of the first module there, the device of
    what was before it, and its own.

    The order in which forward calls them can be another one. What accelerate keeps in the CPU's memory or on disk is
    where its hook brings it.
    """
    found: list[tuple[str, str, str]] = []
    before = ""
    for path, module in modules:
        held = (*module._parameters.values(), *module._buffers.values())
        own = next((item for item in held if item is not None), None)
        if own is None:
            continue
        device = device_id(own.device)
        if own.is_meta:
            device = str(getattr(module.__dict__.get("_hf_hook"), "execution_device", device))
        if before and device != before:
            found.append((path or "the model itself", before, device))
        before = device
    return found


def _hooked_by_accelerate(modules: Sequence[tuple[str, nn.Module]]) -> str | None:
    # A map alone is no hook: where the whole model is on one device, accelerate has only moved it there.
    # Not hasattr: a module that lacks an attribute searches all its registers for it.
    hooked = next((path or "the model itself" for path, module in modules if "_hf_hook" in module.__dict__), None)
    return None if hooked is None else f"{hooked} has a hook of accelerate"


def _listed(parts: Sequence[str]) -> str:
    return f"{parts[0]} to {parts[-1]} ({len(parts)} parts)" if len(parts) > 3 else " and ".join(parts)


def torch_dtype(text: str) -> torch.dtype:
    """`"half"` -> `torch.float16`; `BadInput` for names that mean nothing."""
    dtype = getattr(torch, parse_dtype(text))
    assert isinstance(dtype, torch.dtype)
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` -> `float32`."""
    return str(dtype).removeprefix("torch.")


def model_dtype(text: str) -> torch.dtype:
    """The dtype for a whole model: floating point or complex, as `Module.to` wants it."""
    return torch_dtype(parse_model_dtype(text))


def cast_of(own: torch.dtype, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype that a model's tensor of dtype `own` gets when the model is cast: integer buffers keep theirs, complex
    tensors stay complex."""
    if dtype is None or not (own.is_floating_point or (own.is_complex and dtype.is_complex)):
        return own
    return dtype


@cache
def loses(old: torch.dtype, new: torch.dtype) -> bool:
    """Whether some value of `old` cannot be written in `new`, so that casting back may not restore the bits.

    >>> loses(torch.float16, torch.float32), loses(torch.float32, torch.bfloat16), loses(torch.int64, torch.float32)
    (False, True, True)
    """
    if old == new or old == torch.bool:
        return False
    if new == torch.bool or (old.is_complex and not new.is_complex):
        return True
    if old.is_floating_point or old.is_complex:
        if not (new.is_floating_point or new.is_complex):
            return True
        a, b = torch.finfo(old), torch.finfo(new)  # of a complex dtype: that of its real part
        return bool(b.eps > a.eps or b.max < a.max or b.smallest_normal > a.smallest_normal)
    whole = torch.iinfo(old)
    if new.is_floating_point or new.is_complex:
        exact = 2 / torch.finfo(new).eps  # every whole number up to here has its own value
        return bool(whole.max > min(exact, torch.finfo(new).max))
    target = torch.iinfo(new)
    return whole.max > target.max or whole.min < target.min


def refuse_value(dtype: torch.dtype, value: float) -> None:
    """Raise `BadInput` when a tensor of this dtype cannot hold the value at all (rounding is fine)."""
    name = dtype_name(dtype)
    if dtype == torch.bool:
        if value not in (0, 1):
            raise BadInput(f"bool holds 0 and 1 only, not {value:g}")
    elif dtype.is_floating_point or dtype.is_complex:
        if math.isfinite(value) and abs(value) > torch.finfo(dtype).max:
            raise BadInput(f"{value:g} is too large for {name}, which goes up to {torch.finfo(dtype).max:g}")
    elif not math.isfinite(value) or value != math.floor(value):
        raise BadInput(f"{name} holds whole numbers only, not {value:g}")
    elif not torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max:
        raise BadInput(
            f"{value:g} is out of range for {name}, which goes from {torch.iinfo(dtype).min} to"
            f" {torch.iinfo(dtype).max}"
        )
