"""The one dispatcher: carries out a command on a workspace by its `CommandSpec`, as one step of Undo. Jobs thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from devexplorer.core.base.progress import NO_PROGRESS, ProgressMonitor
from devexplorer.core.commands import move_messages
from devexplorer.core.commands.registry import spec_of
from devexplorer.core.records.messages import Command, Move, Redo, Undo
from devexplorer.core.records.objects import ObjectSnapshot
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.workspace import Workspace


def dispatch(workspace: Workspace, command: Command, progress: ProgressMonitor = NO_PROGRESS) -> CommandResult:
    """Do what the command says; raises `DevExplorerError` (see `refusals.refusal`) when nothing could be done."""
    spec = spec_of(command)
    handler = spec.resolve()
    if not spec.undoable:
        return handler(workspace, command, progress)
    with workspace.history.transaction(command):
        result = handler(workspace, command, progress)
    return _with_note(workspace, result)


def undo(workspace: Workspace, command: Undo, progress: ProgressMonitor) -> CommandResult:
    """Take back the newest change."""
    title = workspace.undo_state().title or ""
    undid, undone = workspace.undo(progress)
    after = _snapshots(workspace, undone.touched)
    beside = _snapshots(workspace, workspace.sharing(undone.touched))
    if undone.report is not None and isinstance(undid, Move):
        answer = move_messages.undone(undone.report, after)
    elif undone.removed and isinstance(undid, Move):
        answer = move_messages.uncopied(undone.removed)
    else:
        answer = move_messages.taken_back(title, undone.removed, after)
    changed = (*after, *beside)
    return CommandResult(answer, changed, removed=undone.removed, report=undone.report, undid=undid)


def redo(workspace: Workspace, command: Redo, progress: ProgressMonitor) -> CommandResult:
    """Carry out again what was undone last, under another number."""
    with workspace.history.redoing(command.request) as again:
        result = spec_of(again).resolve()(workspace, again, progress)
    return replace(_with_note(workspace, result), redid=again)


def _with_note(workspace: Workspace, result: CommandResult) -> CommandResult:
    """With a sentence that says why it cannot be undone, where it cannot."""
    if not workspace.history.note:
        return result
    text = f"{result.answer.words} {workspace.history.note}".lstrip()
    return replace(result, answer=msgspec.structs.replace(result.answer, words=text))


def _snapshots(workspace: Workspace, names: Sequence[str]) -> tuple[ObjectSnapshot, ...]:
    return tuple(map(workspace.snapshot, names))
