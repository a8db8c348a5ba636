"""The Bandwidth page: its requests, the matrix of all pairs, wrong data, directions, the curve of one pair."""

from __future__ import annotations

import json

import msgspec
import pytest
from fakes.bench_runs import A10S, CPU, NOW, T4S, begin, copy, finish, point
from fakes.host import hosted
from fakes.look_records import state_with
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.bandwidth.kind import BandwidthResult, BandwidthRow, BandwidthSpec
from devexplorer.core.session.state import State
from devexplorer.gui.bandwidth.page import LEAST_CURVE_PX, CopyKind, CopyRows
from devexplorer.gui.benchmark.base_page import state_cell
from devexplorer.gui.benchmark.page import BenchmarkPanel
from devexplorer.gui.widgets.theme import LIGHT, set_theme

LEFT = Qt.MouseButton.LeftButton
KIB, MIB = 1 << 10, 1 << 20
PAIR = ("cuda:0", "cuda:1")
SPEC = BandwidthSpec(sources=("cpu", *PAIR), destinations=("cpu", *PAIR), sizes=(4 * KIB, MIB), both_ways=True)
ROWS = (
    copy("cpu", "cuda:0", 4 * KIB, 0.4, pinned=True),
    copy("cpu", "cuda:0", MIB, 25.0, pinned=True),
    copy("cpu", "cuda:0", MIB, 9.0, pinned=False),
    copy("cpu", "cuda:0", MIB, 40.0, pinned=True, both_ways=True),
    copy("cuda:0", "cuda:0", MIB, 550.0),
    copy("cuda:0", "cuda:1", 4 * KIB, 0.5),
    copy("cuda:0", "cuda:1", MIB, 22.0, verified=False, reason="3 of 1,048,576 bytes arrived wrong"),
    copy("cuda:0", "cuda:1", MIB, 11.9, pinned=True, reason="through the host, one leg after the other"),
    copy("cuda:1", "cuda:0", MIB, None, reason="the driver refuses this pair"),
)


@pytest.fixture
def state() -> State:
    return state_with(CPU, *A10S)


@pytest.fixture
def panel(qtbot: QtBot, state: State) -> BenchmarkPanel:
    panel = hosted(qtbot, lambda _: BenchmarkPanel(state, clock=lambda: NOW + 4), 1280, 260)
    qtbot.mouseClick(panel.rail.choices["bandwidth"], LEFT)
    return panel


def run(state: State, rows: tuple[BandwidthRow, ...] = ROWS, *, ended: bool = True) -> None:
    begin(state, 1, SPEC)
    for done, row in enumerate(rows, 1):
        point(state, 1, part=row, done=done / 10, text=f"{row.source} → {row.destination}")
    if ended:
        finish(state, 1, BandwidthResult(run=1, spec=SPEC, rows=rows, stopped=False, simulated=False, seconds=1.0))


def test_a_copy_on_the_host_beside_virtual_gpus_is_not_called_simulated(qtbot: QtBot) -> None:
    state = state_with(CPU, *T4S)
    panel = hosted(qtbot, lambda _: BenchmarkPanel(state, clock=lambda: NOW + 4), 1280, 260)
    qtbot.mouseClick(panel.rail.choices["bandwidth"], LEFT)
    spec = BandwidthSpec(sources=("cpu",), destinations=("cpu", "vgpu:0"), sizes=(MIB,))
    rows = (copy("cpu", "cpu", MIB, 20.0), copy("cpu", "vgpu:0", MIB, 12.0, pinned=True, simulated=True))
    begin(state, 1, spec, simulated=True)
    finish(state, 1, BandwidthResult(run=1, spec=spec, rows=rows, stopped=False, simulated=True, seconds=1.0))
    panel.refresh()
    view = panel.pages["bandwidth"].view
    assert view.summary.facts.text() == "done, 2 copies, simulated except within cpu"


def test_wrong_copies_are_not_said_to_be_wrong_products(panel: BenchmarkPanel, state: State) -> None:
    begin(state, 1, SPEC)
    finish(
        state,
        1,
        BandwidthResult(run=1, spec=SPEC, rows=ROWS, stopped=False, simulated=False, seconds=1.0, verified=False),
    )
    assert state_cell(state.runs[1]).text == "✕ values are wrong: the data that arrived differs"


def refreshed(panel: BenchmarkPanel) -> BenchmarkPanel:
    panel.refresh()
    QApplication.processEvents()
    return panel


def shown(panel: BenchmarkPanel) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in refreshed(panel).pages["bandwidth"].view.table.rows]


def click(qtbot: QtBot, panel: BenchmarkPanel, row: int, column: int) -> None:
    table = panel.pages["bandwidth"].view.table
    qtbot.mouseClick(table.viewport(), LEFT, pos=table.visualRect(table.model().index(row, column)).center())


@pytest.mark.parametrize(("width", "has_curve"), [(1360, True), (918, False)])
def test_a_matrix_of_nine_devices_is_whole(qtbot: QtBot, width: int, has_curve: bool) -> None:
    devices = [msgspec.structs.replace(T4S[0], id=f"vgpu:{number}") for number in range(8)]
    state = state_with(CPU, *devices)
    panel = hosted(qtbot, lambda _: BenchmarkPanel(state, clock=lambda: NOW + 4), width, 390)
    qtbot.mouseClick(panel.rail.choices["bandwidth"], LEFT)
    names = ("cpu", *(info.id for info in devices))
    rows = tuple(copy(a, b, MIB, 1234.0, simulated=True) for a in names for b in names)
    begin(state, 1, BandwidthSpec(sources=names, destinations=names, sizes=(MIB,)), simulated=True)
    point(state, 1, part=rows[0], done=0.1, text="")
    refreshed(panel)
    view = panel.pages["bandwidth"].view
    assert view.table.horizontalScrollBar().maximum() == view.table.verticalScrollBar().maximum() == 0
    assert (view.splitter.orientation() == Qt.Orientation.Horizontal) == has_curve
    assert view.curve.width() >= LEAST_CURVE_PX


# --- the form --------------------------------------------------------------------------------------------------------


def test_every_pair_of_the_chosen_devices_is_asked_for(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    page = panel.pages["bandwidth"]
    assert page.devices.chosen == ("cpu", *PAIR)
    page.sizes_edit.setText("4K:16K, 1M")
    page.memory.choose((True,))
    qtbot.mouseClick(page.both_ways, LEFT)
    with qtbot.waitSignal(panel.start_requested) as asked:
        qtbot.mouseClick(page.start_button, LEFT)
    [(spec,)] = asked.args or []
    everything = ("cpu", *PAIR)
    assert spec == BandwidthSpec(
        sources=everything, destinations=everything, sizes=(4 * KIB, 16 * KIB, MIB), pinned=(True,), both_ways=True,
        seconds=0.2
    )  # fmt: skip
    assert (
        page.hint.full_text == "9 pairs in 3 sizes, 7 s of measuring"
    )  # nine one way and three both ways, in three sizes


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("sizes_edit", "much", "is not a number of bytes"),
        ("sizes_edit", "1M:1K", "has nothing in it"),
        ("sizes_edit", "20G", "copies of 20.00 GiB need 40.00 GiB on cuda:0, and 23.00 GiB are free; take less"),
        ("seconds_edit", "-1", "is not a duration"),
    ],
)
def test_bad_input_is_answered_in_one_line_and_nothing_is_sent(
    qtbot: QtBot, panel: BenchmarkPanel, field: str, text: str, said: str
) -> None:  # fmt: skip
    getattr(panel.pages["bandwidth"], field).setText(text)
    assert said in panel.pages["bandwidth"].message.full_text
    with qtbot.assertNotEmitted(panel.start_requested):
        qtbot.mouseClick(panel.pages["bandwidth"].start_button, LEFT)


def test_real_and_virtual_devices_are_not_measured_together(qtbot: QtBot) -> None:
    state = state_with(CPU, *A10S, *T4S)
    panel = hosted(qtbot, lambda _: BenchmarkPanel(state), 1280, 260)
    assert panel.pages["bandwidth"].devices.chosen == ("cpu", *PAIR)  # what belongs together
    panel.pages["bandwidth"].devices.choose(["cpu", "cuda:0", "vgpu:1"])
    assert "cuda:0 is real and vgpu:1 simulated" in panel.pages["bandwidth"].message.full_text


# --- the matrix ------------------------------------------------------------------------------------------------------


def test_the_matrix_has_a_rate_for_each_pair(panel: BenchmarkPanel, state: State) -> None:
    run(state)
    assert shown(panel) == [["cpu", "—", "25.0", "—"], ["cuda:0", "—", "550", "✕ 22.0"], ["cuda:1", "—", "—", "—"]]
    view = panel.pages["bandwidth"].view
    view.bytes.choose(4 * KIB)
    assert shown(panel)[0] == ["cpu", "—", "0.400", "—"]
    view.quantity.choose("µs per copy")
    assert shown(panel)[0] == ["cpu", "—", "10.2", "—"]


def test_the_kind_of_copy_is_chosen(panel: BenchmarkPanel, state: State) -> None:
    run(state)
    refreshed(panel)
    view = panel.pages["bandwidth"].view
    assert [view.how.itemText(at) for at in range(view.how.count())] == ["pinned", "pageable", "both ways at once"]
    view.how.choose(CopyKind(pinned=False))
    assert shown(panel)[0][2] == "9.00"
    assert shown(panel)[1][3] == "✕ 22.0"  # without the host there is one kind
    view.how.choose(CopyKind(both_ways=True))
    assert (shown(panel)[0][2], shown(panel)[1][1]) == ("40.0", "40.0")  # measured once, for both directions


def test_wrong_data_has_a_red_badge_and_the_way_round_in_words(
    qtbot: QtBot, panel: BenchmarkPanel, state: State
) -> None:
    run(state)
    refreshed(panel)
    cell = panel.pages["bandwidth"].view.table.rows[1].cells[3]
    assert cell.colour == "error"
    assert "✕ what arrived differs from what was sent" in cell.tip
    assert "3 of 1,048,576 bytes arrived wrong" in cell.tip
    summary = panel.pages["bandwidth"].view.summary
    assert summary.warning.text() == "✕ Data arrives wrong: cuda:0 → cuda:1"

    click(qtbot, panel, 1, 3)
    assert panel.pages["bandwidth"].view.pair == PAIR
    assert summary.headline.text() == "cuda:0 → cuda:1: 22.0 GB/s"
    assert (
        summary.warning.text()
        == '✕ What arrived differs from what was sent. Copy through the host: x.cpu().to("cuda:1"), 11.9 GB/s, equal'
        " bit by bit."
    )


def test_a_pair_that_was_not_measured_says_why(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    run(state)
    refreshed(panel)
    cell = panel.pages["bandwidth"].view.table.rows[2].cells[2]
    assert (cell.text, cell.colour) == ("—", "dim")
    assert cell.tip.endswith("not measured: the driver refuses this pair")
    click(qtbot, panel, 2, 2)
    summary = panel.pages["bandwidth"].view.summary
    assert summary.headline.text() == "cuda:1 → cuda:0: not measured"
    assert summary.words.text() == "the driver refuses this pair"


def test_the_latency_of_small_copies_is_said(panel: BenchmarkPanel, state: State) -> None:
    run(state)
    assert refreshed(panel).pages["bandwidth"].view.summary.words.text() == "4 KiB takes 10.2 µs."


def test_rows_appear_while_they_are_measured(panel: BenchmarkPanel, state: State) -> None:
    run(state, ROWS[:2], ended=False)
    assert shown(panel)[0][2] == "25.0"
    assert panel.pages["bandwidth"].hint.full_text == "3 devices, cpu → cuda:0, 16 s left"
    assert panel.pages["bandwidth"].progress.value() == 200
    assert panel.pages["bandwidth"].view.summary.facts.text() == "running, 2 copies"
    point(state, 1, part=ROWS[4])
    assert shown(panel)[1][2] == "550"


# --- the curve -------------------------------------------------------------------------------------------------------


def test_the_chosen_pair_has_a_curve_for_each_kind(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    run(state)
    curve = refreshed(panel).pages["bandwidth"].view.curve
    assert [(one.name, [point[:2] for point in one.points]) for one in curve.series] == [
        ("pinned", [(4096.0, 0.4), (1048576.0, 25.0)]),
        ("pageable", [(1048576.0, 9.0)]),
        ("both ways at once", [(1048576.0, 40.0)]),
    ]
    assert len({one.mark for one in curve.series}) == 3  # not told by colour, which means the device
    click(qtbot, panel, 1, 3)
    assert [(one.name, len(one.points)) for one in curve.series] == [("one way", 2)]


def test_simulated_copies_are_marked_everywhere(qtbot: QtBot) -> None:
    state = state_with(CPU, *T4S)
    panel = hosted(qtbot, lambda _: BenchmarkPanel(state), 1280, 260)
    panel.show_page("bandwidth")
    assert panel.pages["bandwidth"].devices.chosen == ("cpu", "vgpu:0", "vgpu:1")
    spec = BandwidthSpec(sources=("cpu", "vgpu:0"), destinations=("cpu", "vgpu:0"), sizes=(MIB,))
    begin(state, 1, spec, simulated=True)
    point(state, 1, part=copy("cpu", "vgpu:0", MIB, 12.0, pinned=True, simulated=True))
    refreshed(panel)
    assert panel.pages["bandwidth"].view.summary.facts.text() == "running, 1 copy, simulated"
    assert panel.pages["bandwidth"].view.table.rows[0].cells[2].tip.endswith("simulated")
    assert [one.simulated for one in panel.pages["bandwidth"].view.curve.series] == [True]


def test_another_run_and_another_theme_are_drawn_again(panel: BenchmarkPanel, state: State) -> None:
    run(state)
    refreshed(panel)
    set_theme(LIGHT)
    wrong = panel.pages["bandwidth"].view.table.rows_model.index(1, 3).data(Qt.ItemDataRole.ForegroundRole)
    assert wrong == QColor(LIGHT.error)
    spec = BandwidthSpec(sources=("cpu",), destinations=("cuda:1",), sizes=(4 * MIB,), pinned=(True,))
    begin(state, 2, spec)
    point(state, 2, part=copy("cpu", "cuda:1", 4 * MIB, 24.0, pinned=True))
    assert shown(panel) == [["cpu", "24.0"]]
    assert panel.pages["bandwidth"].view.pair == ("cpu", "cuda:1")


def test_copies_are_copied_as_the_command_line_prints_them(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    run(state)
    refreshed(panel)
    qtbot.mouseClick(panel.pages["bandwidth"].copy_button, LEFT)
    document = json.loads(QGuiApplication.clipboard().text())
    assert document["benchmark"] == "bandwidth"
    assert [entry["verified"] for entry in document["runs"]].count(False) == 1


def test_a_way_through_the_host_is_not_the_direct_one() -> None:
    copies = CopyRows(ROWS)
    for kind in (CopyKind(), CopyKind(pinned=False)):
        direct = copies.find(*PAIR, MIB, kind)
        assert direct is not None
        assert direct.pinned is None
    assert copies.wrong() == [PAIR]
    round_trip = copies.round_trip(*PAIR, MIB)
    assert round_trip is not None
    assert round_trip.pinned
