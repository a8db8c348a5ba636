"""The bandwidth benchmark: bytes that arrive per second, the latency of one copy, and whether the data is right, for
every pair of devices.

Runs on the thread that runs the benchmark, and starts none; `core.bandwidth.copying` says how copies are timed and
verified.

Rates are decimal GB/s of data that arrived, both directions together where copies go both ways at once. A row's
`seconds` are from the call to the end of one copy, each waited for: the latency where copies are small. On virtual GPUs
a copy is made once, as the same one always costs the same, and pageable memory is not modelled. Where a copy between
two accelerators arrives wrong, the same is measured through the host: that row has a kind of host memory, and its
`reason` names the route.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from itertools import product
from typing import Any

from msgspec.structs import replace

from devexplorer.core.bandwidth.copying import Case, Copier, Measure, Send, cases, send
from devexplorer.core.bandwidth.kind import BandwidthResult, BandwidthRow, BandwidthSpec
from devexplorer.core.base import Clock, Unavailable, bytes_text, parse_seconds
from devexplorer.core.benchmark.spec import Checks
from devexplorer.core.benchmark.statistics import Samples, block_length, spread
from devexplorer.core.benchmark.timing import Runner, streams_of
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.records import BenchPoint

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
