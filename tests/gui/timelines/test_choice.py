"""The content of a plot is chosen in its title: metrics, throughput, the memory parts of a device; spans of bins; the
selected span."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from fakes.host import hosted
from fakes.shown_plots import cursor_text, curve_data, guide_labels, selected_edges, y_ticks
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt
from PySide6.QtGui import QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import AllocatorSample, DeviceDetails, DeviceInfo, DeviceSample
from devexplorer.core.session.state import State
from devexplorer.gui.plots.curves import AreaItem
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.timelines.slot import MetricPlot, PartsPlot, PlotSlot
from devexplorer.gui.widgets.theme import DARK

NOW = 1_800_000_000.0
GIB = 1 << 30
Show = Callable[..., PlotSlot]


def make_state(*names: str) -> State:
    state = State()
    state.set_catalog(
        Catalog(
            tuple(
                DeviceInfo(
                    id=name,
                    kind="virtual" if "vgpu" in name else "cuda",
                    name="card",
                    memory_total_bytes=16 * GIB,
                    simulated="vgpu" in name,
                )
                for name in names
            )
        )
    )
    return state


def fill(
    state: State, name: str, seconds: int = 130, step: float = 1.0, **readings: Callable[[float], float | None]
) -> None:
    """Readings until now; each is asked with its age in seconds."""
    for age in np.arange(seconds, 0, -step):
        known = {field: ask(float(age)) for field, ask in readings.items()}
        state.apply(DeviceSample(device=name, time_unix_s=NOW - float(age), memory_used_bytes=4 * GIB, **known))


def allocate(state: State, name: str, age: float, **more: int) -> None:
    fields = {
        "allocated_bytes": 2 * GIB,
        "reserved_bytes": 3 * GIB,
        "workspace_bytes": GIB,
        "context_bytes": GIB // 2,
    } | more
    state.apply(AllocatorSample(device=name, time_unix_s=NOW - age, **fields))


@pytest.fixture
def axis() -> TimeAxis:
    return TimeAxis()


@pytest.fixture
def show(qtbot: QtBot, axis: TimeAxis) -> Show:
    def make(state: State, choice: str = "memory_used_bytes", width: int = 720) -> PlotSlot:
        slot = hosted(qtbot, lambda _: PlotSlot(state, axis, choice, time_control=True), width, 232)
        slot.refresh(NOW)
        QApplication.processEvents()
        slot.refresh(NOW)
        return slot

    return make


@pytest.fixture
def state() -> State:
    state = make_state("cuda:0")
    fill(state, "cuda:0")
    return state


@pytest.fixture
def slot(state: State, show: Show) -> PlotSlot:
    return show(state)


def entries(menu: QMenu) -> dict[str, bool]:
    """Choices and whether they are checked, submenus included."""
    found: dict[str, bool] = {}
    for action in menu.actions():
        if isinstance(below := action.menu(), QMenu):
            found |= entries(below)
        elif action.data() is not None:
            found[action.data()] = action.isChecked()
    return found


def test_the_menu_has_what_some_device_tells(show: Show) -> None:
    state = make_state("cuda:0", "cuda:1")
    fill(state, "cuda:0", temperature_c=lambda age: 50.0)
    fill(state, "cuda:1")
    slot = show(state)
    slot.menu.aboutToShow.emit()
    assert entries(slot.menu) == {
        "tflops": False, "memory_used_bytes": True, "temperature_c": False, "parts:cuda:0": False,
        "parts:cuda:1": False,
    }  # fmt: skip
    allocate(state, "cuda:0", 1)
    fill(state, "cuda:0", 1)
    slot.menu.aboutToShow.emit()
    assert {"workspace_bytes", "cached_bytes", "reserved_bytes"} <= entries(slot.menu).keys()
    assert "fan_percent" not in entries(slot.menu)


def test_a_chosen_metric_has_its_scale_unit_and_the_devices_that_tell_it(show: Show, qtbot: QtBot) -> None:
    state = make_state("cuda:0", "cuda:1")
    fill(
        state, "cuda:0", utilization_percent=lambda age: 30.0, sm_clock_mhz=lambda age: 1410, power_w=lambda age: 250.0
    )
    fill(state, "cuda:1")
    slot = show(state)
    assert slot.plot.title == "Memory used"

    with qtbot.waitSignal(slot.choice_changed) as told:
        slot.set_choice("utilization_percent")
    assert told.args == ["utilization_percent"]
    plot = slot.plot
    assert isinstance(plot, MetricPlot)
    assert (plot.title, plot.subtitle, y_ticks(plot)[-1]) == ("Utilization", "%", "100")
    assert [entry.device for entry in plot.legend_entries] == ["cuda:0"]
    assert curve_data(plot, "cuda:0")[1][-1] == 30.0
    assert plot.scale_button.isHidden()

    slot.set_choice("sm_clock_mhz")
    assert (plot.subtitle, y_ticks(plot)[-1]) == ("GHz", "2.0")

    slot.set_choice("power_w")
    plot.canvas.setFocus()
    slot.refresh(NOW)
    assert plot.subtitle == "W"
    slot.set_choice("nonsense")
    assert slot.choice == "power_w"


def test_the_choice_of_another_machine_offers_memory_instead(show: Show) -> None:
    state = make_state("cuda:0")
    fill(state, "cuda:0")
    slot = show(state, "nvlink_tx_bytes_s")
    assert isinstance(slot.plot, MetricPlot)
    assert slot.plot.is_empty
    assert slot.plot.empty.sentence.text() == "No device reports: NVLink sent."
    slot.plot.empty.button.click()
    assert slot.choice == "memory_used_bytes"
    assert not slot.plot.is_empty


def test_limits_are_dotted_lines(show: Show) -> None:
    state = make_state("cuda:0", "cuda:1")
    for name in state.devices:
        fill(state, name, power_w=lambda age: 280.0, power_cap_w=lambda age: 300.0, temperature_c=lambda age: 85.0)
        state.apply(DeviceDetails(device=name, time_unix_s=NOW, temperature_slowdown_c=90.0))
    slot = show(state, "power_w")
    assert guide_labels(slot.plot) == ["cap 300 W  cuda:0, cuda:1"]
    slot.set_choice("temperature_c")
    slot.refresh(NOW)
    assert guide_labels(slot.plot) == ["slowdown 90.0 °C  cuda:0, cuda:1"]


def test_the_parts_of_a_device_are_stacked_to_what_is_used(show: Show) -> None:
    state = make_state("vgpu:0")
    allocate(state, "vgpu:0", 200)
    fill(state, "vgpu:0")
    slot = show(state, "parts:vgpu:0")
    plot = slot.plot
    assert isinstance(plot, PartsPlot)
    times, stack = plot.times, plot.stacked
    assert list(stack) == [
        "workspace_bytes",
        "other_allocated_bytes",
        "cached_bytes",
        "context_bytes",
        "other_processes_bytes",
    ]
    assert [float(part[-1]) / GIB for part in stack.values()] == [1.0, 1.0, 1.0, 0.5, 0.5]
    assert times[-1] == NOW - 1
    assert (plot.title, plot.subtitle) == ("Memory parts of vgpu:0", "GiB · simulated")
    assert y_ticks(plot)[-1] == "5"
    areas = [item for item in plot.canvas.scene().items() if isinstance(item, AreaItem) and item.isVisible()]
    assert max(area.boundingRect().bottom() for area in areas) == 4.0 * GIB

    plot.legend.buttons["cached"].click()
    assert list(plot.stacked) == [
        "workspace_bytes",
        "other_allocated_bytes",
        "context_bytes",
        "other_processes_bytes",
    ]


def test_areas_are_painted_where_they_are_and_a_gap_is_left_out(show: Show) -> None:
    state = make_state("vgpu:0")
    allocate(state, "vgpu:0", 200)
    for age in np.arange(119, 0, -1.0):
        if not 40 < age < 80:
            state.apply(DeviceSample(device="vgpu:0", time_unix_s=NOW - float(age), memory_used_bytes=4 * GIB))
    slot = show(state, "parts:vgpu:0")
    canvas = slot.plot.canvas
    view = canvas.view
    image = canvas.grab().toImage()

    def colour(share: float, gib: float) -> str:
        where = canvas.mapFromScene(view.mapToScene(QPointF(view.width() * share, view.height() * (1 - gib / 5))))
        return image.pixelColor(where).name()

    device, panel = DARK.devices[0].lower(), DARK.panel.lower()
    assert colour(0.25, 0.5) == colour(0.9, 0.5) == device, "tensors of the workspace"
    assert colour(0.25, 1.5) not in (device, panel), "other allocations, paler"
    assert colour(0.25, 3.3) == DARK.bar_context.lower()
    assert colour(0.25, 4.5) == panel, "free"
    assert colour(0.5, 0.4) == panel, "nothing was read then"


def test_without_figures_of_the_allocator_only_the_sum_is_shown(show: Show) -> None:
    state = make_state("cuda:0")
    fill(state, "cuda:0")
    slot = show(state, "parts:cuda:0")
    assert isinstance(slot.plot, PartsPlot)
    assert list(slot.plot.stacked) == ["memory_used_bytes"]
    assert [entry.device for entry in slot.plot.legend_entries] == ["used"]


def test_parts_follow_new_readings_and_a_device_that_goes_and_comes(show: Show) -> None:
    state = make_state("vgpu:0", "vgpu:1")
    allocate(state, "vgpu:0", 200)
    fill(state, "vgpu:0")
    slot = show(state, "parts:vgpu:0")
    plot = slot.plot
    assert isinstance(plot, PartsPlot)
    allocate(state, "vgpu:0", 0, workspace_bytes=2 * GIB)
    state.apply(DeviceSample(device="vgpu:0", time_unix_s=NOW + 1, memory_used_bytes=4 * GIB))
    slot.refresh(NOW + 1.2)
    assert plot.stacked["workspace_bytes"][-1] == 2 * GIB

    infos = [device.info for device in state.devices.values()]
    state.set_catalog(Catalog((infos[1],)))
    slot.refresh(NOW + 2)
    assert plot.is_empty
    state.set_catalog(Catalog(tuple(infos)))
    slot.refresh(NOW + 3)
    assert not plot.is_empty
    assert plot.device == "vgpu:0"


def test_a_day_is_drawn_from_bins_with_their_lowest_and_highest(show: Show, axis: TimeAxis) -> None:
    state = make_state("cuda:0")
    fill(
        state,
        "cuda:0",
        20_000,
        temperature_c=lambda age: 95.0 if age == 15_000 else None if 9000 < age < 12_000 else 50.0,
    )
    slot = show(state, "temperature_c")
    axis.set_span(86_400.0)
    QApplication.processEvents()
    plot = slot.plot
    assert isinstance(plot, MetricPlot)
    times, values = curve_data(plot, "cuda:0")
    assert len(times) < 1500
    assert times[-1] <= NOW
    assert np.isnan(values[(times > NOW - 11_800) & (times < NOW - 9200)]).all()
    assert np.nanmax(values) < 60, "the line is the mean of the bins"
    [band] = [item for item in plot.canvas.scene().items() if isinstance(item, AreaItem)]
    assert band.boundingRect().bottom() == 95.0, "the band has the peak"
    assert y_ticks(plot)[-1] == "125", "and there is room for it"

    axis.set_cursor(-14_990.0)
    assert "mean of" in cursor_text(plot)
    axis.set_cursor(-10_000.0)
    assert "—" in cursor_text(plot)

    axis.set_span(30.0)
    QApplication.processEvents()
    assert len(curve_data(plot, "cuda:0")[0]) <= 40
    assert not band.isVisible()


def drag(slot: PlotSlot, from_share: float, to_share: float, modifiers: Qt.KeyboardModifier) -> None:
    """With the left button, across shares of the plot's width."""
    canvas = slot.plot.canvas
    view = canvas.view
    left = Qt.MouseButton.LeftButton

    def at(share: float) -> QPoint:
        return canvas.mapFromScene(view.mapToScene(QPointF(view.width() * share, view.height() / 2)))

    QTest.mousePress(canvas.viewport(), left, modifiers, at(from_share))
    for step in range(1, 5):
        where = QPointF(at(from_share + (to_share - from_share) * step / 4))
        event = QMouseEvent(
            QMouseEvent.Type.MouseMove,
            where,
            QPointF(canvas.viewport().mapToGlobal(where)),
            Qt.MouseButton.NoButton,
            left,
            modifiers,
        )
        QApplication.sendEvent(canvas.viewport(), event)
    QTest.mouseRelease(canvas.viewport(), left, modifiers, at(to_share))


def test_a_drag_with_shift_selects_in_all_plots_and_escape_clears(qtbot: QtBot, show: Show, axis: TimeAxis) -> None:
    state = make_state("cuda:0")
    fill(state, "cuda:0", temperature_c=lambda age: age)
    one, other = show(state, "temperature_c"), show(state)

    drag(one, 0.25, 0.75, Qt.KeyboardModifier.ShiftModifier)
    assert axis.selection is not None
    early, late = axis.selection
    assert (NOW - early, NOW - late) == (pytest.approx(90, abs=2), pytest.approx(30, abs=2))
    axis.set_cursor(None)
    inside = [float(age) for age in range(1, 131) if early <= NOW - age <= late]
    for word in ("min", "mean", "max", *(f"{age:.1f}" for age in (min(inside), np.mean(inside), max(inside)))):
        assert word in cursor_text(one.plot)
    assert "4.00" in cursor_text(other.plot)
    for slot in (one, other):
        edges = selected_edges(slot.plot)
        assert edges is not None
        assert axis.left_s < edges[0] < edges[1] < 0

    qtbot.keyClick(one.plot.canvas, Qt.Key.Key_Escape)
    assert axis.selection is None
    assert (cursor_text(one.plot), cursor_text(other.plot)) == ("", "")
    assert selected_edges(other.plot) is None


def test_a_selection_stays_with_its_readings_while_time_passes(show: Show, axis: TimeAxis) -> None:
    state = make_state("cuda:0")
    fill(state, "cuda:0", temperature_c=lambda age: age)
    slot = show(state, "temperature_c")
    axis.select(NOW - 20, NOW - 10)
    slot.refresh(NOW)
    before = selected_edges(slot.plot)
    slot.refresh(NOW + 5)
    after = selected_edges(slot.plot)
    assert before is not None
    assert after is not None
    assert after[0] < before[0]
    assert "20.0" in cursor_text(slot.plot)


def test_a_selection_of_which_nothing_is_known_has_no_box(show: Show, axis: TimeAxis) -> None:
    state = make_state("cuda:0")
    fill(state, "cuda:0", temperature_c=lambda age: age if age > 30 else None)
    slot = show(state, "temperature_c")
    axis.select(NOW - 20, NOW - 10)
    assert cursor_text(slot.plot) == "", "nothing was read in it"
    axis.set_cursor(-60.0)
    assert "60.0" in cursor_text(slot.plot)
    assert "min" not in cursor_text(slot.plot)
    axis.set_cursor(None)
    axis.select(NOW - 60, NOW - 50)
    assert "55.0" in cursor_text(slot.plot)
    slot.refresh(NOW + 100)
    slot.refresh(NOW + 101)
    assert cursor_text(slot.plot) == "", "it has left the picture"


def test_a_plain_drag_selects_nothing(slot: PlotSlot, axis: TimeAxis) -> None:
    axis.set_paused(True)
    drag(slot, 0.5, 0.75, Qt.KeyboardModifier.NoModifier)
    assert axis.selection is None
    assert axis.left_s < -130, "it pans"


def test_the_keyboard_selects_from_cursor_to_cursor(qtbot: QtBot, slot: PlotSlot, axis: TimeAxis) -> None:
    axis.set_cursor(-50.0)
    qtbot.keyClick(slot.plot.canvas, Qt.Key.Key_Return)
    axis.set_cursor(-40.0)
    qtbot.keyClick(slot.plot.canvas, Qt.Key.Key_Return)
    assert axis.selection == (NOW - 50, NOW - 40)
    assert "here" in cursor_text(slot.plot)


def test_the_menu_zooms_to_the_selection(slot: PlotSlot, axis: TimeAxis) -> None:
    assert not slot.time_control.zoom.isEnabled()
    axis.select(NOW - 60, NOW - 40)
    slot.time_control.zoom.trigger()
    assert axis.paused
    assert axis.width_s == pytest.approx(22)
    assert axis.left_unix_s == pytest.approx(NOW - 61)
    slot.time_control.clear.trigger()
    assert axis.selection is None


def test_many_devices_in_a_readout_say_simulated_once(show: Show, axis: TimeAxis) -> None:
    state = make_state(*(f"vgpu:{number}" for number in range(16)))
    for name in state.devices:
        fill(state, name)
    slot = show(state)
    axis.select(NOW - 60, NOW - 20)
    assert cursor_text(slot.plot).count("simulated") == 1
    assert "all simulated" in cursor_text(slot.plot)
    assert cursor_text(slot.plot).count("vgpu:") == 16


def test_a_plot_that_is_long_open_counts_time_from_a_nearer_moment(slot: PlotSlot, state: State) -> None:
    for tick in range(5):
        state.apply(DeviceSample(device="cuda:0", time_unix_s=NOW + 90_000 + tick, memory_used_bytes=GIB))
    slot.refresh(NOW + 90_005)
    plot = slot.plot
    assert isinstance(plot, MetricPlot)
    assert curve_data(plot, "cuda:0")[0][-1] == NOW + 90_004
    [curve] = plot.curves.values()
    newest = curve.line.pieces[-1].last()
    assert abs(newest.x()) < 3600
    assert plot._live.mapToItem(plot.canvas.view.childGroup, newest).x() == pytest.approx(-1, abs=0.05)


def test_a_menu_that_was_opened_often_holds_no_more_than_at_first(show: Show) -> None:
    state = make_state("cuda:0", "vgpu:0")
    for name in ("cuda:0", "vgpu:0"):
        allocate(state, name, 1)
        fill(state, name, 1)
    slot = show(state)

    def opened(times: int) -> Counter[str]:
        for _ in range(times):
            slot.menu.popup(QPoint(0, 0))
            slot.menu.close()
            QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        return Counter(type(child).__name__ for child in slot.findChildren(QObject))

    first = opened(2)
    assert first["QMenu"] >= 3, "the menu and its submenus"
    assert opened(20) == first
    submenus = [action.menu().title() for action in slot.menu.actions() if action.menu() is not None]
    assert submenus == ["Allocator and parts", "Memory parts of"]
    assert [action.text() for action in slot._parts_of.actions()] == ["cuda:0", "vgpu:0 (simulated)"]
