"""The named live tensors and models. Runs on the jobs thread.

Only `held_bytes_by_device` and `holdings` may be called from other threads: they return figures that are published
after each change.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from devexplorer.core.base import BadInput, Clock, ProgressMonitor, python_names
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import Explain, Extras, Held, Holdings
from devexplorer.core.models.trial import TriedSources
from devexplorer.core.records import MoveReport, ObjectSnapshot
from devexplorer.core.workspace.changes import MoveChange, ObjectMemento, WorkspaceChange
from devexplorer.core.workspace.history import BUDGET_BYTES, UndoHistory
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.placement import Target, found_in, snapshot
from devexplorer.core.workspace.plan import TensorOrigin


class Workspace:
    """Names and the live objects behind them. Every method raises `DevExplorerError` and then has changed nothing."""

    def __init__(
        self,
        registry: DeviceRegistry,
        *,
        mover: Mover | None = None,
        undo_budget_bytes: int = BUDGET_BYTES,
        wall: Clock = time.perf_counter,
        explain: Explain | None = None,
    ) -> None:
        self.registry = registry
        self.mover = mover or Mover(registry, wall=wall)
        self.wall = wall
        self.explain = explain
        """Is asked why a forward failed for where its operands are."""
        self._objects: dict[str, nn.Module | Tensor] = {}
        self._extras: dict[str, Extras] = {}
        self.history = UndoHistory(self, undo_budget_bytes)
        self.trials = TriedSources()
        self._seen: dict[str, ObjectSnapshot] = {}
        """The last snapshot of each model, until something about it is published."""
        self._held = Held(lambda name: self._extras[name].tensors() if name in self._extras else ())

    # --- objects

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, oldest first."""
        return tuple(self._objects)

    def get(self, name: str) -> nn.Module | Tensor:
        """The live object behind a name."""
        if name not in self._objects:
            raise BadInput(f"there is no object '{name}'; {python_names.suggestion(name, self._objects)}")
        return self._objects[name]

    def extras(self, name: str) -> Extras:
        """What is known about an object besides the object itself; changed in place."""
        self.get(name)
        return self._extras[name]

    def extras_of_copy(self, target: Target) -> Extras:
        """What is known about a copy of the target from the beginning."""
        if target.path:
            return Extras()
        return dataclasses.replace(self._extras[target.name], optimizer=None, optimizer_text=None, hops=None)

    def new_name(self, name: str | None, stem: str) -> str:
        """The name, if it can be given to a new object; where there is none, one that begins with `stem`."""
        if name is None:
            return python_names.unique_name(stem, self._objects)
        return python_names.checked_name(name, self._objects)

    def add(self, name: str, thing: nn.Module | Tensor, extras: Extras | None = None) -> str:
        """Name an object; returns the name. Not recorded for Undo: see `changed`."""
        name = python_names.checked_name(name, self._objects)
        self._objects[name] = thing
        self._extras[name] = extras or Extras()
        self.publish(name)
        return name

    def add_all(self, things: Mapping[str, tuple[nn.Module | Tensor, Extras]]) -> None:
        """Name several objects: all of them, or none."""
        added: list[str] = []
        try:
            for name, (thing, extras) in things.items():
                added.append(self.add(name, thing, extras))
        except BaseException:
            self.drop(added)
            raise

    def bind(self, name: str, tensor: Tensor) -> None:
        """Let the name of a tensor mean another one."""
        self._objects[name] = tensor

    def exchange(self, name: str, thing: nn.Module | Tensor, extras: Extras) -> tuple[nn.Module | Tensor, Extras]:
        """Let a name mean another object; returns what it meant."""
        previous = self.get(name), self._extras[name]
        self._objects[name], self._extras[name] = thing, extras
        self.publish(name)
        return previous

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

    def snapshots(self, names: Iterable[str]) -> tuple[ObjectSnapshot, ...]:
        """A snapshot of each."""
        return tuple(map(self.snapshot, names))

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

    def around(self, names: Sequence[str]) -> list[Target]:
        """These objects, and those in which a tensor of theirs is tied."""
        return [Target(name, "", self._objects[name]) for name in (*names, *self.sharing(names))]

    def publish(self, *touched: str) -> None:
        """Recount what these objects hold, after their tensors changed."""
        beside = self._held.sharing(touched)
        self._held.renew(touched, self._objects)
        for name in (*touched, *beside):
            self._seen.pop(name, None)

    # --- targets

    def find(self, title: str) -> Target:
        """What `name` or `name:path` means: an object, or a module, parameter or buffer of a model."""
        name, _, path = (part.strip() for part in title.partition(":"))
        return found_in(name, self.get(name), path)

    def target(self, title: str) -> Target:
        """What `name` or `name:path` means, where the path is that of a module."""
        target = self.find(title)
        if target.path and isinstance(target.thing, Tensor):
            raise BadInput(f"'{target.path}' is a tensor inside '{target.name}'; choose the module that holds it")
        return target

    def model(self, title: str) -> Target:
        """A model as a whole."""
        target = self.target(title)
        if target.path:
            raise BadInput(f"'{title}' is a part of a model; choose the whole one, '{target.name}'")
        return Target(target.name, "", target.module)

    def tensor_named(self, name: str) -> Tensor:
        """The tensor of that name; `BadInput` for a model."""
        thing = self.get(name)
        if not isinstance(thing, Tensor):
            raise BadInput(f"'{name}' is a model; choose a tensor")
        return thing

    # --- changes

    def changed(self, title: str, *changes: WorkspaceChange) -> None:
        """Remember what a command has changed, `title` as in "the move of mlp to vgpu:1"."""
        self.history.changed(title, *changes)

    @contextmanager
    def changing(
        self, title: str, name: str, *, values: bool = False, gradients: bool = False, within: str = ""
    ) -> Iterator[ObjectMemento | None]:
        """An object is changed in place meanwhile: takes its image for Undo, and publishes it at the end.

        `values` keeps the values of parameters and buffers, `gradients` those of gradients; `within` limits them to a
        part of a model. Yields None where the image is over the budget: then the change cannot be undone.
        """
        image = self.image(name, values=values, gradients=gradients, within=within)
        if image is not None:
            self.changed(title, image)
        try:
            yield image
        finally:
            if image is None:
                self.history.cannot_undo()
            self.publish(name)

    def image(
        self, name: str, *, values: bool = False, gradients: bool = False, buffers: bool = False, within: str = ""
    ) -> ObjectMemento | None:
        """An image of an object that is about to be changed in place, to be given to `changed`; None when it is over
        the budget. `buffers` keeps the values of buffers alone."""
        image = ObjectMemento(name, self.get(name), self._extras[name], within)
        if not self.history.fits(image.needed_bytes(values=values, gradients=gradients, buffers=buffers)):
            return None
        image.take(values=values, gradients=gradients, buffers=buffers)
        return image

    def place(
        self, placed: Sequence[Target], devices: Mapping[str, str], title: str, progress: ProgressMonitor
    ) -> list[MoveReport]:
        """Move parts of one model to several devices, all or none (`devices`: title of a target -> device); one change
        for Undo."""
        reports: list[MoveReport] = []
        name = placed[0].name
        try:
            for device in dict.fromkeys(devices.values()):
                targets = [target for target in placed if devices[target.title] == device]
                result = self.mover.move(targets, device, None, self.bind, progress, self.around([name]))
                reports.append(result.report)
                if not result.report.already_there:
                    self.changed(title, MoveChange(result.origins))
        finally:
            self.publish(name)
        return reports

    def move_back(
        self, moved: Sequence[str], origins: Sequence[TensorOrigin], progress: ProgressMonitor
    ) -> tuple[MoveReport, Callable[[], None]]:
        """Move tensors back; returns what reverts that."""
        targets = [self.target(name) for name in moved]
        result = self.mover.restore(targets, origins, self.bind, progress, self.around(moved))
        self.publish(*moved)

        def put_back() -> None:
            result.rollback()
            self.publish(*moved)

        return result.report, put_back
