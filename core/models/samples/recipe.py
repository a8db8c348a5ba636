"""What a sample model is: how it is built, and what its forward takes. No thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from devexplorer.core.models.samples.input_spec import InputSpec


@dataclass(frozen=True, slots=True)
class Recipe:
    """One sample model."""

    name: str
    summary: str
    """One line of description."""
    make: Callable[[], nn.Module]
    """Builds it on the CPU with PyTorch's default initial values, drawn from the global generator."""
    inputs: tuple[InputSpec, ...]
    """The arguments of `forward`, without the dimension of the batch."""
    batch: int = 2
    """Size of the batch of a sample input."""

    def specs(self, batch: int | None = None) -> tuple[InputSpec, ...]:
        """The arguments of `forward` for a batch."""
        return tuple(replace(spec, shape=(batch or self.batch, *spec.shape)) for spec in self.inputs)

    def sample(self, batch: int | None = None, seed: int = 0) -> tuple[Tensor, ...]:
        """A sample input on the CPU, the same one for the same seed; the global generator is untouched."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(spec.tensor(torch.float32, generator) for spec in self.specs(batch))
