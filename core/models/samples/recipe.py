"""What a sample model is (`Recipe`) and what it eats (`InputSpec`). No thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One argument of `forward`: its shape without the batch, and its dtype."""

    shape: tuple[int, ...]
    integers_below: int | None = None
    """None: normally distributed floats; a number: whole numbers from 0 up to it, left out (token ids)."""

    def sample(self, batch: int, generator: torch.Generator) -> Tensor:
        """Values on the CPU, shape `(batch, *shape)`."""
        size = (batch, *self.shape)
        if self.integers_below is not None:
            return torch.randint(self.integers_below, size, generator=generator)
        return torch.randn(size, generator=generator)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One sample model of the zoo."""

    name: str
    summary: str
    """One line of description."""
    make: Callable[[], nn.Module]
    """Builds it on the CPU with PyTorch's default initial values, drawn from the global generator."""
    inputs: tuple[InputSpec, ...]
    """What `forward` gets."""
    batch: int = 2
    """Size of the batch of a sample input."""

    def sample(self, batch: int | None = None, seed: int = 0) -> tuple[Tensor, ...]:
        """A sample input on the CPU, the same one for the same seed; the global generator is left alone."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(spec.sample(batch or self.batch, generator) for spec in self.inputs)
