"""Carries out `CompareCheckpoint` and `LoadCheckpoint`: a file beside a model, and its values into the model. Jobs
thread.

Values go to where their tensors are, one tensor after the other in pieces, so the file may be larger than the memory
that is free. The values that were there are kept in the host's memory meanwhile: for Undo, and for taking everything
back when reading fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from torch import Tensor, nn

from devexplorer.core.base.errors import BadInput, first_line
from devexplorer.core.base.progress import NO_PROGRESS, ProgressMonitor
from devexplorer.core.files import checkpoint_messages
from devexplorer.core.files.entries import Entry, Ticker, fill, shown
from devexplorer.core.files.matching import compared, match
from devexplorer.core.files.opening import AnyFile, opened
from devexplorer.core.models.walk import device_id, is_uninitialised
from devexplorer.core.records.laboratory import CheckpointCompared, CompareCheckpoint, LoadCheckpoint
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.fit import check_sizes
from devexplorer.core.workspace.mementos import ObjectMemento
from devexplorer.core.workspace.targets import Target

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


def compare(workspace: Workspace, command: CompareCheckpoint, progress: ProgressMonitor) -> CommandResult:
    """Say what the checkpoint would do."""
    target, model = _model(workspace, command.target)
    with opened(command.path) as file:
        found = match(model, target.name, file, command.strip)
        event = CheckpointCompared(comparison=compared(command.target, command.path, found))
        return CommandResult(checkpoint_messages.compared(command, file, found), events=(event,))


def load_checkpoint(workspace: Workspace, command: LoadCheckpoint, progress: ProgressMonitor) -> CommandResult:
    """Load what matches; all or nothing."""
    target, model = _model(workspace, command.target)
    with opened(command.path) as file:
        found = match(model, target.name, file, command.strip)
        if not found.pairs or not (found.strict or command.partial):
            raise checkpoint_messages.refused(command, file, found)
        wanted = {
            id(tensor): (tensor, entry) for _, tensor, entry in found.pairs
        }  # a tied one once, with the values that come last
        for key, tensor, _ in found.pairs:
            if tensor.is_meta:
                raise BadInput(f"'{key}' of '{command.target}' has no values to be replaced: it is on the device meta")
        _check_fits(workspace, wanted)
        lazy = sum(is_uninitialised(tensor) for tensor, _ in wanted.values())
        kept = _begin(workspace, command, target, file, wanted)
        tick = Ticker(
            progress if kept is not None else NO_PROGRESS,
            found.nbytes,
            f"reading {shown(command.path)}",
            "the model is as it was",
        )
        try:
            for tensor, entry in wanted.values():
                if is_uninitialised(tensor):
                    # as load_state_dict does with lazy parameters
                    tensor.materialize(entry.shape)  # type: ignore[attr-defined]
                fill(file, entry, tensor, tick)
        except BaseException as error:
            if kept is None:
                workspace.publish(target.name)
                if isinstance(error, Exception):
                    raise BadInput(
                        f"{first_line(error)}; '{target.name}' has some of the new values now: the old ones were too"
                        " large to keep"
                    ) from error
            elif not kept.told:
                kept.image.undo(workspace, NO_PROGRESS)
            raise
        if kept is None or not kept.told:
            workspace.history.cannot_undo()
        workspace.publish(target.name)
        answer = checkpoint_messages.loaded(
            command, file, found, sorted({device_id(t.device) for t, _ in wanted.values()}), lazy
        )
    others = workspace.sharing([target.name])
    return CommandResult(answer, tuple(workspace.snapshot(name) for name in (target.name, *others)))


class _Kept(msgspec.Struct):
    """The old values, and whether Undo has them too."""

    image: ObjectMemento
    told: bool


def _begin(
    workspace: Workspace,
    command: LoadCheckpoint,
    target: Target,
    file: AnyFile,
    wanted: dict[int, tuple[Tensor, Entry]],
) -> _Kept | None:
    """Keep the old values. None where there is no room for them: then the whole file is read once before, to know that
    it can be."""
    before = workspace.image(target.name, values=True, within=target.path)
    if before is not None:
        workspace.changed(f"the loading of {shown(command.path)} into {command.target}", before)
        return _Kept(before, True)  # from here on the transaction takes it back when something fails
    image = ObjectMemento(target.name, workspace.get(target.name), workspace.extras(target.name), target.path)
    free = workspace.registry.backend("cpu").free_bytes("cpu")
    if free is not None and image.needed_bytes(values=True) < free // 2:
        image.take(values=True)
        return _Kept(image, False)
    for _, entry in wanted.values():
        for _ in file.pieces(entry):
            pass
    return None


def _check_fits(workspace: Workspace, wanted: dict[int, tuple[Tensor, Entry]]) -> None:
    """Lazy parameters become as large as the file says."""
    sizes: dict[str, list[int]] = {}
    for tensor, entry in wanted.values():
        if is_uninitialised(tensor):
            elements = entry.nbytes // entry.dtype.itemsize
            sizes.setdefault(device_id(tensor.device), []).append(elements * tensor.dtype.itemsize)
    for device, needed in sizes.items():
        check_sizes(needed, device, workspace.registry, "what the lazy parameters become")


def _model(workspace: Workspace, title: str) -> tuple[Target, nn.Module]:
    target = workspace.target(title)
    if not isinstance(target.thing, nn.Module):
        raise BadInput(f"'{title}' is a tensor; a checkpoint goes into a model, and Load makes tensors of a file")
    return target, target.thing
