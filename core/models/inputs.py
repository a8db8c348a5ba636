"""Inputs for a model that nobody here knows: shapes as the user gives them, or a guess that was tried. Jobs thread.

A guess comes from the configuration of a transformers model, or from the names of forward's arguments and the first
layers; it is tried on a copy of the model without values (device `meta`), and where that cannot run, on a small copy on
the CPU. The model itself is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, first_line, parse_input_shapes
from devexplorer.core.models import samples
from devexplorer.core.models.copies import clone_model, deep_copy
from devexplorer.core.models.extras import Extras
from devexplorer.core.models.guard import settings_kept
from devexplorer.core.models.guesses import ArgumentNeed, candidates, needs, vocabulary
from devexplorer.core.models.samples.input_spec import InputSpec, specs_text
from devexplorer.core.models.unmovable import torch_dtype
from devexplorer.core.models.walk import bytes_of, is_lazy, is_uninitialised, parameters_and_buffers

CHEAP_BYTES = 512 << 20
"""A model of up to this size is copied to try a guess with values."""
_NO_VALUES = ("meta", "unsupported scalarType")
"""In errors that a forward without values gives; the second is what an older torch's autocast says to `meta`."""


class UnknownInputs(BadInput):
    """Nobody gave the shapes, and no guess worked: what forward wants, why the first guess failed, and how shapes would
    be written."""

    def __init__(self, title: str, wanted: Sequence[ArgumentNeed], failure: BaseException | None) -> None:
        self.arguments = (
            ", ".join(need.name for need in wanted if need.required)
            or ", ".join(need.name for need in wanted)
            or "nothing"
        )
        self.failure = failure
        """Of the first guess; None where there was none."""
        self.example = ",".join("2x16" for need in wanted if need.required) or "2x16"
        reason = "" if failure is None else f" ({first_line(failure)})"
        super().__init__(
            f"the inputs of '{title}' are unknown: its forward takes {self.arguments}, and no guess worked{reason};"
            " choose tensors for it, or give the shapes when opening it (on the command line with --input), as in"
            f" {self.example}, with a dtype where it is not floating: 2x16:int64"
        )


def parse_inputs(text: str) -> tuple[InputSpec, ...]:
    """`2x16:int64,4x12` -> two specifications. Raises `BadInput`."""
    return tuple(
        InputSpec(shape, None if dtype is None else torch_dtype(dtype)) for shape, dtype in parse_input_shapes(text)
    )


def specs_for(model: nn.Module, title: str, given: str = "", *, values: bool = False) -> tuple[InputSpec, ...]:
    """What forward gets: what the user gave, else a guess that works. Raises `BadInput` that says what forward wants.

    A guess that fails without values is tried with values where the error says that it needs them; with `values`
    in any case.
    """
    if given.strip():
        return _completed(model, parse_inputs(given))
    failure: BaseException | None = None
    below = vocabulary(model)
    for candidate in candidates(model):
        guess = tuple(replace(item, below=below) for item in candidate)
        error = _on_meta(model, guess)
        if error is not None and (
            values or isinstance(error, NotImplementedError) or any(words in str(error) for words in _NO_VALUES)
        ):  # it needs values
            error = _with_values(model, guess)
        if error is None:
            return guess
        failure = failure or error
    raise UnknownInputs(title, needs(model), failure)


def tensors_for(
    model: nn.Module, specs: Sequence[InputSpec], *, batch: int | None = None, seed: int = 0
) -> list[Tensor]:
    """The inputs on the CPU, floating ones in the model's dtype; the same for the same seed. `batch` replaces each
    first dimension."""
    generator = torch.Generator().manual_seed(seed)
    wide = specs if batch is None else [item.with_batch(batch) for item in specs]
    return [item.tensor(floating_dtype(model), generator) for item in wide]


def sampled(model: nn.Module, title: str, extras: Extras) -> list[Tensor]:
    """Inputs of a model of the workspace, on the device of its first parameter and in its dtype."""
    if extras.recipe is not None:
        return samples.sample_for(model, extras.recipe)
    specs = specs_for(model, title, extras.inputs or extras.guessed)
    if not extras.inputs:
        extras.guessed = specs_text(specs)
    return _there(model, specs)


def sample_inputs(model: nn.Module, shapes: str = "") -> list[Tensor]:
    """The same for scripts: inputs of these shapes (`2x16:int64,4x12`; empty: a guess), the very values that a run in
    the window gets."""
    return _there(model, specs_for(model, type(model).__name__, shapes))


def _there(model: nn.Module, specs: Sequence[InputSpec]) -> list[Tensor]:
    first = next(iter(parameters_and_buffers(model)), None)
    made = tensors_for(model, specs)
    return made if first is None else [item.to(first.device) for item in made]


def _completed(model: nn.Module, specs: Sequence[InputSpec]) -> tuple[InputSpec, ...]:
    """Whole numbers within the vocabulary; where no dtype was given, whole numbers for what is an argument of ids by
    its name, or by its layer where forward takes them."""
    wanted = needs(model)
    first = next(iter(candidates(model)), ())
    completed, by_layer = [], []
    for index, spec in enumerate(specs):
        need = wanted[index] if index < len(wanted) else ArgumentNeed("", False)
        dtype = torch.int64 if spec.dtype is None and need.whole else spec.dtype
        completed.append(replace(spec, dtype=dtype, below=vocabulary(model), ones=need.mask))
        ids = dtype is None and index < len(first) and first[index].dtype is torch.int64
        by_layer.append(replace(completed[-1], dtype=torch.int64) if ids else completed[-1])
    if by_layer != completed and _runs(model, completed) and not _runs(model, by_layer):
        return tuple(completed)  # another layer takes it first
    return tuple(by_layer)


def _runs(model: nn.Module, specs: Sequence[InputSpec]) -> bool:
    """Whether forward takes these; without values not every dtype is refused that is otherwise."""
    cheap = bytes_of(parameters_and_buffers(model)) <= CHEAP_BYTES
    return (_with_values(model, specs) if cheap else _on_meta(model, specs)) is None


def _on_meta(model: nn.Module, guess: Sequence[InputSpec]) -> BaseException | None:
    """The error of a forward without values; None when it went through."""
    if is_lazy(model):
        return NotImplementedError("it has lazy parameters, whose shapes appear with the first forward")
    try:
        with settings_kept(), torch.no_grad():
            copied = clone_model(model, lambda tensor: torch.empty_like(tensor, device="meta"))
            copied(*(item.tensor(floating_dtype(model), torch.Generator(), "meta") for item in guess))
    except (Exception, SystemExit) as error:
        return error
    return None


def _with_values(model: nn.Module, guess: Sequence[InputSpec]) -> BaseException | None:
    """The same on a copy with values, for models that look at them or hold tensors that PyTorch does not see."""
    if bytes_of(parameters_and_buffers(model)) > CHEAP_BYTES:
        return RuntimeError("it cannot be tried without values, and is too large to be copied for it")
    try:
        with settings_kept(), torch.random.fork_rng(devices=[]), torch.no_grad():
            deep_copy(model).to("cpu")(*tensors_for(model, guess))
    except (Exception, SystemExit) as error:
        return error
    return None


def floating_dtype(model: nn.Module) -> torch.dtype:
    """The model's own: that of most elements of its parameters; the default one where there are none.

    Storage formats of one byte (float8) are passed over: almost nothing computes with activations of them.
    """
    elements: dict[torch.dtype, int] = {}
    for item in model.parameters():
        if item.is_floating_point() and item.dtype.itemsize > 1:
            elements[item.dtype] = elements.get(item.dtype, 0) + (0 if is_uninitialised(item) else item.numel())
    return max(elements, key=lambda dtype: elements[dtype], default=torch.get_default_dtype())
