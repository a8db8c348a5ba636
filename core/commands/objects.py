"""Carries out the commands about objects of the workspace: make, move, run, edit, remove. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.commands import messages, move_messages
from devexplorer.core.models import samples
from devexplorer.core.partition.messages import with_hops
from devexplorer.core.records.laboratory import Hopped
from devexplorer.core.records.messages import (
    Backward,
    BuildModel,
    Combine,
    EditElement,
    Forward,
    Move,
    NewTensor,
    Remove,
)
from devexplorer.core.records.objects import ObjectSnapshot, Row
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.parameters.optimizer_state import after_move, with_state
from devexplorer.core.workspace.reports import Ran
from devexplorer.core.workspace.workspace import Workspace


def build(workspace: Workspace, command: BuildModel, progress: ProgressMonitor) -> CommandResult:
    """A new sample model."""
    built = workspace.build(command, progress)
    snapshot = workspace.snapshot(built.name)
    return CommandResult(messages.built(built, snapshot, samples.find(built.recipe).summary), (snapshot,))


def new_tensor(workspace: Workspace, command: NewTensor, progress: ProgressMonitor) -> CommandResult:
    """A new tensor."""
    created = workspace.tensor(command)
    snapshot = workspace.snapshot(created.name)
    return CommandResult(messages.created(created, snapshot, command), (snapshot,))


def remove(workspace: Workspace, command: Remove, progress: ProgressMonitor) -> CommandResult:
    """Objects that go."""
    held = workspace.held_bytes_by_device()
    kept = workspace.remove(command.names, command)
    left = workspace.held_bytes_by_device()
    freed = {device: size - left.get(device, 0) for device, size in held.items()}
    return CommandResult(messages.removed(command.names, freed, kept), removed=tuple(dict.fromkeys(command.names)))


def edit(workspace: Workspace, command: EditElement, progress: ProgressMonitor) -> CommandResult:
    """One element of a tensor."""
    edited = workspace.edit(command)
    snapshot = workspace.snapshot(command.target.partition(":")[0])
    return CommandResult(messages.edited(edited, snapshot), (snapshot,))


def combine(workspace: Workspace, command: Combine, progress: ProgressMonitor) -> CommandResult:
    """An operator and two tensors."""
    combined = workspace.combine(command)
    return CommandResult(messages.combined(combined), (workspace.snapshot(combined.name),))


def move(workspace: Workspace, command: Move, progress: ProgressMonitor) -> CommandResult:
    """A move, a cast or a copy."""
    targets = tuple(dict.fromkeys(target.partition(":")[0] for target in command.targets))
    known = [name for name in targets if name in workspace.names]
    sharing = workspace.sharing(known)
    before, beside = (tuple(workspace.seen(name) for name in group) for group in (known, sharing))
    report = workspace.move(command, progress)
    after, beside_now = _snapshots(workspace, targets), _snapshots(workspace, sharing)
    answer = move_messages.moved(
        report, before, after, separated=move_messages.separated((*before, *beside), (*after, *beside_now))
    )
    if report.copied:
        return CommandResult(answer, _snapshots(workspace, report.created), report=report)
    state = after_move(workspace, targets, command, progress)
    after = _snapshots(workspace, targets) if state.moved else after
    touched = (
        () if report.already_there and not state.moved else (*after, *(now for now in beside_now if now not in beside))
    )
    return CommandResult(with_state(answer, state), touched, report=report)


def run(workspace: Workspace, command: Forward | Backward, progress: ProgressMonitor) -> CommandResult:
    """A forward, or a forward and a backward."""
    name = command.target.partition(":")[0]
    before = workspace.seen(name)
    waiting = {row.path for row in before.rows if not row.initialised}
    backward = isinstance(command, Backward)
    report = workspace.backward(command) if isinstance(command, Backward) else workspace.forward(command)
    after = workspace.snapshot(name)
    appeared: Sequence[Row] = [row for row in after.rows if row.path in waiting and row.initialised]
    beside = report.reached if report.kept_as is None else (report.kept_as,)
    changed = (after, *_snapshots(workspace, beside))
    answer = messages.ran(report, after, backward=backward, appeared=appeared)
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
