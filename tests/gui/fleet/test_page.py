"""The page Fleet in the window: every card of every machine, folded, sorted, filtered; a check from the button to the
verdict; everything is given back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import pytest
from fakes.far_machines import FarFake, MachinesFake
from fakes.fleet_tables import SourceFake, joined, sample
from fakes.look_records import VGPU
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QPushButton

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.fleet.check.plan import CheckPlan
from devexplorer.core.fleet.cluster.cluster_fleet import OverSsh
from devexplorer.core.fleet.events import FleetEvent, FleetMachine, MachineChanged, Readings
from devexplorer.core.fleet.records import Basis, MeasuredKind
from devexplorer.core.fleet.simulated import SimulatedFleet
from devexplorer.core.history.store import SideRow
from devexplorer.core.records import DeviceSample
from devexplorer.gui.fleet.actions import export, open_cluster
from devexplorer.gui.fleet.dialogs import CheckDialog, ClusterDialog, SimulatedFleetDialog
from devexplorer.gui.fleet.model import AGE, CARD, CHECK, HEAT, LOAD, MODEL, STATE
from devexplorer.gui.fleet.page import FleetPage
from devexplorer.gui.fleet.room import FleetRoom, room_of
from devexplorer.gui.forms.save_dialog import SaveDialog

LEFT = Qt.MouseButton.LeftButton
D = TypeVar("D", bound=QDialog)


class Desk:
    """A window on the page Fleet; `tell` is a beat."""

    def __init__(self, quiet: QuietWindow) -> None:
        self.quiet, self.context = quiet, quiet.window.context
        self.seconds = 1000.0
        self.context.show_tab("fleet")
        self.room: FleetRoom = room_of(self.context)
        self.page: FleetPage = quiet.window.bottom_dock.page("fleet")
        self.page._monotonic = lambda: self.seconds
        self.quiet.window.actions_by_id["enlarge"].trigger()
        self.tell()

    def show(self, *events: FleetEvent) -> SourceFake:
        source = SourceFake(*events)
        self.room.open(source, "a test")
        self.tell()
        return source

    def tell(self) -> None:
        """A beat, a second later."""
        self.seconds += 1
        self.quiet.tell()

    def read(self, machine: int, *samples: DeviceSample) -> None:
        source = self.room.fleet.source
        assert isinstance(source, SourceFake)
        source.events.append(Readings(machine=f"node{machine}", samples=samples))
        self.tell()

    def texts(self, column: int) -> list[str]:
        model = self.page.model
        return [str(model.index(line, column).data()) for line in range(model.rowCount())]

    def click(self, text: str, column: int = CARD) -> None:
        grid, model = self.page.grid, self.page.model
        index = model.index(self.texts(column).index(text), column)
        grid.scrollTo(index)
        QTest.mouseClick(grid.viewport(), LEFT, pos=grid.visualRect(index).center())
        self.quiet.settle()

    def sort(self, column: int) -> None:
        header = self.page.grid.horizontalHeader()
        where = QPoint(header.sectionViewportPosition(column) + 20, header.height() // 2)
        QTest.mouseClick(header.viewport(), LEFT, pos=where)
        self.quiet.settle()

    def dialog(self, kind: type[D]) -> D:
        self.quiet.settle()
        return next(one for one in self.quiet.window.findChildren(kind) if one.isVisible())


def press(button: QPushButton) -> None:
    assert button.isVisible()
    assert button.isEnabled()
    QTest.mouseClick(button, LEFT)


@pytest.fixture
def desk(qapp: QApplication, tmp_path: Path) -> Iterator[Desk]:
    quiet = QuietWindow(qapp, tmp_path, VGPU, size=(1900, 900))
    yield Desk(quiet)
    quiet.close()


def test_the_machines_of_the_window_are_shown(desk: Desk) -> None:
    assert desk.texts(CARD) == ["▾ this machine simulated", "vgpu:0 simulated"]
    assert desk.texts(MODEL)[1] == "Tesla T4"
    assert not desk.page.check_button.isEnabled()
    assert desk.page.check_button.toolTip() == "this machine cannot be measured: its engine does not run."
    machines = MachinesFake(desk.context)
    far = FarFake("gpu1", VGPU)
    machines.list(far)
    desk.room.open_window_machines()
    desk.tell()
    assert desk.texts(CARD)[2:] == ["▾ gpu1 simulated", "vgpu:0 simulated"]
    machines.change(far, state="lost", reason="no answer")
    desk.room.open_window_machines()
    desk.tell()
    assert desk.texts(STATE)[2:] == ["✕ Not connected, ✕ 1 alert", "✕ Lost, or does not answer"]
    assert desk.page.count.full_text == "2 machines · 2 cards, simulated · 1 not connected"


def test_headings_fold_and_unfold_by_click_and_key(desk: Desk) -> None:
    desk.show(*joined(2, 2))
    assert desk.texts(CARD) == ["▾ node0", "cuda:0", "cuda:1", "▾ node1", "cuda:0", "cuda:1"]
    desk.click("▾ node0")
    assert desk.texts(CARD) == ["▸ node0", "▾ node1", "cuda:0", "cuda:1"]
    QTest.keyClick(desk.page.grid, Qt.Key.Key_Right)
    assert desk.texts(CARD)[:3] == ["▾ node0", "cuda:0", "cuda:1"]
    QTest.keyClick(desk.page.grid, Qt.Key.Key_Down)
    assert desk.page.grid.key == ("node0", "cuda:0")
    QTest.keyClick(desk.page.grid, Qt.Key.Key_Left)
    assert desk.page.grid.key == "node0"
    QTest.keyClick(desk.page.grid, Qt.Key.Key_Left)
    assert desk.texts(CARD)[0] == "▸ node0"


def test_a_click_on_a_heading_sorts_and_the_selection_stays_with_its_card(desk: Desk) -> None:
    desk.show(*joined(2, 2))
    for machine in range(2):
        desk.read(machine, *(sample(card, temperature_c=40.0 + 20 * machine + 5 * card) for card in range(2)))
    desk.click("cuda:1")
    assert desk.page.grid.key == ("node0", "cuda:1")
    desk.sort(HEAT)
    assert desk.texts(HEAT) == ["65", "65", "60", "45", "45", "40"]
    assert desk.page.grid.key == ("node0", "cuda:1")
    assert desk.page.grid.currentIndex().row() == 4
    desk.read(0, sample(1, temperature_c=99.0))
    assert desk.texts(HEAT)[:2] == ["99", "99"]
    assert desk.page.grid.currentIndex().row() == 1
    desk.sort(HEAT)
    assert desk.texts(HEAT)[:2] == ["99", "40"]
    desk.sort(HEAT)
    assert desk.texts(CARD)[0] == "▾ node0"


def test_the_slash_goes_to_the_filter_of_the_page_and_words_leave_cards(desk: Desk) -> None:
    desk.show(*joined(20, 8))
    desk.page.grid.setFocus()
    QTest.keyClick(desk.page.grid, Qt.Key.Key_Slash)
    assert desk.page.filter.hasFocus()
    QTest.keyClicks(desk.page.filter, "node17/cuda:3")
    assert desk.texts(CARD) == ["▾ node17", "cuda:3"]
    assert desk.page.count.full_text == "20 machines · 160 cards · 1 match"
    desk.page.filter.setText("no such card")
    assert desk.page.nothing.isVisible()
    desk.page.filter.clear()
    assert len(desk.texts(CARD)) == 20


def test_cards_are_grouped_by_rack(desk: Desk) -> None:
    desk.show(*joined(4, 2))
    desk.page.by.choose("rack")
    assert [text for text in desk.texts(CARD) if text[0] in "▾▸"] == ["▾ rack0", "▾ rack1"]
    assert desk.texts(CARD)[1] == "node0/cuda:0"
    desk.page.by.choose("nothing")
    assert desk.texts(CARD)[0] == "node0/cuda:0"


def test_a_machine_that_is_gone_keeps_its_last_readings_dimmed_with_their_age(desk: Desk) -> None:
    now = [time.time()]
    desk.page.model.now = lambda: now[0]
    source = desk.show(*joined(1, 1))
    desk.read(0, sample(0, now[0], utilization_percent=77.0))
    assert desk.page.model.cell(0, LOAD).tone == "text"
    now[0] += 75
    gone = FleetMachine(name="node0", state="reconnecting", problem="no answer", rack="A")
    source.events.append(MachineChanged(machine=gone))
    desk.tell()
    assert desk.texts(STATE)[0] == "△ Reconnecting"
    assert desk.texts(LOAD) == ["77", "77"]
    assert desk.texts(AGE) == ["1:15", "1:15"]
    assert desk.page.model.cell(0, LOAD).tone == "dim"


def test_alerts_are_counted_marked_and_found(desk: Desk) -> None:
    desk.show(*joined(20, 8))
    desk.read(7, sample(3, memory_used_bytes=79 << 30))
    fleet = desk.room.fleet
    fleet._monotonic = lambda: desk.seconds
    for second in range(4):
        fleet.alerts.look(fleet.table, 1000.0 + second)
    desk.tell()
    assert desk.page.alarm_button.text() == "✕ 1 card with alerts"
    assert desk.texts(STATE)[7] == "✕ 1 alert"
    press(desk.page.alarm_button)
    assert desk.texts(STATE) == ["✕ 1 alert", "✕ Memory in use 98.8 %"]


def test_a_fleet_is_simulated_checked_cancelled_and_given_back(desk: Desk, tmp_path: Path) -> None:
    desk.quiet.window.actions_by_id["fleet_simulate"].trigger()
    dialog = desk.dialog(SimulatedFleetDialog)
    dialog.nodes.setValue(4)
    dialog.defects.setText("slow:3/9:10%")
    assert not dialog.accept_button.isEnabled()
    assert "counted from 0" in dialog.message.text()
    dialog.defects.setText("slow:3/5:15%")
    assert dialog.message.text() == "32 simulated cards, 1 defect"
    press(dialog.accept_button)
    beat_until(desk, lambda: desk.room.fleet.table.machines and desk.room.fleet.table.settled)
    press(desk.page.check_button)
    check = desk.dialog(CheckDialog)
    for box in check.kinds.values():
        box.setChecked(False)
    assert check.message.text() == "Choose at least one measurement."
    next(iter(check.kinds.values())).setChecked(True)
    press(check.accept_button)
    assert desk.page.cancel_button.isVisible()
    assert desk.quiet.window.status.job.full_text.startswith("Checking 32 cards")
    beat_until(desk, lambda: desk.room.fleet.report is not None)
    assert desk.page.message.text().startswith("1 of 32 simulated cards is slow: node3/vgpu:5 at 8")
    assert desk.quiet.window.status.job.isHidden()
    press(desk.page.slow_button)
    assert desk.texts(CARD) == ["▾ node3 simulated", "vgpu:5 simulated"]
    assert desk.texts(CHECK)[1].startswith("△ matmul float16 at 8")
    desk.click("vgpu:5 simulated")
    known = {fact.label: fact.value for fact in desk.page.facts.facts}
    assert "slow below" in known["slow"]
    assert "the card itself" in known["cause"]
    press(desk.page.check_button)
    press(desk.dialog(CheckDialog).accept_button)
    press(desk.quiet.window.status.cancel)
    beat_until(desk, lambda: desk.room.fleet.check is None)
    assert desk.page.message.text().startswith("Interrupted after ")
    desk.quiet.close()
    assert not [thread.name for thread in threading.enumerate() if "fleet" in thread.name]


def beat_until(desk: Desk, done: object) -> None:
    until = time.monotonic() + 30
    while not done():  # type: ignore[operator]
        assert time.monotonic() < until
        desk.tell()


def test_the_report_of_a_check_is_written(desk: Desk, tmp_path: Path) -> None:
    desk.room.open_simulation(SimulatedFleet(1, parse_virtual("4x Tesla T4"), hurries=True))
    beat_until(desk, lambda: desk.room.fleet.table.machines and desk.room.fleet.table.settled)
    desk.room.begin_check(CheckPlan(kinds=(MeasuredKind.MEMORY,), seconds=2.0))
    beat_until(desk, lambda: desk.room.fleet.report is not None)
    export(desk.context)
    path = tmp_path / "fleet.json"
    desk.dialog(SaveDialog).saved.emit(path)
    desk.quiet.answered()
    assert len(json.loads(path.read_text())["cards"]) == 4


class ChecksFake:
    """The history of this machine, as far as checks are concerned."""

    def __init__(self) -> None:
        self.kept: list[SideRow] = []

    def rows(self, table: str, show: Callable[[Sequence[SideRow]], None]) -> None:
        show(self.kept)

    def add_row(self, table: str, row: SideRow) -> None:
        self.kept.append(row)

    def deliver(self) -> bool:
        return False


def test_a_check_is_kept_and_the_next_one_compares_cards_with_it(desk: Desk) -> None:
    history = ChecksFake()
    machines = MachinesFake(desk.context)
    machines.machines[0].session = SimpleNamespace(listener=lambda _: history)  # type: ignore[assignment]
    desk.room.open_simulation(SimulatedFleet(1, parse_virtual("2x Tesla T4"), hurries=True))
    beat_until(desk, lambda: desk.room.fleet.table.machines and desk.room.fleet.table.settled)
    for number in (1, 2):
        desk.room.begin_check(CheckPlan(kinds=(MeasuredKind.MEMORY,), seconds=10.0))
        beat_until(desk, lambda: desk.room.fleet.check is None)
        assert len(history.kept) == number
        assert history.kept[-1].simulated
    report = desk.room.fleet.report
    assert report is not None
    compared = [card.worst.basis for card in report.verdict.cards if card.worst is not None]
    assert compared == [Basis.OWN_HISTORY] * 2  # two cards alone cannot be compared with each other


def test_a_window_for_a_cluster_opens_on_the_page_with_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ways: list[object] = []

    def cluster(address: str, way: object = None) -> SourceFake:
        asked.append(address)
        ways.append(way)
        return SourceFake(*joined(2, 2))

    monkeypatch.setattr("devexplorer.gui.fleet.room.ClusterFleet", cluster)
    desk.context.show_tab("values")
    open_cluster(desk.context, "head:6379")
    desk.tell()
    assert asked == ["head:6379"]
    assert desk.page.isVisible()
    assert desk.page.source_button.text() == "Cluster head:6379 ▾"
    assert desk.page.count.full_text == "2 machines · 4 cards"
    open_cluster(desk.context, "auto", "gpu1", "/opt/torch")
    desk.tell()
    assert asked[-1] == "auto"
    assert ways[0] is None
    assert isinstance(ways[1], OverSsh)
    assert desk.page.source_button.text() == "Cluster auto on gpu1 ▾"


def test_a_cluster_can_be_attached_to_on_a_connected_machine(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(
        "devexplorer.gui.fleet.actions.open_cluster", lambda _, address, host: asked.append((address, host))
    )
    machines = MachinesFake(desk.context)
    machines.list(FarFake("gpu1", VGPU))
    desk.quiet.window.actions_by_id["fleet_cluster"].trigger()
    dialog = desk.dialog(ClusterDialog)
    dialog.node.choose("gpu1")
    press(dialog.accept_button)
    assert asked == [("auto", "gpu1")]


def test_another_source_takes_the_place_of_one_that_is_closed_elsewhere(desk: Desk) -> None:
    source = desk.show(*joined(1, 1))
    desk.quiet.window.actions_by_id["fleet_cluster"].trigger()
    dialog = desk.dialog(ClusterDialog)
    dialog.address.setText("-x")
    assert not dialog.accept_button.isEnabled()
    dialog.reject()
    other = desk.show()
    other.problem = "there is no cluster at host:1"
    desk.tell()
    assert desk.page.nothing.text() == "There is no cluster at host:1."
    desk.quiet.answered()
    assert source.closed == 1
    assert other.closed == 0
