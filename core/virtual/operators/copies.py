"""The operations that may span devices: copies between the host and virtual GPUs, and from one virtual GPU to another.
Any thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import torch

from devexplorer.core.virtual.device.accounting import KIND, gpu_of
from devexplorer.core.virtual.device.machine import VirtualGpu
from devexplorer.core.virtual.device.work import Kind, Work
from devexplorer.core.virtual.operators import attention, gradient_accumulation
from devexplorer.core.virtual.operators.operations import Operation, aten
from devexplorer.core.virtual.operators.tensor import (
    VirtualTensor,
    lose_values,
    new_tensor,
    run_operation,
    with_its_values,
)
from devexplorer.core.virtual.operators.work import call_of

Tensors: TypeAlias = Sequence[torch.Tensor]


def _to_copy(operation: Operation, source: VirtualTensor, **options: Any) -> torch.Tensor:
    """`aten._to_copy`: a cast on the device, or a copy to another one."""
    device = source.device if options.get("device") is None else torch.device(options["device"])
    destination = gpu_of(device) if device.type == KIND else None
    if destination is source._gpu:
        return cast(torch.Tensor, run_operation(operation, (source,), {**options, "device": device}))
    options.pop("pin_memory", None)
    inner = with_its_values(source._inner)
    inner_device = device if destination is None else inner.device
    nbytes = source.numel() * (options.get("dtype") or source.dtype).itemsize
    began = time.perf_counter()

    def make() -> torch.Tensor:
        return cast(torch.Tensor, operation.overload(inner, **{**options, "device": inner_device}))

    result = make() if destination is None else new_tensor(make, nbytes, destination)
    charge_copy(source._gpu, destination, nbytes, time.perf_counter() - began)
    return result


def _copy(
    operation: Operation | None, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """`aten.copy_`, the one operation that may span devices."""
    inner_source = with_its_values(source._inner) if isinstance(source, VirtualTensor) else source
    inner_target = with_its_values(target._inner) if isinstance(target, VirtualTensor) else target
    if inner_source.is_meta and isinstance(target, VirtualTensor) and target._gpu.values_bytes is not None:
        lose_values(inner_target)
        inner_target = with_its_values(inner_target)
    began = time.perf_counter()
    inner_target.copy_(inner_source)
    wall = time.perf_counter() - began
    to = target._gpu if isinstance(target, VirtualTensor) else None
    origin = source._gpu if isinstance(source, VirtualTensor) else None
    if to is origin and to is not None:
        copied = Work(Kind.COPY, 0, inner_source.nbytes + inner_target.nbytes)
        to.clock.advance(to.roofline.seconds(copied), wall)
        to.clock.call(to.roofline.call_seconds(call_of(Kind.COPY)))
    else:
        charge_copy(origin, to, inner_source.nbytes, wall)
    return target


def copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """`aten._copy_from`, which torch asks a backend for below the Python key."""
    return _copy(None, target, source)


def pin(source: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """`aten._pin_memory` of a tensor on the CPU: CUDA's pinned memory where there is CUDA, else the same memory, as
    nothing gains by it.

    torch would ask the accelerator, which is `vgpu` now, and Python devices have no pinned memory.
    """
    if torch.cuda.is_available():
        return torch.empty_like(source, pin_memory=True).copy_(source)
    return source.view_as(source)


def _not_pinned(operation: Operation, source: VirtualTensor, device: torch.device | None = None) -> torch.Tensor:
    raise RuntimeError(f"cannot pin a tensor on {source._gpu.id}, only dense CPU tensors can be pinned")


def charge_copy(source: VirtualGpu | None, destination: VirtualGpu | None, nbytes: int, wall: float) -> None:
    """Charge a copy to the clocks of both ends; the wall time counts once."""
    for gpu, other in ((source, destination), (destination, source)):
        if gpu is not None:
            gpu.clock.advance(gpu.copy_seconds(other, nbytes), wall)
            wall = 0.0


def scalar(source: torch.Tensor) -> Any:
    """`.item()`: a copy of one element to the host. `torch.tensor([loss, other_loss])` asks for it below the Python
    key."""
    assert isinstance(source, VirtualTensor)
    value = with_its_values(source._inner).item()
    source._gpu.host_reads += 1
    charge_copy(source._gpu, None, source.element_size(), 0.0)
    return value


def _foreach_copy(operation: Operation, targets: Tensors, sources: Tensors, non_blocking: bool = False) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def _pack(operation: Operation, values: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
    """`aten._pack_padded_sequence`: the host has to know the lengths."""
    if isinstance(lengths, VirtualTensor):
        kind = lengths.type().rpartition(".")[2].removesuffix("Tensor")
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {lengths.device} {kind}"
            " tensor"
        )
    return run_operation(operation, (values, lengths, batch_first), None)


HANDLERS: dict[Any, Callable[..., Any]] = {
    aten._to_copy.default: _to_copy,
    aten.add.Tensor: gradient_accumulation.add,
    aten.copy_.default: _copy,
    aten._foreach_copy_.default: _foreach_copy,
    aten._pin_memory.default: _not_pinned,
    aten._pack_padded_sequence.default: _pack,
}
"""Operations that a special function carries out; its first argument is the `Operation`."""

KERNELS: dict[Any, Callable[..., Any]] = {
    aten._local_scalar_dense.default: scalar,
    # Nothing to remember: what a stream had to do with a tensor is done before its memory can be given back.
    aten.record_stream.default: lambda tensor, stream: None,
    # Tells `nn.TransformerEncoder` that a mask is not for its nested-tensor path, so that it takes the padded one.
    aten._nested_tensor_from_mask_left_aligned.default: lambda *_: False,
    # In inference mode, where nothing above this asks for gradients.
    aten.scaled_dot_product_attention.default: attention.attention,
}
"""The same without the `Operation`."""
