"""Carries out `Load`: tensors of a file become objects, sample models of a workspace file are built again. Runs on the
jobs thread."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, ProgressMonitor, python_names
from devexplorer.core.files import load_messages
from devexplorer.core.files.entries import Entry, TensorFile, Ticker, shown
from devexplorer.core.files.keys import slots, state_of
from devexplorer.core.files.manifest import SEPARATOR, SavedObject
from devexplorer.core.files.opening import opened
from devexplorer.core.files.sent import as_known
from devexplorer.core.models import Extras, is_uninitialised, samples
from devexplorer.core.records import Load
from devexplorer.core.virtual.torch_api.lazy import move_uninitialised
from devexplorer.core.workspace import CommandResult, CreateChange, Workspace, check_sizes

MOST_TENSORS = 1000
"""Objects that one command makes of a file: more would be of no use."""


@dataclass
class Chosen:
    """What of a file is loaded, and as what."""

    models: list[SavedObject] = field(default_factory=list)
    """Sample models, to be built again."""
    tensors: list[Entry] = field(default_factory=list)
    """Everything else, a tensor each."""
    waiting: list[str] = field(default_factory=list)
    """Models of the workspace that have the keys of a model in the file, which is not loaded but offered."""
    values_only: list[SavedObject] = field(default_factory=list)
    """Models of which the tensors are loaded, because only the user's code could build them."""


@dataclass
class Loaded:
    """What one `Load` has made."""

    bound: dict[str, Entry] = field(default_factory=dict)
    """Name of a new tensor -> what it is in the file."""
    models: dict[str, SavedObject] = field(default_factory=dict)
    """Name of a new model -> what it is in the file."""


def load(workspace: Workspace, command: Load, progress: ProgressMonitor) -> CommandResult:
    """Load what was chosen, all or nothing."""
    device = workspace.registry.choose(command.device)
    known = as_known(command)
    with opened(known.path, command.path) as file:
        chosen = choose(workspace, file, command.entries)
        sizes = _sizes(file, chosen)
        alone = len(chosen.tensors) + len(chosen.models) == 1
        if command.name is not None:  # with several it is the beginning of their names
            python_names.checked_name(command.name, workspace.names if alone else ())
        check_sizes(sizes, device, workspace.registry, "what is to be loaded")
        tick = Ticker(progress, sum(sizes), f"reading {shown(known.path)}", "nothing was loaded")
        loaded = Loaded()
        taken = list(workspace.names)

        def new_name(key: str, prefix: str | None) -> str:
            own = command.name.strip() if command.name and alone else name_for(key, prefix, known.path, taken)
            taken.append(own)
            return own

        made: dict[str, tuple[nn.Module | Tensor, Extras]] = {}
        for item in chosen.models:
            name = new_name(item.name, None)
            extras = Extras(recipe=item.recipe, source=item.recipe, inputs=item.inputs[:200], seed=item.seed)
            made[name], loaded.models[name] = (_rebuilt(item, file, device, tick), extras), item
        read: dict[str, Tensor] = {}
        for entry in chosen.tensors:
            kept = entry.same_as or entry.key
            if kept not in read:
                read[kept] = _read(file, entry, device, tick)
            name = new_name(entry.key if entry.place else stem_of(known.path), command.name)
            made[name], loaded.bound[name] = (read[kept], Extras()), entry
        if not made and not chosen.waiting:
            raise BadInput(f"'{file.path}' has no values that could become an object")
        if not made:
            return CommandResult(load_messages.only_offers(command, chosen))
        workspace.add_all(made)
        workspace.changed(load_messages.undo_title(known, made), CreateChange(*made))
        snapshots = workspace.snapshots(made)
        usable = workspace.registry.usable()
        return CommandResult(load_messages.loaded(command, device, file, chosen, loaded, snapshots, usable), snapshots)


def choose(workspace: Workspace, file: TensorFile, keys: Sequence[str]) -> Chosen:
    """What is asked for; `BadInput` for what is not in the file."""
    if not file.entries and not (file.document and file.document.objects):
        raise BadInput(f"there are no tensors in '{file.path}'")
    models = file.models
    known = dict.fromkeys((*models, *file.entries))
    wrong = [
        f"there is no '{shown(key)}' in the file; {python_names.suggestion(key, known)}"
        for key in keys
        if key not in known
    ]
    if wrong:
        raise BadInput(*wrong)
    chosen = Chosen()
    everything = [*models, *(key for key in file.entries if key.partition(SEPARATOR)[0] not in models)]
    for key in dict.fromkeys(keys or everything):
        if key in models:
            _choose_model(workspace, file, models[key], chosen)
        else:
            chosen.tensors.append(file.entries[key])
    return chosen


def _choose_model(workspace: Workspace, file: TensorFile, item: SavedObject, chosen: Chosen) -> None:
    below = file.below(item.name)
    there = workspace.get(item.name) if item.name in workspace.names else None
    if _fits(item, below):
        chosen.models.append(item)
    elif isinstance(there, nn.Module) and set(state_of(there)) == set(below):
        chosen.waiting.append(item.name)
    else:
        chosen.values_only.append(item)
        chosen.tensors += below.values()


def _sizes(file: TensorFile, chosen: Chosen) -> list[int]:
    """Bytes of each new tensor."""
    count = len(chosen.tensors) + len(chosen.models)
    if count > MOST_TENSORS:
        raise BadInput(
            f"'{file.path}' holds {count:,} objects, and at most {MOST_TENSORS:,} become objects at once; choose some"
            " of them, or make the model and load the file into it as a checkpoint"
        )
    below = [entry for item in chosen.models for entry in file.below(item.name).values()]
    wanted = {entry.key for entry in (*chosen.tensors, *below)}
    return [entry.nbytes for entry in (*chosen.tensors, *below) if entry.same_as not in wanted]


def _read(file: TensorFile, entry: Entry, device: str, tick: Ticker) -> Tensor:
    tensor = torch.empty(entry.shape, dtype=entry.dtype, device=device)
    file.fill(entry, tensor, tick)
    objects = () if file.document is None else file.document.objects
    flagged = any(item.name == entry.key and item.kind == "tensor" and item.requires_grad for item in objects)
    return tensor.requires_grad_((entry.requires_grad or flagged) and _may_require_gradient(entry))


def _may_require_gradient(entry: Entry) -> bool:
    return entry.dtype.is_floating_point or entry.dtype.is_complex


# --- names


_FORBIDDEN = re.compile(r"[^\w \-.]+")


def stem_of(path: str) -> str:
    """The file's name as the beginning of a name."""
    return _clean(Path(path).name.partition(".")[0]) or "tensor"


def name_for(key: str, prefix: str | None, path: str, taken: Collection[str]) -> str:
    """A new name for the tensor with this key: after `prefix`, or after the file's name where the key alone cannot be
    one."""
    own = _FORBIDDEN.sub(".", key).strip(" .-")
    whole = f"{prefix}.{own}" if prefix else own
    if not _clean(whole) or _clean(whole) != whole:
        whole = f"{prefix or stem_of(path)}.{own}" if own else stem_of(path)
    limit = python_names.LENGTH_LIMIT - 6  # room for the number that makes it unique
    if len(whole) > limit:
        whole = _clean(whole[-limit:]) or "tensor"
    return python_names.unique_name(whole.rstrip(" .-") or "tensor", taken)


def _clean(text: str) -> str:
    """Without what cannot be in a name; it begins with a letter."""
    return re.sub(r"^[\W\d_]+", "", _FORBIDDEN.sub(".", text)).strip()


# --- sample models


def _fits(item: SavedObject, entries: Mapping[str, Entry]) -> bool:
    """Whether the file has the values of that sample model, as it is today. Builds it without values: a file may say
    anything."""
    if item.recipe not in samples.recipes() or not 0 <= item.seed < 1 << 63:
        return False
    for key, shape in _shapes(item.recipe).items():
        entry = entries.get(key)
        if entry is None and (shape is not None or key not in item.waiting):
            return False
        if entry is not None and shape is not None and entry.shape != shape:
            return False
    return True


@lru_cache(maxsize=32)  # a file can name one many times
def _shapes(recipe: str) -> Mapping[str, tuple[int, ...] | None]:
    """What a sample model has, by key; None: a lazy parameter."""
    state = state_of(samples.meta(recipe))
    return {key: None if is_uninitialised(tensor) else tuple(tensor.shape) for key, tensor in state.items()}


def _rebuilt(item: SavedObject, file: TensorFile, device: str, tick: Ticker) -> nn.Module:
    """The sample model on the device, with the values, dtypes and flags of the file; `_fits` was asked before."""
    model = samples.build(str(item.recipe), item.seed)
    entries = file.below(item.name)
    new: dict[int, Tensor] = {}
    for path, part, name, tensor in list(slots(model)):
        key = f"{path}.{name}" if path else name
        entry = entries.get(key)
        if entry is None:
            move_uninitialised(tensor, device)
            continue
        if id(tensor) not in new:
            made = torch.empty(entry.shape, dtype=entry.dtype, device=device)
            file.fill(entry, made, tick)
            wanted = key not in item.frozen and _may_require_gradient(entry)
            new[id(tensor)] = nn.Parameter(made, wanted) if isinstance(tensor, nn.Parameter) else made
        setattr(part, name, new[id(tensor)])  # a module's own __setattr__ does more: an LSTM lists its weights
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
