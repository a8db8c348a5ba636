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
from devexplorer.core.experiments.replicate_messages import Replica, Replicas, replicated
from devexplorer.core.models.run import operand
from devexplorer.core.models.walk import device_id, is_uninitialised
from devexplorer.core.records.experiments import Replicate
from devexplorer.core.workspace.changes import CreateChange
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.runs import given_names, inputs_of
from devexplorer.core.workspace.targets import Target
from devexplorer.core.workspace.workspace import Workspace


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
            f"there is no device beside {registry.usable()[0]} here"
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
    held = [*model.parameters(), *model.buffers()]
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
    taken = {python_names.variable(name) for name in workspace.names}
    first = 0
    while any(python_names.variable(f"{stem}-{number}") in taken for number in range(first, first + count)):
        first += 1
    return tuple(f"{stem}-{number}" for number in range(first, first + count))
