"""Alarms of a machine that is not shown are said with its name, and lead there: alerts and machines, both of which a
fleet needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.two_machines import FarWayFake, TwoMachines
from PySide6.QtWidgets import QApplication

from devexplorer.core.alerts.judging import alerts_of
from devexplorer.core.machines.window.machines import FarMachine
from devexplorer.core.records import DeviceSample
from devexplorer.gui.machines.room import room_of


class Desk(TwoMachines):
    """This machine shown, forge behind it."""

    def __init__(self, qapp: QApplication, folder: Path) -> None:
        super().__init__(qapp, folder)
        self.go_live()
        room = room_of(self.window.context)
        room.make_way = lambda host, python: FarWayFake(self.route, host, python)
        room.connect_to("forge")
        assert self.app.heartbeat is not None
        self.app.heartbeat.stop()
        self.until(lambda: self.window.context.far is not None and not self.state.away)
        self.far: FarMachine = room_of(self.window.context).others[0]
        room_of(self.window.context).show(self.app.shown.here)
        self.messages: list[str] = []

    def heat(self, temperature_c: float, begin_s: int) -> None:
        for second in range(begin_s, begin_s + 60):
            self.host.say(DeviceSample(device="cpu", time_unix_s=float(second), temperature_c=temperature_c))

    @property
    def said(self) -> str:
        return self.window.banner.words.full_text if self.window.banner.isVisible() else ""

    @property
    def state_of_forge(self) -> str:
        page = self.window.bottom_dock.page("machines")
        page.refresh()
        return next(row.cells[1].text for row in page.table.rows if row.key == "forge")


@pytest.fixture
def desk(qapp: QApplication, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(qapp, tmp_path)
    yield made
    made.end()


def test_an_alarm_of_another_machine_is_said_marked_and_leads_there(desk: Desk) -> None:
    desk.window.context.show_tab("machines")
    button = desk.window.toolbar.buttons["machine"]
    assert desk.state_of_forge == "● Connected"
    desk.heat(99.0, 800)
    desk.until(lambda: alerts_of(desk.far.aside).active and desk.said)
    assert desk.said.startswith("forge: cpu: temperature 99 °C")
    assert desk.state_of_forge == "● Connected, ✕ 1 alert"
    assert "✕" in button.text()
    assert "forge: ✕ 1 alert" in button.accessibleName()
    button.menu().aboutToShow.emit()
    assert any(action.text() == "forge\t● Connected, ✕ 1 alert" for action in button.menu().actions())
    desk.click(desk.window.banner.action_button)
    assert desk.window.context.machine is desk.far
    assert desk.window.bottom_dock.current == "alerts"
    desk.until(lambda: not desk.said.startswith("forge: "))
    assert "✕" not in button.text(), "it is shown"


def test_the_line_goes_when_the_alarm_is_over_or_dismissed(desk: Desk) -> None:
    desk.heat(99.0, 700)
    desk.until(lambda: desk.said)
    desk.heat(40.0, 760)
    desk.until(lambda: not alerts_of(desk.far.aside).active)
    assert not desk.said
    desk.heat(99.0, 820)
    desk.until(lambda: desk.said)
    desk.click(desk.window.banner.close_button)
    desk.heat(98.0, 880)
    desk.until(lambda: desk.far.aside.devices["cpu"].sample.temperature_c == 98.0)  # type: ignore[union-attr]
    assert not desk.said, "dismissed until the next one"


def test_the_desktop_is_told_with_the_name_and_a_click_leads_there(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[str]] = []
    notifications = desk.window.context.notifications
    monkeypatch.setattr(notifications, "show", lambda lines, about: told.append([*lines, about]))
    desk.heat(99.0, 800)
    desk.until(lambda: any(len(lines) > 1 for lines in told))
    (lines,) = [lines for lines in told if len(lines) > 1]
    assert lines[0].startswith("forge, cpu: temperature 99 °C")
    notifications.clicked.emit(lines[-1])
    assert desk.window.context.machine is desk.far
    assert desk.window.bottom_dock.current == "alerts"
