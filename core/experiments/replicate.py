"""Puts a copy of a model on each of several devices and runs a batch over all of them, as DataParallel does. Runs on
the jobs thread.

The original is copied and otherwise left alone; the copies stay, as separate objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from devexplorer.core.base import (
    BadInput,
    ProgressMonitor,
    bytes_text,
    count_text,
    expression,
    list_text,
    python_names,
    quoted,
    seconds_text,
    shape_text,
    variable,
)
from devexplorer.core.benchmark.spec import Checks
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.experiments.records import Replicate
from devexplorer.core.models import (
    Operand,
    device_id,
    is_uninitialised,
    operand,
    parameters_and_buffers,
    run,
    settings_kept,
)
from devexplorer.core.records import Answer, Fact
from devexplorer.core.workspace import CommandResult, CreateChange, Target, Timing, Workspace, runs
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.runs import given_names, inputs_of


def replicate(workspace: Workspace, command: Replicate, progress: ProgressMonitor) -> CommandResult:
    """The copies as new objects, and what their run was like; all of it or nothing.

    Raises `BadInput` before anything is copied, `DoesNotFit`, `MoveFailed`, or `RunFailed`.
    """
    target, model, devices = _checked(workspace, command)
    given = given_names(command.input or None)
    inputs = inputs_of(workspace, target, given)
    rows = _rows(target, inputs)
    chunks = _chunked(inputs, len(devices))
    mover = Mover(workspace.registry)
    copies: list[nn.Module] = []
    for number, device in enumerate(devices):
        progress.report(number / (2 * len(devices)), f"a copy on {device}")
        _, made = mover.duplicate([target], device, None, progress)
        copies += [thing for thing in made if isinstance(thing, nn.Module)]
    progress.report(0.5, "running")
    ran = ReplicaRun(workspace.registry, target.path, devices, copies, workspace.explain).all(inputs, chunks)
    known = _names(workspace, target, len(devices))
    for name, copied in zip(known, copies, strict=True):
        workspace.add(name, copied, workspace.extras_of_copy(target))
    workspace.changed(f"the replication of {target.title}", CreateChange(*known))
    snapshots = workspace.snapshots(known)
    replicas = tuple(
        Replica(name, device, snapshot.bytes_by_device.get(device, 0), part)
        for name, device, snapshot, part in zip(known, devices, snapshots, ran.parts, strict=True)
    )
    done = Replicas(
        target=target.title,
        replicas=replicas,
        rows=rows,
        inputs=tuple(operand(f"input {index}", item) for index, item in enumerate(inputs)),
        given=given,
        source=workspace.extras(target.name).source,
        ran=ran,
        statistics=any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules()),
        training=model.training,
    )
    return CommandResult(replicated(done), snapshots)


def _checked(workspace: Workspace, command: Replicate) -> tuple[Target, nn.Module, tuple[str, ...]]:
    registry = workspace.registry
    target = workspace.target(command.target)
    checks = Checks(registry)
    devices = checks.devices(command.devices)
    twice = [device for device in dict.fromkeys(devices) if devices.count(device) > 1]
    if twice:
        checks.add(f"{twice[0]} is named twice; name each device once")
    elif len(command.devices) < 2:
        others = [device for device in registry.usable() if device != "cpu"]
        there = (
            f"there is no device other than {registry.usable()[0]} here"
            if not others
            else f"there are {', '.join(registry.usable())}"
        )
        checks.add(
            f"a model is replicated over two devices at least, and {there}; name two",
            virtual_helps=not any(info.simulated for info in registry.infos()),
        )
    if isinstance(target.thing, Tensor):
        checks.add(f"'{target.title}' is a tensor; choose a model to replicate")
        checks.demand_none()
    model = target.thing
    assert isinstance(model, nn.Module)
    held = parameters_and_buffers(model)
    homes = sorted({device_id(tensor.device) for tensor in held})
    if len(homes) > 1:
        checks.add(
            f"'{target.title}' is on {' and '.join(homes)}; bring it together on one device before it is replicated"
        )
    if workspace.extras(target.name).hops is not None:
        checks.add(
            f"activations follow the parts of '{target.name}' (it has hops); take those away before it is replicated"
        )
    if any(is_uninitialised(tensor) for tensor in held):
        checks.add(f"'{target.title}' has parameters without a shape: run it once before it is replicated")
    checks.demand_none()
    return target, model, devices


def _rows(target: Target, inputs: Sequence[Tensor]) -> int:
    """Rows of the batch, which is dimension 0 of every input."""
    sizes = {item.shape[0] if item.dim() else 0 for item in inputs}
    if len(sizes) != 1 or 0 in sizes:
        shapes = ", ".join(str(tuple(item.shape)) for item in inputs)
        raise BadInput(
            f"dimension 0 of every input of '{target.title}' is the batch, of one size and not empty; these are"
            f" {shapes}"
        )
    return sizes.pop()


def _chunked(inputs: Sequence[Tensor], count: int) -> list[Inputs]:
    """The rows of each device, as `torch.chunk` splits them: equal parts, the last one smaller, and maybe fewer of them
    than devices."""
    parts = [item.detach().chunk(count) for item in inputs]
    return [list(part) for part in zip(*parts, strict=True)]


def _names(workspace: Workspace, target: Target, count: int) -> tuple[str, ...]:
    """`mlp-0`, `mlp-1`, …; numbered on where there are some already."""
    stem = f"{target.name}-{target.key}" if target.path else target.name
    stem = stem[: python_names.LENGTH_LIMIT - 6]
    taken = {variable(name) for name in workspace.names}
    first = 0
    while any(variable(f"{stem}-{number}") in taken for number in range(first, first + count)):
        first += 1
    return tuple(f"{stem}-{number}" for number in range(first, first + count))


# --- the answer

ROUNDING = 1e-4
"""Of the largest value: float32 products of another batch size may sum in another order, and are no further apart than
this."""


class Replica(NamedTuple):
    """A copy on one device."""

    name: str
    device: str
    bytes: int
    part: ReplicaPart


class Replicas(NamedTuple):
    """What `Replicate` did."""

    target: str
    replicas: tuple[Replica, ...]
    rows: int
    inputs: tuple[Operand, ...]
    given: tuple[str, ...]
    """Names of the inputs; empty: a sample."""
    source: str | None
    """What the model was made from."""
    ran: ReplicasRan
    statistics: bool
    """It has batch norm."""
    training: bool


def replicated(done: Replicas) -> Answer:
    """The answer."""
    count, ran = len(done.replicas), done.ran
    idle = [replica for replica in done.replicas if not replica.part.rows]
    split = " + ".join(str(replica.part.rows) for replica in done.replicas)
    words = (
        f"Every device has a copy of {done.target}. The batch of {count_text(done.rows, 'row')} is split along"
        f" dimension 0 as torch.chunk does: {split}. Each copy runs on its rows, and the outputs are gathered on"
        f" {done.replicas[0].device}: {_equal(done)}."
    )
    if idle:
        gives = "gives" if done.rows == 1 else "give"
        split = f"{count_text(done.rows, 'row')} {gives} {count_text(count - len(idle), 'part')} for {count} devices"
        words += (
            f" {list_text([replica.device for replica in idle])} had nothing to do: {split}. A larger batch would keep"
            " all of them busy."
        )
    words += f" {_times(done)}"
    words += (
        " In training, the gradients of all copies have to be added up before the step: DataParallel does that in one"
        " process, with new copies in every forward. PyTorch recommends DistributedDataParallel: one process per"
        " device, copies that stay, gradients averaged during backward."
    )
    if done.statistics:
        words += (
            " It ran in evaluation mode: while training, batch norm would take mean and variance of each device's rows"
            " alone, and SyncBatchNorm is the way around that."
        )
    facts = [Fact(replica.device, _line(replica)) for replica in done.replicas]
    facts += [
        Fact(item.label, f"{shape_text(item.shape)} {item.dtype} on {item.device}")
        for item in (*done.inputs, *ran.outputs)
    ]
    facts.append(Fact("largest difference", f"{ran.difference:.3g}"))
    facts.append(Fact("gathering", seconds_text(*ran.gathering)))
    facts.append(Fact(f"{done.replicas[0].device} alone", seconds_text(*ran.alone)))
    if ran.together is not None:
        facts.append(Fact("together", seconds_text(*ran.together)))
    title = f"{done.target} is on {count} devices: {list_text([replica.name for replica in done.replicas])}"
    return Answer(title=title, words=words, facts=tuple(facts), code=_code(done), subject=done.replicas[0].name)


def _equal(done: Replicas) -> str:
    ran = done.ran
    if ran.unlike:
        return (
            f"{count_text(ran.unlike, 'output')} did not have the batch first, so that they cannot be compared with"
            " those of one device"
        )
    if ran.difference == 0:
        return "the result is to the bit what one device gives for the whole batch"
    said = f"the result differs from what one device gives for the whole batch by {ran.difference:.3g} at most"
    return (
        f"{said}, which is rounding"
        if ran.difference <= ROUNDING * ran.largest
        else f"{said}, more than rounding: its rows depend on each other"
    )


def _times(done: Replicas) -> str:
    ran, first = done.ran, done.replicas[0]
    if ran.together is None:
        return (
            "Some of these devices are real and some are simulated: their times have no clock in common, so there is"
            " none for all together."
        )
    words = (
        f"{first.device} alone takes {seconds_text(*ran.alone)} for the whole batch, all together"
        f" {seconds_text(*ran.together)}, copies of rows and outputs included."
    )
    if ran.together.seconds >= ran.alone.seconds:
        words += " For so little work the copies cost more than they save."
    return words


def _line(replica: Replica) -> str:
    part, held = replica.part, f"{bytes_text(replica.bytes)} for {replica.name}"
    if not part.rows:
        return f"{held}, nothing to do"
    arrival = f"{seconds_text(*part.copying)} to copy" if part.copying.seconds else "already there"
    return f"{held}, {count_text(part.rows, 'row')}: {arrival}, {seconds_text(*part.forward)} forward"


def _code(done: Replicas) -> str:
    """Its own names begin with an underscore: no object has such a one."""
    names = [variable(replica.name) for replica in done.replicas]
    devices = ", ".join(quoted(replica.device) for replica in done.replicas)
    made = runs.sample(expression(done.target), done.inputs, done.source) if not done.given else [""]
    given = f"({', '.join(map(variable, done.given))},)" if done.given else runs.INPUTS
    lines = [
        f"{name} = copy.deepcopy({expression(done.target)}).to({quoted(replica.device)}).eval()"
        for name, replica in zip(names, done.replicas, strict=True)
    ]
    lines += [
        f"_rows = zip(*(one.chunk({len(names)}) for one in {given}))",
        "with torch.no_grad():",
        "    _outputs = [",
        "        model(*(one.to(device) for one in rows))",
        f"        for model, device, rows in zip([{', '.join(names)}], [{devices}], _rows)",
        "    ]",
    ]
    if len(done.ran.outputs) == 1:
        lines.append(f"print(torch.cat([output.to({quoted(done.replicas[0].device)}) for output in _outputs]).shape)")
    if done.training:
        lines += [f"{name}.train()" for name in names]
    return "\n".join(["import copy", "", "import torch", *made, *lines])


# One run of the replicas of a model: each its rows, gathered, and compared with the whole batch on one device. Runs
# on the jobs thread.
#
# Everything runs in evaluation mode and without a graph: there batch norm and dropout treat each row alone, so that
# the gathered output has to equal that of one device with the whole batch.

Inputs = list[Tensor]


class TimedSeconds(NamedTuple):
    """Seconds on the wall, or on the clock of a simulated device."""

    seconds: float
    simulated: bool


class ReplicaPart(NamedTuple):
    """What one device did."""

    rows: int
    copying: TimedSeconds
    """Its rows to its device."""
    forward: TimedSeconds


NOTHING = ReplicaPart(0, TimedSeconds(0.0, False), TimedSeconds(0.0, False))
"""What a device does that gets no rows."""


class ReplicasRan(NamedTuple):
    """What all of them did."""

    parts: tuple[ReplicaPart, ...]
    """By device; one without rows had nothing to do."""
    outputs: tuple[Operand, ...]
    """The gathered ones."""
    difference: float
    """The largest between them and the output of one device with the whole batch."""
    largest: float
    """Size of the largest value of that output."""
    unlike: int
    """Outputs whose shape is not that of the whole batch's: their batch is not dimension 0."""
    gathering: TimedSeconds
    alone: TimedSeconds
    """The first device with the whole batch."""
    together: TimedSeconds | None
    """All devices at once, with copies and gathering; None where their clocks have nothing in common."""


class ReplicaRun:
    """One run of all copies. Times are those of the devices; where one is simulated, of its clock."""

    def __init__(
        self,
        registry: DeviceRegistry,
        path: str,
        devices: Sequence[str],
        copies: Sequence[nn.Module],
        explain: run.Explain | None = None,
    ) -> None:
        self._registry, self._path, self._devices, self._copies = registry, path, devices, copies
        self._explain = explain
        self._simulated = [registry.info(device).simulated for device in devices]

    def all(self, inputs: Inputs, chunks: Sequence[Inputs]) -> ReplicasRan:
        """The whole batch on the first device, then each chunk on its own, then everything as one."""
        first = self._devices[0]
        working = list(zip(self._devices, self._copies, chunks, strict=False))
        with settings_kept(), _evaluating(self._copies), torch.no_grad():
            whole = _moved([item.detach() for item in inputs], first)
            for device, copied, chunk in [(first, self._copies[0], whole), *working]:
                if not self._registry.info(device).simulated:  # the first run of a real device loads its libraries
                    self._forward(copied, _moved(chunk, device))
            full, alone = self._timed(partial(self._forward, self._copies[0], whole), first)
            parts, outputs = [], []
            for device, copied, chunk in working:
                there, copying = self._timed(partial(_moved, chunk, device), device, chunk)
                output, forward = self._timed(partial(self._forward, copied, there), device)
                parts.append(ReplicaPart(len(chunk[0]), copying, forward))
                outputs.append(output)
            gathered, gathering = self._timed(partial(_gathered, outputs, first), first, tree_flatten(outputs)[0])
            together = self._together(working, parts, gathering)
        parts += [NOTHING] * (len(self._devices) - len(parts))
        difference, largest, unlike = _compared(gathered, full)
        results = tuple(
            operand(f"output {index}", item)
            for index, item in enumerate(tree_flatten(gathered)[0])
            if isinstance(item, Tensor)
        )
        return ReplicasRan(tuple(parts), results, difference, largest, unlike, gathering, alone, together)

    def _together(
        self, working: Sequence[tuple[str, nn.Module, Inputs]], parts: Sequence[ReplicaPart], gathering: TimedSeconds
    ) -> TimedSeconds | None:
        """All at once: launched on every device before any is waited for; None where the clocks have nothing in
        common."""
        if all(self._simulated):  # they share nothing, so the slowest one counts
            return TimedSeconds(
                max(part.copying.seconds + part.forward.seconds for part in parts) + gathering.seconds, True
            )
        if any(self._simulated):
            return None
        self._wait()
        start = time.perf_counter()
        outputs = [
            self._forward(copied, [item.to(device, non_blocking=True) for item in chunk])
            for device, copied, chunk in working
        ]
        _gathered(outputs, self._devices[0])
        self._wait()
        return TimedSeconds(time.perf_counter() - start, False)

    def _forward(self, copied: nn.Module, inputs: Inputs) -> Any:
        return run.run(copied, self._path, inputs, explain=self._explain)

    def _timed(self, work: Callable[[], Any], device: str, sources: Sequence[Any] = ()) -> tuple[Any, TimedSeconds]:
        """What ends on `device`; `sources` are the tensors that go there."""
        starts = {device_id(item.device) for item in sources if isinstance(item, Tensor)}
        timing = Timing(self._registry, [device], starts)
        result = work()
        return result, TimedSeconds(timing.stop()[0], timing.simulated)

    def _wait(self) -> None:
        for device in self._devices:
            self._registry.backend(device).synchronize(device)


@contextmanager
def _evaluating(models: Sequence[nn.Module]) -> Iterator[None]:
    """Evaluation mode inside; every module gets its own mode back."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    try:
        for model in models:
            model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _moved(inputs: Inputs, device: str) -> Inputs:
    return [item.to(device) for item in inputs]


def _gathered(outputs: Sequence[Any], device: str) -> Any:
    """Every tensor of the outputs, joined along dimension 0 on one device; scalars are stacked, as DataParallel
    does."""

    def join(*parts: Any) -> Any:
        if not isinstance(parts[0], Tensor):
            return parts[0]
        there = [part.to(device) for part in parts]
        return torch.cat(there) if parts[0].dim() else torch.stack(there)

    return tree_map(join, outputs[0], *outputs[1:])


def _compared(gathered: Any, full: Any) -> tuple[float, float, int]:
    """The largest difference, the largest value, and how many tensors of the output cannot be compared."""
    difference = largest = 0.0
    unlike = 0
    for ours, theirs in zip(tree_flatten(gathered)[0], tree_flatten(full)[0], strict=True):
        if not isinstance(theirs, Tensor):
            continue
        if ours.shape != theirs.shape:
            unlike += 1
        elif theirs.numel():
            a, b = ours.cpu(), theirs.cpu()
            a, b = (a.to(torch.float64), b.to(torch.float64)) if not a.is_complex() else (a, b)
            difference = max(difference, (a - b).abs().max().item())
            largest = max(largest, b.abs().max().item())
    return difference, largest, unlike
