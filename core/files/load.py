"""Carries out `Load`: tensors of a file become objects, sample models of a workspace file are built again. Runs on the
jobs thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from devexplorer.core.base import python_names
from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.files import load_messages
from devexplorer.core.files.entries import Entry, Ticker, fill, shown
from devexplorer.core.files.keys import state_of
from devexplorer.core.files.manifest import SEPARATOR, SavedObject
from devexplorer.core.files.naming import name_for, stem_of
from devexplorer.core.files.opening import AnyFile, opened
from devexplorer.core.files.rebuilding import fits, rebuilt
from devexplorer.core.models.extras import Extras
from devexplorer.core.records.laboratory import Load
from devexplorer.core.workspace.changes import CreateChange
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.fit import check_sizes

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace

MOST_TENSORS = 1000
"""Objects that one command makes of a file: more are no help to anybody."""


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
    """Models of which the tensors are loaded, because only code of somebody's could build them."""


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
    with opened(command.path) as file:
        chosen = choose(workspace, file, command.entries)
        if command.name is not None:
            _check_name(workspace, command.name, chosen)
        sizes = _sizes(file, chosen)
        check_sizes(sizes, device, workspace.registry, "what is to be loaded")
        tick = Ticker(progress, sum(sizes), f"reading {shown(command.path)}", "nothing was loaded")
        loaded = Loaded()
        made: dict[str, nn.Module | Tensor] = {}
        extras: dict[str, Extras] = {}
        taken = list(workspace.names)
        alone = len(chosen.tensors) + len(chosen.models) == 1
        for item in chosen.models:
            name = command.name.strip() if command.name and alone else name_for(item.name, None, command.path, taken)
            made[name], loaded.models[name] = rebuilt(item, file, device, tick), item
            extras[name] = Extras(recipe=item.recipe, source=item.recipe, inputs=item.inputs[:200], seed=item.seed)
            taken.append(name)
        _read_tensors(file, chosen, command, device, alone, tick, taken, loaded, made)
        if not made and not chosen.waiting:
            raise BadInput(f"'{file.path}' has no values that could become an object")
        if not made:
            return CommandResult(load_messages.only_offers(command, chosen))
        added: list[str] = []
        try:
            for name, thing in made.items():
                added.append(workspace.add(name, thing, extras.get(name)))
        except BaseException:
            workspace.drop(added)
            raise
        workspace.changed(f"the loading of {shown(command.path)}", CreateChange(*made))
        snapshots = tuple(workspace.snapshot(name) for name in made)
        usable = workspace.registry.usable()
        return CommandResult(load_messages.loaded(command, device, file, chosen, loaded, snapshots, usable), snapshots)


def choose(workspace: Workspace, file: AnyFile, entries: Sequence[str]) -> Chosen:
    """What is asked for; `BadInput` for what is not in the file."""
    if not file.entries and not (file.document and file.document.objects):
        raise BadInput(f"there are no tensors in '{file.path}'")
    objects = (
        {item.name: item for item in file.document.objects if item.kind != "tensor" and item.name}
        if file.document
        else {}
    )
    known = dict.fromkeys((*objects, *file.entries))
    wrong = [
        f"there is no '{shown(key)}' in the file; {python_names.suggestion(key, known)}"
        for key in entries
        if key not in known
    ]
    if wrong:
        raise BadInput(*wrong)
    chosen = Chosen()
    wanted = dict.fromkeys(
        entries or [*objects, *(key for key in file.entries if key.partition(SEPARATOR)[0] not in objects)]
    )
    for key in wanted:
        if key in objects:
            _choose_model(workspace, file, objects[key], chosen)
        else:
            chosen.tensors.append(file.entries[key])
    return chosen


def _choose_model(workspace: Workspace, file: AnyFile, item: SavedObject, chosen: Chosen) -> None:
    if fits(item, file):
        chosen.models.append(item)
        return
    below = {
        key.partition(SEPARATOR)[2]: entry
        for key, entry in file.entries.items()
        if key.partition(SEPARATOR)[0] == item.name
    }
    there = workspace.get(item.name) if item.name in workspace.names else None
    if isinstance(there, nn.Module) and set(state_of(there)) == set(below):
        chosen.waiting.append(item.name)
        return
    chosen.values_only.append(item)
    chosen.tensors += below.values()


def _check_count(file: AnyFile, chosen: Chosen) -> None:
    count = len(chosen.tensors) + len(chosen.models)
    if count > MOST_TENSORS:
        raise BadInput(
            f"'{file.path}' holds {count:,} objects, and at most {MOST_TENSORS:,} become objects at once; choose some"
            " of them, or make the model and load the file into it as a checkpoint"
        )


def _check_name(workspace: Workspace, name: str, chosen: Chosen) -> None:
    if len(chosen.tensors) + len(chosen.models) == 1:
        python_names.checked_name(name, workspace.names)
    else:
        python_names.checked_name(name, ())  # with several it is the beginning of their names


def _sizes(file: AnyFile, chosen: Chosen) -> list[int]:
    """Bytes of each new tensor."""
    _check_count(file, chosen)
    models = {item.name for item in chosen.models}
    below = [entry for key, entry in file.entries.items() if key.partition(SEPARATOR)[0] in models] if models else []
    wanted = {entry.key for entry in (*chosen.tensors, *below)}
    return [entry.nbytes for entry in (*chosen.tensors, *below) if entry.same_as not in wanted]


def _read_tensors(
    file: AnyFile,
    chosen: Chosen,
    command: Load,
    device: str,
    alone: bool,
    tick: Ticker,
    taken: list[str],
    loaded: Loaded,
    made: dict[str, nn.Module | Tensor],
) -> None:
    read: dict[str, Tensor] = {}
    flags = (
        {item.name: item.requires_grad for item in file.document.objects if item.kind == "tensor"}
        if file.document
        else {}
    )
    for entry in chosen.tensors:
        name = (
            command.name.strip()
            if alone and command.name
            else name_for(entry.key if entry.place else stem_of(command.path), command.name, command.path, taken)
        )
        kept = entry.same_as or entry.key
        if kept not in read:
            read[kept] = torch.empty(entry.shape, dtype=entry.dtype, device=device)
            fill(file, entry, read[kept], tick)
            if (entry.requires_grad or flags.get(entry.key)) and (
                entry.dtype.is_floating_point or entry.dtype.is_complex
            ):
                read[kept].requires_grad_()
        made[name], loaded.bound[name] = read[kept], entry
        taken.append(name)
