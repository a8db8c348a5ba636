"""The memory and throughput plots on made-up histories, refreshed by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pytest
from fakes.host import hosted
from fakes.shown_plots import cursor_text, curve_data, guide_labels, marker_labels, x_ticks, y_ticks
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QContextMenuEvent, QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QApplication, QMenu, QToolButton, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import (
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    DeviceInfo,
    DeviceSample,
    MatmulResult,
    MatmulSpec,
    Spread,
)
from devexplorer.core.scaling.kind import ScalingSpec
from devexplorer.core.session.state import Marker, State
from devexplorer.gui.plots.curves import LiveCurve, LiveCurves
from devexplorer.gui.plots.device_plot import DevicePlot
from devexplorer.gui.plots.time_axis import TOLD_S, TimeAxis, TimeControl
from devexplorer.gui.timelines.slot import MetricPlot, ThroughputPlot
from devexplorer.gui.timelines.stack import PlotStack
from devexplorer.gui.widgets import ScrollArea
from devexplorer.gui.widgets.theme import DARK, LIGHT, set_theme

NOW = 1_800_000_000.0
GIB = 1024**3
P = TypeVar("P", MetricPlot, ThroughputPlot)
Show = Callable[..., MetricPlot]
ShowThroughput = Callable[..., ThroughputPlot]


def make_state(*names: str) -> State:
    state = State()
    infos = [
        DeviceInfo(
            id=name,
            kind="virtual" if name.startswith("vgpu") else "cpu" if name == "cpu" else "cuda",
            name="a card",
            memory_total_bytes=16 * GIB,
            simulated=name.startswith("vgpu"),
        )
        for name in names
    ]
    state.set_catalog(Catalog(devices=tuple(infos)))
    return state


def sample(state: State, name: str, time_s: float, used: float | None) -> None:
    state.apply(DeviceSample(device=name, time_unix_s=time_s, memory_used_bytes=None if used is None else int(used)))


def fill(state: State, name: str, used: Callable[[float], float | None], seconds: float = 150.0) -> None:
    """One reading a second until now; `used` takes the age in seconds."""
    for age in np.arange(seconds, 0, -1.0):
        sample(state, name, NOW - age, used(age))


def start_run(
    state: State, number: int, device: str, *, datasheet: float | None, tflops: float, age: float = 20
) -> None:
    spec = MatmulSpec(device=device, dtype="float16", m=4096, n=4096, k=4096)
    simulated = device.startswith("vgpu")
    state.apply(BenchPreparing(run=number, spec=spec, simulated=simulated, datasheet_tflops=datasheet))
    state.apply(BenchStarted(run=number, time_unix_s=NOW - age))
    for moment in np.arange(NOW - age + 0.5, NOW, 0.5):
        state.apply(
            BenchPoint(run=number, device=device, time_unix_s=moment, tflops=tflops, iterations=9, seconds=0.05)
        )


def end_run(state: State, number: int, median: float) -> None:
    run = state.runs[number]
    result = MatmulResult(
        run=number, spec=run.spec, tflops=Spread(median, median, median), iterations=9, blocks=1, seconds=1.0,
        stopped=False, simulated=run.simulated, datasheet_tflops=run.datasheet_tflops,
    )  # fmt: skip
    state.apply(BenchEnded(run=number, time_unix_s=NOW, result=result))


@pytest.fixture
def axis() -> TimeAxis:
    return TimeAxis()


@pytest.fixture
def show(qtbot: QtBot, axis: TimeAxis) -> Show:
    return lambda state, width=720: drawn(hosted(qtbot, lambda _: MetricPlot(state, axis), width, 232))


@pytest.fixture
def show_throughput(qtbot: QtBot, axis: TimeAxis) -> ShowThroughput:
    return lambda state, width=900: drawn(hosted(qtbot, lambda _: ThroughputPlot(state, axis), width, 232))


@pytest.fixture
def state() -> State:
    """A card that used one GiB all the time."""
    state = make_state("cuda:0")
    fill(state, "cuda:0", lambda age: GIB)
    return state


@pytest.fixture
def plot(state: State, show: Show) -> MetricPlot:
    return show(state)


def drawn(plot: P) -> P:
    plot.refresh(NOW)
    QApplication.processEvents()  # header and axes find their sizes
    plot.refresh(NOW)
    return plot


def curves(plot: DevicePlot) -> list[LiveCurve]:
    """Those that are painted."""
    [item] = [item for item in plot.canvas.scene().items() if isinstance(item, LiveCurves)]
    return item.curves


def test_a_memory_step_is_drawn_where_and_as_high_as_it_was(show: Show) -> None:
    state = make_state("cpu", "cuda:0")
    fill(state, "cuda:0", lambda age: 2 * GIB if age > 40 else 5 * GIB)
    plot = show(state)

    times, values = curve_data(plot, "cuda:0")

    assert times[0] <= NOW - 120 <= times[1]
    assert times[-1] == NOW - 1
    assert values[times < NOW - 40].tolist() == [2 * GIB] * int((times < NOW - 40).sum())
    assert values[-1] == 5 * GIB
    assert plot.subtitle == "GiB"
    assert y_ticks(plot) == ["0", "2", "4", "6"]
    assert x_ticks(plot) == ["−120 s", "−90", "−60", "−30", "now"]


def test_a_gap_is_drawn_as_a_gap(show: Show) -> None:
    state = make_state("cuda:0")
    fill(state, "cuda:0", lambda age: None if 30 < age < 50 else GIB)
    plot = show(state)

    times, values = curve_data(plot, "cuda:0")
    assert np.isnan(values[(times > NOW - 50) & (times < NOW - 30)]).all()
    [curve] = curves(plot)
    ends = [[at.x() + NOW for at in (piece.first(), piece.last())] for piece in curve.pieces]
    assert [[round(NOW - at) for at in ages] for ages in ends] == [[121, 50], [30, 1]]


def test_curves_are_made_once_and_get_data_only_when_there_are_new_ones(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make_state("cuda:0", "cuda:1")
    for name in state.devices:
        fill(state, name, lambda age: GIB)
    plot = show(state)
    made, handed = curves(plot), []
    original = LiveCurve.set_points
    monkeypatch.setattr(LiveCurve, "set_points", lambda self, *xy: (handed.append(self), original(self, *xy))[1])

    for tick in range(10):
        plot.refresh(NOW + tick / 30)
    assert handed == []

    sample(state, "cuda:0", NOW + 0.4, 3 * GIB)
    plot.refresh(NOW + 0.4)
    assert len(handed) == 1
    assert curve_data(plot, "cuda:0")[1][-1] == 3 * GIB
    assert curves(plot) == made


def test_time_passing_moves_the_curve_and_not_the_axis(plot: MetricPlot) -> None:
    view = plot.canvas.view.childGroup
    before = plot._live.mapToItem(view, QPointF(0, 0)).x()

    plot.refresh(NOW + 10)

    assert plot._live.mapToItem(view, QPointF(0, 0)).x() == pytest.approx(before - 10)
    assert plot.canvas.view.viewRange()[0] == [-120, 0]
    assert plot.step_s == pytest.approx(4 * 120 / plot.canvas.view.width())
    plot._axis.set_paused(True)
    assert plot.step_s == math.inf


def test_the_past_that_left_the_plot_is_dropped(plot: MetricPlot, state: State) -> None:
    for second in range(100):
        sample(state, "cuda:0", NOW + second, GIB)
        plot.refresh(NOW + second)

    times, _ = curve_data(plot, "cuda:0")
    assert NOW + 99 - 120 - 40 < times[0] <= NOW + 99 - 120


def test_many_readings_are_thinned_to_the_pixels_and_keep_their_peak(show: Show) -> None:
    state = make_state("cuda:0")
    for index in range(5900):
        sample(state, "cuda:0", NOW - 118 + index / 50, 9 * GIB if index == 3000 else GIB)
    plot = show(state)

    times, values = curve_data(plot, "cuda:0")
    assert len(times) < 2 * 720
    assert values.max() == 9 * GIB
    assert times[-1] == pytest.approx(NOW, abs=0.03)


def test_a_click_on_the_legend_hides_the_curve_and_fits_the_axis_to_the_rest(show: Show, qtbot: QtBot) -> None:
    state = make_state("cpu", "cuda:0")
    fill(state, "cpu", lambda age: 12 * GIB)
    fill(state, "cuda:0", lambda age: GIB)
    plot = show(state)
    assert y_ticks(plot)[-1] == "15"

    qtbot.mouseClick(plot.legend.buttons["cpu"], Qt.MouseButton.LeftButton)
    assert len(curve_data(plot, "cpu")[0]) == 0
    assert y_ticks(plot)[-1] == "1.25"

    qtbot.mouseClick(plot.legend.buttons["cpu"], Qt.MouseButton.LeftButton)
    assert len(curve_data(plot, "cpu")[0]) > 0


def test_one_curve_alone_is_chosen_from_many_and_for_every_plot(qtbot: QtBot) -> None:
    state = make_state("cpu", *(f"cuda:{at}" for at in range(8)))
    for name in state.devices:
        state.apply(DeviceSample(device=name, time_unix_s=NOW, memory_used_bytes=GIB, utilization_percent=5))
    axis = TimeAxis()
    stack = hosted(qtbot, lambda _: PlotStack(state, axis, ("memory_used_bytes", "utilization_percent")), 1300, 500)
    qtbot.waitUntil(lambda: len(stack.slots) == 2)  # those below the first one come after it was painted
    stack.refresh(NOW)
    QApplication.processEvents()  # the legends get their room
    first, second = (slot.plot for slot in stack.slots)
    everything = first.legend.names(shown=True)

    def choose(widget: QWidget, words: str) -> list[str]:
        where = widget.rect().center()
        QApplication.sendEvent(
            widget, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, where, widget.mapToGlobal(where))
        )
        menu = QApplication.activePopupWidget()
        assert isinstance(menu, QMenu)
        lines = {action.text(): action for action in menu.actions()}
        menu.close()
        lines[words].trigger()
        return [*lines]

    lines = choose(first.legend.buttons["cuda:3"], "Show only cuda:3")
    assert "Save the values as CSV…" in lines
    assert "Show all curves" not in lines, "all of them are shown"
    qtbot.mouseClick(first.legend.buttons["cuda:5"], Qt.MouseButton.LeftButton)
    assert first.legend.names(shown=True) == {"cuda:3", "cuda:5"}
    choose(first.canvas, "The same curves in every plot")
    assert second.legend.names(shown=True) == {"cuda:3", "cuda:5"}
    assert "Show only" not in " ".join(choose(second.canvas, "Show all curves"))
    assert second.legend.names(shown=True) == everything


def test_a_simulated_device_is_dashed_and_says_so(show: Show) -> None:
    state = make_state("cpu", "vgpu:0")
    for name in state.devices:
        fill(state, name, lambda age: GIB)
    plot = show(state)

    pens = {curve.pen.color().name(): curve.pen for curve in curves(plot)}
    assert pens[DARK.cpu.lower()].style() == Qt.PenStyle.SolidLine
    assert pens[DARK.devices[0].lower()].style() == Qt.PenStyle.CustomDashLine
    assert all(pen.widthF() == 1 for pen in pens.values())
    assert plot.legend.buttons["vgpu:0"].text_shown == "vgpu:0 simulated"
    assert "simulated" in plot.legend.buttons["vgpu:0"].accessibleName()


@pytest.mark.parametrize("width", [560, 1280])
def test_the_legend_has_every_device_in_the_row_or_in_its_menu(show: Show, width: int) -> None:
    names = ["cpu", *(f"vgpu:{index}" for index in range(16))]
    plot = show(make_state(*names), width)

    in_row = [name for name in names if plot.legend.buttons[name].isVisible()]
    in_menu = [entry.device for entry in plot.legend.left_over]
    assert in_row + in_menu == names
    assert in_menu
    rects = [plot.legend.buttons[name].geometry() for name in in_row]
    assert all(left.right() < right.left() for left, right in pairwise(rects))
    assert all(plot.legend.rect().contains(rect) for rect in rects)


def test_what_has_no_room_in_the_legend_is_hidden_and_shown_in_its_menu(show: Show) -> None:
    plot = show(make_state("cpu", *(f"vgpu:{index}" for index in range(16))))
    in_menu = [entry.device for entry in plot.legend.left_over]
    last = in_menu[-1]
    menu = plot.legend.findChild(QMenu)
    more = plot.legend.tab_stops()[-1]
    assert isinstance(more, QToolButton)
    assert more.text() == f"+{len(in_menu)}"
    for shown in (False, True, False):
        menu.popup(QPoint())
        lines = {action.data(): action for action in menu.actions()}
        assert list(lines) == in_menu
        assert lines[last].isChecked() is not shown
        lines[last].trigger()
        menu.close()
        assert plot.legend.shows(last) is shown


def test_a_narrow_plot_has_its_legend_below_the_header_and_names_what_it_shows(show: Show) -> None:
    plot = show(make_state("cpu", "vgpu:0", "vgpu:1"), 700)
    legend, header = plot.legend, plot.legend.parentWidget()
    assert not legend.from_left

    plot.resize(310, 200)
    QApplication.processEvents()
    assert legend.from_left
    assert legend.parentWidget() is not header
    assert not legend.left_over, "not a number alone"
    named = [legend.buttons[name] for name in ("cpu", "vgpu:0", "vgpu:1")]
    assert all(button.isVisible() and button.width() == button.sizeHint().width() for button in named)
    assert named[0].x() == 0
    assert legend.mapTo(plot, legend.rect().bottomLeft()).y() < plot.canvas.y()

    plot.resize(700, 200)
    QApplication.processEvents()
    assert legend.parentWidget() is header
    assert not legend.left_over


def test_scale_to_capacity_and_back(show: Show) -> None:
    state = make_state("cuda:0", "cuda:1")
    fill(state, "cuda:0", lambda age: GIB / 2)
    plot = show(state)
    assert (plot.subtitle, y_ticks(plot)[-1]) == ("MiB", "600")
    assert guide_labels(plot) == []

    for _ in ("fit GPUs", "capacity"):
        plot.scale_button.click()
    assert (plot.subtitle, y_ticks(plot)[-1]) == ("GiB", "20")
    assert guide_labels(plot) == ["capacity 16.00 GiB  cuda:0, cuda:1"]

    plot.scale_button.click()
    assert (plot.subtitle, y_ticks(plot)[-1]) == ("MiB", "600")


def test_markers_are_in_the_plot_while_they_are_in_view(show: Show) -> None:
    state = make_state("cuda:0")
    plot = show(state)
    state.markers.append(Marker(NOW - 200, "long ago", None))
    state.markers.append(Marker(NOW - 110, "build mlp", None))
    state.markers.append(Marker(NOW - 3, "mlp → cuda:0", "cuda:0"))

    plot.refresh(NOW)
    assert marker_labels(plot) == ["build mlp", "mlp → cuda:0"]
    plot.refresh(NOW + 20)
    assert marker_labels(plot) == ["mlp → cuda:0"]


def test_while_paused_the_picture_stands_still_and_shows_clock_times(
    plot: MetricPlot, state: State, axis: TimeAxis
) -> None:
    axis.set_paused(True)
    sample(state, "cuda:0", NOW + 5, 8 * GIB)
    plot.refresh(NOW + 5)
    assert curve_data(plot, "cuda:0")[0][-1] <= NOW + 5
    assert y_ticks(plot)[-1] == "1.25"
    assert all(text.count(":") == 2 for text in x_ticks(plot))

    axis.pan(100)
    plot.refresh(NOW + 6)
    assert axis.right_unix_s == NOW + 5
    assert y_ticks(plot)[-1] == "10.0"

    axis.set_paused(False)
    plot.refresh(NOW + 7)
    assert x_ticks(plot)[-1] == "now"


def test_a_paused_plot_can_be_panned_to_what_it_did_not_draw(show: Show, axis: TimeAxis) -> None:
    state = make_state("cuda:0")
    fill(state, "cuda:0", lambda age: GIB, seconds=500)
    plot = show(state)
    axis.set_paused(True)

    axis.pan(-300)
    plot.refresh(NOW)
    times, _ = curve_data(plot, "cuda:0")
    assert times[0] <= NOW - 420
    assert times[-1] < NOW - 250

    axis.pan(300)
    plot.refresh(NOW)
    assert curve_data(plot, "cuda:0")[0][-1] == NOW - 1


def test_a_history_that_restarts_replaces_the_old_one(plot: MetricPlot, state: State) -> None:
    sample(state, "cuda:0", NOW - 3600, 2 * GIB)  # the system clock was set back
    plot.refresh(NOW - 3600)

    times, values = curve_data(plot, "cuda:0")
    assert (times.tolist(), values.tolist()) == ([NOW - 3600], [2 * GIB])


def test_a_device_that_is_gone_takes_its_curve_along(show: Show) -> None:
    state = make_state("cpu", "cuda:0")
    for name in state.devices:
        fill(state, name, lambda age: GIB)
    plot = show(state)

    state.set_catalog(Catalog(devices=(state.devices["cpu"].info,)))
    plot.refresh(NOW + 1)

    assert len(curves(plot)) == 1
    assert len(curve_data(plot, "cuda:0")[0]) == 0


def test_the_cursor_reads_the_same_time_in_both_plots(
    axis: TimeAxis, show: Show, show_throughput: ShowThroughput
) -> None:
    state = make_state("cpu", "vgpu:0")
    fill(state, "cpu", lambda age: 3 * GIB)
    fill(state, "vgpu:0", lambda age: None if 50 < age < 70 else GIB)
    start_run(state, 1, "vgpu:0", datasheet=65.0, tflops=41.0)
    memory = show(state)
    throughput = show_throughput(state)

    hover(memory, 0.5)
    assert axis.cursor_s == pytest.approx(-60, abs=1)
    assert "3.00 GiB" in cursor_text(memory)
    assert "—" in cursor_text(memory)
    assert "vgpu:0 simulated" in cursor_text(memory)
    assert "−60" in cursor_text(throughput) or "−59" in cursor_text(throughput)

    hover(throughput, 0.95)
    assert "1.00 GiB" in cursor_text(memory)
    assert "41.0" in cursor_text(throughput)

    QApplication.sendEvent(throughput.canvas, QEvent(QEvent.Type.Leave))
    assert (cursor_text(memory), cursor_text(throughput)) == ("", "")


@pytest.mark.parametrize(("width", "devices"), [(290, 16), (720, 16)])
def test_the_cursor_box_is_whole_in_a_narrow_plot(show: Show, axis: TimeAxis, width: int, devices: int) -> None:
    state = make_state("cpu", *(f"vgpu:{index}" for index in range(devices)))
    last = f"vgpu:{devices - 1}"
    for name in state.devices:
        fill(state, name, lambda age, used=float(name in ("cpu", last)): used * GIB, seconds=50.0)
    plot = show(state, width)
    axis.set_cursor(-20.0)
    box = plot.cursor_box.box
    assert box.isVisible()
    assert plot.canvas.rect().contains(box.geometry())
    assert "simulated" in box.text()
    assert last in box.text(), "what is not zero stays"


@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_the_cursor_is_one_pixel_of_the_layout_wide_on_every_screen(
    show: Show, axis: TimeAxis, monkeypatch: pytest.MonkeyPatch, ratio: float
) -> None:
    plot = show(make_state("cpu"))
    monkeypatch.setattr(plot.canvas, "devicePixelRatioF", lambda: ratio)
    axis.set_cursor(-20.0)
    assert plot.cursor_box.line.pen.width() == ratio


def test_the_keyboard_moves_the_cursor(qtbot: QtBot, show: Show, axis: TimeAxis) -> None:
    plot = show(make_state("cpu"))
    qtbot.keyClick(plot.canvas, Qt.Key.Key_Left)
    assert axis.cursor_s == pytest.approx(-1.2)
    qtbot.keyClick(plot.canvas, Qt.Key.Key_Escape)
    assert axis.cursor_s is None


def test_the_wheel_changes_the_span_live_and_zooms_while_paused_and_every_plot_says_so(
    qtbot: QtBot, show: Show, axis: TimeAxis
) -> None:
    state = make_state("cpu")
    plot, other = show(state), show(state)

    def notes() -> list[str]:
        return [one.time_note.text() if one.time_note.isVisible() else "" for one in (plot, other)]

    assert notes() == ["", ""]
    wheel(plot, -120)
    assert axis.span_s == 600
    assert notes() == ["10 min", "10 min"]
    for one in (plot, other):
        one.refresh(axis.clock_unix_s + TOLD_S)
    assert notes() == ["", ""], "it has been said"

    axis.set_paused(True)
    assert notes() == ["paused", "paused"]
    wheel(plot, 120)
    assert axis.width_s == pytest.approx(480)
    assert notes() == ["paused · 8 min 00 s"] * 2
    assert "Space" in other.time_note.toolTip()
    qtbot.mouseClick(other.time_note, Qt.MouseButton.LeftButton)
    assert not axis.paused
    assert notes() == ["10 min", "10 min"]


def test_the_wheel_scrolls_plots_that_have_a_scroll_bar_and_ctrl_changes_the_span(qtbot: QtBot, axis: TimeAxis) -> None:
    state = make_state("cpu")
    stack = hosted(qtbot, lambda _: PlotStack(state, axis, ("memory_used_bytes",) * 6), 500, 260)
    qtbot.waitUntil(lambda: len(stack.slots) == 6)
    QApplication.processEvents()
    area = stack.findChild(ScrollArea)
    assert area is not None
    bar = area.verticalScrollBar()
    assert bar.maximum() > 0
    plot = stack.slots[0].plot
    assert isinstance(plot, MetricPlot)
    wheel(plot, -120)
    assert bar.value() > 0
    assert axis.span_s == 120
    wheel(plot, -120, Qt.KeyboardModifier.ControlModifier)
    assert axis.span_s == 600


def test_a_run_shows_its_shape_its_value_and_the_datasheet(show_throughput: ShowThroughput) -> None:
    state = make_state("cpu", "cuda:0", "vgpu:0")
    plot = show_throughput(state)
    start_run(state, 1, "vgpu:0", datasheet=65.0, tflops=41.0)
    plot.refresh(NOW + 1)
    QApplication.processEvents()

    assert not plot.is_empty
    assert plot.subtitle == "TFLOP/s  float16 4096×4096×4096"
    assert plot.legend.buttons["vgpu:0"].text_shown == "vgpu:0 41.0 simulated"
    assert guide_labels(plot) == ["datasheet 65.0  simulated"]
    assert y_ticks(plot)[-1] == "75"
    assert curve_data(plot, "vgpu:0")[1].tolist() == [41.0] * 39
    assert len(curve_data(plot, "cuda:0")[0]) == 0

    end_run(state, 1, 40.5)
    plot.refresh(NOW + 2)
    QApplication.processEvents()
    assert plot.legend.buttons["vgpu:0"].text_shown == "vgpu:0 median 40.5 simulated"
    assert np.isnan(curve_data(plot, "vgpu:0")[1][-1])


def test_what_is_simulated_keeps_its_mark_where_the_plot_is_narrow(show_throughput: ShowThroughput) -> None:
    state = make_state("cpu", "vgpu:0")
    plot = show_throughput(state, 170)
    start_run(state, 1, "vgpu:0", datasheet=65.0, tflops=41.0)
    plot.refresh(NOW + 1)
    QApplication.processEvents()
    [label] = guide_labels(plot)
    assert label != "datasheet 65.0  simulated"
    assert label.endswith("  simulated")


def test_a_scaling_run_takes_no_place_in_the_throughput_plot(show_throughput: ShowThroughput) -> None:
    state = make_state("cpu", "vgpu:0")
    plot = show_throughput(state)

    def scaling(number: int, tflops: float | None) -> None:
        state.apply(BenchPreparing(run=number, spec=ScalingSpec(devices=("vgpu:0", "cpu")), simulated=True))
        state.apply(BenchStarted(run=number, time_unix_s=NOW - 1))
        state.apply(
            BenchPoint(run=number, device="vgpu:0", time_unix_s=NOW - 0.5, tflops=tflops, iterations=1, seconds=0.1)
        )
        state.apply(BenchEnded(run=number, time_unix_s=NOW, result=None))
        plot.refresh(NOW + number)
        QApplication.processEvents()

    scaling(1, None)
    assert plot.is_empty, "it has measured nothing that could stand here"
    start_run(state, 2, "vgpu:0", datasheet=65.0, tflops=41.0)
    end_run(state, 2, 40.5)
    scaling(3, 12.0)
    assert not plot.is_empty
    assert plot.legend.buttons["vgpu:0"].text_shown == "vgpu:0 median 40.5 simulated"
    assert plot.subtitle == "TFLOP/s  float16 4096×4096×4096"
    assert guide_labels(plot) == ["datasheet 65.0  simulated"]


def test_a_datasheet_far_above_the_curve_keeps_its_label_and_not_its_line(show_throughput: ShowThroughput) -> None:
    state = make_state("cuda:0")
    start_run(state, 1, "cuda:0", datasheet=989.0, tflops=12.0)
    plot = show_throughput(state)

    assert y_ticks(plot)[-1] == "15"
    assert guide_labels(plot) == ["datasheet 989 ↑"]


def test_a_slow_device_is_shown_in_gflops(show_throughput: ShowThroughput) -> None:
    state = make_state("cpu")
    start_run(state, 1, "cpu", datasheet=None, tflops=0.0553)
    plot = show_throughput(state)

    assert plot.subtitle.startswith("GFLOP/s")
    assert plot.legend.buttons["cpu"].text_shown == "cpu 55.3"
    assert y_ticks(plot)[-1] == "75"


def test_another_theme_recolours_everything(plot: MetricPlot) -> None:
    set_theme(LIGHT)
    plot.refresh(NOW)
    [curve] = curves(plot)
    assert curve.pen.color() == QColor(LIGHT.devices[0])
    assert plot.canvas.grab().toImage().pixelColor(2, 2) == QColor(LIGHT.panel)


def test_a_hidden_plot_draws_nothing_and_catches_up(qtbot: QtBot, show: Show) -> None:
    state = make_state("cuda:0")
    plot = show(state)
    plot.hide()
    fill(state, "cuda:0", lambda age: GIB)
    plot.refresh(NOW)
    assert len(curve_data(plot, "cuda:0")[0]) == 0

    plot.show()
    plot.refresh(NOW)
    assert len(curve_data(plot, "cuda:0")[0]) > 100


def test_the_time_control_chooses_the_span_and_says_that_it_is_paused(qtbot: QtBot, axis: TimeAxis) -> None:
    control = TimeControl(axis)
    qtbot.addWidget(control)
    control.spans[600.0].trigger()
    assert axis.span_s == 600
    assert control.text() == "10 min ▾"
    control.spans[21_600.0].trigger()
    assert control.text() == "6 h ▾"
    axis.set_paused(True)
    assert control.text() == "6 h ▾"
    assert control.accessibleName() == "Time shown: 6 h, paused"


def position(plot: MetricPlot | ThroughputPlot, share: float) -> QPoint:
    """A point in the plot's area, that share from its left."""
    view = plot.canvas.view
    return plot.canvas.mapFromScene(view.mapToScene(QPointF(view.width() * share, view.height() / 2)))


def hover(plot: MetricPlot | ThroughputPlot, share: float) -> None:
    at = QPointF(position(plot, share))
    none = Qt.MouseButton.NoButton
    event = QMouseEvent(
        QEvent.Type.MouseMove, at, plot.canvas.viewport().mapToGlobal(at), none, none, Qt.KeyboardModifier.NoModifier
    )
    QApplication.sendEvent(plot.canvas.viewport(), event)


def wheel(plot: MetricPlot, delta: int, keys: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    at = QPointF(position(plot, 0.5))
    event = QWheelEvent(
        at, plot.canvas.viewport().mapToGlobal(at), QPoint(), QPoint(0, delta), Qt.MouseButton.NoButton,
        keys, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(plot.canvas.viewport(), event)


def test_a_rate_that_the_axis_has_no_digits_for_is_in_a_unit_of_its_own(show_throughput: ShowThroughput) -> None:
    state = make_state("cpu", "vgpu:0")
    start_run(state, 1, "vgpu:0", datasheet=65.0, tflops=41.0)
    start_run(state, 2, "cpu", datasheet=None, tflops=0.0008)
    plot = show_throughput(state)
    assert plot.subtitle.startswith("TFLOP/s")
    assert plot.legend.buttons["cpu"].text_shown == "cpu 0.800 G"
    assert "cpu 0.800 GFLOP/s" in plot.spoken()
