"""Announces alarms, and the end of long work, on the desktop, for a user who looks elsewhere. Main thread.

Nothing is asked of the desktop before the first of them, and nothing at all where there is none (offscreen and minimal
platforms).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication, QIcon
from PySide6.QtWidgets import QSystemTrayIcon

from devexplorer.core.base import Clock
from devexplorer.core.telemetry.alert_rules import ALARM
from devexplorer.core.telemetry.alert_words import alert_message
from devexplorer.core.telemetry.alerts import Alert

APART_S = 60.0
"""Between two messages about the same rule of the same device."""
SHOWN_MS = 10_000
MOST_LINES = 4
TITLE = "DevExplorer"
_NO_DESKTOP = ("offscreen", "minimal", "minimalegl", "vnc", "linuxfb", "eglfs")


class Notifications(QObject):
    """Tell it what changed; it says each alarm that was raised once a minute at most. Notices and ends are not
    announced."""

    clicked = Signal(bool)
    """The user clicked the message or the icon: bring the window to the front. Whether the message was of alarms."""

    def __init__(
        self,
        icon: QIcon,
        *,
        clock: Clock = time.monotonic,
        make_tray: Callable[[], QSystemTrayIcon | None] | None = None,
    ) -> None:
        super().__init__()
        self.on_desktop = True
        """Whether the user wants messages outside of the window."""
        self.told_of = ""
        """The machine of the latest alarms; empty: the one that was shown."""
        self._icon = icon
        self._clock = clock
        self._make_tray = make_tray or self._desktop_tray
        self._tray: QSystemTrayIcon | None = None
        self._asked = False
        self._of_alarms = False
        self._last: dict[tuple[str, str, str], float] = {}

    def tell(self, alerts: Iterable[Alert], machine: str = "") -> None:
        """Announce what was raised, all of it in one message. What the user does not want to hear of now is not said
        later either. `machine`: its name, where it is not the one shown."""
        now = self._clock()
        self._last = {key: then for key, then in self._last.items() if now - then < APART_S}
        lines = []
        for alert in alerts:
            key = (machine, alert.device, alert.metric)
            if alert.raised and alert.level == ALARM and key not in self._last:
                self._last[key] = now
                whose = f"{machine}, " if machine else ""
                lines.append(f"{whose}{alert_message(alert).rstrip('.')}.")  # no capital: it begins with a device's id
        if lines:
            self.told_of = machine
        self.show(lines, alarms=True)

    def show(self, lines: Sequence[str], *, alarms: bool = False) -> None:
        """Announce this, such as work that is over, a line each."""
        if not lines:
            return
        more = len(lines) - MOST_LINES
        shown = lines if more <= 0 else [*lines[:MOST_LINES], f"And {more} more."]
        if not self._asked and self.on_desktop:
            self._asked = True
            self._tray = self._make_tray()
        if self.on_desktop and self._tray is not None:
            icons = QSystemTrayIcon.MessageIcon
            self._of_alarms = alarms
            self._tray.show()
            text = "\n".join(shown).replace("<", "‹")  # some desktops read markup
            self._tray.showMessage(TITLE, text, icons.Warning if alarms else icons.Information, SHOWN_MS)

    def close(self) -> None:
        """Take the tray's icon away, before the application ends."""
        if self._tray is not None:
            self._tray.hide()

    def _desktop_tray(self) -> QSystemTrayIcon | None:
        if QGuiApplication.platformName() in _NO_DESKTOP:
            return None
        if not (QSystemTrayIcon.isSystemTrayAvailable() and QSystemTrayIcon.supportsMessages()):
            return None
        tray = QSystemTrayIcon(self._icon, self, toolTip=TITLE)
        tray.messageClicked.connect(self._clicked)
        tray.activated.connect(self._clicked)
        return tray

    def _clicked(self, *_reason: object) -> None:
        self.clicked.emit(self._of_alarms)
