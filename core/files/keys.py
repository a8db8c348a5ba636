"""The tensors of a module under the keys of its state dict: the live ones, ties kept. Reads only. Runs on the jobs
thread."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.models import device_id, is_uninitialised, refuse_not_dense, storage_address

Identity = tuple[object, ...]


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by key, in the order of `state_dict()`; a tied one has several
    keys."""
    return {f"{path}.{name}" if path else name: tensor for path, _, name, tensor in slots(module)}


def slots(module: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """`(path of the part, part, name in it, tensor)` of all that `state_dict()` would have."""
    for path, part in module.named_modules(remove_duplicate=False):
        for name, tensor in part._parameters.items():
            if tensor is not None:
                yield path, part, name, tensor
        for name, buffer in part._buffers.items():
            if buffer is not None and name not in part._non_persistent_buffers_set:
                yield path, part, name, buffer


def identity(tensor: Tensor) -> Identity:
    """Equal for tensors that are the same elements in the same order."""
    address = None if is_uninitialised(tensor) or not tensor.numel() else storage_address(tensor)
    if address is None:
        return (id(tensor),)
    return (
        device_id(tensor.device),
        address,
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
    )


def refuse_unsavable(title: str, tensor: Tensor) -> None:
    """Raise `BadInput` for what has no values that could be written, or none in the order of its shape."""
    if is_uninitialised(tensor):
        raise BadInput(
            f"'{title}' has no values before the first forward: there is nothing to save; run the model first"
        )
    if tensor.is_meta:
        raise BadInput(f"'{title}' has no values: it is on the device meta, which only knows shapes")
    refuse_not_dense(f"'{title}'", tensor, "saved")
