"""What is examined: a model that can be made as often as an examination needs it, and what its forward gets. The main
thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from devexplorer.core.base.errors import BadInput
from devexplorer.core.doctor.cuda.on_cpu import OnCpu
from devexplorer.core.doctor.moving import copied
from devexplorer.core.models import samples
from devexplorer.core.models.build import Recipe
from devexplorer.core.models.input_spec import InputSpec
from devexplorer.core.models.inputs import UnknownInputs, specs_for, tensors
from devexplorer.core.models.loading import error_text
from devexplorer.core.models.source import parse
from devexplorer.core.virtual.backend import swapping


class Subject(Protocol):
    """A model that can be made again."""

    @property
    def title(self) -> str:
        """What people call it: `net.py:Net`."""
        ...

    @property
    def seeded(self) -> bool:
        """Whether another seed gives other initial values."""
        ...

    def make(self, seed: int) -> nn.Module:
        """Make it, as its user's program would. Raises `BadInput`."""
        ...

    def on_cpu(self, seed: int) -> nn.Module:
        """The same with everything on the CPU, also what its code puts elsewhere; within `OnCpu`."""
        ...

    def specs(self) -> tuple[InputSpec, ...] | None:
        """What its forward gets, where that is known without asking the model."""
        ...


class SampleModel:
    """A sample model of the zoo."""

    seeded = True

    def __init__(self, name: str) -> None:
        self._recipe = samples.find(name)
        self.title = self._recipe.name

    def make(self, seed: int) -> nn.Module:
        """See `Subject`."""
        return samples.build(self.title, seed)

    on_cpu = make

    def specs(self) -> tuple[InputSpec, ...]:
        """The recipe's own, with its batch."""
        return self._recipe.specs()


class OpenedModel:
    """A model of a source, the user's own code or a library's."""

    seeded = True

    def __init__(self, source: str, folder: str) -> None:
        parsed = parse(source)
        self._recipe = Recipe(parsed, folder)
        self.title = parsed.text.partition("?")[0]

    def make(self, seed: int) -> nn.Module:
        """See `Subject`."""
        return self._recipe.bare(seed)

    on_cpu = make

    def specs(self) -> None:
        """Only the model can tell."""


class GivenModel:
    """A model that is there already; what is examined is a copy of it."""

    seeded = False

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.title = type(model).__name__

    def make(self, seed: int) -> nn.Module:
        """See `Subject`."""
        try:
            return copied(self._model)
        except Exception as error:
            raise BadInput(
                f"{self.title} cannot be copied ({error_text(error)}); name the code that makes it instead:"
                f" 'net.py:{self.title}'"
            ) from error

    def on_cpu(self, seed: int) -> nn.Module:
        """See `Subject`."""
        with swapping():
            return self.make(seed).to("cpu")

    def specs(self) -> None:
        """Only the model can tell."""


def named(source: str, folder: str) -> Subject:
    """A sample model's name or a source, as the command line takes it. Raises `BadInput`; runs no code of the
    user's."""
    return OpenedModel(source, folder) if ":" in source else SampleModel(source)


def inputs_for(subject: Subject, model: nn.Module, given: str, seed: int) -> tuple[list[Tensor], str]:
    """What forward gets, on the CPU and in the model's dtype, and its shapes as `--input` takes them.

    A guess is tried where everything is on the CPU, so that a device in the code does not spoil it: on copies of this
    model first, and then on another one whose code found nothing but the CPU. Raises `BadInput`, `UnknownInputs` where
    no guess worked.
    """
    specs: Sequence[InputSpec] | None = None if given.strip() else subject.specs()
    if specs is None:
        with OnCpu():
            try:
                specs = specs_for(model, subject.title, given, values=True)
            except UnknownInputs:
                specs = specs_for(subject.on_cpu(seed), subject.title, given, values=True)
    with torch.device("cpu"):  # whatever the default device is now
        return tensors(model, specs, seed=seed), text_of(specs)


def text_of(specs: Sequence[InputSpec]) -> str:
    """As `--input` takes them."""
    return ",".join(spec.text for spec in specs)


def text_of_tensors(given: Sequence[Tensor]) -> str:
    """The same of tensors that were given."""
    return text_of([InputSpec(tuple(item.shape), None if item.is_floating_point() else item.dtype) for item in given])
