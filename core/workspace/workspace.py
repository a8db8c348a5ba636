"""The named live tensors and models, and everything that can be done with them. Runs on the jobs thread.

Only `held_bytes_by_device` and `holdings` may be called from other threads: they return figures that are published after each change.
"""

from __future__ import annotations

import gc
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from devexplorer.core.devices.backend import Fleet
from devexplorer.core.errors import BadInput
from devexplorer.core.records.messages import (
    Backward,
    BuildModel,
    Combine,
    EditElement,
    Forward,
    Move,
    NewTensor,
    UndoState,
)
from devexplorer.core.records.objects import MoveReport, ObjectSnapshot
from devexplorer.core.workspace import names, tensors, zoo
from devexplorer.core.workspace.casts import cast_of, dtype_name, model_dtype, refuse_value
from devexplorer.core.workspace.fit import check_sizes
from devexplorer.core.workspace.meter import Meter
from devexplorer.core.workspace.moves import NOBODY, Mover, Watch
from devexplorer.core.workspace.placement import snapshot
from devexplorer.core.workspace.plan import Aim
from devexplorer.core.workspace.reports import Built, Combined, CombineFailed, Created, Edited, Ran
from devexplorer.core.workspace.run import operand
from devexplorer.core.workspace.runner import Runner
from devexplorer.core.workspace.storages import Held, Holdings
from devexplorer.core.workspace.undo import BUDGET_BYTES, Entry, UndoStack
from devexplorer.core.workspace.walk import is_uninitialised

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "@": operator.matmul,
}


class Workspace:
    """Names and the live objects behind them. Every method raises `DevExplorerError` and then has changed nothing."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        mover: Mover | None = None,
        undo_budget_bytes: int = BUDGET_BYTES,
        wall: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.fleet = fleet
        self._mover = mover or Mover(fleet, wall=wall)
        self._runner = Runner(fleet, Meter(fleet, wall))
        self._wall = wall
        self._objects: dict[str, nn.Module | Tensor] = {}
        self._recipes: dict[str, str] = {}
        """Object -> recipe it was built from, for sample inputs."""
        self._undo = UndoStack(undo_budget_bytes)
        self._held = Held()

    # names

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, oldest first."""
        return tuple(self._objects)

    def get(self, name: str) -> nn.Module | Tensor:
        """The live object behind a name."""
        if name not in self._objects:
            raise BadInput(f"there is no object '{name}'; {names.nearest(name, self._objects)}")
        return self._objects[name]

    def add(self, name: str, thing: nn.Module | Tensor, recipe: str | None = None) -> str:
        """Give an object a name; returns the name."""
        name = names.checked(name, self._objects)
        self._objects[name] = thing
        if recipe is not None:
            self._recipes[name] = recipe
        self._publish(name)
        return name

    def remove(self, gone: Sequence[str]) -> None:
        """Remove objects and free what they held."""
        for name in gone:
            self.get(name)
        for name in dict.fromkeys(gone):
            del self._objects[name]
            self._recipes.pop(name, None)
            self._undo.forget(name)
        gc.collect()  # a model can hold itself in a circle, and its memory is to be free now
        self._publish(*gone)

    def snapshot(self, name: str) -> ObjectSnapshot:
        """What is where in one object, read without changing anything."""
        return snapshot(name, self.get(name))

    def held_bytes_by_device(self) -> Mapping[str, int]:
        """Bytes that named objects hold on each device, each storage once. Any thread; never changed after it was handed out."""
        return self._held.now.totals

    def holdings(self) -> Holdings:
        """The same, and what each object holds of it. Any thread."""
        return self._held.now

    def sharing(self, shared_with: Sequence[str]) -> tuple[str, ...]:
        """Names of other objects that hold some of the memory of these."""
        return self._held.sharing(shared_with)

    def _publish(self, *touched: str) -> None:
        self._held.renew(touched, self._objects)

    def _around(self, named: Sequence[str]) -> list[Aim]:
        """These objects, and those in which a tensor of theirs is tied."""
        return [Aim(name, "", self._objects[name]) for name in (*named, *self.sharing(named))]

    # making

    def build(self, command: BuildModel, watch: Watch = NOBODY) -> Built:
        """Build a sample model on the CPU, then move it to its device."""
        findings: list[str] = []
        helps = False
        recipe = device = name = None
        try:
            recipe = zoo.find(command.recipe)
        except BadInput as error:
            findings += error.findings
        try:
            device = self.fleet.choose(command.device)
        except BadInput as error:
            findings += error.findings
            helps = error.virtual_helps
        try:
            dtype = None if command.dtype is None else model_dtype(command.dtype)
        except BadInput as error:
            findings += error.findings
        try:
            name = None if command.name is None else names.checked(command.name, self._objects)
        except BadInput as error:
            findings += error.findings
        if findings or recipe is None or device is None:
            raise BadInput(*findings, virtual_helps=helps)
        name = name or names.unique(recipe.name, self._objects)
        for where, kind in {("cpu", None), (device, dtype)}:
            check_sizes(_sizes(zoo.meta(recipe.name), kind), where, self.fleet, "this model")
        started = self._wall()
        watch.progress(0.0, f"building {recipe.name}")
        model = zoo.build(recipe.name, command.seed)
        dtype_text = None if dtype is None else dtype_name(dtype)
        self._mover.move([Aim(name, "", model)], device, dtype_text, _bind_nothing, watch)
        self.add(name, model, recipe.name)
        return Built(name, recipe.name, device, dtype_text, command.seed, self._wall() - started)

    def tensor(self, command: NewTensor) -> Created:
        """Create a named tensor."""
        stem = "x" if command.name is None else names.checked(command.name, self._objects)
        made = tensors.make(command, self.fleet)
        name = self.add(names.unique(stem, self._objects), made.tensor)
        return Created(name, made.device, made.fell_back)

    def combine(self, command: Combine) -> Combined:
        """`name = left operator right`."""
        if command.operator not in OPERATORS:
            raise BadInput(f"there is no operator '{command.operator}'; there are {' '.join(OPERATORS)}")
        left, right = self._tensor(command.left), self._tensor(command.right)
        name = names.unique("result", self._objects) if command.name is None else names.checked(command.name, self._objects)
        try:
            result = OPERATORS[command.operator](left, right)
        except RuntimeError as error:
            raise CombineFailed(
                str(error).strip().splitlines()[0],
                left=operand(command.left, left),
                right=operand(command.right, right),
            ) from error
        self.add(name, result)
        return Combined(name, command.left, command.operator, command.right, operand(name, result))

    # moving

    def move(self, command: Move, watch: Watch = NOBODY) -> MoveReport:
        """Move or copy objects and parts of models, all or none; one undo takes all of it back."""
        findings: list[str] = []
        aims: list[Aim] = []
        helps = False
        device = ""
        for target in dict.fromkeys(command.targets):
            try:
                aims.append(self.aim(target))
            except BadInput as error:
                findings += error.findings
        if not command.targets:
            findings.append("nothing is selected; choose one or more objects to move")
        try:
            device = self.fleet.choose(command.device)
        except BadInput as error:
            findings += error.findings
            helps = error.virtual_helps
        if findings:
            raise BadInput(*findings, virtual_helps=helps)
        try:
            return self._copy(aims, device, command.dtype, watch) if command.copy else self._move(aims, device, command.dtype, watch)
        finally:
            self._publish(*(aim.name for aim in aims))

    def _move(self, aims: list[Aim], device: str, dtype: str | None, watch: Watch) -> MoveReport:
        around = self._around(list(dict.fromkeys(aim.name for aim in aims)))
        result = self._mover.move(aims, device, dtype, self._bind, watch, around)
        report = result.report
        if report.already_there:
            return report
        entry = Entry(f"the move of {_list(report.objects)} to {device}", result.was)
        self._undo.push(entry)
        return _with_kept(report, self._undo.kept_bytes)

    def _copy(self, aims: list[Aim], device: str, dtype: str | None, watch: Watch) -> MoveReport:
        report, made = self._mover.duplicate(aims, device, dtype, watch)
        created: list[str] = []
        for aim, thing in zip(aims, made, strict=True):
            stem = names.unique(f"{aim.name}-{aim.path.rpartition('.')[2]}" if aim.path else aim.name, self._objects)
            created.append(self.add(stem, thing, None if aim.path else self._recipes.get(aim.name)))
        self._undo.push(Entry(f"the copy of {_list(report.objects)} to {device}", created=tuple(created)))
        return _with_kept(report, self._undo.kept_bytes, tuple(created))

    def undo(self, watch: Watch = NOBODY) -> tuple[MoveReport | None, tuple[str, ...]]:
        """Undo the newest move or copy; returns the report of moving back, or the names of the copies that were removed."""
        entry = self._undo.top
        if entry is None:
            raise BadInput("there is nothing to undo")
        if entry.created:
            self.remove(entry.created)  # forgets the entry too
            return None, entry.created
        try:
            aims = [self.aim(name) for name in entry.names]
            report = self._mover.restore(aims, entry.was, self._bind, watch, self._around(entry.names)).report
        finally:
            self._publish(*entry.names)
        self._undo.drop_top()
        return _with_kept(report, self._undo.kept_bytes), ()

    def undo_state(self) -> UndoState:
        """What Undo would do now."""
        return self._undo.state()

    def _bind(self, name: str, tensor: Tensor) -> None:
        self._objects[name] = tensor

    # running

    def forward(self, command: Forward) -> Ran:
        """Run a model or a part of it; the output is kept, without its graph, only when it is given a name."""
        if command.output is not None:
            names.checked(command.output, self._objects)
        ran, output = self._run(command.target, command.input, backward=False)
        if command.output is None:
            return ran
        if output is None:
            raise BadInput(f"'{command.target}' returned no tensor that could be named '{command.output}'")
        return ran._replace(kept_as=self.add(command.output, output.detach()))

    def backward(self, command: Backward) -> Ran:
        """Forward, sum, backward: gradients are added to those that are there."""
        ran, _ = self._run(command.target, command.input, backward=True)
        return ran

    def _run(self, target: str, given: str | None, *, backward: bool) -> tuple[Ran, Tensor | None]:
        aim = self.aim(target)
        fed = () if given is None else tuple(part.strip() for part in given.split(","))
        try:
            return self._runner.run(aim, self._inputs(aim, fed), fed, backward=backward)
        finally:  # the first forward of a lazy model makes its parameters; gradients arrive in every tensor that led to an input
            tensors_too = [name for name, thing in self._objects.items() if backward and isinstance(thing, Tensor)]
            self._publish(aim.name, *tensors_too)

    def _inputs(self, aim: Aim, given: Sequence[str]) -> list[Tensor]:
        """The named tensors, or the recipe's sample input on the model's device and in its dtype."""
        if given or isinstance(aim.thing, Tensor):
            return [self._tensor(name) for name in given]
        recipe = self._recipes.get(aim.name)
        if aim.path or recipe is None:
            raise BadInput(f"'{aim.title}' needs an input; create a tensor and choose it")
        first = next(aim.thing.parameters(), None)
        inputs = []
        for sample in zoo.find(recipe).sample():
            if first is not None:
                sample = sample.to(first.device, first.dtype if sample.is_floating_point() else None)
            inputs.append(sample)
        return inputs

    def edit(self, command: EditElement) -> Edited:
        """Set one element in place; every name of a tied tensor sees it."""
        tensor, also = self._element_owner(command.target)
        index = _checked_index(command.target, tensor, command.index)
        refuse_value(tensor.dtype, command.value)
        with torch.no_grad():
            before = tensor[index].item()
            tensor[index] = command.value
            after = tensor[index].item()
        return Edited(command.target, index, before, after, also)

    def _element_owner(self, target: str) -> tuple[Tensor, tuple[str, ...]]:
        name, _, path = target.partition(":")
        thing = self.get(name)
        if isinstance(thing, Tensor):
            if path:
                raise BadInput(f"'{name}' is a tensor and has no part '{path}'")
            return thing, ()
        found = dict(thing.named_parameters(remove_duplicate=False)) | dict(thing.named_buffers(remove_duplicate=False))
        if path not in found:
            raise BadInput(f"'{name}' has no parameter or buffer '{path}'; {names.nearest(path, found)}")
        return found[path], tuple(other for other, tensor in found.items() if tensor is found[path] and other != path)

    # finding

    def aim(self, target: str) -> Aim:
        """What `name` or `name:path` means."""
        name, _, path = target.partition(":")
        thing = self.get(name.strip())
        if not path:
            return Aim(name.strip(), "", thing)
        if isinstance(thing, Tensor):
            raise BadInput(f"'{name}' is a tensor and has no part '{path}'")
        parts = dict(thing.named_modules(remove_duplicate=False))
        if path in parts:
            return Aim(name.strip(), path, parts[path])
        holder, _, last = path.rpartition(".")
        own = parts.get(holder)
        if last == "grad" or (own is not None and last in {*own._parameters, *own._buffers}):
            raise BadInput(f"'{path}' is a tensor inside '{name}'; move the module that holds it")
        if "[" in path:
            raise BadInput(f"'{path}' is not registered in '{name}' and cannot be reached by PyTorch; hold it in an nn.ModuleList instead")
        raise BadInput(f"'{name}' has no part '{path}'; {names.nearest(path, [p for p in parts if p])}")

    def _tensor(self, name: str) -> Tensor:
        thing = self.get(name)
        if not isinstance(thing, Tensor):
            raise BadInput(f"'{name}' is a model; choose a tensor")
        return thing


def _checked_index(target: str, tensor: Tensor, index: tuple[int, ...]) -> tuple[int, ...]:
    if is_uninitialised(tensor):
        raise BadInput(f"'{target}' has no elements before its first forward")
    if len(index) != tensor.dim():
        raise BadInput(f"'{target}' has {tensor.dim()} dimensions, so an element has {tensor.dim()} indices, not {len(index)}")
    for axis, (at, size) in enumerate(zip(index, tensor.shape, strict=True)):
        if not -size <= at < size:
            raise BadInput(f"index {at} is out of range for dimension {axis} of '{target}', which goes from 0 to {size - 1}")
    return index


def _sizes(model: nn.Module, dtype: torch.dtype | None) -> list[int]:
    """Bytes of each tensor of a model, as they will be in `dtype`."""
    held = [tensor for tensor in (*model.parameters(), *model.buffers()) if not is_uninitialised(tensor)]
    return [tensor.numel() * cast_of(tensor, dtype).itemsize for tensor in held]


def _bind_nothing(name: str, tensor: Tensor) -> None:
    """A model has no names to bind."""


def _list(titles: Sequence[str]) -> str:
    return titles[0] if len(titles) == 1 else f"{len(titles)} objects"


def _with_kept(report: MoveReport, kept_bytes: int, created: tuple[str, ...] = ()) -> MoveReport:
    return msgspec.structs.replace(report, kept_for_undo_bytes=kept_bytes, created=created)
