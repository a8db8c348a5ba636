"""Copies between devices: how many bytes arrive per second, how long one takes, and whether what arrives is what was sent.

Runs on the thread that runs the benchmark, and starts none. Rates are decimal GB/s of data that arrived. How each kind is timed:

- cpu to cpu (a copy in memory): the wall around a block of copies.
- CUDA: copies queued on streams, events between them, one synchronisation per block. Both ways at once: two streams, one pair of events
  around both, the rate is the sum. Only pinned memory is copied both ways at once: pageable memory goes through the host's hands, and the
  thread that copies it does one direction after the other.
- other accelerators: the wall between two synchronisations.
- virtual GPUs: the simulated clock. Tensors without values go through the dispatcher and pay what the cost model says, once, as the same
  copy always costs the same; 1 GiB takes no memory of this machine. Both ways at once: the longer of the two, as the profiles give the
  rate of one direction of a link. Pageable memory is not modelled.

A row's `seconds` are from the call to the end of one copy, each waited for: the latency where copies are small.

Data is verified after the timing, in every row: a pattern that has never been there before, in which no eight bytes are like others, is
copied in the same way and compared bit by bit. On virtual GPUs that is done in pieces of 16 MiB. Where a copy between two accelerators
arrives wrong, the same is measured through the host, as a row that has a kind of host memory and says so in its `reason`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from typing import NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor

from devexplorer.core.benchmark.checking import Checks
from devexplorer.core.benchmark.measuring import Samples, block_length
from devexplorer.core.benchmark.spec import parse_seconds
from devexplorer.core.benchmark.statistics import spread
from devexplorer.core.benchmark.timing import Block, Operation, SynchronisedTimer, timer_for
from devexplorer.core.devices.backend import Fleet
from devexplorer.core.formats import bytes_text
from devexplorer.core.records.benchmark import BandwidthResult, BandwidthRow, BandwidthSpec, BenchPoint, Spread
from devexplorer.core.virtual.backend import meta_empty

PIECE_BYTES = 16 << 20
"""Patterns are made and compared in pieces of this size, so that verifying takes little memory beside the two buffers."""
SINGLE_COPIES = 20
"""Copies that are waited for one by one, at most."""
SINGLE_SECONDS = 0.05
"""Time for them; one is made in any case."""

Send = Callable[[Tensor, Tensor], object]
"""Called with a destination and a source of the same size: queues one copy."""
Measure = Callable[[int], Block]
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
        kind = "" if self.pinned is None or self.through_host else ", pinned" if self.pinned else ", pageable"
        arrow = "↔" if self.both_ways else "→ cpu →" if self.through_host else "→"
        return f"{self.source} {arrow} {self.destination}, {bytes_text(self.nbytes, 0)}{kind}"


def cases(spec: BandwidthSpec) -> list[Case]:
    """Every row of a run, in order. Both ways at once is measured once per pair, in the first direction that is asked for."""
    found: list[Case] = []
    seen: set[frozenset[str]] = set()
    for source, destination in dict.fromkeys(product(spec.sources, spec.destinations)):
        one_host = (source == "cpu") != (destination == "cpu")
        pair = frozenset((source, destination))
        both_ways = spec.both_ways and len(pair) == 2 and pair not in seen
        seen.add(pair)
        for nbytes in dict.fromkeys(spec.sizes):
            found += [Case(source, destination, nbytes, pinned) for pinned in (dict.fromkeys(spec.pinned) if one_host else (None,))]
            if both_ways and (not one_host or True in spec.pinned):
                found.append(Case(source, destination, nbytes, True if one_host else None, both_ways=True))
    return found


def check_bandwidth(spec: BandwidthSpec, fleet: Fleet) -> BandwidthSpec:
    """The specification with canonical device names. Raises `BadInput` with everything that keeps it from running; allocates nothing."""
    checks = Checks(fleet)
    if not spec.sources or not spec.destinations or not spec.sizes:
        checks.add("a bandwidth run needs a source, a destination and a size at least")
    sources, destinations = checks.devices(spec.sources), checks.devices(spec.destinations)
    both = dict.fromkeys((*sources, *destinations))
    checks.one_clock([device for device in both if device != "cpu"])
    if not spec.pinned and "cpu" in both and len(both) > 1:
        checks.add("copies from and to the host need a kind of host memory: pinned, pageable or both")
    wrong = [size for size in spec.sizes if size < 1]
    if wrong:
        checks.add(f"a copy of {wrong[0]} bytes cannot be measured; at least 1 byte is needed")
    checks.checked(lambda: parse_seconds(spec.seconds))
    largest = max(spec.sizes, default=0)
    for device in both:
        host_of_virtual = device == "cpu" and any(fleet.info(other).simulated for other in both)
        buffers = _buffers_on(device, sources, destinations, spec.both_ways)
        if largest > 0 and buffers and not (host_of_virtual and buffers == 1):
            checks.fits(device, buffers * largest, f"copies of {bytes_text(largest)} need")
    checks.demand_none()
    return replace(spec, sources=sources, destinations=destinations)


def _buffers_on(device: str, sources: Sequence[str], destinations: Sequence[str], both_ways: bool) -> int:
    """The most buffers that one of the rows has on this device."""
    pairs = [(source, destination) for source, destination in product(sources, destinations) if device in (source, destination)]
    return max((2 if source == destination or both_ways else 1 for source, destination in pairs), default=0)


class BandwidthRun:
    """One run (`core.benchmark.runner.Runner`). `send` makes one copy; tests let it go wrong."""

    def __init__(
        self,
        spec: BandwidthSpec,
        run: int,
        fleet: Fleet,
        stop: threading.Event,
        clock: Callable[[], float] = time.time,
        *,
        send: Send = send,
    ) -> None:
        self.spec = spec
        self.run = run
        self._fleet, self._stop, self._clock, self._send = fleet, stop, clock, send
        self._virtual = {device for device in (*spec.sources, *spec.destinations) if fleet.info(device).simulated}
        self.simulated = bool(self._virtual)
        self._cases = cases(spec)
        self._done = 0
        self._rows: list[BandwidthRow] = []
        self._seconds = 0.0
        self._patterns = 0
        self._points = self._all()

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Nothing: each row has its own buffers and its own warm-up."""

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
            run=self.run,
            spec=self.spec,
            rows=tuple(self._rows),
            stopped=stopped,
            simulated=self.simulated,
            seconds=self._seconds,
            iterations=sum(row.iterations for row in self._rows),
            threads=torch.get_num_threads() if "cpu" in (*self.spec.sources, *self.spec.destinations) else None,
            torch_version=str(torch.__version__),
            verified=all(compared) if compared else None,
            failure=failure,
        )

    # --- one row after the other

    def _all(self) -> Iterator[BenchPoint]:  # a generator: closed by `result`
        for case in self._cases:
            row: BandwidthRow | None = None
            for point in self._one(case):
                row = point.row or row
                yield point
            self._done += 1
            if row is not None and row.verified is False and "cpu" not in (case.source, case.destination) and not case.both_ways:
                yield from self._one(case._replace(pinned=True, through_host=True))
            if self._stop.is_set():
                return

    def _one(self, case: Case) -> Iterator[BenchPoint]:
        reason = self._cannot(case)
        if reason is None:
            try:
                legs = self._legs(case)
            except RuntimeError as error:  # pinning can be refused; a full device ends the run
                if isinstance(error, torch.OutOfMemoryError) or not case.pinned or case.through_host:
                    raise
                reason = f"there is no pinned memory here: {str(error).strip().splitlines()[0]}"
        if reason is not None:
            yield self._finish(case, Samples(), Samples(), 0, None, reason)
            return
        measure, singly = self._measures(case, legs)
        measure(1)
        latencies, rates, iterations, spent = self._latencies(singly), Samples(), 0, 0.0
        length = 1 if self.simulated else block_length(min(latencies.kept))
        while not self._stop.is_set() and (not iterations or spent < (0 if self.simulated else self.spec.seconds)):
            block = measure(length)
            rates.add(self._rate(case, seconds) for seconds in block.samples)
            iterations, spent = iterations + block.iterations, spent + block.seconds
            self._seconds += block.seconds
            length = 1 if self.simulated else block_length(block.seconds / block.iterations)
            share = min(spent / self.spec.seconds, 1.0)
            yield self._point(case, self._rate(case, block.seconds / block.iterations), block, share)
        wrong = None if self._stop.is_set() else self._wrong_bytes(case)
        if wrong is not None:
            yield self._finish(case, rates, latencies, iterations, wrong == 0, self._remark(case, wrong))

    def _cannot(self, case: Case) -> str | None:
        """Why this is not measured; None where it can be."""
        if case.pinned is False and self._virtual & {case.source, case.destination}:
            return "virtual GPUs know pinned host memory only: copies of pageable memory are not modelled"
        if case.both_ways and not self.simulated:
            others = [device for device in (case.source, case.destination) if device != "cpu" and self._fleet.info(device).kind != "cuda"]
            if others:
                return f"two copies at once are measured on CUDA and on virtual GPUs, not on {others[0]}"
        return None

    def _remark(self, case: Case, wrong: int) -> str | None:
        if case.through_host:
            return f"through the host, one leg after the other: {case.source} → cpu → {case.destination}"
        if not wrong:
            return None
        arrived = f"{wrong:,} of {case.nbytes * (1 + case.both_ways):,} bytes arrived wrong"
        if "cpu" in (case.source, case.destination):
            return f"{arrived}; trust nothing that was copied between {case.source} and {case.destination}"
        route = f"{case.source} → cpu → {case.destination}"
        return f"{arrived}; copy through the host: {route}, in Python x.cpu().to('{case.destination}')"

    def _rate(self, case: Case, seconds: float) -> float:
        """Decimal GB/s of what arrives."""
        return case.nbytes * (1 + case.both_ways) / seconds / 1e9

    def _point(self, case: Case, gb_per_s: float | None, block: Block | None, share: float) -> BenchPoint:
        return BenchPoint(
            run=self.run,
            device=self.spec.device,
            time_unix_s=self._clock(),
            gb_per_s=gb_per_s,
            iterations=block.iterations if block else 0,
            seconds=block.seconds if block else 0.0,
            done=min((self._done + share) / len(self._cases), 1.0),
            text=case.text,
            simulated=bool(self._virtual & {case.source, case.destination}),
        )

    def _finish(
        self, case: Case, rates: Samples, latencies: Samples, iterations: int, verified: bool | None, reason: str | None
    ) -> BenchPoint:
        found: Spread | None = spread(rates.kept) if rates.kept else None
        point = self._point(case, found.median if found else None, None, 1.0)
        row = BandwidthRow(
            source=case.source,
            destination=case.destination,
            bytes=case.nbytes,
            pinned=case.pinned,
            both_ways=case.both_ways,
            gb_per_s=found,
            seconds=spread(latencies.kept) if latencies.kept else None,
            iterations=iterations,
            verified=verified,
            reason=reason,
            simulated=point.simulated,
        )
        self._rows.append(row)
        return replace(point, row=row)

    # --- buffers

    def _legs(self, case: Case, *, values: bool = False) -> list[Leg]:
        """Destination and source of each copy: there and back, or by way of the host. On virtual GPUs without values unless asked for."""
        size = min(case.nbytes, PIECE_BYTES) if values and self._meta(case) else case.nbytes
        ends = [self._empty(case, device, size, values) for device in (case.destination, case.source)]
        if case.through_host:
            host = self._empty(case, "cpu", size, values)
            return [(host, ends[1]), (ends[0], host)]
        there = (ends[0], ends[1])
        if not case.both_ways:
            return [there]
        return [there, (self._empty(case, case.source, size, values), self._empty(case, case.destination, size, values))]

    def _meta(self, case: Case) -> bool:
        return bool(self._virtual & {case.source, case.destination})

    def _empty(self, case: Case, device: str, size: int, values: bool) -> Tensor:
        if device == "cpu":
            if self._meta(case):  # pinned or not is all the same to the memory behind virtual GPUs
                return torch.empty(size, dtype=torch.uint8, device="cpu" if values else "meta")
            return torch.empty(size, dtype=torch.uint8, pin_memory=bool(case.pinned))
        if device in self._virtual and not values:
            return meta_empty((size,), torch.uint8, device)
        return torch.empty(size, dtype=torch.uint8, device=device)

    # --- timing

    def _measures(self, case: Case, legs: Sequence[Leg]) -> tuple[Measure, Measure]:
        """How a block is timed, and how one copy that is waited for."""
        devices = [device for device in (case.source, case.destination) if device != "cpu"]
        timers = [timer_for(device, self._fleet, self._stop, paced=False) for device in devices or ["cpu"]]
        moves = [self._copy(leg) for leg in legs]
        if case.through_host:
            return (both := lambda count: _one_after_the_other([t.block(m, count) for t, m in zip(timers, moves, strict=True)])), both
        if self._meta(case):
            return (longest := lambda count: max((timers[0].block(move, count) for move in moves), key=lambda b: b.seconds)), longest
        if not devices:
            return (plain := lambda count: timers[0].block(moves[0], count)), plain

        def synchronize() -> None:
            for device in devices:
                self._fleet.backend(device).synchronize(device)

        waiting = SynchronisedTimer(synchronize)
        if case.both_ways:
            streams = TwoWays(devices)
            operation = streams.operation(moves)
            return (lambda count: streams.block(moves, count)), lambda count: waiting.block(operation, count)
        return (lambda count: timers[0].block(moves[0], count)), lambda count: waiting.block(moves[0], count)

    def _copy(self, leg: Leg) -> Operation:
        destination, source = leg
        return lambda: self._send(destination, source)

    def _latencies(self, singly: Measure) -> Samples:
        found = Samples()
        spent = 0.0
        while not found.kept or (spent < SINGLE_SECONDS and len(found.kept) < SINGLE_COPIES and not self.simulated):
            if self._stop.is_set() and found.kept:
                break
            block = singly(1)
            spent += block.seconds
            found.add(block.samples)
        return found

    # --- verification

    def _wrong_bytes(self, case: Case) -> int | None:
        """How many bytes of a fresh pattern arrive wrong; None when it was stopped before the end."""
        legs = self._legs(case, values=True)
        measure, _ = self._measures(case, legs)
        whole, wrong = len(legs[0][0]), 0
        for start in range(0, case.nbytes, whole):
            count = min(whole, case.nbytes - start)
            shorter = [(destination[:count], source[:count]) for destination, source in legs]
            if count < whole:
                measure, _ = self._measures(case, shorter)
            found = self._exchange(shorter, measure, case.through_host, start)
            if found is None:
                return None
            wrong += found
        return wrong

    def _exchange(self, legs: Sequence[Leg], measure: Measure, through_host: bool, start: int) -> int | None:
        self._patterns += 1
        sent: list[tuple[Tensor, Tensor, int]] = []
        """Source, destination, number of the pattern."""
        if through_host:
            sent.append((legs[0][1], legs[1][0], self._patterns))
        else:
            sent += [(source, destination, self._patterns + 1000 * number) for number, (destination, source) in enumerate(legs)]
        for source, destination, number in sent:
            for place, piece in self._pieces(len(source), number, start):
                source[place : place + len(piece)].copy_(piece)
                destination[place : place + len(piece)].copy_(~piece)
        if self._stop.is_set():
            return None
        measure(1)
        wrong = 0
        for _, destination, number in sent:
            for place, piece in self._pieces(len(destination), number, start):
                arrived = destination[place : place + len(piece)].cpu()
                if not torch.equal(arrived, piece):
                    wrong += int((arrived != piece).sum())
        return None if self._stop.is_set() else wrong

    def _pieces(self, size: int, number: int, start: int) -> Iterator[tuple[int, Tensor]]:
        for place in range(0, size, PIECE_BYTES):
            if self._stop.is_set():
                return
            yield place, pattern(min(PIECE_BYTES, size - place), start + place, number)


def pattern(size: int, start: int, number: int) -> Tensor:
    """Bytes from `start` on (a multiple of 8) of pattern `number`, on the CPU: multiples of an odd number, so no eight bytes come twice."""
    words = torch.arange(start // 8, start // 8 + -(-size // 8), dtype=torch.int64)
    words.mul_(-7046029254386353131).add_(number * 0x5851F42D4C957F2D % (1 << 62))
    return words.view(torch.uint8)[:size]


def _one_after_the_other(blocks: Sequence[Block]) -> Block:
    """Copies of which each waits for the one before; samples are matched as far as there are some of each."""
    samples = tuple(map(sum, zip(*(block.samples for block in blocks), strict=False)))
    return Block(blocks[0].iterations, sum(block.seconds for block in blocks), samples)


class TwoWays:
    """Copies in both directions at once on CUDA: each direction has a stream on each of the (one or two) cards.

    A copy between cards runs on the current stream of its source's card and waits for the current stream of its destination's
    (aten/src/ATen/native/cuda/Copy.cu), so that one stream per card would put the two directions one after the other.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = [torch.device(device) for device in devices]
        self._streams = [[torch.cuda.Stream(device) for device in self._devices] for _ in range(2)]
        with torch.cuda.device(self._devices[0]):
            self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def operation(self, moves: Sequence[Operation]) -> Operation:
        """One copy in each direction."""
        return lambda: self._queue(moves, 1)

    def _queue(self, moves: Sequence[Operation], count: int) -> None:
        for _ in range(count):
            for move, streams in zip(moves, self._streams, strict=True):
                with ExitStack() as current:
                    for stream in streams:
                        current.enter_context(torch.cuda.stream(stream))
                    move()

    def block(self, moves: Sequence[Operation], count: int) -> Block:
        """`count` copies in each direction between two events of the first card, for which every stream waits."""
        for device in self._devices:
            torch.cuda.synchronize(device)
        first = self._streams[0][0]
        others = [stream for streams in self._streams for stream in streams if stream is not first]
        self._start.record(first)
        for stream in others:
            stream.wait_event(self._start)
        self._queue(moves, count)
        for stream in others:
            first.wait_stream(stream)
        self._end.record(first)
        for device in self._devices:
            torch.cuda.synchronize(device)
        seconds = self._start.elapsed_time(self._end) / 1e3
        return Block(count, seconds, (seconds / count,))
