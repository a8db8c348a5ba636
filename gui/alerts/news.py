"""What the window says of alerts by itself: a line in the status bar, a message on the desktop; those of machines that
are not shown with their name. Main thread only."""

from __future__ import annotations

import time
from collections.abc import Iterable

from PySide6.QtCore import QObject

from devexplorer.core.alerts.records import Alert
from devexplorer.core.alerts.rules import ALARM
from devexplorer.core.alerts.state import alerts_of
from devexplorer.core.alerts.words import alert_message
from devexplorer.core.base import Clock
from devexplorer.core.session import Change
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.alerts.alarm_line import ABOUT, AlarmLine, words
from devexplorer.gui.alerts.tab import TAB

ABOUT_OTHERS = f"{ABOUT} on "
"""What the banner is about while it shows those of another machine: this, and its name."""
APART_S = 60.0
"""Between two messages on the desktop about the same rule of the same device."""


class AlertNews(QObject):
    """One for a window."""

    def __init__(self, context: WindowContext, clock: Clock = time.monotonic) -> None:
        super().__init__(context)
        self._context, self._state, self._banner, self._clock = context, context.state, context.banner, clock
        self._line = AlarmLine(context.state, context.banner)
        self._said: dict[tuple[str, str, str], float] = {}
        self._unread: list[str] = []
        """Other machines whose alarms the line has still to say, the oldest first."""
        self._counts: dict[str, int] = {}
        context.state_changed.connect(self._take)
        context.beaten.connect(self._beat)
        context.texts_due.connect(self._line.refresh)
        context.machine_shown.connect(self._machine_shown)
        context.banner.action_chosen.connect(self._open)
        context.banner.dismissed.connect(self._read)
        context.notifications.clicked.connect(self._open)

    def tell(self, alerts: Iterable[Alert], machine: str = "") -> None:
        """Announce on the desktop what was raised, all of it in one message, and each alarm once a minute at most.
        Notices and ends are not announced. `machine`: its name, where it is not the one shown."""
        now = self._clock()
        self._said = {key: then for key, then in self._said.items() if now - then < APART_S}
        lines = []
        for alert in alerts:
            key = (machine, alert.device, alert.metric)
            if alert.raised and alert.level == ALARM and key not in self._said:
                self._said[key] = now
                whose = f"{machine}, " if machine else ""
                lines.append(f"{whose}{alert_message(alert).rstrip('.')}.")  # no capital: it begins with a device's id
        self._context.notifications.show(lines, f"{ABOUT_OTHERS}{machine}" if machine else ABOUT)

    def _take(self, changes: Change) -> None:
        if changes & Change.ALERTS:
            news = alerts_of(self._state).take_news()
            if self._state.recording is None:  # alarms of a recording are past
                self.tell(news)
            self._line.changed(news)

    def _beat(self) -> None:
        if self._context.unseen or self._counts:
            self._others()

    def _others(self) -> None:
        """Say what was raised there, until it is over, dismissed, or its machine shown."""
        unseen = {machine.name: alerts_of(machine.aside) for machine in self._context.unseen}
        for name, alerts in unseen.items():
            news = alerts.take_news()
            self.tell(news, name)
            if any(alert.raised and alert.level == ALARM for alert in news):
                self._unread = [*(other for other in self._unread if other != name), name]
        counts = {name: len(alerts.alarms) for name, alerts in unseen.items()}
        self._unread = [name for name in self._unread if counts.get(name)]
        ours = self._banner.about.startswith(ABOUT_OTHERS)
        if self._unread and (ours or self._banner.isHidden()):  # anything else in the line is left alone
            name = self._unread[-1]
            text = f"{name}: {words(unseen[name].alarms)}"
            about = f"{ABOUT_OTHERS}{name}"
            if self._banner.isHidden() or (self._banner.about, self._banner.words.full_text) != (about, text):
                self._banner.say(text, error=True, about=about, action="Show alerts")
        elif ours and not self._unread:
            self._banner.clear()
        if counts != self._counts:
            self._counts = counts
            self._context.machines_changed.emit()

    def _open(self, about: str) -> None:
        if about == ABOUT:
            TAB.show(self._context)
        elif about.startswith(ABOUT_OTHERS):
            name = about.removeprefix(ABOUT_OTHERS)
            machine = next((machine for machine in self._context.unseen if machine.name == name), None)
            if machine is not None:
                self._read(about)
                self._banner.clear()
                self._context.others.show(machine)
                TAB.show(self._context)

    def _read(self, about: str) -> None:
        self._unread = [name for name in self._unread if name != about.removeprefix(ABOUT_OTHERS)]

    def _machine_shown(self) -> None:
        """What is over on the machine that is shown now is no news."""
        alerts_of(self._state).take_news()
        self._line.forget()
