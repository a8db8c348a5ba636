"""What a sample model is: how it is built, and what its forward takes. Any thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from devexplorer.core.models.samples.input_spec import InputSpec


@dataclass(frozen=True, slots=True)
class Recipe:
    """One sample model; a `Builder`."""

    seeded: ClassVar[bool] = True
    name: str
    summary: str
    """One line of description."""
    make: Callable[[], nn.Module]
    """Builds it on the CPU with PyTorch's default initial values, drawn from the global generator."""
    inputs: tuple[InputSpec, ...]
    """The arguments of `forward`, without the dimension of the batch."""
    batch: int = 2
    """Size of the batch of a sample input."""

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.name

    def build(self, seed: int) -> nn.Module:
        """Build it on the CPU; the same seed gives the same values, and the global generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed every accelerator too
            return self.make()

    build_on_cpu = build

    def build_without_values(self) -> nn.Module:
        """The same on `meta`: what it needs can be counted before anything is allocated."""
        with torch.device("meta"):
            return self.make()

    def specs(self, batch: int | None = None) -> tuple[InputSpec, ...]:
        """The arguments of `forward` for a batch."""
        return tuple(replace(spec, shape=(batch or self.batch, *spec.shape)) for spec in self.inputs)

    def sample(self, batch: int | None = None, seed: int = 0) -> tuple[Tensor, ...]:
        """A sample input on the CPU, the same one for the same seed; the global generator is untouched."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(spec.tensor(torch.float32, generator) for spec in self.specs(batch))
