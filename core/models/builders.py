"""Models that can be built again: a sample model or a source, by the name that the command line takes. The calling
thread."""

from __future__ import annotations

from typing import Protocol

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


NamedBuilder = samples.Recipe | Recipe


def builder_of(source: str, folder: str) -> NamedBuilder:
    """For a sample model's name or a source. Raises `BadInput`; runs none of the user's code."""
    return Recipe(parse(source), folder) if ":" in source else samples.find(source)
