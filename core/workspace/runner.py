"""Runs a model of the workspace forward and backward, times it, and notes what that left behind in the model. Runs on
the jobs thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from devexplorer.core.base.errors import BadInput
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import run
from devexplorer.core.models.gradient_cuts import NOTHING_MISSING, no_backward, without_gradient
from devexplorer.core.models.guard import settings_kept
from devexplorer.core.models.run import operand
from devexplorer.core.models.walk import device_id, is_uninitialised
from devexplorer.core.virtual.backend import backward_guard
from devexplorer.core.workspace.meter import Meter
from devexplorer.core.workspace.plan import MoveTarget
from devexplorer.core.workspace.reports import Ran

LAZY_SEED = 0
"""Of the values that lazy parameters get."""


class Runner:
    """Runs models on the devices of a fleet."""

    def __init__(self, fleet: DeviceRegistry, meter: Meter, explain: run.Explain | None = None) -> None:
        self._fleet, self._meter = fleet, meter
        self.explain = explain
        """Is asked why a forward failed for where its operands are."""

    def run(
        self, aim: MoveTarget, inputs: Sequence[Tensor], given: Sequence[str], *, backward: bool
    ) -> tuple[Ran, Tensor | None]:
        """Forward, and with `backward` the backward of the output's sum; returns what happened and the first tensor of
        the output.

        `given` are the names of the inputs, none for a sample. Raises `RunFailed`, or `BadInput` where there is no
        backward. Settings of the process that the model's code changes are put back.
        """
        with settings_kept():  # around the timing: it takes longer than a small layer
            return self._run(aim, inputs, given, backward=backward)

    def _run(
        self, aim: MoveTarget, inputs: Sequence[Tensor], given: Sequence[str], *, backward: bool
    ) -> tuple[Ran, Tensor | None]:
        model = aim.thing
        if isinstance(model, Tensor):
            raise BadInput(f"'{aim.title}' is a tensor and cannot be run; choose a model")
        had_gradients = any(p.grad is not None for p in model.parameters() if not is_uninitialised(p))
        waiting, buffers = _waiting(model), _buffers(model)
        devices = sorted({device_id(t.device) for t in (*inputs, *model.parameters(), *model.buffers())})
        self._synchronize(devices)  # what was waiting there is no part of this run
        timing = self._meter.start(devices)
        entered: set[int] = set()
        with _seeded(devices) if waiting else nullcontext():
            output = run.run(model, aim.path, inputs, entered, self.explain)
        retained = backward and any(one.grad_fn is not None for one in inputs)
        if backward:
            self._backward(aim, model, output, entered, retain_graph=retained)
        self._synchronize(devices)
        seconds, wall = timing.stop()
        first = run.first_tensor(output)
        ran = Ran(
            target=aim.title,
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
            missing=without_gradient(model, entered, path=aim.path) if backward else NOTHING_MISSING,
            retained=retained,
        )
        return ran, first

    def _synchronize(self, devices: Sequence[str]) -> None:
        for device in devices:
            self._fleet.backend(device).synchronize(device)

    def _backward(
        self, aim: MoveTarget, model: nn.Module, output: Any, entered: set[int], *, retain_graph: bool
    ) -> None:
        loss = run.total(output)
        if loss is None:
            why = no_backward(without_gradient(model, entered, path=aim.path))
            raise BadInput(
                f"the output of '{aim.title}' does not depend on anything that requires a gradient, so there is no"
                f" backward{why}"
            )
        virtual = any(
            info.simulated for info in self._fleet.infos()
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
