"""Gradients through complex eigenvectors are refused where they are not defined, as for PyTorch's own tensors. Any
thread.

A complex eigenvector is known up to a factor e^(i phi). torch's derivative checks that the loss does not depend on it,
but leaves the check out for tensor subclasses. So it is done here, by a hook on the eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from devexplorer.core.virtual.operators.tensor import VirtualTensor

aten = torch.ops.aten
TOLERANCE = 1e-2
"""That of torch's own check."""
_NONE = torch._C.DispatchKeySet.from_raw_repr(0)
_DERIVATIVE = _NONE.add(torch._C.DispatchKey.AutogradCPU).add(torch._C.DispatchKey.Python)
"""Under these keys lies torch's own derivative, and below it `VirtualTensor`."""


def register(library: Any) -> None:
    """Register both decompositions."""
    library.impl("linalg_eig", _checked(aten.linalg_eig.default, "linalg_eig_backward"), "AutogradPrivateUse1")
    library.impl("_linalg_eigh", _checked(aten._linalg_eigh.default, "linalg_eigh_backward"), "AutogradPrivateUse1")


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
