"""`torch.distributed`, `nn.DataParallel` and `torch.cuda.comm` on virtual GPUs: collectives, scatter, gather,
broadcast. Any thread.

A process has its own virtual GPUs, so ranks meet as they would on cards of several machines.

Scatter, gather and broadcast: torch has these functions in builds with CUDA only, and for CUDA only. Ours take over
where a tensor on a virtual GPU is among the arguments, or where there are no others."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.cuda import nccl
from torch.nn.parallel import DistributedDataParallel, _functions
from torch.utils._pytree import tree_leaves, tree_map_only

from devexplorer.core.virtual.device.accounting import KIND, Stream, gpu_named
from devexplorer.core.virtual.operators.operations import Operation
from devexplorer.core.virtual.operators.tensor import VirtualTensor, register_handlers

_NAMESPACE = "c10d"


def register_collectives() -> None:
    """Take every collective that this torch has."""
    names = [
        name.removeprefix(f"{_NAMESPACE}::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith(f"{_NAMESPACE}::")
    ]
    register_handlers({_overload(name): _collective for name in names})


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, _NAMESPACE), packet), overload or "default")


def _collective(operation: Operation, *args: Any, **kwargs: Any) -> Any:
    tensors = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
    where = {str(tensor.device) for tensor in tensors}
    if len(where) > 1:
        raise RuntimeError(
            f"{operation.name} needs all tensors of a rank on one device, but got {' and '.join(sorted(where))}"
        )
    wrappers = {id(tensor._inner): tensor for tensor in tensors if isinstance(tensor, VirtualTensor)}
    gpu = next(iter(wrappers.values()))._gpu
    if any(tensor._inner.is_meta for tensor in wrappers.values()):
        raise RuntimeError(f"{operation.name} needs values, and a tensor of this process has none")
    began = time.perf_counter()
    inner_args, inner_kwargs = tree_map_only(VirtualTensor, lambda tensor: tensor._inner, (args, kwargs))
    result = operation.overload(*inner_args, **inner_kwargs)
    nbytes = sum(item.nbytes for item in tree_leaves(inner_args) if isinstance(item, torch.Tensor))
    gpu.clock.advance(gpu.copy_seconds(gpu, nbytes), time.perf_counter() - began)
    # What a collective gives back of its arguments are the very tensors that the caller passed.
    return tree_map_only(torch.Tensor, lambda tensor: wrappers.get(id(tensor), tensor), result)


Tensors = Sequence[torch.Tensor]


def register_parallel() -> None:
    """Let `torch.nn.parallel` work with virtual GPUs."""
    for ours in _FUNCTIONS:
        original = getattr(torch._C, ours.__name__, None)
        setattr(torch._C, ours.__name__, ours if original is None else _either(original, ours))
    if hasattr(_functions, "_get_stream"):
        # torch keeps one for as many devices as there were at the first call, and more can be added here.
        _functions._get_stream = _background_stream(_functions._get_stream)
    DistributedDataParallel.__init__ = _checked(DistributedDataParallel.__init__)  # type: ignore[method-assign]
    nccl.is_available = _either(nccl.is_available, lambda tensors: False)  # which would warn that NCCL is missing


def _either(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def function(first: Any, *others: Any) -> Any:
        given = [first] if isinstance(first, torch.Tensor) else list(first)
        empty = not given  # CUDA's would start CUDA for it
        for other in others:  # a tensor of the CPU is scattered to where the streams are
            given += other if isinstance(other, (list, tuple)) else ()
        virtual = any(isinstance(item, (VirtualTensor, Stream)) for item in given)
        return (ours if virtual or empty else original)(first, *others)

    return function


def _checked(original: Callable[..., Any]) -> Callable[..., Any]:
    """`DistributedDataParallel.__init__` that refuses what would fail in backward without pinned memory."""

    @functools.wraps(original)
    def construct(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        options = inspect.signature(original).bind(self, module, *args, **kwargs).arguments
        for name in ("find_unused_parameters", "static_graph"):
            if options.get(name) and any(isinstance(item, VirtualTensor) for item in module.parameters()):
                raise RuntimeError(
                    f"DistributedDataParallel({name}=True) copies through pinned memory, which virtual GPUs do not"
                    f" have; leave {name} out, or keep the model on the CPU"
                )
        original(self, module, *args, **kwargs)

    return construct


def _background_stream(original: Callable[..., Any]) -> Callable[..., Any]:
    def stream(device: torch.device) -> Any:
        return Stream(device) if device.type == KIND else original(device)

    return stream


def _device(index: int) -> torch.device:
    return torch.device("cpu") if index == -1 else torch.device(KIND, gpu_named(index).index)


def _broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    return [tensor if tensor.device == _device(index) else tensor.to(_device(index)) for index in devices]


def _broadcast_out(tensor: torch.Tensor, out: Tensors) -> Tensors:
    for item in out:
        item.copy_(tensor)
    return out


def _broadcast_coalesced(tensors: Tensors, devices: Sequence[int], buffer_size: int) -> list[list[torch.Tensor]]:
    return [[_broadcast(tensor, (index,))[0] for tensor in tensors] for index in devices]


def _segment_count(tensor: torch.Tensor, sizes: Sequence[int] | None, count: int, dim: int) -> Tensors:
    return tensor.chunk(count, dim) if sizes is None else tensor.split(list(sizes), dim)


def _scatter(
    tensor: torch.Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any = None
) -> list[torch.Tensor]:
    pieces = _segment_count(tensor, chunk_sizes, len(devices), dim)
    return [piece.to(_device(index)) for piece, index in zip(pieces, devices, strict=False)]


def _scatter_out(tensor: torch.Tensor, out: Tensors, dim: int, streams: Any = None) -> Tensors:
    for piece, item in zip(_segment_count(tensor, [item.size(dim) for item in out], len(out), dim), out, strict=True):
        item.copy_(piece)
    return out


def _gather(tensors: Tensors, dim: int, destination: int | None) -> torch.Tensor:
    where = _device(gpu_named().index if destination is None else destination)
    return torch.cat([tensor.to(where) for tensor in tensors], dim)


def _gather_out(tensors: Tensors, out: torch.Tensor, dim: int) -> torch.Tensor:
    return out.copy_(torch.cat([tensor.to(out.device) for tensor in tensors], dim))


_FUNCTIONS = (
    _broadcast,
    _broadcast_out,
    _broadcast_coalesced,
    _scatter,
    _scatter_out,
    _gather,
    _gather_out,
)
"""Called as torch calls those in C++ that they take over from."""
