"""Copies between devices: their buffers, how a block of them is timed, and whether what arrives is what was sent.

Runs on the thread that runs the benchmark, and starts none. How copies are timed:

- cpu to cpu (a copy in memory): the wall around a block of copies.
- CUDA, other accelerators with events: copies queued on a stream, events between them, one synchronisation per block.
  Both ways at once: streams of their own for each direction and one pair of events around both.
- accelerators without events: the wall between two synchronisations; both ways at once is not available there.
- virtual GPUs: the simulated clock. Tensors without values go through the dispatcher and pay what the cost model says;
  1 GiB takes no memory of this machine. Both ways at once: the longer of the two, as the profiles give the rate of one
  direction of a link.

To verify, a pattern that has not been there before, in which no eight bytes are like others, is copied in the same way
and compared bit by bit; on virtual GPUs in pieces of 16 MiB, one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from devexplorer.core.bandwidth.kind import BandwidthSpec
from devexplorer.core.base import Unavailable, bytes_text
from devexplorer.core.benchmark.timing import (
    BlockTimer,
    Operation,
    SynchronisedTimer,
    TimedBlock,
    streams_of,
    timer_for,
)
from devexplorer.core.devices.backend import DeviceRegistry
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
