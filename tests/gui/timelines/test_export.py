"""Pictures and readings of the plots as files, from the menu to the bytes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fakes.host import hosted
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QContextMenuEvent, QImage
from PySide6.QtWidgets import QApplication, QFileDialog, QMenu, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.parameters.records import Values
from devexplorer.core.records import (
    AllocatorSample,
    Answer,
    BenchPoint,
    BenchPreparing,
    DeviceInfo,
    DeviceSample,
    Event,
    MatmulSpec,
    Spread,
)
from devexplorer.core.session.background import Background
from devexplorer.core.session.settings import Settings
from devexplorer.core.session.state import Change, State
from devexplorer.gui.actions import Controller, WindowContext
from devexplorer.gui.charts.size_curve import Series as SizeSeries
from devexplorer.gui.charts.size_curve import SizeCurve
from devexplorer.gui.charts.wall_bars import Bar, WallBars
from devexplorer.gui.parameters.page import Histogram
from devexplorer.gui.plots.figure import PNG_SCALE, PlotFigure
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.timelines.export import ExportChoice, ExportDialog, PlotExport
from devexplorer.gui.timelines.slot import PlotSlot
from devexplorer.gui.widgets import ExportingWindow
from devexplorer.gui.widgets.figures import COPY, EXPORTS
from devexplorer.gui.widgets.theme import LIGHT, set_theme

NOW = 1_800_000_000.0
GIB = 1 << 30
Work = tuple[str, str, Callable[[], str]]


@pytest.fixture
def state() -> State:
    state = State()
    infos = (
        DeviceInfo(id="cpu", kind="cpu", name="CPU", memory_total_bytes=16 * GIB),
        DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", memory_total_bytes=16 * GIB, simulated=True),
    )
    state.set_catalog(Catalog(infos))
    state.apply(
        AllocatorSample(
            device="vgpu:0", time_unix_s=NOW, allocated_bytes=GIB, reserved_bytes=2 * GIB, workspace_bytes=GIB
        )
    )
    for age in range(100, 0, -1):
        state.apply(
            DeviceSample(device="cpu", time_unix_s=NOW - age, memory_used_bytes=6 * GIB, utilization_percent=age / 2)
        )
        state.apply(
            DeviceSample(device="vgpu:0", time_unix_s=NOW - age, memory_used_bytes=(2 + age % 2) * GIB, power_w=70.0)
        )
    spec = MatmulSpec(device="vgpu:0", m=64, n=64, k=64)
    state.apply(BenchPreparing(run=1, spec=spec, simulated=True))
    state.apply(BenchPoint(run=1, device="vgpu:0", time_unix_s=NOW - 5, tflops=4.5, iterations=9, seconds=0.05))
    return state


@pytest.fixture
def window(qtbot: QtBot) -> ExportingWindow:
    return hosted(qtbot, lambda _: ExportingWindow(), 1200, 300)


@pytest.fixture
def axis() -> TimeAxis:
    return TimeAxis()


@pytest.fixture
def slots(state: State, axis: TimeAxis, window: QWidget) -> list[PlotSlot]:
    set_theme(LIGHT)
    made = []
    for place, choice in enumerate(("memory_used_bytes", "parts:vgpu:0")):
        slot = PlotSlot(state, axis, choice, time_control=place == 1)
        slot.setParent(window)
        slot.setGeometry(600 * place, 0, 590, 232)
        slot.show()
        slot.refresh(NOW)
        made.append(slot)
    QApplication.processEvents()
    for slot in made:
        slot.refresh(NOW)
    return made


def test_a_png_shows_the_curves_at_twice_the_size(slots: list[PlotSlot]) -> None:
    plot = slots[0].plot
    image = QImage.fromData(PlotFigure([plot]).png())
    assert image.width() > PNG_SCALE * plot.canvas.width()
    colours = {image.pixelColor(x, y).name() for x in range(0, image.width(), 2) for y in range(0, image.height(), 2)}
    assert LIGHT.panel.lower() in colours
    assert LIGHT.devices[0].lower() in colours


def test_an_svg_has_text_that_can_be_read_and_says_what_is_simulated(slots: list[PlotSlot]) -> None:
    root = ElementTree.fromstring(PlotFigure([slot.plot for slot in slots]).svg())
    texts = ["".join(text.itertext()).strip() for text in root.iter("{http://www.w3.org/2000/svg}text")]
    for wanted in (
        "Memory used",
        "cpu",
        "vgpu:0 simulated",
        "Memory parts of vgpu:0",
        "GiB · simulated",
        "workspace",
        "other allocations",
        "now",
    ):
        assert wanted in texts
    assert any(text.startswith("2027-01-15") and text.endswith("DevExplorer") for text in texts)
    drawings = [element.get("d") for element in root.iter("{http://www.w3.org/2000/svg}path")]
    assert all(drawings)


def test_the_dialog_offers_what_is_shown_and_says_what_the_file_will_have(
    qtbot: QtBot, state: State, axis: TimeAxis, slots: list[PlotSlot]
) -> None:
    axis.select(NOW - 50, NOW - 40)
    dialog = ExportDialog("csv", state, axis, [slot.plot.metrics_shown for slot in slots], None)
    qtbot.addWidget(dialog)
    assert dialog.choice.range_unix_s == (NOW - 50, NOW - 40)
    assert dialog.choice.devices == ("cpu", "vgpu:0")
    assert set(dialog.choice.metrics) == {
        "memory_used_bytes", "workspace_bytes", "other_allocated_bytes", "cached_bytes", "other_processes_bytes",
    }  # fmt: skip
    assert dialog.note.text() == "Every reading."
    labels = [dialog.metrics.item(row).text() for row in range(dialog.metrics.count())]
    assert "Throughput" in labels
    assert "Fan" not in labels

    for row in range(dialog.devices.count()):
        dialog.devices.item(row).setCheckState(Qt.CheckState.Unchecked)
    assert not dialog.save_button.isEnabled()
    assert dialog.note.text() == "Choose a device."
    dialog.devices.item(1).setCheckState(Qt.CheckState.Checked)
    with qtbot.waitSignal(dialog.chosen) as told:
        dialog.save_button.click()
    assert told.args is not None
    assert told.args[0].devices == ("vgpu:0",)


def test_what_is_written_is_said_where_it_is_and_the_plots_on_show_are_chosen(
    qtbot: QtBot, state: State, axis: TimeAxis, slots: list[PlotSlot], window: QWidget
) -> None:
    hints: list[str] = []
    controller = Controller(state, lambda _: 0, selection=tuple, say=str)
    context = WindowContext(window, state, controller, Settings(), hints.append)
    export = PlotExport(context, axis, lambda: slots, lambda *_: None)
    slots[0].hide()
    slots[1].set_choice("temperature_c")
    export.ask("csv")
    [dialog] = window.findChildren(ExportDialog)
    assert set(dialog.choice.metrics) <= {*slots[1].plot.metrics_shown}
    dialog.reject()
    slots[0].show()
    slots[0].plot.legend.show_only({"vgpu:0"})
    export.ask("csv")
    assert window.findChildren(ExportDialog)[-1].choice.devices == ("vgpu:0",), "no plot shows a curve of the other"
    for title, words in (("Move", "mlp is on cuda:0."), ("Export of readings", "Exported 2 rows to /tmp/a.csv.")):
        state.apply(Answer(title=title, words=words, time_unix_s=NOW))
        for _ in range(2):
            context.refresh(Change.ANSWER)
    live, state.answer, state.recording = state.answer, None, "recording of a"
    state.apply(Answer(title="Move", words="of then", time_unix_s=NOW))
    context.refresh(Change.ANSWER)
    state.answer, state.recording = live, None
    context.refresh(Change.ANSWER)
    assert hints == ["Exported 2 rows to /tmp/a.csv."], "back from a recording it is no news"


def context_of(window: QWidget, state: State) -> WindowContext:
    controller = Controller(state, lambda _: 0, selection=tuple, say=str)
    return WindowContext(window, state, controller, Settings(), str)


def test_readings_arrive_in_the_file_and_the_answer_in_the_mailbox(
    qtbot: QtBot, state: State, axis: TimeAxis, slots: list[PlotSlot], window: QWidget, tmp_path: Path
) -> None:
    events: list[Event] = []
    background = Background(events.append, clock=lambda: NOW)
    export = PlotExport(context_of(window, state), axis, lambda: slots, background.start)
    export.save_readings(
        "csv",
        tmp_path / "a.csv",
        ExportChoice((NOW - 10, NOW), ("cpu", "vgpu:0"), ("power_w", "utilization_percent", "tflops")),
    )
    qtbot.waitUntil(lambda: bool(events), timeout=5000)
    assert background.join(5.0)
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["device"], row["utilization_percent"]) for row in rows][:2] == [("cpu", "5"), ("cpu", "4.5")]
    assert [row["tflops"] for row in rows if row["tflops"]] == ["4.5"]
    assert {row["simulated"] for row in rows if row["device"] == "vgpu:0"} == {"true"}
    [answer] = events
    assert isinstance(answer, Answer)
    assert not answer.failed
    assert "Simulated and marked as such: vgpu:0." in answer.words


@pytest.mark.parametrize("kind", ["csv", "parquet", "png", "svg"])
def test_the_menu_asks_where_and_writes_there(
    qtbot: QtBot,
    state: State,
    axis: TimeAxis,
    slots: list[PlotSlot],
    window: ExportingWindow,
    tmp_path: Path,
    kind: str,
) -> None:
    work: list[Work] = []
    export = PlotExport(context_of(window, state), axis, lambda: slots, lambda *what: work.append(what))
    window.export_requested.connect(lambda picture, kind: export.ask(kind, picture))
    slots[1].time_control.exports[kind].trigger()
    if kind in ("csv", "parquet"):
        [choosing] = window.findChildren(ExportDialog)
        choosing.save_button.click()
    [asking] = window.findChildren(QFileDialog)
    assert asking.acceptMode() == QFileDialog.AcceptMode.AcceptSave
    assert asking.defaultSuffix() == kind
    asking.fileSelected.emit(str(tmp_path / f"out.{kind}"))
    asking.close()
    qtbot.waitUntil(lambda: bool(work), timeout=5000)
    [(thread, _, write)] = work
    assert thread == "export"
    assert str(tmp_path) in write()
    assert (tmp_path / f"out.{kind}").stat().st_size > 500


def chosen_from_menu(picture: QWidget, words: str) -> None:
    """A right click into the middle, and the line of the menu with these words."""
    inner = picture.childAt(picture.rect().center()) or picture
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, QPoint(20, 20), inner.mapToGlobal(QPoint(20, 20)))
    QApplication.sendEvent(inner, event)
    menu = picture.findChild(QMenu, options=Qt.FindChildOption.FindDirectChildrenOnly)
    assert menu is not None
    [action] = [action for action in menu.actions() if action.text() == words]
    action.trigger()
    menu.close()
    menu.setParent(None)


def size_curve() -> QWidget:
    curve = SizeCurve("Throughput over the size")
    curve.set_axis("n", "{:.0f}".format)
    curve.set_curves([SizeSeries("vgpu:0", 0, ((64.0, 1.0, 1.0, 1.0), (128.0, 2.0, 2.0, 2.0)), simulated=True)])
    return curve


def heat_map() -> QWidget:
    heat = pytest.importorskip("devexplorer.gui.sweep.heat_map").HeatMap()
    heat.set_grid([64, 128], [32], "n", "m")
    heat.add({(0, 0): 1.5, (1, 0): None})
    return heat


def histogram() -> QWidget:
    known = {"target": "x", "shape": (6,), "dtype": "float32", "device": "cpu", "elements": 6, "simulated": False}
    made = Histogram()
    made.show_values(Values(**known, counts=(1, 5), low=-1.0, high=1.0), None, 0)
    return made


def roofline() -> QWidget:
    figures = pytest.importorskip("devexplorer.core.roofline.figures")
    made = pytest.importorskip("devexplorer.gui.roofline.picture").RooflinePicture()
    target = figures.RooflineTarget("a", "vgpu:0", "Tesla T4", True)
    spread = Spread(4.0, 4.0, 4.0)
    points = (figures.Point(100.0, 4.0, "float16", "a product", "64×64×64", spread),)
    made.set_roofline(figures.DrawnRoofline(target, points, (figures.Ceiling("float16", points[0], None, ""),)), 0)
    return made


def bars() -> QWidget:
    made = WallBars()
    made.set_bars([Bar("two jobs", "at once", 0.25, 0, simulated=True, jobs=2)])
    return made


@pytest.mark.parametrize("make", [size_curve, heat_map, histogram, roofline, bars])
def test_a_chart_becomes_every_kind_of_file_by_its_context_menu(
    qtbot: QtBot, state: State, axis: TimeAxis, window: ExportingWindow, tmp_path: Path, make: Callable[[], QWidget]
) -> None:
    set_theme(LIGHT)
    work: list[Work] = []
    export = PlotExport(context_of(window, state), axis, list, lambda *what: work.append(what))
    window.export_requested.connect(lambda picture, kind: export.ask(kind, picture))
    chart = make()
    chart.setParent(window)
    chart.setGeometry(0, 0, 420, 240)
    chart.show()
    QApplication.processEvents()
    for kind, words in EXPORTS.items():
        chosen_from_menu(chart, words)
        if kind == COPY:
            continue
        [asking] = window.findChildren(QFileDialog)
        asking.fileSelected.emit(str(tmp_path / f"out.{kind}"))
        asking.close()
        asking.setParent(None)
        work.pop()[2]()
    assert QApplication.clipboard().image().width() >= PNG_SCALE * chart.width()
    copied = QImage(str(tmp_path / "out.png"))
    assert copied.size() == QApplication.clipboard().image().size()
    [title, *values] = csv.reader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines())
    assert (tuple(title), len(values)) == (chart.figures().columns, len(chart.figures().rows))  # type: ignore[attr-defined]
    svg = ElementTree.parse(tmp_path / "out.svg")
    texts = ["".join(text.itertext()).strip() for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert chart.accessibleName() in texts
    assert texts[-1].endswith("DevExplorer")
    assert len(texts) > 2, "its own texts are texts too"


def test_a_plot_is_copied_alone_and_paused_by_its_context_menu(
    qtbot: QtBot, state: State, axis: TimeAxis, slots: list[PlotSlot], window: ExportingWindow
) -> None:
    export = PlotExport(context_of(window, state), axis, lambda: slots, lambda *_: None)
    window.export_requested.connect(lambda picture, kind: export.ask(kind, picture))
    chosen_from_menu(slots[0].plot, EXPORTS[COPY])
    assert QApplication.clipboard().image() == PlotFigure([slots[0].plot]).image()
    chosen_from_menu(slots[0].plot, EXPORTS["csv"])
    [dialog] = window.findChildren(ExportDialog)
    assert dialog.choice.metrics == ("memory_used_bytes",), "what this plot shows, not the others"
    dialog.reject()
    for words, paused in (("Pause the plots", True), ("Continue", False)):
        chosen_from_menu(slots[0].plot, words)
        assert axis.paused is paused
