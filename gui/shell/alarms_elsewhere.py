"""Alarms of machines that are not on show: a line across the window, a message on the desktop, and a mark wherever the
machine is listed. Main thread only; loaded with the first other machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session.machine import Machine
from devexplorer.core.telemetry.alert_rules import ALARM
from devexplorer.gui.alerts.alarm_line import alarms, words
from devexplorer.gui.alerts.tab import TAB as ALERTS

if TYPE_CHECKING:
    from devexplorer.core.machines.machines import Machines
    from devexplorer.gui.shell.main_window import MainWindow

ABOUT = "alarms on "
"""What the banner is about while it shows them: this, and the machine."""


class AlarmsElsewhere:
    """`beat` after each beat of the window."""

    def __init__(self, window: MainWindow, machines: Machines) -> None:
        self._window, self._machines, self._banner = window, machines, window.banner
        self._notifications = window.news.notifications
        self._unread: list[str] = []
        """Machines whose alarms the line has still to say, the oldest first."""
        self._counts: dict[str, int] = {}
        self._banner.action_chosen.connect(self._open)
        self._banner.dismissed.connect(self._read)
        self._notifications.clicked.connect(self._clicked)

    def beat(self) -> None:
        """Say what was raised, until it is over, dismissed, or its machine on show."""
        hidden = [machine for machine in self._machines.machines if machine is not self._machines.shown]
        for machine in hidden:
            news = machine.aside.alerts.take_news()
            self._notifications.on_desktop = self._window.context.settings.notifications
            self._notifications.tell(news, machine.name)
            if any(alert.raised and alert.level == ALARM for alert in news):
                self._unread = [*(name for name in self._unread if name != machine.name), machine.name]
        counts = {machine.name: len(alarms(machine.aside)) for machine in hidden}
        self._unread = [name for name in self._unread if counts.get(name)]
        self._say({machine.name: machine for machine in hidden})
        if counts != self._counts:
            self._counts = counts
            self._window.context.machines_changed.emit()

    def _say(self, hidden: dict[str, Machine]) -> None:
        """Anything else in the line is left alone."""
        ours = self._banner.about.startswith(ABOUT)
        if self._unread and (ours or self._banner.isHidden() or self._banner.passing.isActive()):
            machine = hidden[self._unread[-1]]
            text = f"{machine.name}: {words(alarms(machine.aside))}"
            about = f"{ABOUT}{machine.name}"
            if self._banner.isHidden() or (self._banner.about, self._banner.words.text()) != (about, text):
                self._banner.say(text, error=True, about=about, action="Show alerts")
        elif ours and not self._unread:
            self._banner.hide()

    def _open(self, about: str) -> None:
        machine = self._machines.find(about.removeprefix(ABOUT)) if about.startswith(ABOUT) else None
        if machine is not None:
            self._read(about)
            self._banner.hide()
            self._machines.show(machine)
            ALERTS.show(self._window.context)

    def _read(self, about: str) -> None:
        if about.startswith(ABOUT):
            self._unread = [name for name in self._unread if name != about.removeprefix(ABOUT)]

    def _clicked(self, of_alarms: bool) -> None:
        if of_alarms and self._notifications.told_of:
            self._open(f"{ABOUT}{self._notifications.told_of}")
