"""The numbers of plots and charts as a table: what it says, how it is reached with keys, what is copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fakes.host import hosted
from fakes.look_records import GIB, VGPU
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import Qt
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot

from devexplorer.core.base import MISSING
from devexplorer.core.parameters.records import Values
from devexplorer.core.records import DeviceSample
from devexplorer.core.session.state import Marker
from devexplorer.gui.charts.size_curve import Series, SizeCurve
from devexplorer.gui.charts.wall_bars import Bar, WallBars
from devexplorer.gui.parameters.page import Histogram
from devexplorer.gui.sweep.heat_map import HeatMap
from devexplorer.gui.widgets import number_texts
from devexplorer.gui.widgets.figures_dialog import FiguresDialog

CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> QuietWindow:
    return QuietWindow(qapp, tmp_path, VGPU)


def readings(quiet: QuietWindow, seconds: int, used: Callable[[int], int]) -> None:
    """One reading a second of both devices until now."""
    quiet.tell(
        *(
            DeviceSample(
                device=name, time_unix_s=quiet.now - age, memory_used_bytes=used(age) if name != "cpu" else GIB
            )
            for age in range(seconds, 0, -1)
            for name in ("cpu", "vgpu:0")
        )
    )


def open_table(quiet: QuietWindow) -> FiguresDialog:
    """With the key, as the keyboard has it."""
    QTest.keyClick(quiet.window, Qt.Key.Key_T, CTRL | SHIFT)
    quiet.settle()
    dialog = quiet.window.findChild(FiguresDialog)
    assert dialog is not None
    return dialog


def rows(dialog: FiguresDialog) -> list[tuple[str, ...]]:
    return [tuple(cell.text for cell in row.cells) for row in dialog.table.rows]


def titles(dialog: FiguresDialog) -> list[str]:
    model = dialog.table.rows_model
    return [str(model.headerData(at, Qt.Orientation.Horizontal)) for at in range(model.columnCount())]


def test_a_plot_over_time_has_a_row_per_step_and_a_column_per_curve(quiet: QuietWindow) -> None:
    readings(quiet, 60, lambda age: 4 * GIB if age < 30 else GIB)
    quiet.state.markers.append(Marker(quiet.now - 30, "mlp → vgpu:0", "vgpu:0", "move"))
    dialog = open_table(quiet)
    assert dialog.choice.currentText() == "Memory used"
    assert titles(dialog) == ["Time", "cpu, GiB", "vgpu:0 simulated, GiB", "Event"]
    known = [row for row in rows(dialog) if row[2] != MISSING]
    assert len(known) == 60
    assert [float(row[2]) for row in known] == [1.0] * 31 + [4.0] * 29
    assert {row[1] for row in known} == {"1.0000"}
    assert [row[0] for row in known if row[3]] == [known[30][0]]
    assert "mean of" in dialog.note.text()
    quiet.close()


def test_a_long_span_has_few_rows_with_lowest_and_highest(quiet: QuietWindow) -> None:
    quiet.now += 7200
    readings(quiet, 7200, lambda age: (1 + age % 3) * GIB)
    quiet.window.axis.set_span(21_600.0)
    quiet.settle()
    dialog = open_table(quiet)
    assert titles(dialog)[1:] == [
        "cpu, lowest, GiB",
        "cpu, mean, GiB",
        "cpu, highest, GiB",
        "vgpu:0 simulated, lowest, GiB",
        "vgpu:0 simulated, mean, GiB",
        "vgpu:0 simulated, highest, GiB",
    ]
    table = rows(dialog)
    assert 50 < len(table) <= 301
    middle = table[len(table) // 2]
    assert [float(text) for text in middle[4:]] == pytest.approx([1.0, 2.0, 3.0], abs=0.2)
    quiet.close()


def test_the_keys_copy_the_selected_rows_or_all_for_a_spreadsheet(quiet: QuietWindow) -> None:
    readings(quiet, 20, lambda _age: GIB)
    dialog = open_table(quiet)
    assert dialog.focusWidget() is dialog.table
    QTest.keyClick(dialog.table, Qt.Key.Key_C, CTRL)
    lines = QApplication.clipboard().text().splitlines()
    assert lines[0].split("\t") == titles(dialog)
    assert [line.split("\t") for line in lines[1:]] == [
        [text.replace(MISSING, "") for text in row] for row in rows(dialog)
    ]
    QTest.keyClick(dialog.table, Qt.Key.Key_Home, CTRL)
    QTest.keyClick(dialog.table, Qt.Key.Key_Down)
    QTest.keyClick(dialog.table, Qt.Key.Key_Down, SHIFT)
    QTest.keyClick(dialog.table, Qt.Key.Key_C, CTRL)
    assert len(QApplication.clipboard().text().splitlines()) == 3
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()
    quiet.close()


def test_the_plot_with_the_keyboard_comes_first(quiet: QuietWindow) -> None:
    quiet.window.workbench.show_layout("measure")
    readings(quiet, 20, lambda _age: GIB)
    quiet.window.throughput.set_choice("memory_used_bytes")
    quiet.tell()
    other = quiet.window.throughput.plot
    other.canvas.setFocus()
    dialog = open_table(quiet)
    assert [dialog.choice.itemText(at) for at in range(dialog.choice.count())] == ["Memory used", "Memory used (2)"]
    assert dialog.choice.value is other
    QTest.keyClick(dialog.choice, Qt.Key.Key_Down)
    assert dialog.choice.value is quiet.window.memory.plot
    quiet.close()


def test_the_context_menu_of_a_plot_has_it_too(quiet: QuietWindow) -> None:
    readings(quiet, 20, lambda _age: GIB)
    canvas = quiet.window.memory.plot.canvas
    where = canvas.rect().center()
    event = QContextMenuEvent(QContextMenuEvent.Reason.Keyboard, where, canvas.mapToGlobal(where))
    QApplication.sendEvent(canvas.viewport(), event)
    menu = quiet.window.memory.plot.findChild(QMenu, options=Qt.FindChildOption.FindDirectChildrenOnly)
    assert menu is not None
    QTest.keyClick(menu, Qt.Key.Key_Down)
    QTest.keyClick(menu, Qt.Key.Key_Return)
    quiet.settle()
    dialog = quiet.window.findChild(FiguresDialog)
    assert dialog is not None
    assert dialog.table.accessibleName() == "Values of Memory used"
    quiet.close()


def test_without_a_plot_that_has_values_a_line_says_so(quiet: QuietWindow) -> None:
    QTest.keyClick(quiet.window, Qt.Key.Key_T, CTRL | SHIFT)
    assert quiet.window.findChild(FiguresDialog) is None
    assert "No plot shown" in quiet.window.banner.words.full_text
    quiet.close()


def test_charts_say_their_numbers_and_what_is_simulated(qtbot: QtBot) -> None:
    curve = hosted(qtbot, lambda _: SizeCurve("Throughput"), 400, 200)
    assert curve.figures() is None
    curve.set_axis("n", "{:.0f}".format)
    points = tuple((float(n), n / 100, n / 200, n / 50) for n in (100, 200))
    curve.set_curves([Series("vgpu:0", 0, points, simulated=True), Series("cpu", -1, ((100.0, 0.5, 0.5, 0.5),))])
    found = curve.figures()
    assert found is not None
    assert found.columns[0] == "n"
    assert [title.split(", ")[:-1] for title in found.columns[1:]] == [
        ["vgpu:0 simulated", "median"],
        ["vgpu:0 simulated", "p20"],
        ["vgpu:0 simulated", "p80"],
        ["cpu"],
    ]
    assert [row[0] for row in found.rows] == ["100", "200"]
    curve.set_curves([Series("<b>x</b>", 0, points)])
    assert "&lt;b&gt;x&lt;/b&gt;" in curve.key.text(), "a name is not read as tags"
    assert [float(row[1]) for row in found.rows] == [1.0, 2.0]
    assert [row[4] for row in found.rows] == ["0.50000", MISSING]

    heat = hosted(qtbot, lambda _: HeatMap(), 400, 200)
    heat.set_grid([64, 128], [32], "n", "m")
    heat.set_device(0, simulated=True)
    heat.add({(0, 0): 1.5, (1, 0): None})
    assert heat.figures() == (("m", "n", "TFLOP/s simulated"), [("32", "64", "1.5000"), ("32", "128", MISSING)], "")

    bars = hosted(qtbot, lambda _: WallBars(), 400, 200)
    bars.set_bars([Bar("two jobs", "at once", 0.25, 0, simulated=True, jobs=2), Bar("two jobs", "in turn", None, 0)])
    found = bars.figures()
    assert found is not None
    assert found.rows == [("two jobs", "at once simulated", "2", "0.25000"), ("two jobs", "in turn", "1", MISSING)]


def test_a_histogram_says_its_bins_and_those_of_before(qtbot: QtBot) -> None:
    histogram = hosted(qtbot, lambda _: Histogram(), 400, 200)
    assert histogram.figures() is None
    known = {"target": "x", "shape": (6,), "dtype": "float32", "device": "cpu", "elements": 6, "simulated": False}
    now = Values(**known, counts=(1, 5), low=-1.0, high=1.0)
    before = Values(**known, counts=(6, 0), low=3.0, high=3.0)
    histogram.show_values(now, before, 0)
    shown = histogram.figures()
    assert shown is not None
    cells = [(row[0], float(row[1]), float(row[2]), row[3]) for row in shown.rows]
    assert cells == [("now", -1.0, 0.0, "1"), ("now", 0.0, 1.0, "5"), ("before", 3.0, 3.0, "6")]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.0, None], ["0", MISSING]),
        ([1.0, 23.456], ["1.000", "23.456"]),
        ([123456.7, 1.0], ["123457", "1"]),
        ([0.00012345], ["0.00012345"]),
        ([np.nan], [MISSING]),
        ([], []),
    ],
)
def test_numbers_of_a_column_have_the_same_decimals(values: list[float | None], texts: list[str]) -> None:
    assert number_texts(values) == texts
