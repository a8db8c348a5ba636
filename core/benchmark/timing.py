"""How one block of iterations is timed on each kind of device. Runs on the thread that runs the benchmark.

A timer calls `operation` so many times and returns the seconds on the device's own clock:

- CPU: the block as a whole on the wall clock, nothing between the iterations; one figure per block.
- CUDA: events between the iterations, queued, one synchronisation per block; one figure per iteration (or per small group).
- other accelerators: the block as a whole on the wall clock between two synchronisations.
- virtual: the simulated clock; one iteration goes through the dispatcher and pays its cost, the others of the block cost
  the same and are booked; then the block is paced so that simulated seconds pass like seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

if TYPE_CHECKING:
    from devexplorer.core.virtual.machine import VirtualMachine

Operation = Callable[[], object]
MOST_EVENTS = 200
"""CUDA events per block; they are made once and used again."""


class Block(NamedTuple):
    """One timed block."""

    iterations: int
    seconds: float
    """All of the block, on the device's clock."""
    samples: tuple[float, ...]
    """Seconds per iteration: one figure per iteration where they are timed one by one, else the block's mean."""


class BlockTimer(Protocol):
    """Times blocks on one device."""

    simulated: bool

    def block(self, operation: Operation, iterations: int) -> Block:
        """Call `operation` `iterations` times (at least 1) and time it."""
        ...


class CpuTimer:
    """Wall clock around the whole block, so that the figure is that of a bare loop."""

    simulated = False

    def block(self, operation: Operation, iterations: int) -> Block:
        """See `BlockTimer`."""
        start = time.perf_counter()
        for _ in range(iterations):
            operation()
        seconds = time.perf_counter() - start
        return Block(iterations, seconds, (seconds / iterations,))


class CudaTimer:
    """Events between the iterations, queued; one synchronisation per block (per-iteration waits cost up to 19 %).

    A block of more than `MOST_EVENTS` iterations has an event every so many of them, and a sample is the mean of those.
    """

    simulated = False

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._events: list[torch.cuda.Event] = []

    def block(self, operation: Operation, iterations: int) -> Block:
        """See `BlockTimer`."""
        with torch.cuda.device(self._device):
            group = -(-iterations // MOST_EVENTS)
            groups = [min(group, iterations - done) for done in range(0, iterations, group)]
            while len(self._events) <= len(groups):
                self._events.append(torch.cuda.Event(enable_timing=True))
            events = self._events[: len(groups) + 1]
            events[0].record()
            for event, size in zip(events[1:], groups, strict=True):
                for _ in range(size):
                    operation()
                event.record()
            torch.cuda.synchronize(self._device)
            seconds = [before.elapsed_time(after) / 1e3 for before, after in pairwise(events)]
        return Block(iterations, sum(seconds), tuple(spent / size for spent, size in zip(seconds, groups, strict=True)))


class SynchronisedTimer:
    """Wall clock between two synchronisations, for accelerators without events that we have tried."""

    simulated = False

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize

    def block(self, operation: Operation, iterations: int) -> Block:
        """See `BlockTimer`."""
        self._synchronize()
        start = time.perf_counter()
        for _ in range(iterations):
            operation()
        self._synchronize()
        seconds = time.perf_counter() - start
        return Block(iterations, seconds, (seconds / iterations,))


class VirtualTimer:
    """The calling thread's time on a virtual GPU's simulated clock, paced to the wall so that live curves move as a real card's would."""

    simulated = True

    def __init__(self, device: str, machine: VirtualMachine, stop: threading.Event) -> None:
        self._device = device
        self._machine = machine
        self._stop = stop

    def block(self, operation: Operation, iterations: int) -> Block:
        """See `BlockTimer`."""
        start = time.perf_counter()
        before = self._machine.clock_seconds(self._device)
        operation()
        each = self._machine.clock_seconds(self._device) - before
        # Booked in slices of at most 20 ms while the wall passes, so that a reading in the middle of the block sees a busy device.
        booked, total = 1, iterations * each
        while booked < iterations and not self._stop.is_set():
            share = min(iterations - booked, max(int(0.02 / each), 1))
            self._machine.advance(self._device, share * each)
            booked += share
            self._stop.wait(max(booked * each - (time.perf_counter() - start), 0.0))
        self._stop.wait(max(total - (time.perf_counter() - start), 0.0) if booked == iterations else 0.0)
        return Block(booked, booked * each, (each,))
