"""A model that the caller holds, as a builder, and the inputs of an examination. The main thread."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from devexplorer.core.base.errors import BadInput
from devexplorer.core.doctor.cuda.on_cpu import OnCpu
from devexplorer.core.doctor.moving import copied
from devexplorer.core.models.builders import Builder
from devexplorer.core.models.inputs import UnknownInputs, specs_for, tensors
from devexplorer.core.models.loading import error_text
from devexplorer.core.models.samples.input_spec import InputSpec, specs_text
from devexplorer.core.virtual.backend import swapping


class CopyBuilder:
    """Copies a model that exists; the model itself is left alone."""

    seeded = False

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.title = type(model).__name__

    def build(self, seed: int) -> nn.Module:
        """See `Builder`."""
        try:
            return copied(self._model)
        except Exception as error:
            raise BadInput(
                f"{self.title} cannot be copied ({error_text(error)}); name the code that makes it instead:"
                f" 'net.py:{self.title}'"
            ) from error

    def build_on_cpu(self, seed: int) -> nn.Module:
        """See `Builder`."""
        with swapping():
            return self.build(seed).to("cpu")

    def specs(self) -> None:
        """Only the model can tell."""


def inputs_for(builder: Builder, model: nn.Module, given: str, seed: int) -> tuple[list[Tensor], str]:
    """What forward gets, on the CPU and in the model's dtype, and its shapes as `--input` takes them.

    A guess is tried where everything is on the CPU, so that a device in the code does not spoil it: first on copies of
    this model, then on a second one whose code sees only the CPU. Raises `BadInput`, `UnknownInputs` where no guess
    worked.
    """
    specs: Sequence[InputSpec] | None = None if given.strip() else builder.specs()
    if specs is None:
        with OnCpu():
            try:
                specs = specs_for(model, builder.title, given, values=True)
            except UnknownInputs:
                specs = specs_for(builder.build_on_cpu(seed), builder.title, given, values=True)
    with torch.device("cpu"):  # whatever the default device is now
        return tensors(model, specs, seed=seed), specs_text(specs)


def text_of_tensors(given: Sequence[Tensor]) -> str:
    """The shapes of tensors as `--input` takes them."""
    return specs_text(InputSpec(tuple(item.shape), None if item.is_floating_point() else item.dtype) for item in given)
