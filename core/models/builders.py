"""Models that can be built again: a sample model or a source, by the name that the command line takes. The calling
thread."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from devexplorer.core.models import samples
from devexplorer.core.models.build import Recipe
from devexplorer.core.models.samples.input_spec import InputSpec
from devexplorer.core.models.source import parse


class Builder(Protocol):
    """Builds one model as often as needed."""

    @property
    def title(self) -> str:
        """Its name for people: `net.py:Net`."""
        ...

    @property
    def seeded(self) -> bool:
        """Whether another seed gives other initial values."""
        ...

    def build(self, seed: int) -> nn.Module:
        """Build it as its user's program would. Raises `BadInput`."""
        ...

    def build_on_cpu(self, seed: int) -> nn.Module:
        """The same with everything on the CPU, even what its code puts elsewhere; within `OnCpu`."""
        ...

    def specs(self) -> tuple[InputSpec, ...] | None:
        """What its forward gets, where that is known without asking the model."""
        ...


class SampleBuilder:
    """A sample model."""

    seeded = True

    def __init__(self, name: str) -> None:
        """Raises `BadInput` where there is none of that name."""
        self._recipe = samples.find(name)
        self.title = self._recipe.name

    def build(self, seed: int) -> nn.Module:
        """See `Builder`."""
        return samples.build(self.title, seed)

    build_on_cpu = build

    def build_without_values(self) -> nn.Module:
        """The same on `meta`."""
        return samples.meta(self.title)

    def specs(self) -> tuple[InputSpec, ...]:
        """The recipe's own, with its batch."""
        return self._recipe.specs()


class SourceBuilder:
    """A model of a source: the user's own code or a library's."""

    seeded = True

    def __init__(self, source: str, folder: str) -> None:
        parsed = parse(source)
        self._recipe = Recipe(parsed, folder)
        self.title = parsed.text.partition("?")[0]

    def build(self, seed: int) -> nn.Module:
        """See `Builder`."""
        return self._recipe.bare(seed)

    build_on_cpu = build

    def build_without_values(self) -> nn.Module:
        """The same on `meta`. Raises `BadInput` where its code needs values."""
        with torch.device("meta"):
            return self._recipe.bare(0)

    def specs(self) -> None:
        """Only the model can tell."""


NamedBuilder = SampleBuilder | SourceBuilder


def builder_of(source: str, folder: str) -> NamedBuilder:
    """For a sample model's name or a source. Raises `BadInput`; runs none of the user's code."""
    return SourceBuilder(source, folder) if ":" in source else SampleBuilder(source)
