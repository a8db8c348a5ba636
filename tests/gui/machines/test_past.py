"""A window that comes later than the host: curves, runs and marks of before; and after a gap what was read
meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes.two_machines import TwoMachines
from PySide6.QtWidgets import QApplication

from devexplorer.core.records import (
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    DeviceSample,
    MatmulSpec,
    Moved,
    MoveReport,
)
from devexplorer.gui.machines.room import room_of

SPEC = MatmulSpec(device="cpu", dtype="float32", m=512, n=512, k=512)


@pytest.fixture
def two(qapp: QApplication, tmp_path: Path) -> Iterator[TwoMachines]:
    made = TwoMachines(qapp, tmp_path)
    yield made
    made.end()


def read(two: TwoMachines, begin_s: int, end_s: int, temperature_c: float = 50.0) -> None:
    """The host's processor was read each second, until 1000 at most: that is what its clock says."""
    for second in range(begin_s, end_s):
        two.host.say(
            DeviceSample(
                device="cpu", time_unix_s=float(second), utilization_percent=second % 100, temperature_c=temperature_c
            )
        )


def measure(two: TwoMachines, run: int, at_s: float, *, ends: bool = True) -> None:
    two.host.say(
        BenchPreparing(run=run, spec=SPEC, simulated=False),
        BenchStarted(run=run, time_unix_s=at_s),
        *(BenchPoint(run=run, device="cpu", time_unix_s=at_s + step, tflops=1.5) for step in range(1, 5)),
    )
    if ends:
        two.host.say(BenchEnded(run=run, time_unix_s=at_s + 5, result=None, reason="It was stopped."))


def test_a_window_that_comes_later_sees_what_was_before(two: TwoMachines) -> None:
    read(two, 800, 1000, temperature_c=99.0)
    measure(two, 7, 900.0)
    measure(two, 8, 950.0, ends=False)
    report = MoveReport(
        objects=("mlp",), source=("vgpu:0",), destination="cpu", dtype=None, parameters=1, buffers=0, gradients=0,
        tensors=1, bytes=4, seconds=0.1, wall_seconds=0.1, gb_per_s=None, simulated=False,
    )  # fmt: skip
    two.host.say(Moved(request=1, report=report, time_unix_s=970.0))
    two.go_live()
    far = two.add()
    room_of(two.window.context).show(far)
    two.until(lambda: "cpu" in two.state.devices and len(two.state.devices["cpu"].throughput))
    device = two.state.devices["cpu"]
    times, values = device.history.readings("utilization_percent")
    assert times[-1] == pytest.approx(time.time(), abs=20.0), "by this window's clock"
    assert times[-1] - times[0] == pytest.approx(199.0, abs=5.0)
    assert values[-1] == 99.0
    assert {run.run: run.ended for run in two.state.runs.values()} == {7: True, 8: False}
    _, rates = device.throughput.readings("tflops")
    assert np.isnan(rates).sum() == 1, "two curves with a gap between"
    assert [marker.text for marker in two.state.markers][-2:] == ["matmul cpu", "mlp → cpu"]
    assert times[0] < two.state.markers[0].time_unix_s < times[-1]
    two.window.workbench.show_layout("measure")
    two.until(lambda: not two.window.throughput.plot.is_empty)
