"""One run of the replicas of a model: each its rows, gathered, and compared with the whole batch on one device. Runs on
the jobs thread.

Everything runs in evaluation mode and without a graph: there batch norm and dropout treat each row alone, so that the
gathered output has to equal that of one device with the whole batch.
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

from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import Operand, device_id, operand, run, settings_kept
from devexplorer.core.workspace import Timing

Inputs = list[Tensor]


class Timed(NamedTuple):
    """Seconds on the wall, or on the clock of a simulated device."""

    seconds: float
    simulated: bool


class Part(NamedTuple):
    """What one device did."""

    rows: int
    copying: Timed
    """Its rows to its device."""
    forward: Timed


NOTHING = Part(0, Timed(0.0, False), Timed(0.0, False))
"""What a device does that gets no rows."""


class Ran(NamedTuple):
    """What all of them did."""

    parts: tuple[Part, ...]
    """By device; one without rows had nothing to do."""
    outputs: tuple[Operand, ...]
    """The gathered ones."""
    difference: float
    """The largest between them and the output of one device with the whole batch."""
    largest: float
    """Size of the largest value of that output."""
    unlike: int
    """Outputs whose shape is not that of the whole batch's: their batch is not dimension 0."""
    gathering: Timed
    alone: Timed
    """The first device with the whole batch."""
    together: Timed | None
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

    def all(self, inputs: Inputs, chunks: Sequence[Inputs]) -> Ran:
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
                parts.append(Part(len(chunk[0]), copying, forward))
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
        return Ran(tuple(parts), results, difference, largest, unlike, gathering, alone, together)

    def _together(
        self, working: Sequence[tuple[str, nn.Module, Inputs]], parts: Sequence[Part], gathering: Timed
    ) -> Timed | None:
        """All at once: launched on every device before any is waited for; None where the clocks have nothing in
        common."""
        if all(self._simulated):  # they share nothing, so the slowest one counts
            return Timed(max(part.copying.seconds + part.forward.seconds for part in parts) + gathering.seconds, True)
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
        return Timed(time.perf_counter() - start, False)

    def _forward(self, copied: nn.Module, inputs: Inputs) -> Any:
        return run.run(copied, self._path, inputs, explain=self._explain)

    def _timed(self, work: Callable[[], Any], device: str, sources: Sequence[Any] = ()) -> tuple[Any, Timed]:
        """What ends on `device`; `sources` are the tensors that go there."""
        starts = {device_id(item.device) for item in sources if isinstance(item, Tensor)}
        timing = Timing(self._registry, [device], starts)
        result = work()
        return result, Timed(timing.stop()[0], timing.simulated)

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
