"""The named live tensors and models, and the operations on them. Runs on the jobs thread.

Only `held_bytes_by_device` and `holdings` may be called from other threads: they return figures that are published
after each change.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import torch
from torch import Tensor, nn

from devexplorer.core.base import python_names as names
from devexplorer.core.base.errors import BadInput, DevExplorerError, first_line
from devexplorer.core.base.findings import Findings
from devexplorer.core.base.progress import NO_PROGRESS, ProgressMonitor
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import samples
from devexplorer.core.models.casts import dtype_name, model_dtype, refuse_value
from devexplorer.core.models.extras import Extras
from devexplorer.core.models.run import Explain, operand
from devexplorer.core.models.storages import Held, Holdings
from devexplorer.core.models.trial import Trials
from devexplorer.core.records.messages import (
    Backward,
    BuildModel,
    Combine,
    Command,
    EditElement,
    Forward,
    Move,
    NewTensor,
    Remove,
    UndoState,
)
from devexplorer.core.records.objects import MoveReport, ObjectSnapshot
from devexplorer.core.workspace import runs, tensors
from devexplorer.core.workspace.changes import Change, CreateChange, MoveChange, Undone
from devexplorer.core.workspace.fit import check_sizes, model_sizes
from devexplorer.core.workspace.history import History
from devexplorer.core.workspace.lookup import checked_index, leaf, lookup, resolve_target
from devexplorer.core.workspace.mementos import ElementChange, ObjectMemento
from devexplorer.core.workspace.meter import Meter
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.offload import Removed, offload, offloaded_bytes, restore
from devexplorer.core.workspace.placement import snapshot
from devexplorer.core.workspace.plan import MoveTarget, TensorOrigin
from devexplorer.core.workspace.reports import Built, Combined, Created, Edited, Ran
from devexplorer.core.workspace.runs import Runner
from devexplorer.core.workspace.tensors import applied, checked_operator
from devexplorer.core.workspace.undo import BUDGET_BYTES


class Workspace:
    """Names and the live objects behind them. Every method raises `DevExplorerError` and then has changed nothing."""

    def __init__(
        self,
        registry: DeviceRegistry,
        *,
        mover: Mover | None = None,
        undo_budget_bytes: int = BUDGET_BYTES,
        wall: Callable[[], float] = time.perf_counter,
        explain: Explain | None = None,
    ) -> None:
        self.registry = registry
        self._mover = mover or Mover(registry, wall=wall)
        self.runner = Runner(registry, Meter(registry, wall), explain)
        """Runs models for commands that record the changes themselves."""
        self._wall = wall
        self._objects: dict[str, nn.Module | Tensor] = {}
        self._extras: dict[str, Extras] = {}
        self.history = History(self, undo_budget_bytes)
        self.trials = Trials()
        self._seen: dict[str, ObjectSnapshot] = {}
        """The last snapshot of each model, until something about it is published."""
        self._held = Held(lambda name: self._extras[name].tensors() if name in self._extras else ())

    # names

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, oldest first."""
        return tuple(self._objects)

    def get(self, name: str) -> nn.Module | Tensor:
        """The live object behind a name."""
        return lookup(self._objects, name)

    def extras(self, name: str) -> Extras:
        """What is known about an object besides the object itself; changed in place."""
        self.get(name)
        return self._extras[name]

    def add(self, name: str, thing: nn.Module | Tensor, extras: Extras | None = None) -> str:
        """Name an object; returns the name. Not recorded for Undo: see `changed`."""
        name = names.checked_name(name, self._objects)
        self._objects[name] = thing
        self._extras[name] = extras or Extras()
        self.publish(name)
        return name

    def remove(self, gone: Sequence[str], command: Command | None = None) -> int:
        """Remove objects and free their memory; within the budget they are kept in host memory for Undo:
        returns these bytes."""
        for name in gone:
            self.get(name)
        gone = tuple(dict.fromkeys(gone))
        offloaded: list[Removed] = []
        why = ""
        if self.history.fits(sum(offloaded_bytes(self.get(name), self._extras[name]) for name in gone)):
            try:
                offloaded = [offload(self, self._mover, name) for name in gone]
            except (DevExplorerError, RuntimeError, MemoryError) as error:
                why = first_line(error)
        if offloaded:
            self.drop(gone)
            for name in gone:
                self.history.host(name)
            self.changed(f"the removal of {_list(gone)}", *offloaded, command=command or Remove(names=gone))
        else:
            self.history.gone(gone, why)
            self.drop(gone)
        gc.collect()  # a model can be part of a reference cycle, and its memory must be free now
        return sum(item.kept_bytes for item in offloaded)

    def drop(self, gone: Sequence[str]) -> Callable[[], None]:
        """Remove names; returns what restores them."""
        objects = {name: (self._objects.pop(name), self._extras.pop(name)) for name in gone}
        self.publish(*gone)

        def give_back() -> None:
            for name, (thing, extras) in objects.items():
                self._objects[name], self._extras[name] = thing, extras
            self.publish(*objects)

        return give_back

    def snapshot(self, name: str) -> ObjectSnapshot:
        """What is where in one object, read without changing anything."""
        thing = self.get(name)
        made = snapshot(name, thing, self._extras[name])
        if isinstance(thing, nn.Module):
            self._seen[name] = made
        return made

    def seen(self, name: str) -> ObjectSnapshot:
        """Current devices, storages and identities; the rest may be from the last snapshot since
        `publish`.

        A snapshot of a large model takes a fifth of a second, and a command that compares needs the previous one.
        """
        return self._seen.get(name) or self.snapshot(name)

    def held_bytes_by_device(self) -> Mapping[str, int]:
        """Bytes that named objects hold on each device, each storage once. Any thread; never changed after it was
        handed out."""
        return self._held.now.totals

    def holdings(self) -> Holdings:
        """The same, and what each object holds of it. Any thread."""
        return self._held.now

    def sharing(self, shared_with: Sequence[str]) -> tuple[str, ...]:
        """Names of other objects that hold some of the memory of these."""
        return self._held.sharing(shared_with)

    def publish(self, *touched: str) -> None:
        """Recount what these objects hold, after their tensors changed."""
        beside = self._held.sharing(touched)
        self._held.renew(touched, self._objects)
        for name in (*touched, *beside):
            self._seen.pop(name, None)

    def _around(self, named: Sequence[str]) -> list[MoveTarget]:
        """These objects, and those in which a tensor of theirs is tied."""
        return [MoveTarget(name, "", self._objects[name]) for name in (*named, *self.sharing(named))]

    # making

    def build(self, command: BuildModel, progress: ProgressMonitor = NO_PROGRESS) -> Built:
        """Build a sample model on the CPU, then move it to its device."""
        findings = Findings()
        recipe = findings.checked(lambda: samples.find(command.recipe))
        device = findings.checked(lambda: self.registry.choose(command.device))
        dtype = findings.checked(lambda: None if command.dtype is None else model_dtype(command.dtype))
        name = findings.checked(
            lambda: None if command.name is None else names.checked_name(command.name, self._objects)
        )
        findings.demand_none()
        assert recipe is not None
        assert device is not None
        name = name or names.unique_name(recipe.name, self._objects)
        for where, kind in {("cpu", None), (device, dtype)}:
            check_sizes(model_sizes(samples.meta(recipe.name), kind), where, self.registry, "this model")
        started = self._wall()
        progress.report(0.0, f"building {recipe.name}")
        model = samples.build(recipe.name, command.seed)
        dtype_text = None if dtype is None else dtype_name(dtype)
        self._mover.move([MoveTarget(name, "", model)], device, dtype_text, _bind_nothing, progress)
        self.add(name, model, Extras(recipe=recipe.name, source=recipe.name, seed=command.seed))
        self.changed(f"the new model {name}", CreateChange((name,)), command=command)
        return Built(name, recipe.name, device, dtype_text, command.seed, self._wall() - started)

    def tensor(self, command: NewTensor) -> Created:
        """Create a named tensor."""
        stem = "x" if command.name is None else names.checked_name(command.name, self._objects)
        made = tensors.make(command, self.registry)
        name = self.add(names.unique_name(stem, self._objects), made.tensor)
        self.changed(f"the new tensor {name}", CreateChange((name,)), command=command)
        return Created(name, made.device, made.fell_back)

    def combine(self, command: Combine) -> Combined:
        """`name = left operator right`."""
        known = checked_operator(command.operator)
        left, right = self.tensor_named(command.left), self.tensor_named(command.right)
        name = (
            names.unique_name("result", self._objects)
            if command.name is None
            else names.checked_name(command.name, self._objects)
        )
        result = applied(known, (command.left, left), (command.right, right))
        self.add(name, result)
        self.changed(f"the new tensor {name}", CreateChange((name,)), command=command)
        return Combined(name, command.left, command.operator, command.right, operand(name, result))

    # moving

    def move(self, command: Move, progress: ProgressMonitor = NO_PROGRESS) -> MoveReport:
        """Move or copy objects and parts of models, all or none; one undo takes all of it back."""
        findings = Findings()
        found = [findings.checked(partial(self.target, title)) for title in dict.fromkeys(command.targets)]
        if not found:
            findings.add("nothing is selected; choose one or more objects to move")
        device = findings.checked(lambda: self.registry.choose(command.device), "")
        findings.demand_none()
        targets = [target for target in found if target is not None]
        try:
            return (
                self._copy(targets, device, command, progress)
                if command.copy
                else self._move(targets, device, command, progress)
            )
        finally:
            self.publish(*(target.name for target in targets))

    def _move(self, targets: list[MoveTarget], device: str, command: Move, progress: ProgressMonitor) -> MoveReport:
        around = self._around(list(dict.fromkeys(target.name for target in targets)))
        result = self._mover.move(targets, device, command.dtype, self._bind, progress, around)
        report = result.report
        if report.already_there:
            return report
        title = f"the move of {_list(report.objects)} to {device}{f' as {report.dtype}' if report.dtype else ''}"
        if report.kind == "cast":
            title = f"the cast of {_list(report.objects)} to {report.dtype}"
        self.changed(title, MoveChange(result.origins), command=command)
        return _with_kept(report, self.history.kept_bytes)

    def _copy(self, targets: list[MoveTarget], device: str, command: Move, progress: ProgressMonitor) -> MoveReport:
        report, made = self._mover.duplicate(targets, device, command.dtype, progress)
        created: list[str] = []
        for target, thing in zip(targets, made, strict=True):
            stem = names.unique_name(
                f"{target.name}-{target.path.rpartition('.')[2]}" if target.path else target.name, self._objects
            )
            own = self._extras[target.name]
            created.append(
                self.add(
                    stem, thing, None if target.path else Extras(own.recipe, own.source, own.inputs, seed=own.seed)
                )
            )
        self.changed(f"the copy of {_list(report.objects)} to {device}", CreateChange(tuple(created)), command=command)
        return _with_kept(report, self.history.kept_bytes, tuple(created))

    def _bind(self, name: str, tensor: Tensor) -> None:
        self._objects[name] = tensor

    def place(
        self,
        placed: Sequence[MoveTarget],
        devices: Mapping[str, str],
        title: str,
        command: Command,
        progress: ProgressMonitor = NO_PROGRESS,
    ) -> list[MoveReport]:
        """Move parts of one model to several devices, all or none (`devices`: title of an aim -> device); one change
        for Undo."""
        reports: list[MoveReport] = []
        changes: list[Change] = []
        name = placed[0].name
        try:
            for device in dict.fromkeys(devices.values()):
                targets = [target for target in placed if devices[target.title] == device]
                result = self._mover.move(targets, device, None, self._bind, progress, self._around([name]))
                reports.append(result.report)
                if not result.report.already_there:
                    changes.append(MoveChange(result.origins))
        except BaseException:
            for change in reversed(changes):
                change.undo(self, NO_PROGRESS)
            raise
        finally:
            self.publish(name)
        if changes:
            self.changed(title, *changes, command=command)
        return reports

    # undo and redo

    def changed(self, title: str, *changes: Change, command: Command) -> None:
        """Remember what a command has changed, `title` as in "the move of mlp to vgpu:1"."""
        self.history.changed(title, *changes, command=command)

    def before(
        self, name: str, *, values: bool = False, gradients: bool = False, buffers: bool = False, within: str = ""
    ) -> ObjectMemento | None:
        """An image of an object that is about to be changed in place, to be given to `changed`; None when it is over
        the budget.

        `values` keeps the values of parameters and buffers, `gradients` those of gradients, `buffers` those of buffers
        alone; `within` limits them to a part of a model. Without it the change cannot be taken back: call
        `history.cannot_undo`.
        """
        image = ObjectMemento(name, self.get(name), self._extras[name], within)
        if not self.history.fits(image.needed_bytes(values=values, gradients=gradients, buffers=buffers)):
            return None
        image.take(values=values, gradients=gradients, buffers=buffers)
        return image

    def undo(self, progress: ProgressMonitor = NO_PROGRESS) -> tuple[Command, Undone]:
        """Revert the newest change; returns its command and what reverting it did."""
        command, undone = self.history.undo(progress)
        if undone.report is None:
            return command, undone
        return command, undone._replace(report=_with_kept(undone.report, self.history.kept_bytes))

    def move_back(
        self, moved: Sequence[str], origins: Sequence[TensorOrigin], progress: ProgressMonitor
    ) -> tuple[MoveReport, Callable[[], None]]:
        """Move tensors back; returns what reverts that."""
        targets = [self.target(name) for name in moved]
        result = self._mover.restore(targets, origins, self._bind, progress, self._around(moved))
        self.publish(*moved)

        def put_back() -> None:
            result.rollback()
            self.publish(*moved)

        return result.report, put_back

    def restore_removed(self, removed: Removed, progress: ProgressMonitor) -> Callable[[], None]:
        """Restore a removed object's name and devices; returns what reverts that."""
        thing, aside = restore(self._mover, removed, progress)
        self._objects[removed.name], self._extras[removed.name] = thing, removed.extras
        self.publish(removed.name)

        def put_aside() -> None:
            self.drop(removed.names)
            aside()

        return put_aside

    def undo_state(self) -> UndoState:
        """What Undo and Redo would do now."""
        return self.history.state()

    # running

    def forward(self, command: Forward) -> Ran:
        """Run a model or a part of it; the output is kept, without its graph, only when it is given a name."""
        return runs.forward(self, command)

    def backward(self, command: Backward) -> Ran:
        """Forward, sum, backward: gradients are added to those that are there."""
        return runs.backward(self, command)

    def edit(self, command: EditElement) -> Edited:
        """Set one element in place; all names of a tied tensor see it."""
        tensor, also = self.leaf(command.target)
        index = checked_index(command.target, tensor, command.index)
        refuse_value(tensor.dtype, command.value)
        try:
            with torch.no_grad():
                element = ElementChange(command.target, index, tensor[index].detach().to("cpu", copy=True))
                before = tensor[index].item()
                tensor[index] = command.value
                after = tensor[index].item()
        except (
            RuntimeError,
            TypeError,
            NotImplementedError,
        ) as error:  # sparse, without values, made in inference mode
            raise BadInput(f"an element of '{command.target}' cannot be set: {first_line(error)}") from error
        self.changed(f"the change of {command.target}", element, command=command)
        return Edited(command.target, index, before, after, also)

    # finding

    def target(self, title: str) -> MoveTarget:
        """What `name` or `name:path` means, where the path is that of a module."""
        return resolve_target(self._objects, title)

    def leaf(self, target: str) -> tuple[Tensor, tuple[str, ...]]:
        """The tensor, parameter or buffer that a target means, and the other paths of the same one."""
        return leaf(self._objects, target)

    def tensor_named(self, name: str) -> Tensor:
        """The tensor of that name; `BadInput` for a model."""
        thing = self.get(name)
        if not isinstance(thing, Tensor):
            raise BadInput(f"'{name}' is a model; choose a tensor")
        return thing


def _bind_nothing(name: str, tensor: Tensor) -> None:
    """A model has no names to bind."""


def _list(titles: Sequence[str]) -> str:
    return titles[0] if len(titles) == 1 else f"{len(titles)} objects"


def _with_kept(report: MoveReport, kept_bytes: int, created: tuple[str, ...] = ()) -> MoveReport:
    return msgspec.structs.replace(report, kept_for_undo_bytes=kept_bytes, created=created)
