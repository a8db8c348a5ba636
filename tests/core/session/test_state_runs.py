"""The state of runs other than a single product."""

from __future__ import annotations

import math

import msgspec
import pytest

from devexplorer.core.bandwidth.kind import BandwidthRow, BandwidthSpec
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.feature import converted
from devexplorer.core.records import BenchPoint, BenchPreparing, DeviceInfo, Spread
from devexplorer.core.session.state import State
from devexplorer.core.sweep.kind import SweepCell, SweepSpec


def state_with(spec: SweepSpec | BandwidthSpec) -> State:
    state = State()
    state.set_catalog(Catalog(devices=(DeviceInfo(id="cpu", kind="cpu", name="a processor"),)))
    state.apply(BenchPreparing(run=1, spec=spec, simulated=False))
    return state


def test_finished_shapes_are_kept_in_their_order_and_drawn_as_throughput() -> None:
    state = state_with(SweepSpec(device="cpu", shapes=((8, 8, 8), (16, 16, 16))))
    cells = [SweepCell(8, 8, 8, tflops=Spread(0.1, 0.1, 0.1)), SweepCell(16, 16, 16, reason="too large")]
    for number, (cell, tflops) in enumerate(zip((None, *cells), (0.09, 0.1, None), strict=True)):
        state.apply(BenchPoint(run=1, device="cpu", time_unix_s=1000.0 + number, tflops=tflops, part=cell))
    assert state.runs[1].parts == cells
    assert state.runs[1].points == 3
    times, values = state.devices["cpu"].throughput.readings("tflops")
    assert list(times) == [1000.0, 1001.0]
    assert list(values) == [0.09, 0.1]


@pytest.mark.parametrize("name", ["part", "row"])
def test_a_copy_is_kept_and_is_no_throughput(name: str) -> None:
    """In recordings of earlier versions it has another name."""
    state = state_with(BandwidthSpec(sources=("cpu",), destinations=("cpu",)))
    row = BandwidthRow(source="cpu", destination="cpu", bytes=4096, gb_per_s=Spread(9.0, 8.0, 10.0))
    plain = {"run": 1, "device": "cpu", "time_unix_s": 1000.0, "gb_per_s": 9.0, name: msgspec.to_builtins(row)}
    state.apply(converted({"type": "bench_point", **plain}, BenchPoint))
    assert state.runs[1].parts == [row]
    assert math.isnan(state.devices["cpu"].throughput.latest("tflops"))
    state.apply(converted({"type": "bench_point", **plain, name: {"bytes": "many"}}, BenchPoint))
    assert state.runs[1].parts == [row], "what is no copy is left out"
