"""`out=` of operations that torch does in another way for tensor subclasses, and then not into `out`. Any thread.

`linalg.matrix_rank` returns a new tensor there and leaves `out` as it was; `matmul` finds out by comparing storages
whether it wrote into a view of `out`, and those of tensors in Python are never the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
_COMPOSITE = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU)
"""Under this key torch has `matmul` as made of other operations, for whatever device they are on."""


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


def register(library: Any) -> None:
    """Let both write where they are told."""
    for overload, kernel in KERNELS.items():
        library.impl(overload.name().partition("::")[2], kernel, "AutogradPrivateUse1")


def _handler(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda operation, *args, **kwargs: kernel(*args, **kwargs)


HANDLERS = {overload: _handler(kernel) for overload, kernel in KERNELS.items()}
"""In inference mode, where nothing above `__torch_dispatch__` asks for the kernels."""
