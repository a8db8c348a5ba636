"""The cards of the layout Monitor: all devices in sight, and what concerns the machine said once."""

from __future__ import annotations

import msgspec
import pytest
from fakes.host import hosted
from fakes.look_records import CPU, CUDA, VGPU
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import DeviceSample, Problem
from devexplorer.core.session.state import State
from devexplorer.core.telemetry.alert_rules import Rule
from devexplorer.gui.devices.monitor import MonitorCard, MonitorPanel, MonitorRow

REASON = "this torch (2.13.0) is a CPU build: it cannot use CUDA devices"
NOW = 1_800_000_000.0


def read(state: State, second: float = 0, reasons: tuple[str, ...] = (), celsius: float = 60) -> None:
    """A reading of every card; `reasons` hold the clocks of nvml:3 down."""
    for at in range(8):
        state.apply(
            DeviceSample(
                device=f"nvml:{at}",
                time_unix_s=NOW + second,
                memory_used_bytes=1 << 30,
                memory_total_bytes=2 << 30,
                power_w=300,
                temperature_c=celsius,
                memory_temperature_c=70,
                sm_clock_mhz=1980,
                memory_clock_mhz=3201,
                fan_percent=40,
                throttle_reasons=reasons if at == 3 else (),
            )
        )


@pytest.fixture
def state() -> State:
    state = State()
    cards = [
        msgspec.structs.replace(CUDA, id=f"nvml:{at}", kind="nvml", nvml_index=at, usable=False, reason=REASON)
        for at in range(8)
    ]
    state.set_catalog(Catalog((CPU, *cards), (Problem(REASON, field="cuda"),)))
    read(state)
    return state


def in_sight(panel: MonitorPanel) -> list[str]:
    QApplication.processEvents()
    seen = panel.area.viewport()
    return [
        name
        for name, card in panel.items.items()
        if seen.rect().contains(card.rect().translated(card.mapTo(seen, card.rect().topLeft())))
    ]


def headings(panel: MonitorPanel) -> list[QLabel]:
    """Those above rows, in their order."""
    every = (label for label in panel.area.widget().findChildren(QLabel) if not label.isHidden())
    return sorted(every, key=QLabel.y)


def test_eight_cards_are_all_in_sight_in_their_order(qtbot: QtBot, state: State) -> None:
    panel = hosted(qtbot, lambda _: MonitorPanel(state), 570, 496)
    names = ["cpu", *(f"nvml:{at}" for at in range(8))]
    assert in_sight(panel) == names
    assert all(isinstance(item, MonitorRow) for item in panel.items.values())
    for second in range(20):
        read(state, second, ("hardware thermal slowdown",))
    panel.refresh_texts()
    assert panel.items["nvml:3"].texts.alarm
    assert in_sight(panel) == names
    assert [panel.items[name].y() for name in names] == sorted(panel.items[name].y() for name in names)
    assert dict(panel.items["nvml:4"].texts.watched)["temperature"] == "60, memory 70 °C"
    panel.resize(570, 300)
    for _ in range(2):
        panel.refresh_texts()
        QApplication.processEvents()
    watched = dict(panel.items["nvml:4"].texts.watched)
    assert (watched["temperature"], watched["clock"]) == ("60 °C", "1,980 MHz"), "the card's own are not cut off"
    assert "throttled" not in watched, "it would be read without the no behind it"
    chosen: list[object] = []
    panel.selected.connect(chosen.append)
    qtbot.mouseClick(panel.items["nvml:5"], Qt.MouseButton.LeftButton)
    assert chosen == ["nvml:5"]


def test_alarms_that_come_and_go_do_not_arrange_the_rows_anew(qtbot: QtBot, state: State) -> None:
    panel = hosted(qtbot, lambda _: MonitorPanel(state), 570, 440)
    lefts = {item.x() for item in panel.items.values()}
    state.alerts.set_rules([Rule(metric="temperature_c", raise_at=50, clear_at=45)])
    read(state, 1)
    panel.refresh_texts()
    QApplication.processEvents()
    alarms = [item.texts.alarm for item in panel.items.values() if item.device_id != "cpu"]
    assert alarms == ["Temperature 60 °C"] * 8
    assert {item.x() for item in panel.items.values()} == lefts
    read(state, 2, celsius=48)
    panel.refresh_texts()
    assert panel.items["nvml:3"].texts.alarm == "Temperature 48 °C, clears at 45 °C"


def test_where_there_is_room_they_are_cards(qtbot: QtBot, state: State) -> None:
    panel = hosted(qtbot, lambda _: MonitorPanel(state), 1000, 700)
    assert all(isinstance(item, MonitorCard) for item in panel.items.values())
    panel.resize(570, 496)
    assert all(isinstance(item, MonitorRow) for item in panel.items.values())
    panel.resize(1000, 700)
    assert all(isinstance(item, MonitorCard) for item in panel.items.values())


@pytest.mark.parametrize("width", [0, 1, 23, 24, 25])
def test_a_panel_without_width_has_one_column(qtbot: QtBot, state: State, width: int) -> None:
    panel = MonitorPanel(state)
    qtbot.addWidget(panel)
    panel.setMinimumWidth(0)
    panel.resize(width, 4000)
    panel.refresh_devices()
    assert panel._wanted_columns() == 1


def test_what_concerns_the_whole_machine_is_said_once(qtbot: QtBot, state: State) -> None:
    panel = hosted(qtbot, lambda _: MonitorPanel(state), 1000, 700)
    assert [item.texts.warning for item in panel.items.values()] == [""] * 9
    assert panel._subtitle.text() == REASON


@pytest.mark.parametrize("width", [500, 538])
def test_rows_of_simulated_devices_stand_below_that_word_and_leave_no_line_empty(qtbot: QtBot, width: int) -> None:
    state = State()
    profile = "NVIDIA RTX PRO 6000 Blackwell"
    simulated = [msgspec.structs.replace(VGPU, id=f"vgpu:{at}", name=profile) for at in range(16)]
    state.set_catalog(Catalog((CPU, *simulated), ()))
    panel = hosted(qtbot, lambda _: MonitorPanel(state), width, 412)
    assert in_sight(panel) == list(panel.items)
    assert all(isinstance(item, MonitorRow) for item in panel.items.values())
    first = panel.items["vgpu:0"]
    (word,) = headings(panel)
    assert word.text() == "simulated: RTX PRO 6000 Blackwell", "the rows have no room for the name"
    assert panel.items["cpu"].geometry().bottom() < word.y() < word.geometry().bottom() < first.y()
    panel.resize(1570, 1300)
    QApplication.processEvents()
    assert headings(panel) == []
    assert {item.width() for item in panel.items.values()} <= set(range(360, 430))  # room for the names, all in sight
    assert in_sight(panel) == list(panel.items)


def test_a_row_with_room_says_which_card_it_is_and_the_bars_stay_in_line(qtbot: QtBot) -> None:
    """Eight cards at 1440x900 were eight numbers: only their capacity told an A100 from a T4."""
    state = State()
    kinds = ["NVIDIA A100-SXM4-80GB"] * 4 + ["Tesla T4"] * 4
    cards = [msgspec.structs.replace(VGPU, id=f"vgpu:{at}", name=name) for at, name in enumerate(kinds)]
    state.set_catalog(Catalog((CPU, *cards), ()))
    panel = hosted(qtbot, lambda _: MonitorPanel(state), 570, 400)
    rows = [item for item in panel.items.values() if isinstance(item, MonitorRow)]
    assert len(rows) == 9
    assert len({row.bar.geometry() for row in rows}) == 1
    before = rows[1].grab().toImage()
    without = before.copy(0, 0, rows[1].bar.x(), before.height())
    state.set_catalog(Catalog((CPU, *(msgspec.structs.replace(card, name="Tesla T4") for card in cards)), ()))
    panel.refresh_devices()
    assert rows[1].grab().toImage().copy(0, 0, without.width(), before.height()) != without, "the name is painted"
    panel.resize(300, 400)
    assert all(row.bar.width() >= 16 for row in rows)
    assert rows[1].bar.x() < 80, "the bar comes first where there is little room"


@pytest.mark.parametrize("size", [(538, 432), (568, 514), (385, 355)])  # at 1366x768, 1440x900, 1000x650
def test_where_rows_are_narrow_a_heading_says_which_cards_they_are(qtbot: QtBot, size: tuple[int, int]) -> None:
    state = State()
    kinds = ["NVIDIA A100-SXM4-80GB"] * 8 + ["Tesla T4"] * 8
    cards = [msgspec.structs.replace(VGPU, id=f"vgpu:{at}", name=name) for at, name in enumerate(kinds)]
    state.set_catalog(Catalog((CPU, *cards), ()))
    panel = hosted(qtbot, lambda _: MonitorPanel(state), *size)
    large, small = headings(panel)
    assert [large.text(), small.text()] == ["simulated: A100-SXM4-80GB", "simulated: Tesla T4"]
    tops = [panel.items[f"vgpu:{at}"].y() for at in range(16)]
    assert large.y() < min(tops[:8]) <= max(tops[:8]) < small.y() < min(tops[8:])
    if size[0] > 500:
        assert in_sight(panel) == list(panel.items)
        assert len(set(tops)) == 8, "two columns"
    turns = [msgspec.structs.replace(card, name=kinds[at % 2 * 8]) for at, card in enumerate(cards)]
    state.set_catalog(Catalog((CPU, *turns), ()))
    panel.refresh_devices()
    QApplication.processEvents()
    assert [one.text() for one in headings(panel)] == ["simulated"], "sixteen headings would take the room of the rows"
