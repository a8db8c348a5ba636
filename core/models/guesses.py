"""What a model might take, read off its configuration, the arguments of its forward and its first layers. Pure
functions; nothing runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.models.samples.input_spec import InputSpec
from devexplorer.core.models.walk import is_uninitialised

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
