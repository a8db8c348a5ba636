"""Puts a copy of a model on each of several devices and runs a batch over all of them, as DataParallel does. Runs on
the jobs thread.

The original is copied and otherwise left alone; the copies stay, as separate objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

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
from devexplorer.core.benchmark.checking import Checks
from devexplorer.core.experiments.records import Replicate
from devexplorer.core.experiments.replica_run import Inputs, Part, Ran, ReplicaRun
from devexplorer.core.models import Operand, device_id, is_uninitialised, operand, parameters_and_buffers
from devexplorer.core.records import Answer, Fact
from devexplorer.core.workspace import CommandResult, CreateChange, Target, Workspace, run_code
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
    part: Part


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
    ran: Ran
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
    arrival = f"{seconds_text(*part.copying)} to get there" if part.copying.seconds else "there already"
    return f"{held}, {count_text(part.rows, 'row')}: {arrival}, {seconds_text(*part.forward)} forward"


def _code(done: Replicas) -> str:
    """Its own names begin with an underscore: no object has such a one."""
    names = [variable(replica.name) for replica in done.replicas]
    devices = ", ".join(quoted(replica.device) for replica in done.replicas)
    made = run_code.sample(expression(done.target), done.inputs, done.source) if not done.given else [""]
    given = f"({', '.join(map(variable, done.given))},)" if done.given else run_code.INPUTS
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
