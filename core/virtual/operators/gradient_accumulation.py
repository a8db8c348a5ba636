"""Where two gradients meet, autograd adds the second into the first and takes no memory. Any thread.

Its engine does so (`InputBuffer::accumulate` in torch/csrc/autograd/input_buffer.cpp) when nothing else has the first
one; but never with tensors of Python classes, as those here are, whose sum would be counted as a third tensor. So the
sum takes over the block of the first.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from devexplorer.core.virtual.operators.operations import Operation, aten
from devexplorer.core.virtual.operators.tensor import VirtualTensor, run_operation

ALONE = (5, 4, 2)
"""References to a tensor that only the engine has: of Python's to it, of torch's to it, of tensors to its storage,
those of this call included. Where a version of torch or Python keeps more, the sum is a third tensor."""


def add(operation: Operation, first: Any, second: Any, **options: Any) -> Any:
    """`aten.add.Tensor`."""
    caller = sys._getframe(1).f_back  # of `__torch_dispatch__`; None on the engine's own threads
    by_engine = caller is None or caller.f_code.co_name == "_engine_run_backward"
    if not by_engine or options or torch.is_grad_enabled():
        return run_operation(operation, (first, second), options)
    if sys.getrefcount(first) <= ALONE[0] and _meet(first, second):
        return run_operation(_into_first(), (first, second), None)
    return run_operation(operation, (first, second), None)


def _meet(first: Any, second: Any) -> bool:
    """Whether these can be two gradients of one thing, the first with a storage to itself."""
    if type(first) is not VirtualTensor or type(second) is not VirtualTensor or first._gpu is not second._gpu:
        return False
    storage = first._inner.untyped_storage()
    return (
        (first.shape, first.dtype) == (second.shape, second.dtype)
        and storage.nbytes() == first._inner.nbytes
        and first._use_count() <= ALONE[1]  # type: ignore[attr-defined]
        and torch._C._storage_Use_Count(storage._cdata) <= ALONE[2]
    )


def _summed(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The values are new, since the old ones may be in use elsewhere; the block is that of the first."""
    total, storage = torch.add(first, second), first.untyped_storage()
    total.untyped_storage()._vgpu, storage._vgpu = getattr(storage, "_vgpu", None), None  # type: ignore[attr-defined]
    return total


_operations: list[Operation] = []


def _into_first() -> Operation:
    if not _operations:
        made = Operation(aten.add.Tensor)
        made.call = _summed
        _operations.append(made)
    return _operations[0]
