"""Puts a copy of a model on each of several devices and runs a batch over all of them, as DataParallel does. Runs on
the jobs thread.

The original is copied and otherwise left alone; the copies stay, as objects of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from devexplorer.core.base import python_names
from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.benchmark.checking import Checks
from devexplorer.core.experiments.replica_run import Inputs, ReplicaRun
from devexplorer.core.experiments.replicate_words import Replica, Replicas, replicated
from devexplorer.core.models.extras import Extras
from devexplorer.core.models.run import operand
from devexplorer.core.models.walk import device_id, is_uninitialised
from devexplorer.core.records.experiments import Replicate
from devexplorer.core.workspace.changes import CreateChange
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.plan import MoveTarget
from devexplorer.core.workspace.running import inputs_of
from devexplorer.core.workspace.workspace import Workspace


def replicate(workspace: Workspace, command: Replicate, progress: ProgressMonitor) -> CommandResult:
    """The copies as new objects, and what their run was like; all of it or nothing.

    Raises `BadInput` before anything is copied, `DoesNotFit`, `MoveFailed`, or `RunFailed`.
    """
    aim, model, devices = _checked(workspace, command)
    given = () if not command.input else tuple(part.strip() for part in command.input.split(","))
    inputs = inputs_of(workspace, aim, given)
    rows = _rows(aim, inputs)
    chunks = _chunked(inputs, len(devices))
    mover = Mover(workspace.fleet)
    copies: list[nn.Module] = []
    for number, device in enumerate(devices):
        progress.report(number / (2 * len(devices)), f"a copy on {device}")
        _, made = mover.duplicate([aim], device, None, progress)
        copies += [thing for thing in made if isinstance(thing, nn.Module)]
    progress.report(0.5, "running")
    ran = ReplicaRun(workspace.fleet, aim.path, devices, copies, workspace.runner.explain).all(inputs, chunks)
    known = _names(workspace, aim, len(devices))
    own = workspace.extras(aim.name)
    for name, copied in zip(known, copies, strict=True):
        workspace.add(
            name, copied, None if aim.path else Extras(own.recipe, own.source, own.inputs, own.guessed, seed=own.seed)
        )
    workspace.changed(f"the replication of {aim.title}", CreateChange(known), command=command)
    snapshots = tuple(workspace.snapshot(name) for name in known)
    replicas = tuple(
        Replica(name, device, snapshot.bytes_by_device.get(device, 0), part)
        for name, device, snapshot, part in zip(known, devices, snapshots, ran.parts, strict=True)
    )
    done = Replicas(
        target=aim.title,
        replicas=replicas,
        rows=rows,
        inputs=tuple(operand(f"input {index}", one) for index, one in enumerate(inputs)),
        given=given,
        source=own.source,
        ran=ran,
        statistics=any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules()),
        training=model.training,
    )
    return CommandResult(replicated(done), snapshots)


def _checked(workspace: Workspace, command: Replicate) -> tuple[MoveTarget, nn.Module, tuple[str, ...]]:
    fleet = workspace.fleet
    aim = workspace.aim(command.target)
    checks = Checks(fleet)
    devices = checks.devices(command.devices)
    twice = [device for device in dict.fromkeys(devices) if devices.count(device) > 1]
    if twice:
        checks.add(f"{twice[0]} is named twice; name each device once")
    elif len(command.devices) < 2:
        others = [device for device in fleet.usable() if device != "cpu"]
        there = (
            f"there is no device beside {fleet.usable()[0]} here"
            if not others
            else f"there are {', '.join(fleet.usable())}"
        )
        checks.add(
            f"a model is replicated over two devices at least, and {there}; name two",
            virtual_helps=not any(info.simulated for info in fleet.infos()),
        )
    if isinstance(aim.thing, Tensor):
        checks.add(f"'{aim.title}' is a tensor; choose a model to replicate")
        checks.demand_none()
    model = aim.thing
    assert isinstance(model, nn.Module)
    held = [*model.parameters(), *model.buffers()]
    homes = sorted({device_id(tensor.device) for tensor in held})
    if len(homes) > 1:
        checks.add(
            f"'{aim.title}' is on {' and '.join(homes)}; bring it together on one device before it is replicated"
        )
    if workspace.extras(aim.name).hops is not None:
        checks.add(
            f"activations follow the parts of '{aim.name}' (it has hops); take those away before it is replicated"
        )
    if any(is_uninitialised(tensor) for tensor in held):
        checks.add(f"'{aim.title}' has parameters without a shape: run it once before it is replicated")
    checks.demand_none()
    return aim, model, devices


def _rows(aim: MoveTarget, inputs: Sequence[Tensor]) -> int:
    """Rows of the batch, which is dimension 0 of every input."""
    sizes = {one.shape[0] if one.dim() else 0 for one in inputs}
    if len(sizes) != 1 or 0 in sizes:
        shapes = ", ".join(str(tuple(one.shape)) for one in inputs)
        raise BadInput(
            f"the batch is dimension 0 of every input of '{aim.title}', of one size and not empty; these are {shapes}"
        )
    return sizes.pop()


def _chunked(inputs: Sequence[Tensor], count: int) -> list[Inputs]:
    """The rows of each device, as `torch.chunk` splits them: equal parts, the last one smaller, and maybe fewer of them
    than devices."""
    parts = [one.detach().chunk(count) for one in inputs]
    return [list(part) for part in zip(*parts, strict=True)]


def _names(workspace: Workspace, aim: MoveTarget, count: int) -> tuple[str, ...]:
    """`mlp-0`, `mlp-1`, …; numbered on where there are some already."""
    stem = f"{aim.name}-{aim.path.rpartition('.')[2]}" if aim.path else aim.name
    stem = stem[: python_names.LENGTH_LIMIT - 6]
    taken = {python_names.variable(name) for name in workspace.names}
    first = 0
    while any(python_names.variable(f"{stem}-{number}") in taken for number in range(first, first + count)):
        first += 1
    return tuple(f"{stem}-{number}" for number in range(first, first + count))
