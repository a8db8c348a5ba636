"""One argument of a model's forward: shape, dtype, and values for it. Any thread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One argument of forward; in a sample model's recipe without the dimension of the batch."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None = None
    """None: the model's own floating dtype."""
    below: int = 2
    """Integers are drawn from 0 up to this, exclusive."""
    ones: bool = False
    """All ones, such as a mask that hides nothing."""

    def tensor(self, floating: torch.dtype, generator: torch.Generator, device: str = "cpu") -> Tensor:
        """Values from the generator; none on `meta`."""
        dtype = self.dtype or floating
        if device == "meta":
            return torch.empty(self.shape, dtype=dtype, device=device)
        if self.ones:
            return torch.ones(self.shape, dtype=dtype)
        if dtype.is_floating_point or dtype.is_complex:
            drawn = torch.complex64 if dtype.is_complex else torch.float32
            return torch.randn(self.shape, generator=generator, dtype=drawn).to(dtype)
        return torch.randint(2 if dtype == torch.bool else self.below, self.shape, generator=generator).to(dtype)

    @property
    def text(self) -> str:
        """The form that `--input` accepts."""
        shape = "x".join(map(str, self.shape)) or "scalar"
        return shape if self.dtype is None else f"{shape}:{str(self.dtype).removeprefix('torch.')}"

    def with_batch(self, batch: int) -> InputSpec:
        """The same with another first dimension; a scalar has none."""
        return replace(self, shape=(batch, *self.shape[1:])) if self.shape else self


def specs_text(specs: Iterable[InputSpec]) -> str:
    """`8x3x224x224,8x16:int64`, as `--input` takes them."""
    return ",".join(spec.text for spec in specs)
