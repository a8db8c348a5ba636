"""Runs of every kind in the throughput plot and in the status bar."""

from __future__ import annotations

from pathlib import Path

from fakes.bench_runs import A10S, CPU, NOW, T4S, begin, cell, copy, finish, measure, point, spread, swept
from fakes.host import hosted
from fakes.look_records import state_with
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.bandwidth.kind import BandwidthSpec
from devexplorer.core.model_steps.kind import ModelResult, ModelSpec
from devexplorer.core.records import StartBenchmark
from devexplorer.core.scaling.kind import ScalingSpec
from devexplorer.core.session.state import State
from devexplorer.core.sweep.kind import SweepSpec
from devexplorer.gui.actions import Controller
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.shell.bars.status_bar import StatusBar
from devexplorer.gui.timelines.slot import ThroughputPlot

SHAPES = ((64, 64, 64), (128, 128, 128))


def plot_for(qtbot: QtBot, state: State) -> ThroughputPlot:
    return hosted(qtbot, lambda _: ThroughputPlot(state, TimeAxis()), 700, 220)


def legend(plot: ThroughputPlot, state: State, device: str) -> str:
    plot.refresh(NOW + 2)
    return plot._entry(state.devices[device]).value


def job(qtbot: QtBot, state: State) -> str:
    controller = Controller(state, lambda _: 0, selection=tuple, say=str)
    return hosted(qtbot, lambda _: StatusBar(controller, clock=lambda: NOW + 4), 1200, 26).job.text()


def test_a_sweep_is_drawn_and_stands_for_its_best_shape(qtbot: QtBot) -> None:
    state = state_with(CPU, *T4S)
    spec = SweepSpec(device="vgpu:0", shapes=SHAPES)
    begin(state, 1, spec, simulated=True)
    plot = plot_for(qtbot, state)
    assert legend(plot, state, "vgpu:0") == "warming up"
    cells = [cell(*SHAPES[0], 3.0), cell(*SHAPES[1], 2.0)]
    measure(state, 1, cells)
    point(state, 1, text="256×256×256")  # the next shape begins: the last figure stays
    assert legend(plot, state, "vgpu:0") == "2.00"
    assert plot.subtitle.endswith("sweep")
    finish(state, 1, swept(1, spec, cells))
    assert legend(plot, state, "vgpu:0") == "best 3.00"
    begin(state, 2, SweepSpec(device="vgpu:1", shapes=SHAPES), simulated=True)
    plot.refresh(NOW + 2)
    first, second, _more = plot.legend.tab_stops()
    assert (first.accessibleName()[:6], second.accessibleName()[:6]) == ("vgpu:1", "vgpu:0"), "the newest is in sight"


def test_a_model_without_counted_operations_has_no_figure(qtbot: QtBot) -> None:
    state = state_with(CPU)
    spec = ModelSpec(target="mlp", device="cpu")
    begin(state, 1, spec)
    point(state, 1, samples_per_s=100.0)
    plot = plot_for(qtbot, state)
    result = ModelResult(
        run=1,
        spec=spec,
        stopped=False,
        simulated=False,
        seconds=1.0,
        samples_per_s=spread(9.0),
        step_seconds=spread(0.1),
    )
    finish(state, 1, result)
    assert legend(plot, state, "cpu") == ""


def test_copies_have_no_place_in_the_throughput_plot(qtbot: QtBot) -> None:
    state = state_with(CPU, *A10S)
    begin(state, 1, BandwidthSpec(sources=("cpu",), destinations=("cuda:0",)))
    point(state, 1, row=copy("cpu", "cuda:0", 4096, 1.0))
    plot = plot_for(qtbot, state)
    plot.refresh(NOW + 2)
    assert plot.is_empty


def test_the_line_at_the_bottom_names_the_kind_and_the_time_left(qtbot: QtBot) -> None:
    state = state_with(CPU, *T4S)
    begin(state, 1, SweepSpec(device="vgpu:0", shapes=SHAPES))
    assert job(qtbot, state) == "sweep on vgpu:0"
    point(state, 1, done=0.25)
    assert job(qtbot, state) == "sweep on vgpu:0, 12 s left"


def test_every_device_that_is_kept_busy_counts(qtbot: QtBot) -> None:
    state = state_with(CPU, *T4S)
    begin(state, 1, ScalingSpec(devices=("vgpu:0", "vgpu:1")))
    assert job(qtbot, state) == "scaling on 2 devices"
    begin(state, 2, ModelSpec(target="mlp", device="cpu"))
    assert job(qtbot, state) == "benchmarks on 3 devices"


def test_benchmark_measures_the_card_that_is_selected(qapp: QApplication, tmp_path: Path) -> None:
    quiet = QuietWindow(qapp, tmp_path, *T4S)
    QTest.mouseClick(quiet.window.devices.items["vgpu:1"], Qt.MouseButton.LeftButton)
    QTest.mouseClick(quiet.window.toolbar.buttons["benchmark"], Qt.MouseButton.LeftButton)
    quiet.settle()
    start = quiet.window.bottom_dock.page("benchmark").page.start_button
    assert quiet.window.focusWidget() is start, "Enter starts it"
    assert not quiet.sent
    QTest.keyClick(start, Qt.Key.Key_Return)
    assert [command.spec.device for command in quiet.sent if isinstance(command, StartBenchmark)] == ["vgpu:1"]
    quiet.close()
