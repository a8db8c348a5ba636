"""Operations that torch does in another way for tensor subclasses than for its own tensors, done as for those. Any
thread.

- CTC loss: the mean over the batch would want all lengths on the device; on a real card they may be on the CPU.
- Eigenvectors: a complex one is known up to a factor e^(i phi). torch's derivative checks that the loss does not depend
  on it, but leaves the check out for subclasses, so a hook on the eigenvectors does it.
- `out=`: `linalg.matrix_rank` returns a new tensor for subclasses and leaves `out` as it was; `matmul` finds out by
  comparing storages whether it wrote into a view of `out`, and those of tensors in Python are never the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from devexplorer.core.virtual.operators.operations import aten
from devexplorer.core.virtual.operators.tensor import VirtualTensor

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
    for overload, kernel in KERNELS.items():
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


KERNELS: dict[Any, Callable[..., Tensor]] = {
    aten.matmul.out: matmul,
    aten.linalg_matrix_rank.out: _rank(aten.linalg_matrix_rank.default),
    aten.linalg_matrix_rank.out_tol_tensor: _rank(aten.linalg_matrix_rank.tol_tensor),
    aten.linalg_matrix_rank.atol_rtol_float_out: _rank(aten.linalg_matrix_rank.atol_rtol_float),
    aten.linalg_matrix_rank.atol_rtol_tensor_out: _rank(aten.linalg_matrix_rank.atol_rtol_tensor),
}
"""Registered above `__torch_dispatch__`, and there as well: nothing above it asks for them in inference mode."""
