"""Runs models forward and backward, times them, and keeps what Undo needs to take back what a run leaves. Runs on the
jobs thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from devexplorer.core.base import python_names
from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.progress import NO_PROGRESS
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import run
from devexplorer.core.models.gradient_cuts import NOTHING_MISSING, no_backward, without_gradient
from devexplorer.core.models.guard import settings_kept
from devexplorer.core.models.inputs import sampled
from devexplorer.core.models.run import operand
from devexplorer.core.models.walk import device_id, is_uninitialised
from devexplorer.core.records.messages import Backward, Forward
from devexplorer.core.virtual.backend import backward_guard
from devexplorer.core.workspace.changes import CreateChange
from devexplorer.core.workspace.mementos import ObjectMemento, before_leaves
from devexplorer.core.workspace.meter import Meter
from devexplorer.core.workspace.plan import MoveTarget
from devexplorer.core.workspace.reports import Ran

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace

LAZY_SEED = 0
"""Of the values that lazy parameters get."""


class Runner:
    """Runs models on the devices of a registry."""

    def __init__(self, registry: DeviceRegistry, meter: Meter, explain: run.Explain | None = None) -> None:
        self._registry, self._meter = registry, meter
        self.explain = explain
        """Is asked why a forward failed for where its operands are."""

    def run(
        self, target: MoveTarget, inputs: Sequence[Tensor], given: Sequence[str], *, backward: bool
    ) -> tuple[Ran, Tensor | None]:
        """Forward, and with `backward` the backward of the output's sum; returns what happened and the first tensor of
        the output.

        `given` are the names of the inputs, none for a sample. Raises `RunFailed`, or `BadInput` where there is no
        backward. Settings of the process that the model's code changes are put back.
        """
        with settings_kept():  # around the timing: it takes longer than a small layer
            return self._run(target, inputs, given, backward=backward)

    def _run(
        self, target: MoveTarget, inputs: Sequence[Tensor], given: Sequence[str], *, backward: bool
    ) -> tuple[Ran, Tensor | None]:
        model = target.thing
        if isinstance(model, Tensor):
            raise BadInput(f"'{target.title}' is a tensor and cannot be run; choose a model")
        had_gradients = any(p.grad is not None for p in model.parameters() if not is_uninitialised(p))
        waiting, buffers = _waiting(model), _buffers(model)
        devices = sorted({device_id(t.device) for t in (*inputs, *model.parameters(), *model.buffers())})
        self._synchronize(devices)  # what was waiting there is no part of this run
        timing = self._meter.start(devices)
        entered: set[int] = set()
        with _seeded(devices) if waiting else nullcontext():
            output = run.run(model, target.path, inputs, entered, self.explain)
        retained = backward and any(item.grad_fn is not None for item in inputs)
        if backward:
            self._backward(target, model, output, entered, retain_graph=retained)
        self._synchronize(devices)
        seconds, wall = timing.stop()
        first = run.first_tensor(output)
        ran = Ran(
            target=target.title,
            inputs=tuple(operand(f"input {index}", tensor) for index, tensor in enumerate(inputs)),
            given=tuple(given),
            output=None if first is None else operand("output", first),
            kept_as=None,
            grad_fn=None if first is None or first.grad_fn is None else first.grad_fn.name(),
            seconds=seconds,
            wall_seconds=wall,
            simulated=timing.simulated,
            gradients=sum(p.grad is not None for p in model.parameters() if not is_uninitialised(p)),
            accumulated=backward and had_gradients,
            changed_buffers=_keeps_statistics(model) or _buffers(model) != buffers,
            initialised=_waiting(model) < waiting,
            bare=isinstance(output, Tensor),
            missing=without_gradient(model, entered, path=target.path) if backward else NOTHING_MISSING,
            retained=retained,
        )
        return ran, first

    def _synchronize(self, devices: Sequence[str]) -> None:
        for device in devices:
            self._registry.backend(device).synchronize(device)

    def _backward(
        self, target: MoveTarget, model: nn.Module, output: Any, entered: set[int], *, retain_graph: bool
    ) -> None:
        loss = run.total(output)
        if loss is None:
            why = no_backward(without_gradient(model, entered, path=target.path))
            raise BadInput(
                f"the output of '{target.title}' does not depend on anything that requires a gradient, so there is no"
                f" backward{why}"
            )
        virtual = any(
            info.simulated for info in self._registry.infos()
        )  # the loss on the CPU, a layer on a virtual GPU: that happens
        try:
            with backward_guard() if virtual else nullcontext():
                loss.backward(retain_graph=retain_graph)
        except Exception as error:
            raise run.failed_backward(error) from error


@contextmanager
def _seeded(devices: Sequence[str]) -> Iterator[None]:
    """Draw the first values of lazy parameters from a seed: Redo and a script give the same. Generators are left as
    they were."""
    cards = [int(device.partition(":")[2]) for device in devices if device.startswith("cuda:")]
    with torch.random.fork_rng(devices=cards):
        torch.default_generator.manual_seed(LAZY_SEED)
        for card in cards:
            with torch.cuda.device(card):
                torch.cuda.manual_seed(LAZY_SEED)
        yield


def _waiting(model: nn.Module) -> int:
    """How many lazy parameters and buffers have no shape yet."""
    return sum(is_uninitialised(tensor) for tensor in (*model.parameters(), *model.buffers()))


def _buffers(model: nn.Module) -> list[tuple[int, int]]:
    """Identity of each buffer, and how often it was changed in place; inference tensors do not count that."""
    held = [buffer for buffer in model.buffers() if not is_uninitialised(buffer)]
    return [(id(buffer), 0 if buffer.is_inference() else buffer._version) for buffer in held]


def _keeps_statistics(model: nn.Module) -> bool:
    """Whether a forward of this model updates running statistics: batch norm writes them without counting it."""
    return any(module.training and module._buffers.get("running_mean") is not None for module in model.modules())


# --- commands


def forward(workspace: Workspace, command: Forward) -> Ran:
    """Run a model or a part of it; the output is kept, without its graph, only when it is given a name."""
    if command.output is not None:
        python_names.checked_name(command.output, workspace.names)
    ran, output = _run(workspace, command)
    if command.output is None:
        return ran
    if output is None:
        raise BadInput(f"'{command.target}' returned no tensor that could be named '{command.output}'")
    name = workspace.add(command.output, output.detach())
    workspace.changed(f"the new tensor {name}", CreateChange((name,)), command=command)
    return ran._replace(kept_as=name)


def backward(workspace: Workspace, command: Backward) -> Ran:
    """Forward, sum, backward: gradients are added to those that are there."""
    ran, _ = _run(workspace, command)
    return ran


def given_names(text: str | None) -> tuple[str, ...]:
    """`x, y` -> the names of two tensors."""
    return () if text is None else tuple(part.strip() for part in text.split(","))


def inputs_of(workspace: Workspace, target: MoveTarget, given: Sequence[str]) -> list[Tensor]:
    """The named tensors; or else what the model takes as far as it is known or can be guessed, on its device and in its
    dtype."""
    if given or isinstance(target.thing, Tensor):
        return [workspace.tensor_named(name) for name in given]
    if target.path:
        raise BadInput(f"'{target.title}' needs an input; create a tensor and choose it")
    return sampled(target.thing, target.name, workspace.extras(target.name))


def before_inputs(workspace: Workspace, given: Sequence[str], inputs: Sequence[Tensor]) -> list[ObjectMemento]:
    """Images of the tensors that a backward from these inputs brings gradients to."""
    objects: dict[str, nn.Module | Tensor] = {name: workspace.get(name) for name in workspace.names}
    return before_leaves(objects, dict(zip(given, inputs, strict=True))) if given else []


def reached(leaves: Sequence[ObjectMemento]) -> tuple[str, ...]:
    """The names of the objects that these are images of."""
    return tuple(dict.fromkeys(image.name for image in leaves))


def _run(workspace: Workspace, command: Forward | Backward) -> tuple[Ran, Tensor | None]:
    target, back = workspace.target(command.target), isinstance(command, Backward)
    fed = given_names(command.input)
    inputs = inputs_of(workspace, target, fed)
    before = [workspace.before(target.name, gradients=back, buffers=True, within=target.path)]
    leaves = before_inputs(workspace, fed, inputs) if back else []
    before += leaves
    try:
        ran, output = workspace.runner.run(target, inputs, fed, backward=back)
        if ran.changed_buffers or ran.initialised or back:
            _ran(workspace, f"the {'backward' if back else 'forward'} of {target.title}", before, command)
        return ran._replace(reached=reached(leaves)), output
    except BaseException:  # it can have come far enough to change statistics, or to give lazy parameters their shape
        for image in before:
            if image is not None:
                image.undo(workspace, NO_PROGRESS)
        raise
    # the first forward of a lazy model makes its parameters; gradients arrive in every tensor that led to an input
    finally:
        workspace.publish(target.name, *reached(leaves))


def _ran(workspace: Workspace, title: str, before: Sequence[ObjectMemento | None], command: Forward | Backward) -> None:
    if None in before:
        workspace.history.cannot_undo()
    else:
        workspace.changed(title, *(image for image in before if image is not None), command=command)
