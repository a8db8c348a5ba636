"""Made-up benchmark runs for the tests of the Benchmark tab. Without the feature of a kind, a test that makes a row of
it skips."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from devexplorer.core.records import (
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchResult,
    BenchSpec,
    BenchStarted,
    DeviceInfo,
    Spread,
)
from devexplorer.core.session.state import State

if TYPE_CHECKING:
    from devexplorer.core.bandwidth.kind import BandwidthRow
    from devexplorer.core.sweep.kind import SweepCell, SweepResult, SweepSpec

NOW = 1_800_000_000.0
GIB = 1 << 30
CPU = DeviceInfo(id="cpu", kind="cpu", name="a processor", memory_total_bytes=64 * GIB, memory_used_bytes=4 * GIB)
T4S = tuple(
    DeviceInfo(
        id=f"vgpu:{at}",
        kind="virtual",
        name="Tesla T4",
        memory_total_bytes=15 * GIB,
        memory_used_bytes=0,
        simulated=True,
    )
    for at in range(2)
)
A10S = tuple(
    DeviceInfo(id=f"cuda:{at}", kind="cuda", name="NVIDIA A10", memory_total_bytes=24 * GIB, memory_used_bytes=GIB)
    for at in range(2)
)


def spread(median: float, share: float = 0.02) -> Spread:
    """p20 and p80 at this distance below and above."""
    return Spread(median, median * (1 - share), median * (1 + share))


def begin(
    state: State, number: int, spec: BenchSpec, *, simulated: bool = False, datasheet: float | None = None
) -> None:
    """An accepted run after its warm-up."""
    state.apply(BenchPreparing(run=number, spec=spec, simulated=simulated, datasheet_tflops=datasheet))
    state.apply(BenchStarted(run=number, time_unix_s=NOW))


def point(state: State, number: int, **more: Any) -> None:
    """One point of a running benchmark."""
    state.apply(BenchPoint(run=number, device=state.runs[number].spec.device, time_unix_s=NOW + 1, **more))


def finish(state: State, number: int, result: BenchResult | None, reason: str | None = None) -> None:
    """The end of a run."""
    state.apply(BenchEnded(run=number, time_unix_s=NOW + 2, result=result, reason=reason))


def cell(m: int, n: int, k: int, tflops: float | None = None) -> SweepCell:
    """A measured shape, or (without a figure) one that did not fit."""
    kind = pytest.importorskip("devexplorer.core.sweep.kind")
    if tflops is None:
        return kind.SweepCell(m, n, k, reason="it does not fit")
    return kind.SweepCell(m, n, k, tflops=spread(tflops), iterations=100)


def measure(state: State, number: int, cells: Iterable[SweepCell], total: int = 0) -> None:
    """A point for each of these cells."""
    for done, one in enumerate(cells, 1):
        point(
            state,
            number,
            part=one,
            tflops=one.tflops.median if one.tflops else None,
            done=done / total if total else None,
        )


def swept(
    number: int, spec: SweepSpec, cells: Iterable[SweepCell], *, stopped: bool = False, simulated: bool = False
) -> SweepResult:
    """The result of a sweep."""
    kind = pytest.importorskip("devexplorer.core.sweep.kind")
    return kind.SweepResult(
        run=number, spec=spec, cells=tuple(cells), stopped=stopped, simulated=simulated, seconds=1.0
    )


def copy(source: str, destination: str, size: int, rate: float | None, **more: Any) -> BandwidthRow:
    """A copy at `rate` GB/s, or one that was not measured."""
    kind = pytest.importorskip("devexplorer.core.bandwidth.kind")
    if rate is None:
        return kind.BandwidthRow(source=source, destination=destination, bytes=size, **more)
    seconds = size / rate / 1e9
    fields: dict[str, Any] = {"verified": True, "gb_per_s": spread(rate), "seconds": spread(seconds), "iterations": 20}
    return kind.BandwidthRow(source=source, destination=destination, bytes=size, **{**fields, **more})
