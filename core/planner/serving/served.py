"""Makes the model that is planned for as one card holds it: its dtype, its quantised weights, its share of the layers.
In the planner's process."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from devexplorer.core.base import BadInput, Unavailable, printable
from devexplorer.core.files.kinds import INDEXES
from devexplorer.core.files.opening import opened, read_index
from devexplorer.core.isolation.model_source import LIBRARIES, parse
from devexplorer.core.models import builder_of, floating_dtype, parameters_and_buffers
from devexplorer.core.planner.records import FitSpec, ServingSpec
from devexplorer.core.planner.serving.kernels import quantise
from devexplorer.core.planner.serving.session import ServedModel
from devexplorer.core.planner.serving.storage import PRESETS, Scheme, preset, scheme
from devexplorer.core.planner.serving.tensor_parallel import split
from devexplorer.core.planner.subject import change_tensors

# How large the weights of a checkpoint are: from the headers of its safetensors files, of which nothing else is read.
# In the planner's process.

SUFFIX = ".safetensors"
JSON_LIMIT = 64 << 20
"""Bytes of a configuration."""
ACTIVATIONS = (torch.float16, torch.bfloat16, torch.float32)
"""dtypes that a model can compute in."""


@dataclass(frozen=True)
class Checkpoint:
    """What the headers say."""

    path: str
    nbytes: int
    """Of all tensors."""
    tensors: int
    files: int
    dtype: torch.dtype | None
    """That most of the weights have which are not quantised; None: there are none."""
    scheme: Scheme | None
    """As the configuration beside it says; None where there is none, or it says nothing."""


def read_checkpoint(path: str, folder: str = "") -> Checkpoint:
    """Read the headers of a file, or of all files of a folder. Raises `BadInput` in one line."""
    place = Path(folder or ".") / os.path.expanduser(path)  # `Path.expanduser` raises where there is no such user
    files = _files(path, place) if os.path.isdir(place) else [place]
    if not os.path.isdir(place) and place.suffix != SUFFIX:
        raise BadInput(f"'{path}' is no checkpoint; choose a {SUFFIX} file, or a folder with such files")
    sizes: Counter[torch.dtype] = Counter()
    names: set[str] = set()
    for file in files:
        with opened(str(file)) as header:
            if header.form != "safetensors":
                raise BadInput(f"'{file}' has no safetensors header")
            for key, entry in header.entries.items():
                if key in names:
                    raise BadInput(f"'{printable(key[:80])}' is in more than one file of '{path}'")
                names.add(key)
                if entry.same_as is None:
                    sizes[entry.dtype] += entry.nbytes
    computes = [dtype for dtype in ACTIVATIONS if sizes[dtype]]
    return Checkpoint(
        path,
        sum(sizes.values()),
        len(names),
        len(files),
        max(computes, key=lambda dtype: sizes[dtype], default=None),
        configured(place if os.path.isdir(place) else place.parent, path),
    )


def configured(folder: Path, path: str) -> Scheme | None:
    """What the configuration in a folder says about quantisation."""
    file = folder / "config.json"
    return quantisation_of(file, path) if os.path.isfile(file) else None


def quantisation_of(file: Path, name: str) -> Scheme | None:
    """What a configuration says about quantisation; None: nothing."""
    content = _json(file, name)
    config = content.get("quantization_config")
    if config is None:
        return None
    if not isinstance(config, dict):
        raise BadInput(f"the quantization_config of '{name}' is no table")
    return scheme(config, f"'{name}'")


def _files(path: str, place: Path) -> list[Path]:
    index = place / INDEXES[0]
    if os.path.isfile(index):
        try:
            return read_index(f"{path}/{INDEXES[0]}", index)[0]
        except OSError as error:
            raise BadInput(f"'{index}' could not be read: {(error.strerror or str(error)).lower()}") from error
    found = sorted(place.glob(f"*{SUFFIX}"))
    if not found:
        raise BadInput(f"there is no {SUFFIX} file in '{path}'")
    return found


def _json(file: Path, name: str) -> Mapping[str, Any]:
    try:
        if file.stat().st_size > JSON_LIMIT:
            raise BadInput(f"'{name}' is larger than {JSON_LIMIT >> 20} MiB, which no configuration is")
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"'{name}' could not be read: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"'{name}' is no JSON: {type(error).__name__}") from error
    if not isinstance(content, dict):
        raise BadInput(f"'{name}' is no table")
    return content


COMPUTES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Served:
    """What is planned for, and what is known about its weights."""

    served: ServedModel
    parameters: int
    """Elements of the whole model, tied ones once."""
    positions: int | None
    """Tokens that the model can tell apart; None: without a limit."""
    scheme: Scheme | None
    checkpoint: Checkpoint | None
    changed: int
    """How many tensors are not as its source makes them."""
    more_bytes: int
    """What one card's share of the checkpoint has beyond the parameters here; negative: less."""


def make(spec: FitSpec) -> Served:
    """Build it without values. Raises `BadInput` where there is no such model, or it does not generate text."""
    serving = spec.serving
    assert serving is not None
    scheme, checkpoint = _weights(spec, serving)
    model, changed = _causal_model(spec)
    positions = _positions(model, serving, spec.source)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    dtype = _dtype(spec, model, checkpoint)
    model = model.to(dtype)
    whole = _bytes(model)
    parts = split(model, spec.source, serving.tensor_parallel)
    share = _bytes(model) / whole
    if scheme is not None and not quantise(model, scheme, dtype):
        raise BadInput(f"'{spec.source}' has no linear layers that {scheme.method} would quantise")
    more = 0 if checkpoint is None else round(checkpoint.nbytes * share) - _bytes(model)
    kv_dtype = None if serving.kv_dtype is None else getattr(torch, serving.kv_dtype)
    return Served(
        ServedModel(
            spec.source,
            model,
            parts,
            dtype,
            None if kv_dtype is dtype else kv_dtype,
            serving.kv_block,
            serving.prefill_chunk,
        ),
        parameters,
        positions,
        scheme,
        checkpoint,
        changed,
        more,
    )


def _weights(spec: FitSpec, serving: ServingSpec) -> tuple[Scheme | None, Checkpoint | None]:
    """How the weights are stored, and the checkpoint that holds them."""
    text = serving.weights.strip()
    if text in PRESETS:
        return preset(text), None
    if text:
        if not os.path.exists(Path(spec.folder or ".") / Path(text).expanduser()):
            preset(text)  # which says what there is
        checkpoint = read_checkpoint(text, spec.folder)
        return checkpoint.scheme, checkpoint
    if ":" not in spec.source:
        return None, None
    source = parse(spec.source)
    if source.kind not in LIBRARIES or not source.place.endswith(".json"):
        return None, None
    file = source.file(spec.folder)
    return (quantisation_of(file, source.place) if os.path.isfile(file) else None), None


def _causal_model(spec: FitSpec) -> tuple[Any, int]:
    """The model, and how many tensors are not as its source makes them."""
    model: Any = builder_of(spec.source, spec.folder).build_without_values()
    try:
        from transformers import PreTrainedModel
        from transformers.cache_utils import DynamicSlidingWindowLayer  # noqa: F401  # what the planner's cache is made of
    except ImportError as error:
        raise Unavailable(
            "planning for generated text takes transformers 5 or newer, which is not installed; get it with pip install"
            ' "devexplorer[models]"'
        ) from error
    kind = type(model).__name__
    only = "--generate is for causal language models of transformers"
    if not isinstance(model, PreTrainedModel):
        raise BadInput(f"'{spec.source}' is a {kind}, which does not generate text; {only}")
    if model.config.is_encoder_decoder:
        raise BadInput(f"'{spec.source}' is a {kind} with an encoder, which is not planned for; {only}")
    if not model.can_generate():
        raise BadInput(f"'{spec.source}' is a {kind}, which does not generate text; {only} (option head=causal-lm)")
    changed = change_tensors(spec.source, model, spec.tensors)
    model.requires_grad_(False)
    return model, changed


def _positions(model: Any, serving: ServingSpec, title: str) -> int | None:
    """Raises `BadInput` where the request has more tokens than the model can tell apart."""
    positions = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if type(positions) is not int or positions < 1:
        return None
    if serving.context > positions:
        raise BadInput(
            f"a prompt of {serving.prompt:,} tokens and {serving.generate:,} more are {serving.context:,}, and"
            f" '{title}' has positions for {positions:,} (max_position_embeddings)"
        )
    return positions


def _dtype(spec: FitSpec, model: nn.Module, checkpoint: Checkpoint | None) -> torch.dtype:
    """Of activations, and of the weights that are not quantised."""
    if spec.dtype is not None:
        dtype: torch.dtype = getattr(torch, spec.dtype)
    elif checkpoint is not None and checkpoint.dtype is not None:
        return checkpoint.dtype
    else:
        dtype = floating_dtype(model)
    if dtype not in COMPUTES:
        name = str(dtype).removeprefix("torch.")
        raise BadInput(f"'{spec.source}' does not generate in {name}; take bfloat16, float16 or float32")
    return dtype


def _bytes(model: nn.Module) -> int:
    """Of parameters, and of buffers that a checkpoint has too."""
    kept = set(model.state_dict(keep_vars=True))
    named = dict([*model.named_parameters(), *model.named_buffers()])
    held = {id(tensor): tensor for name, tensor in named.items() if name in kept}
    return sum(tensor.nbytes for tensor in parameters_and_buffers(model) if id(tensor) in held)
