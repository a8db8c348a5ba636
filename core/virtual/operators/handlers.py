"""Operations that are not run as the others are: copies between the host and virtual GPUs, where two gradients meet,
and what torch does in another way for tensor subclasses. Any thread.

Autograd's engine adds the second gradient into the first (`InputBuffer::accumulate` in
torch/csrc/autograd/input_buffer.cpp) when nothing else has the first one; but never with tensors of Python classes, as
those here are, whose sum would be counted as a third tensor. So the sum takes over the block of the first.

Tensor subclasses:

- CTC loss: the mean over the batch would want all lengths on the device; on a real card they may be on the CPU.
- Eigenvectors: a complex one is known up to a factor e^(i phi). torch's derivative checks that the loss does not depend
  on it, but leaves the check out for subclasses, so a hook on the eigenvectors does it.
- `out=`: `linalg.matrix_rank` returns a new tensor for subclasses and leaves `out` as it was; `matmul` finds out by
  comparing storages whether it wrote into a view of `out`, and those of tensors in Python are never the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from devexplorer.core.virtual.device.accounting import KIND, gpu_of
from devexplorer.core.virtual.device.cost import Kind, Work
from devexplorer.core.virtual.device.machine import VirtualGpu
from devexplorer.core.virtual.operators import kernels
from devexplorer.core.virtual.operators.backward import is_engine_calling
from devexplorer.core.virtual.operators.operations import Operation, aten
from devexplorer.core.virtual.operators.recurrence import recurrent
from devexplorer.core.virtual.operators.tensor import (
    VirtualTensor,
    lose_values,
    new_tensor,
    run_operation,
    with_its_values,
)
from devexplorer.core.virtual.operators.work import call_of

ALONE = (5, 4, 2)
"""References to a tensor that only the engine has: of Python's to it, of torch's to it, of tensors to its storage,
those of this call included. Where a version of torch or Python keeps more, the sum is a third tensor."""


def add(operation: Operation, first: Any, second: Any, **options: Any) -> Any:
    """`aten.add.Tensor`."""
    if options or torch.is_grad_enabled() or not is_engine_calling(sys._getframe(1)):
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
    aten.add.Tensor: add,
    aten.copy_.default: _copy,
    aten._foreach_copy_.default: _foreach_copy,
    aten._pin_memory.default: _not_pinned,
    aten._pack_padded_sequence.default: _pack,
}
"""Operations that a special function carries out; its first argument is the `Operation`."""

COPY_KERNELS: dict[Any, Callable[..., Any]] = {
    aten._local_scalar_dense.default: scalar,
    # Nothing to remember: what a stream had to do with a tensor is done before its memory can be given back.
    aten.record_stream.default: lambda tensor, stream: None,
    # Tells `nn.TransformerEncoder` that a mask is not for its nested-tensor path, so that it takes the padded one.
    aten._nested_tensor_from_mask_left_aligned.default: lambda *_: False,
    # In inference mode, where nothing above this asks for gradients.
    aten.scaled_dot_product_attention.default: kernels.attention,
}
"""The same without the `Operation`."""


KEY = "AutogradPrivateUse1"
TOLERANCE = 1e-2
"""That of torch's own check."""
_DERIVATIVE = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU).add(torch._C.DispatchKey.Python)
"""Under these keys lies torch's own derivative, and below it `VirtualTensor`."""
_COMPOSITE = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU)
"""Under this key torch has `matmul` as made of other operations, for whatever device they are on."""


def register(library: Any) -> None:
    """Register all of them."""
    library.impl("ctc_loss.Tensor", ctc_loss, KEY)
    library.impl("linalg_eig", _checked(aten.linalg_eig.default, "linalg_eig_backward"), KEY)
    library.impl("_linalg_eigh", _checked(aten._linalg_eigh.default, "linalg_eigh_backward"), KEY)
    for overload, kernel in SUBCLASS_KERNELS.items():
        library.impl(overload.name().partition("::")[2], kernel, KEY)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """`aten::ctc_loss.Tensor`: the host reads the lengths, wherever they are."""
    lengths = input_lengths.tolist(), target_lengths.tolist()
    return aten.ctc_loss.IntList(log_probs, targets, *lengths, blank, reduction, zero_infinity)  # type: ignore[no-any-return]


def _checked(decompose: Any, name: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def kernel(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        values, vectors = decompose.redispatch(_DERIVATIVE, *args, **kwargs)
        if (
            vectors.requires_grad
            and vectors.is_complex()
            and isinstance(vectors, VirtualTensor)
            and not vectors._inner.is_meta
        ):
            held = vectors._inner
            vectors.register_hook(lambda gradient: _check(held, gradient, name))  # type: ignore[no-untyped-call]
        return values, vectors

    return kernel


def _check(vectors: Tensor, gradient: Tensor, name: str) -> None:
    if not isinstance(gradient, VirtualTensor) or gradient._inner.is_meta:
        return
    turned = (vectors.mH @ gradient._inner.resolve_conj()).diagonal(0, -2, -1).imag
    if not torch.allclose(turned, torch.zeros_like(turned), rtol=TOLERANCE, atol=TOLERANCE):
        raise RuntimeError(
            f"{name}: The eigenvectors in the complex case are specified up to multiplication by e^{{i phi}}. "
            "The specified loss function depends on this quantity, so it is ill-defined."
        )


def matmul(first: Tensor, second: Tensor, *, out: Tensor) -> Tensor:
    """`aten::matmul.out`. It writes into a view where a batch meets a matrix or a vector."""
    if max(first.dim(), second.dim()) <= 2 or min(first.dim(), second.dim()) > 2:
        return aten.matmul.out.redispatch(_COMPOSITE, first, second, out=out)  # type: ignore[no-any-return]
    _refuse_gradients("matmul", first, second, out)
    result = torch.matmul(first, second)
    if result.dtype != out.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead")
    return _written(result, out)


def _rank(functional: Any) -> Callable[..., Tensor]:
    def matrix_rank(matrix: Tensor, *tolerances: Any, out: Tensor, **options: Any) -> Tensor:
        return _written(functional(matrix, *tolerances, **options), out)

    return matrix_rank


def _written(result: Tensor, out: Tensor) -> Tensor:
    return torch.mul(result, 1, out=out)  # which resizes `out`, warns, or refuses it, as all operations do


def _refuse_gradients(name: str, *tensors: Tensor) -> None:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the"
            " arguments requires grad."
        )


SUBCLASS_KERNELS: dict[Any, Callable[..., Any]] = {
    aten.matmul.out: matmul,
    aten.linalg_matrix_rank.out: _rank(aten.linalg_matrix_rank.default),
    aten.linalg_matrix_rank.out_tol_tensor: _rank(aten.linalg_matrix_rank.tol_tensor),
    aten.linalg_matrix_rank.atol_rtol_float_out: _rank(aten.linalg_matrix_rank.atol_rtol_float),
    aten.linalg_matrix_rank.atol_rtol_tensor_out: _rank(aten.linalg_matrix_rank.atol_rtol_tensor),
    **{
        overload: recurrent(overload)
        for layer in (aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu)
        for overload in (layer.input, layer.data)
    },
}
"""Registered above `__torch_dispatch__`, and there as well: nothing above it asks for them in inference mode."""
