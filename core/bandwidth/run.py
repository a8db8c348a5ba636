"""The bandwidth benchmark: bytes that arrive per second, the latency of one copy, and whether the data is right, for
every pair of devices. Runs on the thread that runs the benchmark, and starts none.

How copies are timed:

- cpu to cpu (a copy in memory): the wall around a block of copies.
- CUDA, other accelerators with events: copies queued on a stream, events between them, one synchronisation per block.
  Both ways at once: streams of their own for each direction and one pair of events around both.
- accelerators without events: the wall between two synchronisations; both ways at once is not available there.
- virtual GPUs: the simulated clock. Tensors without values go through the dispatcher and pay what the cost model says;
  1 GiB takes no memory of this machine. Both ways at once: the longer of the two, as the profiles give the rate of one
  direction of a link.

To verify, a pattern that has not been there before, in which no eight bytes are like others, is copied in the same way
and compared bit by bit; on virtual GPUs in pieces of 16 MiB, one after the other.

Rates are decimal GB/s of data that arrived, both directions together where copies go both ways at once. A row's
`seconds` are from the call to the end of one copy, each waited for: the latency where copies are small. On virtual GPUs
a copy is made once, as the same one always costs the same, and pageable memory is not modelled. Where a copy between
two accelerators arrives wrong, the same is measured through the host: that row has a kind of host memory, and its
`reason` names the route.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor

from devexplorer.core.bandwidth.kind import BandwidthResult, BandwidthRow, BandwidthSpec
from devexplorer.core.base import Clock, Unavailable, bytes_text, parse_seconds
from devexplorer.core.benchmark.spec import Checks
from devexplorer.core.benchmark.statistics import Samples, block_length, spread
from devexplorer.core.benchmark.timing import (
    BlockTimer,
    Operation,
    Runner,
    SynchronisedTimer,
    TimedBlock,
    streams_of,
    timer_for,
)
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.records import BenchPoint
from devexplorer.core.virtual.backend import meta_empty

PIECE_BYTES = 16 << 20
"""Patterns are made and compared in pieces of this size, so that verifying takes little memory beside the buffers. A
multiple of 8."""

Send = Callable[[Tensor, Tensor], object]
"""Called with a destination and a source of the same size: queues one copy."""
Measure = Callable[[int], TimedBlock]
"""Makes so many copies and times them."""
Leg = tuple[Tensor, Tensor]
"""Destination and source."""


def send(destination: Tensor, source: Tensor) -> None:
    """Queue one copy; the host does not wait for it where it need not."""
    destination.copy_(source, non_blocking=True)


class Case(NamedTuple):
    """What one row measures."""

    source: str
    destination: str
    nbytes: int
    pinned: bool | None = None
    both_ways: bool = False
    through_host: bool = False

    @property
    def text(self) -> str:
        """In a few words, as the progress shows it."""
        kind = ""
        if self.pinned is not None and not self.through_host:
            kind = ", pinned" if self.pinned else ", pageable"
        if self.both_ways:
            arrow = "↔"
        elif self.through_host:
            arrow = "→ cpu →"
        else:
            arrow = "→"
        return f"{self.source} {arrow} {self.destination}, {bytes_text(self.nbytes, 0)}{kind}"

    @property
    def devices(self) -> list[str]:
        """The accelerators that take part, the source first."""
        return [device for device in dict.fromkeys((self.source, self.destination)) if device != "cpu"]

    @property
    def peers(self) -> bool:
        """Whether this is a copy from one accelerator to another."""
        return len(self.devices) == 2

    @property
    def moved_bytes(self) -> int:
        """Bytes that arrive."""
        return self.nbytes * (1 + self.both_ways)


def cases(spec: BandwidthSpec) -> list[Case]:
    """Every row of a run, in order.

    Both ways at once is measured once per pair, in the first direction that is asked for, and with pinned memory only:
    pageable memory goes through the hands of the thread that copies it, which does one direction after the other.
    """
    result: list[Case] = []
    seen: set[frozenset[str]] = set()
    for source, destination in dict.fromkeys(product(spec.sources, spec.destinations)):
        one_host = (source == "cpu") != (destination == "cpu")
        pair = frozenset((source, destination))
        both_ways = spec.both_ways and len(pair) == 2 and pair not in seen and (not one_host or True in spec.pinned)
        seen.add(pair)
        for nbytes in dict.fromkeys(spec.sizes):
            result += [
                Case(source, destination, nbytes, pinned)
                for pinned in (dict.fromkeys(spec.pinned) if one_host else (None,))
            ]
            if both_ways:
                result.append(Case(source, destination, nbytes, True if one_host else None, both_ways=True))
    return result


class Copier:
    """Makes, times and verifies the copies of one case after the other."""

    def __init__(self, registry: DeviceRegistry, stop: threading.Event, virtual: set[str], send: Send = send) -> None:
        self._registry, self._stop, self._virtual, self._send = registry, stop, virtual, send
        self._patterns = 0

    def simulated(self, case: Case) -> bool:
        """Whether a virtual GPU takes part."""
        return not self._virtual.isdisjoint(case.devices)

    def legs(self, case: Case, *, values: bool = False) -> list[Leg]:
        """Buffers of each copy: there and back, or by way of the host; on virtual GPUs without values unless asked for.

        Raises what the device raises when it is full, and `Unavailable` where there is no pinned memory.
        """
        size = min(case.nbytes, PIECE_BYTES) if values and self.simulated(case) else case.nbytes

        def empty(device: str) -> Tensor:
            return self._empty(case, device, size, values)

        there = (empty(case.destination), self._written(empty(case.source)))
        if case.through_host:
            host = empty("cpu")
            return [(host, there[1]), (there[0], host)]
        if not case.both_ways:
            return [there]
        return [there, (empty(case.source), self._written(empty(case.destination)))]

    @staticmethod
    def _written(source: Tensor) -> Tensor:
        """The source, written to once: untouched memory is one page of zeros to the system, and copying it measures
        nothing."""
        return source.fill_(1)

    def _empty(self, case: Case, device: str, size: int, values: bool) -> Tensor:
        if device in self._virtual and not values:
            return meta_empty((size,), torch.uint8, device)
        if device != "cpu":
            return torch.empty(size, dtype=torch.uint8, device=device)
        if self.simulated(case):  # pinned or not is all the same to the memory behind virtual GPUs
            return torch.empty(size, dtype=torch.uint8, device="cpu" if values else "meta")
        try:
            return torch.empty(size, dtype=torch.uint8, pin_memory=bool(case.pinned))
        except RuntimeError as error:
            if not case.pinned:
                raise
            raise Unavailable(f"there is no pinned memory here: {str(error).strip().splitlines()[0]}") from error

    def measures(self, case: Case, legs: Sequence[Leg]) -> tuple[Measure, Measure]:
        """How a block of copies is timed, and how copies are that are waited for one by one."""
        timers = [timer_for(device, self._registry, self._stop, paced=False) for device in case.devices or ["cpu"]]
        moves = [self._move(leg) for leg in legs]
        if case.through_host:
            return (legwise := lambda count: _in_turn(timers, moves, count)), legwise
        if self.simulated(case):
            return (longer := lambda count: max((timers[0].block(move, count) for move in moves), key=_seconds)), longer
        if not case.devices:
            return (plain := lambda count: timers[0].block(moves[0], count)), plain
        waiting = SynchronisedTimer(lambda: self._synchronize(case.devices))
        if case.both_ways:
            ways = TwoWays(case.devices, moves)
            return ways.block, lambda count: waiting.block(lambda: ways.queue(1), count)
        return (lambda count: timers[0].block(moves[0], count)), lambda count: waiting.block(moves[0], count)

    def _move(self, leg: Leg) -> Operation:
        destination, source = leg
        return lambda: self._send(destination, source)

    def _synchronize(self, devices: Sequence[str]) -> None:
        for device in devices:
            if device.startswith("cuda"):
                torch.cuda.synchronize(
                    device
                )  # asked directly: what the backend looks up first would be part of a small copy's latency
            else:
                self._registry.backend(device).synchronize(device)

    def wrong_bytes(self, case: Case, legs: Sequence[Leg]) -> int | None:
        """How many bytes of a fresh pattern arrive wrong; None when it was stopped before the end."""
        if self.simulated(case):
            legs = self.legs(case, values=True)
        whole, wrong = len(legs[0][0]), 0
        for start in range(0, case.nbytes, whole):
            count = min(whole, case.nbytes - start)
            wrong += self._exchange(
                case, [(destination[:count], source[:count]) for destination, source in legs], start
            )
            if self._stop.is_set():
                return None
        return wrong

    def _exchange(self, case: Case, legs: Sequence[Leg], start: int) -> int:
        """Copy once, with other bytes at the source than ever before and all of them different at the destination."""
        ends = [(legs[-1][0], legs[0][1])] if case.through_host else legs
        numbers = range(self._patterns, self._patterns + len(ends))
        self._patterns += len(ends)
        for number, (destination, source) in zip(numbers, ends, strict=True):
            for begin, piece in self._pieces(len(source), start, number):
                source[begin : begin + len(piece)].copy_(piece)
                destination[begin : begin + len(piece)].copy_(~piece)
        measure, _ = self.measures(case, legs)
        measure(1)
        wrong = 0
        for number, (destination, _) in zip(numbers, ends, strict=True):
            for begin, piece in self._pieces(len(destination), start, number):
                arrived = destination[begin : begin + len(piece)].cpu()
                wrong += 0 if torch.equal(arrived, piece) else int((arrived != piece).sum())
        return wrong

    def _pieces(self, size: int, start: int, number: int) -> Iterator[tuple[int, Tensor]]:
        for begin in range(0, size, PIECE_BYTES):
            if self._stop.is_set():
                return
            yield begin, pattern(min(PIECE_BYTES, size - begin), start + begin, number)


def pattern(size: int, start: int, number: int) -> Tensor:
    """Bytes from `start` on (a multiple of 8) of pattern `number`, on the CPU: multiples of an odd number, so no eight
    bytes come twice."""
    values = torch.arange(start // 8, start // 8 + -(-size // 8), dtype=torch.int64)
    values.mul_(-7046029254386353131).add_((number + 1) * 0x5851F42D4C957F2D % (1 << 62))
    return values.view(torch.uint8)[:size]


def _seconds(block: TimedBlock) -> float:
    return block.seconds


def _in_turn(timers: Sequence[BlockTimer], moves: Sequence[Operation], count: int) -> TimedBlock:
    """Copies of which each waits for the one before; samples are added as far as there are some of each."""
    blocks = [timer.block(move, count) for timer, move in zip(timers, moves, strict=True)]
    samples = tuple(map(sum, zip(*(block.samples for block in blocks), strict=False)))
    return TimedBlock(count, sum(map(_seconds, blocks)), samples)


class TwoWays:
    """Copies in both directions at once: each direction has a stream of its own on each of the (one or two) cards.

    On CUDA a copy between cards runs on the current stream of its source's card and waits for the current stream of its
    destination's (aten/src/ATen/native/cuda/Copy.cu), so that one stream per card would put the two directions one
    after the other.
    """

    def __init__(self, devices: Sequence[str], moves: Sequence[Operation]) -> None:
        self._cards = [streams_of(device) for device in devices]
        self._moves = moves
        self._streams = [[(card, card.stream()) for card in self._cards] for _ in moves]
        with self._cards[0].here():
            self._start, self._end = (self._cards[0].event() for _ in range(2))

    def queue(self, count: int) -> None:
        """So many copies in each direction, the directions by turns."""
        for _ in range(count):
            for move, streams in zip(self._moves, self._streams, strict=True):
                with ExitStack() as current:
                    for card, stream in streams:
                        current.enter_context(card.on(stream))
                    move()

    def block(self, count: int) -> TimedBlock:
        """`count` copies in each direction between two events of the first card, before and after those of every
        stream."""
        self._wait()
        first, *others = [stream for streams in self._streams for _, stream in streams]
        self._start.record(first)
        for stream in others:
            stream.wait_event(self._start)
        self.queue(count)
        for stream in others:
            first.wait_stream(stream)
        self._end.record(first)
        self._wait()
        seconds = self._start.elapsed_time(self._end) / 1e3
        return TimedBlock(count, seconds, (seconds / count,))

    def _wait(self) -> None:
        for card in self._cards:
            card.wait()


SINGLE_COPIES = 20
"""Copies that are waited for one by one, at most."""
SINGLE_SECONDS = 0.05
"""Time for them; one is made in any case."""

Points = Generator[BenchPoint, None, None]


def check_bandwidth(spec: BandwidthSpec, registry: DeviceRegistry) -> BandwidthSpec:
    """The specification with canonical device names. Raises `BadInput` with everything that keeps it from running;
    allocates nothing."""
    checks = Checks(registry)
    if not spec.sources or not spec.destinations or not spec.sizes:
        checks.add("a bandwidth run needs a source, a destination and a size at least")
    sources, destinations = checks.devices(spec.sources), checks.devices(spec.destinations)
    everything = dict.fromkeys((*sources, *destinations))
    checks.one_clock([device for device in everything if device != "cpu"])
    if not spec.pinned and "cpu" in everything and len(everything) > 1:
        checks.add("copies from and to the host need a kind of host memory: pinned, pageable or both")
    if spec.sizes and min(spec.sizes) < 1:
        checks.add(f"a copy of {min(spec.sizes)} bytes cannot be measured; at least 1 byte is needed")
    checks.checked(lambda: parse_seconds(spec.seconds))
    checked = replace(spec, sources=sources, destinations=destinations)
    largest = max(spec.sizes, default=0)
    for device, buffers in _buffers(
        checked, {device for device in everything if registry.info(device).simulated}
    ).items():
        checks.fits(device, buffers * largest, f"copies of {bytes_text(largest)} need")
    checks.demand_none()
    return checked


def _buffers(spec: BandwidthSpec, virtual: set[str]) -> dict[str, int]:
    """The most buffers that a row has on each device; beside a virtual GPU, which needs no values to be timed, the host
    has none."""
    most: dict[str, int] = {}
    for pair in product(spec.sources, spec.destinations):
        for device in pair:
            if device != "cpu" or virtual.isdisjoint(pair):
                most[device] = max(most.get(device, 0), 2 if spec.both_ways or len(set(pair)) == 1 else 1)
    return most


class BandwidthRun(Runner[BandwidthSpec]):
    """`send` makes one copy; tests let it go wrong. Each row has its own buffers and its own warm-up."""

    def __init__(
        self,
        spec: BandwidthSpec,
        run: int,
        registry: DeviceRegistry,
        stop: threading.Event,
        clock: Clock = time.time,
        *,
        send: Send = send,
    ) -> None:
        devices = {*spec.sources, *spec.destinations}
        virtual = {device for device in devices if registry.info(device).simulated}
        super().__init__(spec, run, clock, simulated=bool(virtual), on_cpu="cpu" in devices)
        self._stop = stop
        self._copier = Copier(registry, stop, virtual, send)
        self._cases = cases(spec)
        self._done = 0
        self._rows: list[BandwidthRow] = []
        self._seconds = 0.0
        self._points = self._all()

    def step(self) -> BenchPoint | None:
        """One block of copies, or the end of a row; None after the last row, or when it was stopped."""
        return next(self._points, None)

    def result(self, *, stopped: bool, failure: str | None = None) -> BandwidthResult | None:
        """The rows that are finished; None when there is not one. The run is over then and its memory given back."""
        self._points.close()
        if not self._rows:
            return None
        compared = [row.verified for row in self._rows if row.verified is not None]
        return BandwidthResult(
            rows=tuple(self._rows),
            seconds=self._seconds,
            iterations=sum(row.iterations for row in self._rows),
            verified=all(compared) if compared else None,
            **self._shared(stopped, failure),
        )

    # --- one row after the other, until the run is stopped

    def _all(self) -> Points:
        for case in self._cases:
            yield from self._one(case)
            if self._stop.is_set():
                return
            self._done += 1
            if case.peers and not case.both_ways and self._rows[-1].verified is False:
                yield from self._one(case._replace(pinned=True, through_host=True))

    def _one(self, case: Case) -> Points:
        reason = self._cannot(case)
        try:
            legs = [] if reason is not None else self._copier.legs(case)
        except Unavailable as error:
            reason = str(error)
        if reason is not None:
            yield self._finished(case, reason=reason)
            return
        simulated = self._copier.simulated(case)
        measure, singly = self._copier.measures(case, legs)
        measure(1)  # warm-up
        latencies, rates, iterations, spent = self._latencies(singly, simulated), Samples[float](), 0, 0.0
        length = 1 if simulated else block_length(min(latencies))
        while not self._stop.is_set() and (not iterations or (spent < self.spec.seconds and not simulated)):
            block = measure(length)
            rates.add(case.moved_bytes / seconds / 1e9 for seconds in block.samples)
            iterations, spent = iterations + block.iterations, spent + block.seconds
            self._seconds += block.seconds
            each = block.seconds / block.iterations
            length = block_length(each)
            share, rate = min(spent / self.spec.seconds, 1.0), case.moved_bytes / each / 1e9
            yield self._progress(case, share, gb_per_s=rate, iterations=block.iterations, seconds=block.seconds)
        wrong = None if self._stop.is_set() else self._copier.wrong_bytes(case, legs)
        if wrong is not None:
            del legs, measure, singly  # gone before the next row's are made
            yield self._finished(
                case,
                gb_per_s=spread(rates.kept),
                seconds=spread(latencies),
                iterations=iterations,
                verified=wrong == 0,
                reason=self._remark(case, wrong),
                measured_seconds=spent,
            )

    def _latencies(self, singly: Measure, simulated: bool) -> list[float]:
        samples: list[float] = []
        spent = 0.0
        while not samples or (
            spent < SINGLE_SECONDS and len(samples) < SINGLE_COPIES and not simulated and not self._stop.is_set()
        ):
            block = singly(1)
            spent += block.seconds
            samples += block.samples
        return samples

    def _cannot(self, case: Case) -> str | None:
        """Why this is not measured; None where it can be."""
        if self._copier.simulated(case):
            return (
                "pageable host memory is not modelled for virtual GPUs, only pinned is"
                if case.pinned is False
                else None
            )
        try:
            for device in case.devices if case.both_ways else ():
                streams_of(device)
        except Unavailable as error:
            return f"two copies at once cannot be timed here: {error}"
        return None

    def _remark(self, case: Case, wrong: int) -> str | None:
        """What is to be said about a row that was measured."""
        route = f"{case.source} → cpu → {case.destination}"
        if case.through_host and not wrong:
            return f"through the host, one leg after the other: {route}"
        if not wrong:
            return None
        arrived = f"{wrong:,} of {case.moved_bytes:,} bytes arrived wrong"
        if case.peers and not case.through_host:
            return f"{arrived}; copy through the host ({route}): x.cpu().to('{case.destination}')"
        return f"{arrived}; trust nothing that was copied on the way {route if case.through_host else case.text}"

    def _progress(self, case: Case, share: float, **measured: Any) -> BenchPoint:
        """A point of a row of which that share is measured."""
        done = min((self._done + share) / len(self._cases), 1.0)
        return self._point(case.text, done=done, simulated=self._copier.simulated(case), **measured)

    def _finished(self, case: Case, **measured: Any) -> BenchPoint:
        row = BandwidthRow(
            source=case.source,
            destination=case.destination,
            bytes=case.nbytes,
            pinned=case.pinned,
            both_ways=case.both_ways,
            simulated=self._copier.simulated(case),
            **measured,
        )
        self._rows.append(row)
        return self._progress(case, 1.0, gb_per_s=row.gb_per_s.median if row.gb_per_s else None, part=row)
