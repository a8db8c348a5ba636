"""Clocks of a run: the processor's, events of a CUDA stream, the simulated one of virtual GPUs. The thread that is
observed.

None of them ever waits for a device: the time between two events is asked for once `query` says that both are over.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from threading import get_ident, get_native_id
from time import perf_counter_ns
from typing import Any

SIMULATORS = (
    ("devexplorer.core.virtual.operators.tensor", "VirtualTensor", "__torch_dispatch__"),
    ("devexplorer.core.virtual.cuda.emulation", "DeviceCalls", "__torch_function__"),
)
"""Where virtual GPUs are entered. What passes in there is no time of the script's, and none of a card."""

PRINTS = ("__repr__", "__format__")
"""They work out digits on the processor, on a machine with cards as well."""

STORAGES = ("devexplorer.core.virtual.device.accounting", "StorageBlock")

UNCOUNTED_NS = 40_000
"""What it takes to get there and back each time, with the modules that call it: 10 to 25 µs were measured, and twice as
much on a busy machine."""

PASSED_ON_NS = 10_000
"""What it takes, at the most, to pass on to the processor what no card has to do with, and to get there and back: the
rest of that is the script's own."""

LARGE_BYTES = 32 << 20
"""From here on glibc gives memory back to the system whenever it is freed, page by page: the values of virtual GPUs are
in this computer's memory, and a card has nothing of the kind to do."""


class Clock:
    """Stamps, and what is between two of them."""

    name = "cpu"
    now: Any = staticmethod(perf_counter_ns)
    fold_marks = 2_048
    """So many marks are summed up at once."""
    simulating = False
    """What passes now is no time of the script's."""
    launches = 0.0
    """How many times as long as the card works the host takes to start its kernels; 0: not known."""
    own = 0.0
    """Share of forward, backward and the optimizer during which the card waits for the script's own lines there, as
    far as that is known."""

    def between(self, begun: Any, ended: Any, waiting: bool) -> tuple[int, float]:
        """Nanoseconds on the processor's clock, and on the one that counts. `waiting`: the script's own lines and the
        wait for input, which take the host's time rather than the device's."""
        raise NotImplementedError

    def reached(self, stamp: Any) -> bool:
        """Whether the device has got there."""
        return True

    def release(self, stamps: Iterable[Any]) -> None:
        """These are not needed any more."""


class HostClock(Clock):
    """`perf_counter_ns`; stamps are plain numbers."""

    fold_marks = 8_192
    """They keep nothing of a device, and summing them up takes a fifth of what observing a short step costs."""

    def between(self, begun: Any, ended: Any, waiting: bool) -> tuple[int, float]:
        """The same twice."""
        return ended - begun, ended - begun


class SimulatedClocks(Clock):
    """Stamps of virtual GPUs: (nanoseconds, seconds of the cards, of launches, nanoseconds of simulating, and during
    which another program had the processor). Giving large values back is part of simulating."""

    def __init__(self, machine: Any) -> None:
        from devexplorer.core.virtual.device.cost import overlapped  # only where there are virtual GPUs

        self._overlapped = overlapped
        self._machine = machine
        self._simulating = _simulating()
        self._queue = self._simulating.queue
        self._busy = self._busy_seconds()
        self._launched = self._worked = self._taken = self._waited = 0.0

    def _busy_seconds(self) -> float:
        return float(sum(gpu.clock.busy_seconds for gpu in self._machine.gpus))

    @property
    def name(self) -> str:  # type: ignore[override]
        """As of the processor while no card was used: there is nothing simulated about what a step takes."""
        return "simulated" if self._busy_seconds() > self._busy else Clock.name

    @property
    def simulating(self) -> bool:  # type: ignore[override]
        """Whether the observed thread is within a virtual GPU. Any thread."""
        return self._simulating.within

    def now(self) -> Any:
        """All cards together: which of them works at once is not known here."""
        device = host = 0.0
        for gpu in self._machine.gpus:
            clock = gpu.clock
            device += clock.busy_seconds
            host += clock.thread_host_seconds
        return perf_counter_ns(), device, host, self._simulating.so_far(), self._queue.nanoseconds()

    def between(self, begun: Any, ended: Any, waiting: bool) -> tuple[int, float]:
        """What the card would have taken; where it had nothing to do, what the processor took."""
        real = ended[0] - begun[0]
        device, host, simulating = ended[1] - begun[1], ended[2] - begun[2], ended[3] - begun[3]
        own = max(0.0, real - simulating - (ended[4] - begun[4]))
        if device <= 0 and host <= 0:  # of simulating there can be what a large value took that was given back
            return real, own
        card = 1e9 * self._overlapped(device, host)
        if waiting:
            card += own
        else:  # the card works on what is launched while the script's own lines go on
            taken = 1e9 * self._overlapped(device, host + own / 1e9)
            self._sum_up(device, host, taken, taken - card)
            card = taken
        return real, card if math.isfinite(card) else 0.0

    def _sum_up(self, device: float, host: float, taken: float, waited: float) -> None:
        """What the model takes, and why: `launches` and `own`."""
        self._launched += host
        self._worked += device
        self._taken += taken
        self._waited += waited
        self.launches = self._launched / self._worked if self._worked > 0 else 0.0
        self.own = self._waited / self._taken if self._taken > 0 else 0.0


class _RunQueue:
    """How long the calling thread was ready, and did not run, as Linux counts it. Simulating keeps the processors busy,
    so that this is more than on a machine with cards; milliseconds that no script would have spent there."""

    def __init__(self) -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(f"/proc/self/task/{get_native_id()}/schedstat", os.O_RDONLY)
            self._text = ctypes.create_string_buffer(64)
            self._read: Any = ctypes.PyDLL(None).pread
            self._read.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long

    def __del__(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)

    def nanoseconds(self) -> int:
        """Up to now; 0 where it is not counted. Python's lock is kept: another thread that waits for it would have it
        for milliseconds, at every operation."""
        if self._file is None:
            return 0
        try:
            size = self._read(self._file, self._text, len(self._text), 0)
            return int(self._text.raw[: max(size, 0)].split()[1])
        except (IndexError, ValueError):  # a script may close what it has not opened: the number is not ours
            self._file = None
            return 0


class _Simulating:
    """Counts what passes within virtual GPUs on one thread, while that has a processor."""

    def __init__(self) -> None:
        self.nanoseconds = 0
        self.queue = _RunQueue()
        self._begun = 0
        self._thread = get_ident()
        self._freeing = _nanoseconds_to_free_a_byte()
        self.within = False
        self._works = False
        """A card has something to do in what is going on."""

    def count(self, function: Any) -> Any:
        """The function, counted; calls within it count with it."""
        works = function.__name__ == "__torch_dispatch__"

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self.within or get_ident() != self._thread:
                self._works = self._works or works
                return function(*args, **kwargs)
            if not works and getattr(args[1], "__name__", "") in PRINTS:
                return function(*args, **kwargs)  # what comes back from the card is counted, and its digits are not
            self.within, self._works = True, works
            self._begun = self._running()
            try:
                return function(*args, **kwargs)
            finally:
                took = self._running() - self._begun
                self.nanoseconds += took + UNCOUNTED_NS if self._works else min(took, PASSED_ON_NS) + PASSED_ON_NS
                self.within = False

        made: Any = counted
        made.__code__ = made.__code__.replace(co_name=function.__name__)  # virtual GPUs look who has called them
        return made

    def _running(self) -> int:
        return perf_counter_ns() - self.queue.nanoseconds()

    def so_far(self) -> int:
        """With what is going on: the script's own code can be called within it, as the hooks of a backward."""
        if not self.within:
            return self.nanoseconds
        return self.nanoseconds + self._running() - self._begun

    def count_freed(self, delete: Any) -> Any:
        """The finalizer of a storage, counted with what comes after it: the system takes the pages back."""

        @functools.wraps(delete)
        def freed(block: Any) -> None:
            if block.nbytes >= LARGE_BYTES and not self.within and get_ident() == self._thread:
                self.nanoseconds += round(self._freeing * block.nbytes)
            delete(block)

        return freed


def _nanoseconds_to_free_a_byte() -> float:
    """Measured here, once."""
    import torch

    took = []
    for _ in range(3):
        values = torch.ones(LARGE_BYTES, dtype=torch.uint8)
        begun = perf_counter_ns()
        del values
        took.append(perf_counter_ns() - begun)
    return sorted(took)[1] / LARGE_BYTES


@cache
def _simulating() -> _Simulating:
    """Counting from now on; for the thread that asks first."""
    counter = _Simulating()
    for module, owner, name in SIMULATORS:
        kind: Any = getattr(sys.modules.get(module), owner, None)
        if kind is not None:
            function = vars(kind)[name]
            if isinstance(function, classmethod):
                setattr(kind, name, classmethod(counter.count(function.__func__)))
            else:
                setattr(kind, name, counter.count(function))
    block: Any = getattr(sys.modules.get(STORAGES[0]), STORAGES[1], None)
    if block is not None:
        block.__del__ = counter.count_freed(block.__del__)
    return counter


class EventClock(Clock):
    """Stamps of a CUDA device: (nanoseconds, an event on the current stream or None)."""

    name = "cuda"

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._free: list[Any] = []

    def now(self) -> Any:
        """An event is recorded, which takes its place in the stream; nothing waits for it."""
        if self._cuda.is_current_stream_capturing():
            return perf_counter_ns(), None  # a graph would capture it, too
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return perf_counter_ns(), event

    def between(self, begun: Any, ended: Any, waiting: bool) -> tuple[int, float]:
        """On the stream; of events that cannot be compared (another device was current) on the processor's clock."""
        real = ended[0] - begun[0]
        if begun[1] is None or ended[1] is None:
            return real, real
        try:
            return real, max(0.0, 1e6 * begun[1].elapsed_time(ended[1]))
        except (RuntimeError, ValueError):
            return real, real

    def reached(self, stamp: Any) -> bool:
        """Events of one stream are over in their order. While a graph is captured none is asked: CUDA may refuse
        that, and with it the capture."""
        if self._cuda.is_current_stream_capturing():
            return False
        return stamp[1] is None or bool(stamp[1].query())

    def release(self, stamps: Iterable[Any]) -> None:
        """Events can be recorded again."""
        for stamp in stamps:
            if stamp[1] is not None:
                self._free.append(stamp[1])
