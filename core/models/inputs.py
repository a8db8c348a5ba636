"""Inputs for a model that nobody here knows: shapes as the user gives them, or a guess that was tried. Jobs thread.

A guess comes from the configuration of a transformers model, or from the names of forward's arguments and the first
layers; it is tried on a copy of the model without values (device `meta`), and where that cannot run, on a small copy on
the CPU. The model itself is left alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, first_line, parse_input_shapes
from devexplorer.core.models import samples
from devexplorer.core.models.copies import clone_model, deep_copy
from devexplorer.core.models.extras import Extras
from devexplorer.core.models.guard import settings_kept
from devexplorer.core.models.samples.registry import InputSpec, specs_text
from devexplorer.core.models.unmovable import torch_dtype
from devexplorer.core.models.walk import bytes_of, is_lazy, is_uninitialised, parameters_and_buffers

BATCH, LENGTH = 2, 16
Guess = tuple[InputSpec, ...]
SIDES = (32, 64, 224, 28, 96, 128, 256, 299, 48, 16)
"""Sides of images, in the order in which they are tried."""
_WHOLE = ("ids", "idx", "token", "tokens", "indices", "labels")
_MASK = ("mask", "masks")


class ArgumentNeed(NamedTuple):
    """One argument of forward."""

    name: str
    required: bool

    @property
    def whole(self) -> bool:
        """Whether its name says that it holds whole numbers: `input_ids`."""
        return self.name.lower().rpartition("_")[2] in _WHOLE

    @property
    def mask(self) -> bool:
        """Whether its name says that it is a mask."""
        return self.name.lower().rpartition("_")[2] in _MASK


def needs(model: nn.Module) -> list[ArgumentNeed]:
    """The arguments that forward takes by position."""
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        ArgumentNeed(name, item.default is item.empty)
        for name, item in signature.parameters.items()
        if item.kind in positional
    ]


def vocabulary(model: nn.Module) -> int:
    """Whole numbers below this are allowed wherever the model looks something up."""
    sizes = [item.num_embeddings for item in model.modules() if isinstance(item, (nn.Embedding, nn.EmbeddingBag))]
    configured = _field(model, "vocab_size")
    return max(min([*sizes, *([configured] if isinstance(configured, int) else [])], default=2), 1)


def candidates(model: nn.Module) -> Iterator[Guess]:
    """Guesses, the likeliest first."""
    seen: set[Guess] = set()
    for guess in (*_configured(model), *_by_layers(model)):
        if guess and guess not in seen:
            seen.add(guess)
            yield guess


# --- transformers


def _field(model: nn.Module, *names: str) -> Any:
    """A field of the model's configuration, or of that of its parts."""
    config = getattr(model, "config", None)
    parts = [
        config,
        *(
            getattr(config, part, None)
            for part in ("text_config", "vision_config", "audio_config", "encoder", "decoder")
        ),
    ]
    for part in parts:
        for name in names:
            value = part.get(name) if isinstance(part, dict) else getattr(part, name, None)
            if value is not None:
                return value
    return None


def _configured(model: nn.Module) -> Iterator[Guess]:
    """From the configuration of a transformers model: its main input, and what else its forward cannot do without."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "model_type"):
        return
    known = _modalities(model)
    arguments = [need.name for need in needs(model)]
    main = getattr(model, "main_input_name", "input_ids")
    wished = [
        [main],
        ["input_ids", "pixel_values"],
        [main, "decoder_input_ids"],
        ["pixel_values", "input_ids"],
        ["input_ids"],
    ]
    for names in wished:
        if not all(name in known and name in arguments for name in names):
            continue
        last = max(arguments.index(name) for name in names)
        guess: list[InputSpec] = []
        for name in arguments[: last + 1]:
            if name in names:
                guess.append(known[name])
            elif name.endswith("mask"):
                first = known[names[0]].shape
                guess.append(InputSpec(first[:2], torch.int64, ones=True))
            else:
                break
        else:
            yield tuple(guess)


def _modalities(model: nn.Module) -> dict[str, InputSpec]:
    length = min(LENGTH, _number(model, LENGTH, "max_position_embeddings", "n_positions"))
    ids = _ids(BATCH, max(length, 1))
    side = _field(model, "image_size") or 224
    height, width = side if isinstance(side, (list, tuple)) else (side, side)
    frames = 2 * _number(model, 1500, "max_source_positions")
    return {
        "input_ids": ids,
        "decoder_input_ids": ids,
        "pixel_values": InputSpec((BATCH, _number(model, 3, "num_channels"), int(height), int(width))),
        "input_features": InputSpec((BATCH, _number(model, 80, "num_mel_bins"), frames)),
        "input_values": InputSpec((BATCH, 16000)),
    }


def _number(model: nn.Module, otherwise: int, *names: str) -> int:
    value = _field(model, *names)
    return value if isinstance(value, int) and value > 0 else otherwise


# --- layers


def _by_layers(model: nn.Module) -> Iterator[Guess]:
    wanted = needs(model)
    required = [need for need in wanted if need.required] or wanted[:1] or [ArgumentNeed("x", True)]
    entries = _entries(model)
    per_child = [found for child in model.children() if (found := _entries(child))]
    rows = [*(_matched(required, [entry] * len(required)) for entry in entries[:3])]
    if len(required) > 1 and per_child and not isinstance(model, tuple(_LAYERS)):
        firsts = [found[0] for found in per_child]
        rows.insert(0, _matched(required, [firsts[min(index, len(firsts) - 1)] for index in range(len(required))]))
    for row in rows:
        yield from row
    everything = [InputSpec((BATCH, LENGTH)), InputSpec((BATCH, 3, 32, 32)), InputSpec((BATCH,))]
    yield from _matched(required, [everything] * len(required))


def _matched(required: Sequence[ArgumentNeed], options: Sequence[Sequence[InputSpec]]) -> list[Guess]:
    """The n-th guess of every argument together, ids where the name says so."""
    longest = max(map(len, options), default=0)
    rows = []
    for index in range(longest):
        row = []
        for need, own in zip(required, options, strict=True):
            item = own[min(index, len(own) - 1)]
            if need.whole and item.dtype is None:
                item = _ids(BATCH, LENGTH)
            if need.mask:
                item = replace(item, shape=item.shape[:2], ones=True)
            row.append(item)
        rows.append(tuple(row))
    return rows


def _entries(model: nn.Module) -> list[list[InputSpec]]:
    """What the first layers would take, by their kinds."""
    found: list[list[InputSpec]] = []
    inside: tuple[str, ...] = ()
    for path, module in model.named_modules():
        if inside and path.startswith(inside):
            continue
        for kind, guess in _LAYERS.items():
            if isinstance(module, kind):
                found.append([item if isinstance(item, InputSpec) else InputSpec(item) for item in guess(module)])
                inside = (*inside, f"{path}." if path else "")
                break
        else:  # a custom layer: `x @ self.weight`, or with the weight transposed
            found += [
                [InputSpec((BATCH, size)) for size in item.shape]
                for item in module.parameters(recurse=False)
                if not is_uninitialised(item) and item.dim() == 2
            ]
        if len(found) == 3 or "" in inside:
            break
    return found


def _ids(*shape: int) -> InputSpec:
    return InputSpec(shape, torch.int64)


def _images(channels: int) -> list[tuple[int, ...]]:
    return [(BATCH, channels, side, side) for side in SIDES]


def _features(size: int) -> list[tuple[int, ...]]:
    return [(BATCH, size), (BATCH, LENGTH, size)]


def _channels(layer: Any) -> int:
    weight: Tensor | None = getattr(layer, "weight", None)
    lazy = layer.in_channels == 0 or weight is None
    return 3 if lazy else int(layer.in_channels)


_LAYERS: Mapping[type[nn.Module], Callable[[Any], Sequence[tuple[int, ...] | InputSpec]]] = {
    nn.Embedding: lambda m: [_ids(BATCH, LENGTH), _ids(BATCH)],
    nn.EmbeddingBag: lambda m: [_ids(BATCH, LENGTH)],
    nn.MultiheadAttention: lambda m: [(BATCH, LENGTH, m.embed_dim), (LENGTH, m.embed_dim)],
    nn.RNNBase: lambda m: [(BATCH, LENGTH, m.input_size)],
    nn.RNNCellBase: lambda m: [(BATCH, m.input_size)],
    nn.Linear: lambda m: _features(m.in_features or LENGTH),
    nn.Bilinear: lambda m: [(BATCH, m.in1_features)],
    nn.ConvTranspose1d: lambda m: [(BATCH, _channels(m), 64)],
    nn.ConvTranspose2d: lambda m: [(BATCH, _channels(m), 8, 8), *_images(_channels(m))],
    nn.Conv1d: lambda m: [(BATCH, _channels(m), length) for length in (64, 256, 1024, 16000)],
    nn.Conv2d: lambda m: _images(_channels(m)),
    nn.Conv3d: lambda m: [(BATCH, _channels(m), 16, side, side) for side in (32, 112)],
    nn.BatchNorm1d: lambda m: _features(m.num_features),
    nn.BatchNorm2d: lambda m: _images(m.num_features),
    nn.GroupNorm: lambda m: _images(m.num_channels),
    nn.LayerNorm: lambda m: [(BATCH, *m.normalized_shape), (BATCH, LENGTH, *m.normalized_shape)],
}


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
