"""What every kind of benchmark run has (`Runner`), and how one block of iterations is timed on each kind of device,
with streams and timing events of an accelerator. On the thread that runs the benchmark.

`torch.Stream`, `torch.Event` and `torch.accelerator` work on every backend that follows PyTorch's own
reference backend, also where the device module has next to nothing. They serve torch's current accelerator only.

A run is driven from outside, one bounded step after the other, so that it can be stopped between any two of them and
CPU runs can share the jobs thread with commands: `prepare()`, then `step()` until it returns None, then `result()`.

A timer calls `operation` so many times and returns the seconds on the device's own clock, in two ways:

`block`, one iteration right after the other:
- CPU: the block as a whole on the wall clock, nothing between the iterations; one figure per block.
- CUDA: events between the iterations, queued, one synchronisation per block; one figure per iteration (or per small
  group).
- other accelerators: as CUDA, with torch's generic events; where a backend has none that keep their time, and for any
  block of which they tell what the wall contradicts, the block as a whole on the wall clock between two
  synchronisations.
- virtual: the simulated clock; one iteration goes through the dispatcher and pays its cost, the others of the block
  cost the same and are booked; then the block is paced so that simulated seconds pass like seconds (live curves), or
  not (`paced=False`).

`singly`, each iteration a figure of its own, with something between them that is not counted (a cache flush):
- CUDA, other accelerators with events: a pair of events around each iteration, all queued, one synchronisation per
  block.
- CPU, accelerators without events: the wall clock around each iteration where there is a flush between them. Without
  one, around as many as the clock needs to tell them well (`CPU_SHORTEST_SECONDS`): the figure is their mean.
- virtual: as `block`; the cost model has no cache, every byte comes from memory each time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from devexplorer.core.base import Clock, Unavailable, first_line
from devexplorer.core.devices import accelerator
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.records import BenchPoint, BenchResult, BenchSpec
from devexplorer.core.virtual.device.cost import overlapped
from devexplorer.core.virtual.device.machine import VirtualMachine
from devexplorer.core.virtual.operators.work import module_calls


class CudaStreams:
    """`torch.cuda`."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)

    def here(self) -> AbstractContextManager[Any]:
        """Makes the device this thread's current one: `event().record()` is then about its current stream."""
        return torch.cuda.device(self._device)

    def event(self) -> Any:
        """A new event that keeps its time."""
        return torch.cuda.Event(enable_timing=True)

    def stream(self) -> Any:
        """A new stream."""
        return torch.cuda.Stream(self._device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Work of this thread goes to that stream."""
        return torch.cuda.stream(stream)

    def wait(self) -> None:
        """Until the device has done all its work."""
        torch.cuda.synchronize(self._device)


class AcceleratorStreams:
    """torch's generic interface, of the accelerator that it is about. `Unavailable` where that has no events that keep
    their time."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        current = accelerator.current(torch)
        if current is None or current.type != self._device.type:
            raise Unavailable(f"torch's generic streams and events are about {current}, not about {device}")
        try:
            with self.here():
                first, last = self.event(), self.event()
                first.record()
                last.record()
                self.wait()
                first.elapsed_time(last)
        except Exception as error:  # a third-party package: it may lack anything and raise anything
            raise Unavailable(f"events on {device} keep no time: {first_line(error)}") from error

    def here(self) -> AbstractContextManager[Any]:
        """See `CudaStreams`."""
        return torch.accelerator.device_index(self._device.index or 0)

    def event(self) -> Any:
        """See `CudaStreams`."""
        return torch.Event(self._device, enable_timing=True)

    def stream(self) -> Any:
        """See `CudaStreams`."""
        return torch.Stream(self._device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """See `CudaStreams`."""
        return stream  # type: ignore[no-any-return]  # a stream is its own context

    def wait(self) -> None:
        """See `CudaStreams`."""
        torch.accelerator.synchronize(self._device.index or 0)


Streams = CudaStreams | AcceleratorStreams
"""What timing asks of one device."""


def streams_of(device: str) -> Streams:
    """Raises `Unavailable` where an accelerator has none."""
    return CudaStreams(device) if device.startswith("cuda") else AcceleratorStreams(device)


Operation = Callable[[], object]
MOST_EVENTS = 200
"""Events per block of `block`; they are made once and used again."""
MOST_PAIRS = 1000
"""Pairs of events per block of `singly`."""
CPU_SHORTEST_SECONDS = 2e-4
"""What the wall clock can tell to within 0.1 %: reading it twice costs about 0.1 µs, and what else a timed call costs
is about as much."""
EVENTS_OVER_WALL = 1.01
"""How much more than the wall events may tell: two clocks differ a little."""
SLICE_SECONDS = 0.02
"""A paced block of a virtual GPU is booked in slices of this length."""


class TimedBlock(NamedTuple):
    """One timed block."""

    iterations: int
    seconds: float
    """All iterations together, on the device's clock."""
    samples: tuple[float, ...]
    """Seconds per iteration: one figure per iteration where they are timed one by one, else the mean of a group or of
    the block."""
    between: float = 0.0
    """What passed between the iterations and is not counted: cache flushes."""

    @property
    def spent(self) -> float:
        """All that passed."""
        return self.seconds + self.between


class BlockTimer:
    """Times blocks on one device."""

    simulated = False

    def now(self) -> float:
        """Seconds on the clock by which budgets are spent: the wall, or the simulated clock."""
        return time.perf_counter()

    def block(self, operation: Operation, iterations: int) -> TimedBlock:
        """Call `operation` `iterations` times (at least 1), one right after the other, and time it."""
        raise NotImplementedError

    def singly(self, operation: Operation, iterations: int, each: float, flush: Operation | None = None) -> TimedBlock:
        """Call `operation` at most `iterations` times, `flush` before each, and time each alone; `each`: about how long
        one takes."""
        raise NotImplementedError

    def on_device(
        self, operation: Operation, iterations: int, each: float, ahead: Operation | None = None
    ) -> TimedBlock:
        """As `singly`, but what the device alone takes: where `ahead` keeps it busy for longer than the host needs to
        launch `operation`, launches are not in the figure."""
        return self.singly(operation, iterations, each, ahead)


class CpuTimer(BlockTimer):
    """Wall clock around the whole block, so that the figure is that of a bare loop."""

    def block(self, operation: Operation, iterations: int) -> TimedBlock:
        """See `BlockTimer`."""
        self._wait()
        start = time.perf_counter()
        for _ in range(iterations):
            operation()
        self._wait()
        seconds = time.perf_counter() - start
        return TimedBlock(iterations, seconds, (seconds / iterations,))

    def singly(self, operation: Operation, iterations: int, each: float, flush: Operation | None = None) -> TimedBlock:
        """See `BlockTimer`. Without a flush, as many iterations at once as the wall clock needs; a last group that
        would be shorter is left out."""
        if flush is not None:
            group = 1
        elif each * iterations <= CPU_SHORTEST_SECONDS:
            group = iterations
        else:
            group = max(ceil(CPU_SHORTEST_SECONDS / each), 1)
        samples, seconds, start = [], 0.0, time.perf_counter()
        for _ in range(max(iterations // group, 1)):
            if flush is not None:
                flush()
            part = self.block(operation, group)
            samples.append(part.samples[0])
            seconds += part.seconds
        return TimedBlock(
            len(samples) * group, seconds, tuple(samples), max(time.perf_counter() - start - seconds, 0.0)
        )

    def _wait(self) -> None:
        """Until the device has done all its work: the CPU has when a call returns."""


class SynchronisedTimer(CpuTimer):
    """Wall clock between two synchronisations, for Apple's GPU and accelerators without events that keep their time.

    A figure of `singly` contains one synchronisation.
    """

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize

    def _wait(self) -> None:
        self._synchronize()


class EventTimer(BlockTimer):
    """Events between the iterations, queued; one synchronisation per block (per-iteration waits cost up to 19 %).

    A block of more than `MOST_EVENTS` iterations has an event every so many of them, and a sample is the mean of those.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._events: list[Any] = []

    def _some_events(self, count: int) -> list[Any]:
        while len(self._events) < count:
            self._events.append(self._streams.event())
        return self._events[:count]

    def block(self, operation: Operation, iterations: int) -> TimedBlock:
        """See `BlockTimer`."""
        with self._streams.here():
            group = -(-iterations // MOST_EVENTS)
            groups = [min(group, iterations - done) for done in range(0, iterations, group)]
            events = self._some_events(len(groups) + 1)
            events[0].record()
            for event, size in zip(events[1:], groups, strict=True):
                for _ in range(size):
                    operation()
                event.record()
            self._streams.wait()
            seconds = [before.elapsed_time(after) / 1e3 for before, after in pairwise(events)]
        return TimedBlock(
            iterations, sum(seconds), tuple(spent / size for spent, size in zip(seconds, groups, strict=True))
        )

    def singly(self, operation: Operation, iterations: int, each: float, flush: Operation | None = None) -> TimedBlock:
        """See `BlockTimer`. While the card flushes, the host queues what comes next: launching small products does not
        slow them down."""
        iterations = min(iterations, MOST_PAIRS)
        start = self.now()
        with self._streams.here():
            events = self._some_events(2 * iterations)
            for before, after in zip(events[::2], events[1::2], strict=True):
                if flush is not None:
                    flush()
                before.record()
                operation()
                after.record()
            self._streams.wait()
            samples = tuple(
                before.elapsed_time(after) / 1e3 for before, after in zip(events[::2], events[1::2], strict=True)
            )
        seconds = sum(samples)
        return TimedBlock(iterations, seconds, samples, max(self.now() - start - seconds, 0.0))


class AcceleratorTimer(EventTimer):
    """With torch's generic events, whose times are taken for what they are only where the wall allows them.

    A third-party backend may give its events any clock: one that does not move, one of another unit. What lies between
    two events that were recorded one after the other is more than nothing, and no more than what passed on the wall
    until both were waited for.
    """

    def block(self, operation: Operation, iterations: int) -> TimedBlock:
        """See `BlockTimer`."""
        self._streams.wait()  # queued work must not count in the wall's time
        start = self.now()
        block = super().block(operation, iterations)
        wall = self.now() - start
        return (
            block
            if _possible(block.samples, block.seconds, wall)
            else TimedBlock(iterations, wall, (wall / iterations,))
        )

    def singly(self, operation: Operation, iterations: int, each: float, flush: Operation | None = None) -> TimedBlock:
        """See `BlockTimer`."""
        start = self.now()
        block = super().singly(operation, iterations, each, flush)
        if _possible(block.samples, block.seconds, self.now() - start):
            return block
        return SynchronisedTimer(self._streams.wait).singly(operation, iterations, each, flush)


def _possible(samples: Sequence[float], seconds: float, wall: float) -> bool:
    """Whether events can have told that: each more than nothing, together within the wall's time."""
    return min(samples) > 0 and seconds <= wall * EVENTS_OVER_WALL


class VirtualTimer(BlockTimer):
    """The calling thread's time on a virtual GPU's simulated clock.

    `paced`: simulated seconds pass like seconds, so that live curves move as a real card's would. Otherwise a block
    takes no longer than the one iteration that is carried out, and the device's clock has still been busy for all of
    them.
    """

    simulated = True

    def __init__(self, device: str, machine: VirtualMachine, stop: threading.Event, *, paced: bool = True) -> None:
        self._device = device
        self._machine = machine
        self._stop = stop
        self._paced = paced

    def now(self) -> float:
        """See `BlockTimer`."""
        return self._machine.clock_seconds(self._device)

    def block(self, operation: Operation, iterations: int) -> TimedBlock:
        """See `BlockTimer`."""
        start = time.perf_counter()
        before, launched = self.now(), self._machine.host_seconds(self._device)
        with module_calls(partial(self._machine.module_called, self._device)):
            operation()
        busy = self.now() - before
        each = overlapped(busy, self._machine.host_seconds(self._device) - launched)
        if not self._paced:
            self._machine.advance(self._device, (iterations - 1) * busy)
            return TimedBlock(iterations, iterations * each, (each,))
        # Booked in slices while the wall passes, so that a reading in the middle of the block sees a busy device.
        booked, total = 1, iterations * each
        while booked < iterations and not self._stop.is_set():
            share = min(iterations - booked, max(int(SLICE_SECONDS / each), 1))
            self._machine.advance(self._device, share * busy)
            booked += share
            self._pass(start + booked * each, each)
        if booked == iterations:
            self._pass(start + total, each)
        return TimedBlock(booked, booked * each, (each,))

    def _pass(self, end: float, each: float) -> None:
        """Wait until then, or until the run is stopped. An iteration longer than a slice was booked at once: the card
        is busy with it meanwhile."""
        seconds = max(end - time.perf_counter(), 0.0)
        if each > SLICE_SECONDS:
            self._machine.occupy(self._device, seconds)
        if self._stop.wait(seconds):
            self._machine.occupy(self._device, 0.0)

    def singly(self, operation: Operation, iterations: int, each: float, flush: Operation | None = None) -> TimedBlock:
        """See `BlockTimer`. Nothing is flushed."""
        return self.block(operation, iterations)

    def on_device(
        self, operation: Operation, iterations: int, each: float, ahead: Operation | None = None
    ) -> TimedBlock:
        """See `BlockTimer`: what one iteration keeps the card busy for."""
        before = self.now()
        operation()
        busy = self.now() - before
        return TimedBlock(1, busy, (busy,))


def timer_for(device: str, registry: DeviceRegistry, stop: threading.Event, *, paced: bool = True) -> BlockTimer:
    """The timer of this kind of device; `paced` concerns virtual GPUs."""
    match registry.info(device).kind:
        case "cpu":
            return CpuTimer()
        case "cuda":
            return EventTimer(CudaStreams(device))
        case "virtual":
            machine = registry.backend(device)
            assert isinstance(machine, VirtualMachine)
            return VirtualTimer(device, machine, stop, paced=paced)
        case "mps":
            return SynchronisedTimer(lambda: registry.backend(device).synchronize(device))
    try:
        return AcceleratorTimer(AcceleratorStreams(device))
    except Unavailable:
        return SynchronisedTimer(lambda: registry.backend(device).synchronize(device))


S = TypeVar("S", bound=BenchSpec)


class Runner(Generic[S]):
    """One run; each kind of benchmark has a subclass."""

    def __init__(self, spec: S, run: int, clock: Clock, *, simulated: bool, on_cpu: bool) -> None:
        """`spec` has been checked; `on_cpu`: whether the CPU computes some of it."""
        self.spec = spec
        self.run = run
        self.simulated = simulated
        self._clock = clock
        self._on_cpu = on_cpu

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Allocate, verify, warm up; ends early when `stopped()`. Raises what the device raises."""

    def step(self) -> BenchPoint | None:
        """Measure one block (50 ms, or one iteration where that is longer); None when there is nothing left to
        measure."""
        raise NotImplementedError

    def result(self, *, stopped: bool, failure: str | None = None) -> BenchResult | None:
        """What was measured so far; None when there is nothing. `failure`: why it ended before its time."""
        raise NotImplementedError

    def _point(self, text: str, **measured: Any) -> BenchPoint:
        """A point of this moment; `text` says what was measured."""
        shared: dict[str, Any] = {
            "run": self.run,
            "device": self.spec.device,
            "time_unix_s": self._clock(),
            "text": text,
            "simulated": self.simulated,
        }
        return BenchPoint(**shared | measured)

    def _shared(self, stopped: bool, failure: str | None) -> dict[str, Any]:
        """The fields that every result has, but for what was measured."""
        return {
            "run": self.run,
            "spec": self.spec,
            "stopped": stopped or failure is not None,
            "failure": failure,
            "simulated": self.simulated,
            "threads": torch.get_num_threads() if self._on_cpu else None,
            "torch_version": str(torch.__version__),  # a subclass of str, which the link does not know
        }
