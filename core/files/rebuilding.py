"""Builds a sample model again out of a workspace file: its recipe, with the values, dtypes and flags of the file. Jobs
thread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor, nn

from devexplorer.core.files.entries import Ticker, fill
from devexplorer.core.files.keys import slots, state_of
from devexplorer.core.files.manifest import SEPARATOR, SavedObject
from devexplorer.core.files.opening import AnyFile
from devexplorer.core.models import samples
from devexplorer.core.models.walk import is_uninitialised
from devexplorer.core.virtual.torch_api.lazy import move_uninitialised


def fits(item: SavedObject, file: AnyFile) -> bool:
    """Whether the file has the values of that sample model, as it is today. Builds it without values: a file may say
    anything."""
    if item.recipe not in samples.recipes() or not 0 <= item.seed < 1 << 63:
        return False
    waiting = set(item.waiting)
    for key, shape in _shapes(item.recipe).items():
        entry = file.entries.get(f"{item.name}{SEPARATOR}{key}")
        if entry is None and (shape is not None or key not in waiting):
            return False
        if entry is not None and shape is not None and entry.shape != shape:
            return False
    return True


@lru_cache(maxsize=32)  # a file can name one many times
def _shapes(recipe: str) -> Mapping[str, tuple[int, ...] | None]:
    """What a sample model has, by key; None: a lazy parameter."""
    state = state_of(samples.meta(recipe))
    return {key: None if is_uninitialised(tensor) else tuple(tensor.shape) for key, tensor in state.items()}


def rebuilt(item: SavedObject, file: AnyFile, device: str, tick: Ticker) -> nn.Module:
    """The model on the device; `fits` has been asked before."""
    model = samples.build(str(item.recipe), item.seed)
    found = [(f"{path}.{name}" if path else name, part, name, tensor) for path, part, name, tensor in slots(model)]
    entries = {key: file.entries.get(f"{item.name}{SEPARATOR}{key}") for key, *_ in found}
    new: dict[int, Tensor] = {}
    for key, part, name, tensor in found:
        entry = entries[key]
        if entry is None:
            move_uninitialised(tensor, device)
            continue
        if id(tensor) not in new:
            made = torch.empty(entry.shape, dtype=entry.dtype, device=device)
            fill(file, entry, made, tick)
            wanted = key not in item.frozen and (entry.dtype.is_floating_point or entry.dtype.is_complex)
            new[id(tensor)] = nn.Parameter(made, wanted) if isinstance(tensor, nn.Parameter) else made
        setattr(
            part, name, new[id(tensor)]
        )  # as a module's own __setattr__ does it: an LSTM keeps a list of its weights
    for part in model.modules():
        for name in part._non_persistent_buffers_set:
            buffer = part._buffers[name]
            part._buffers[name] = None if buffer is None else buffer.to(device)
    model.train(item.training)
    parts = dict(model.named_modules())
    for path in item.other_modes:
        if path in parts:
            parts[path].training = not item.training
    return model
