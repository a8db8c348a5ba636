"""Carries out one command of the link on a workspace and says in words what happened. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from devexplorer.core.base.progress import NO_PROGRESS, ProgressMonitor
from devexplorer.core.commands import doctor, experiments, files, models, parameters, planner, split
from devexplorer.core.commands import messages as words
from devexplorer.core.models import samples
from devexplorer.core.partition.words import with_hops
from devexplorer.core.records.laboratory import Hopped
from devexplorer.core.records.messages import (
    Backward,
    BuildModel,
    Combine,
    Command,
    EditElement,
    Forward,
    Move,
    NewTensor,
    Redo,
    Remove,
    Undo,
)
from devexplorer.core.records.objects import ObjectSnapshot, Row
from devexplorer.core.workspace.command_result import CommandResult, Handler, Topic
from devexplorer.core.workspace.parameters.state import after_move, with_state
from devexplorer.core.workspace.reports import Ran
from devexplorer.core.workspace.workspace import Workspace

__all__ = ["CommandResult", "dispatch"]


def dispatch(workspace: Workspace, command: Command, progress: ProgressMonitor = NO_PROGRESS) -> CommandResult:
    """Do what the command says; raises `DevExplorerError` (see `words.refusal`) when nothing could be done."""
    if isinstance(command, Undo):
        return _undo(workspace, progress)
    if isinstance(command, Redo):
        return _redo(workspace, command, progress)
    with workspace.history.transaction(command):
        outcome = _handler(command)(workspace, command, progress)
    return _noted(workspace, outcome)


def _build(workspace: Workspace, command: BuildModel, progress: ProgressMonitor) -> CommandResult:
    built = workspace.build(command, progress)
    snapshot = workspace.snapshot(built.name)
    return CommandResult(words.built(built, snapshot, samples.find(built.recipe).summary), (snapshot,))


def _new_tensor(workspace: Workspace, command: NewTensor, progress: ProgressMonitor) -> CommandResult:
    created = workspace.tensor(command)
    snapshot = workspace.snapshot(created.name)
    return CommandResult(words.created(created, snapshot, command), (snapshot,))


def _remove(workspace: Workspace, command: Remove, progress: ProgressMonitor) -> CommandResult:
    held = workspace.held_bytes_by_device()
    kept = workspace.remove(command.names, command)
    left = workspace.held_bytes_by_device()
    freed = {device: size - left.get(device, 0) for device, size in held.items()}
    return CommandResult(words.removed(command.names, freed, kept), removed=tuple(dict.fromkeys(command.names)))


def _edit(workspace: Workspace, command: EditElement, progress: ProgressMonitor) -> CommandResult:
    edited = workspace.edit(command)
    snapshot = workspace.snapshot(command.target.partition(":")[0])
    return CommandResult(words.edited(edited, snapshot), (snapshot,))


def _combine(workspace: Workspace, command: Combine, progress: ProgressMonitor) -> CommandResult:
    combined = workspace.combine(command)
    return CommandResult(words.combined(combined), (workspace.snapshot(combined.name),))


def _move(workspace: Workspace, command: Move, progress: ProgressMonitor) -> CommandResult:
    targets = tuple(dict.fromkeys(target.partition(":")[0] for target in command.targets))
    known = [name for name in targets if name in workspace.names]
    sharing = workspace.sharing(known)
    before, beside = (tuple(workspace.seen(name) for name in group) for group in (known, sharing))
    report = workspace.move(command, progress)
    after, beside_now = _snapshots(workspace, targets), _snapshots(workspace, sharing)
    answer = words.moved(report, before, after, separated=words.separated((*before, *beside), (*after, *beside_now)))
    if report.copied:
        return CommandResult(answer, _snapshots(workspace, report.created), report=report)
    state = after_move(workspace, targets, command, progress)
    after = _snapshots(workspace, targets) if state.moved else after
    touched = (
        () if report.already_there and not state.moved else (*after, *(now for now in beside_now if now not in beside))
    )
    return CommandResult(with_state(answer, state), touched, report=report)


def _undo(workspace: Workspace, progress: ProgressMonitor) -> CommandResult:
    title = workspace.undo_state().title or ""
    command, undone = workspace.undo(progress)
    after = _snapshots(workspace, undone.touched)
    beside = _snapshots(workspace, workspace.sharing(undone.touched))
    if undone.report is not None and isinstance(command, Move):
        answer = words.undone(undone.report, after)
    elif undone.removed and isinstance(command, Move):
        answer = words.uncopied(undone.removed)
    else:
        answer = words.taken_back(title, undone.removed, after)
    changed = (*after, *beside)
    return CommandResult(answer, changed, removed=undone.removed, report=undone.report, undoes=True, undid=command)


def _redo(workspace: Workspace, redo: Redo, progress: ProgressMonitor) -> CommandResult:
    with workspace.history.redoing(redo.request) as command:
        outcome = _handler(command)(workspace, command, progress)
    return replace(_noted(workspace, outcome), redid=command)


def _noted(workspace: Workspace, outcome: CommandResult) -> CommandResult:
    """With a sentence that says why it cannot be undone, where it cannot."""
    if not workspace.history.note:
        return outcome
    words = f"{outcome.answer.words} {workspace.history.note}".lstrip()
    return replace(outcome, answer=msgspec.structs.replace(outcome.answer, words=words))


def _run(workspace: Workspace, command: Forward | Backward, progress: ProgressMonitor) -> CommandResult:
    name = command.target.partition(":")[0]
    before = workspace.seen(name)
    waiting = {row.path for row in before.rows if not row.initialised}
    backward = isinstance(command, Backward)
    report = workspace.backward(command) if isinstance(command, Backward) else workspace.forward(command)
    after = workspace.snapshot(name)
    appeared: Sequence[Row] = [row for row in after.rows if row.path in waiting and row.initialised]
    beside = report.reached if report.kept_as is None else (report.kept_as,)
    changed = (after, *_snapshots(workspace, beside))
    answer = words.ran(report, after, backward=backward, appeared=appeared)
    hops = workspace.extras(name).hops
    if hops is None:
        return CommandResult(answer, changed, side_effects=_side_effects(report, backward))
    events = (Hopped(target=name, hops=hops.latest),)
    return CommandResult(
        with_hops(answer, hops.latest), changed, side_effects=_side_effects(report, backward), events=events
    )


def _side_effects(report: Ran, backward: bool) -> tuple[str, ...]:
    left = (
        (report.changed_buffers, "running statistics changed by a forward pass"),
        (report.initialised, "lazy parameters initialised by a forward pass"),
        (backward, "gradients of a backward pass"),
    )
    return tuple(phrase for happened, phrase in left if happened)


def _snapshots(workspace: Workspace, names: Sequence[str]) -> tuple[ObjectSnapshot, ...]:
    return tuple(workspace.snapshot(name) for name in names)


_TOPIC: Topic = {
    BuildModel: _build,
    NewTensor: _new_tensor,
    Move: _move,
    Remove: _remove,
    Forward: _run,
    Backward: _run,
    EditElement: _edit,
    Combine: _combine,
}
TOPICS: tuple[Topic, ...] = (
    _TOPIC,
    files.TOPIC,
    models.TOPIC,
    experiments.TOPIC,
    split.TOPIC,
    parameters.TOPIC,
    doctor.TOPIC,
    planner.TOPIC,
)
"""Every command of the workspace and who carries it out; `Undo` and `Redo` are above."""


def _handler(command: Command) -> Handler:
    for topic in TOPICS:
        if type(command) in topic:
            return topic[type(command)]
    raise TypeError(f"{type(command).__name__} is no command of the workspace")
