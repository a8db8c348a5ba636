"""Carries out one command of the link on a workspace and says in words what happened. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from devexplorer.core.records.messages import (
    Answer,
    Backward,
    BuildModel,
    Combine,
    Command,
    EditElement,
    Forward,
    Move,
    NewTensor,
    Remove,
    Undo,
)
from devexplorer.core.records.objects import MoveReport, ObjectSnapshot, Row
from devexplorer.core.workspace import words, zoo
from devexplorer.core.workspace.moves import NOBODY, Watch
from devexplorer.core.workspace.reports import Ran
from devexplorer.core.workspace.workspace import Workspace

WORKSPACE_COMMANDS = (BuildModel, NewTensor, Move, Undo, Remove, Forward, Backward, EditElement, Combine)
"""What `carry_out` understands."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did."""

    answer: Answer
    changed: tuple[ObjectSnapshot, ...] = ()
    """New and changed objects as they are now."""
    removed: tuple[str, ...] = ()
    report: MoveReport | None = None
    """Of a move, a copy or an undo."""
    undoes: bool = False
    side_effects: tuple[str, ...] = ()
    """What a replay of the command would not repeat, in short phrases."""


def carry_out(workspace: Workspace, command: Command, watch: Watch = NOBODY) -> Outcome:
    """Do what the command says; raises `DevExplorerError` (see `words.refusal`) when nothing could be done."""
    match command:
        case BuildModel():
            built = workspace.build(command, watch)
            snapshot = workspace.snapshot(built.name)
            return Outcome(words.built(built, snapshot, zoo.find(built.recipe).summary), (snapshot,))
        case NewTensor():
            created = workspace.tensor(command)
            snapshot = workspace.snapshot(created.name)
            return Outcome(words.created(created, snapshot, command), (snapshot,))
        case Move():
            return _move(workspace, command, watch)
        case Undo():
            return _undo(workspace, watch)
        case Remove(names=names):
            held = workspace.held_bytes_by_device()
            workspace.remove(names)
            left = workspace.held_bytes_by_device()
            freed = {device: size - left.get(device, 0) for device, size in held.items()}
            return Outcome(words.removed(names, freed), removed=tuple(dict.fromkeys(names)))
        case Forward(target=target):
            return _run(workspace, command, target)
        case Backward(target=target):
            return _run(workspace, command, target)
        case EditElement(target=target):
            edited = workspace.edit(command)
            return Outcome(words.edited(edited), (workspace.snapshot(target.partition(":")[0]),))
        case Combine():
            combined = workspace.combine(command)
            return Outcome(words.combined(combined), (workspace.snapshot(combined.name),))
    raise TypeError(f"{type(command).__name__} is no command of the workspace")


def _move(workspace: Workspace, command: Move, watch: Watch) -> Outcome:
    targets = tuple(dict.fromkeys(target.partition(":")[0] for target in command.targets))
    known = [name for name in targets if name in workspace.names]
    sharing = workspace.sharing(known)
    before, beside = _snapshots(workspace, known), _snapshots(workspace, sharing)
    report = workspace.move(command, watch)
    after, beside_now = _snapshots(workspace, targets), _snapshots(workspace, sharing)
    answer = words.moved(report, before, after, separated=words.separated((*before, *beside), (*after, *beside_now)))
    if report.copied:
        return Outcome(answer, _snapshots(workspace, report.created), report=report)
    touched = () if report.already_there else (*after, *(now for now in beside_now if now not in beside))
    return Outcome(answer, touched, report=report)


def _undo(workspace: Workspace, watch: Watch) -> Outcome:
    report, gone = workspace.undo(watch)
    if report is None:
        return Outcome(words.uncopied(gone), removed=gone, undoes=True)
    after = _snapshots(workspace, report.objects)
    beside = _snapshots(workspace, workspace.sharing(report.objects))
    return Outcome(words.undone(report, after), (*after, *beside), report=report, undoes=True)


def _run(workspace: Workspace, command: Forward | Backward, target: str) -> Outcome:
    name = target.partition(":")[0]
    before = workspace.snapshot(name)
    waiting = {row.path for row in before.rows if not row.initialised}
    backward = isinstance(command, Backward)
    report = workspace.backward(command) if isinstance(command, Backward) else workspace.forward(command)
    after = workspace.snapshot(name)
    appeared: Sequence[Row] = [row for row in after.rows if row.path in waiting and row.initialised]
    changed = (after,) if report.kept_as is None else (after, workspace.snapshot(report.kept_as))
    answer = words.ran(report, after, backward=backward, appeared=appeared)
    return Outcome(answer, changed, side_effects=_side_effects(report, backward))


def _side_effects(report: Ran, backward: bool) -> tuple[str, ...]:
    left = (
        (report.changed_buffers, "running statistics changed by a forward pass"),
        (report.initialised, "lazy parameters initialised by a forward pass"),
        (backward, "gradients of a backward pass"),
    )
    return tuple(phrase for happened, phrase in left if happened)


def _snapshots(workspace: Workspace, names: Sequence[str]) -> tuple[ObjectSnapshot, ...]:
    return tuple(workspace.snapshot(name) for name in names)
