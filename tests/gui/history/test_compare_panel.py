"""Comparison of runs: intervals on one axis, the significance of the difference, differing conditions."""

from __future__ import annotations

import pytest
from fakes.host import hosted
from fakes.look_records import state_with
from fakes.stored_runs import H200, HERE_CPU, T4, bandwidth, matmul, scaling, spread, stored
from msgspec.structs import replace
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.history.compare import compare
from devexplorer.core.records import StoredRun
from devexplorer.gui.history.compare import INTERVAL, MEASURED, WORDS, ComparedEntry, CompareDialog, Intervals
from devexplorer.gui.widgets import theme as themes
from devexplorer.gui.widgets.theme import DARK


def panel_with(qtbot: QtBot, *runs: StoredRun, width: int = 1024, height: int = 620) -> CompareDialog:
    panel = CompareDialog(state_with(HERE_CPU, H200, T4))
    qtbot.addWidget(panel)
    panel.resize(width, height)
    panel.show()
    panel.show_comparison(compare(runs))
    QApplication.processEvents()
    return panel


def cell_of(picture: Intervals, row: int) -> QRect:
    return picture.visualRect(picture.rows_model.index(row, INTERVAL))


def median_px(picture: Intervals, entry: ComparedEntry) -> float:
    return picture.places(entry, entry.figure, cell_of(picture, picture.entries.index(entry)))[1]


def two() -> tuple[StoredRun, StoredRun]:
    return stored(matmul(798.0), 1), stored(matmul(823.0), 2, driver_version="575.57.08", sm_clock_mhz=spread(1830))


# --- intervals --------------------------------------------------------------------------------------------------------


def test_two_runs_are_on_one_axis_in_their_unit(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, *two())
    picture = panel.intervals
    first, second = picture.entries
    assert picture.axis.unit == "TFLOP/s"
    assert picture.isColumnHidden(MEASURED), "it is the same for both"
    assert picture.axis.low < first.figure.spread.p20
    assert picture.axis.high > second.figure.spread.p80
    cell = cell_of(picture, 0)
    assert cell.left() < median_px(picture, first) < median_px(picture, second) < cell.right()
    assert second.first is first.figure
    assert panel.title.text() == "2 matmul runs side by side"
    assert "Compared with #1" in panel.facts.text()


def test_the_significance_is_next_to_the_difference(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, *two())
    words = panel.intervals.rows_model.rows[1].cells[INTERVAL].tip
    assert "3.1 % faster, more than the noise of either run" in words
    assert "× 1.031 (1.0" in words
    assert "823 TFLOP/s, middle 60 % from 816 to 830" in words
    assert "3.1 % faster" in panel.intervals.rows_model.rows[1].cells[WORDS].text


def test_many_quantities_share_an_axis_of_ratios(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, stored(bandwidth(), 1), stored(bandwidth(gb_per_s=1900.0), 2))
    picture = panel.intervals
    assert picture.axis.unit == "× the first"
    assert not picture.isColumnHidden(MEASURED)
    assert [entry.what for entry in picture.entries][::2][:2] == [
        "cpu → cuda:0, 64.00 KiB, pinned",
        "cpu → cuda:0, 16.00 MiB, pinned",
    ]
    assert len(picture.entries) == 12
    cell = cell_of(picture, 0)
    assert all(cell.left() <= median_px(picture, entry) <= cell.right() for entry in picture.entries)


def test_what_was_measured_is_not_marked_simulated_beside_what_was_not(qtbot: QtBot) -> None:
    simulated = bandwidth(T4, sizes=(1 << 24,))
    rows = simulated.rows
    real = replace(rows[0], destination="cpu", pinned=None, simulated=False)
    mixed = replace(simulated, rows=(real, *rows))
    panel = panel_with(qtbot, stored(mixed, 1, T4), stored(mixed, 2, T4))
    shown = panel.intervals.figures()
    assert shown is not None
    names = {row[shown.columns.index("Run")] for row in shown.rows[:2]}
    assert names == {"#1  vgpu:0", "#2  vgpu:0"}
    assert {row[0] for row in shown.rows[2:]} == {"#1  vgpu:0  simulated", "#2  vgpu:0  simulated"}
    assert panel.facts.text().endswith("vgpu:0  partly simulated, Tesla T4.")


def test_the_speed_up_has_a_name(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, stored(scaling(T4), 1, T4), stored(scaling(T4), 2, T4))
    measured = [entry.what for entry in panel.intervals.entries]
    assert measured[::2] == measured[1::2] == ["at once", "one after the other", "speed-up"]


def test_runs_far_apart_are_on_a_logarithmic_axis(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, stored(matmul(798.0), 1), stored(matmul(23.4, info=T4), 2, T4))
    assert panel.intervals.axis.is_log
    assert 0 < panel.intervals.axis.share(23.4) < panel.intervals.axis.share(798.0) < 1


@pytest.mark.parametrize("width", [620, 1024, 2400])
def test_every_run_has_a_row_and_every_interval_is_in_its_cell(qtbot: QtBot, width: int) -> None:
    panel = panel_with(qtbot, *(stored(matmul(700.0 + 9 * number), number) for number in range(1, 13)), width=width)
    picture = panel.intervals
    assert len(picture.entries) == picture.rows_model.rowCount() == 12
    for row, entry in enumerate(picture.entries):
        cell = cell_of(picture, row)
        low, _, high = picture.places(entry, entry.figure, cell)
        assert cell.left() <= low <= high <= cell.right()


def test_a_simulated_interval_is_hollow_and_named(qtbot: QtBot) -> None:
    themes.apply(QApplication.instance(), DARK)
    simulated = stored(matmul(52.0, info=T4, tflops=spread(52.0, 0.05)), 2, T4)
    picture = hosted(qtbot, lambda _: Intervals(lambda _run: "error"), 900, 200)
    picture.set_comparison(compare([stored(matmul(50.0, tflops=spread(50.0, 0.05)), 1), simulated]))
    QApplication.processEvents()
    image = picture.viewport().grab().toImage()
    shades = []
    for row, entry in enumerate(picture.entries):
        cell = cell_of(picture, row)
        _, median, high = picture.places(entry, entry.figure, cell)
        shades.append(QColor(image.pixelColor(round((median + high) / 2), cell.center().y())))
    assert shades[0].red() > shades[1].red() + 40, "a measured interval is filled, a simulated one is not"
    assert "simulated" in picture.rows_model.rows[1].cells[0].text


# --- conditions -------------------------------------------------------------------------------------------------------


def test_conditions_that_differ_are_highlighted(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, *two())
    rows = {row.cells[0].text: [cell.text for cell in row.cells[1:]] for row in panel.model.rows}
    assert rows["driver"] == ["570.124.06", "575.57.08"]
    assert "torch" not in rows, "what is the same is not listed"
    index = panel.model.index(list(rows).index("driver"), 2)
    assert panel.model.data(index, Qt.ItemDataRole.BackgroundRole) == QColor(DARK.selection)
    assert panel.model.data(index, Qt.ItemDataRole.FontRole).weight() > 500, "never colour alone"
    first = panel.model.index(index.row(), 1)
    assert panel.model.data(first, Qt.ItemDataRole.BackgroundRole) is None
    assert panel.model.headerData(2, Qt.Orientation.Horizontal) == "#2  cuda:0"


def test_simulated_beside_measured_runs_are_warned_about(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, stored(matmul(798.0), 1), stored(matmul(700.0, info=T4), 2, T4))
    assert panel.warning.isVisible()
    assert panel.warning.text().startswith("▲ This compares simulated with measured runs")
    panel.show_comparison(compare(two()))
    assert not panel.warning.isVisible()


def test_while_it_is_computed_and_when_it_failed_there_are_words(qtbot: QtBot) -> None:
    panel = panel_with(qtbot, *two())
    panel.wait_for(3)
    assert panel.waiting.isVisible()
    assert panel.waiting.text() == "Comparing 3 runs…"
    panel.show_failure("These runs have no figure in common.")
    assert panel.waiting.text() == "✕ These runs have no figure in common."
    panel.show_comparison(compare(two()))
    assert not panel.waiting.isVisible()
