"""Messages on the desktop, such as the end of long work, for a user who looks elsewhere. Main thread.

Nothing is asked of the desktop before the first of them, and nothing at all where there is none (offscreen and minimal
platforms).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication, QIcon
from PySide6.QtWidgets import QSystemTrayIcon

SHOWN_MS = 10_000
MOST_LINES = 4
TITLE = "DevExplorer"
_NO_DESKTOP = ("offscreen", "minimal", "minimalegl", "vnc", "linuxfb", "eglfs")


class Notifications(QObject):
    """`show` messages, where the user wants them."""

    clicked = Signal(str)
    """The user clicked the message or the icon: bring the window to the front. What the message was about."""

    def __init__(
        self,
        icon: QIcon,
        wanted: Callable[[], bool] = lambda: True,
        *,
        make_tray: Callable[[], QSystemTrayIcon | None] | None = None,
    ) -> None:
        """`wanted`: whether the user wants messages outside of the window."""
        super().__init__()
        self._icon, self._wanted = icon, wanted
        self._make_tray = make_tray or self._desktop_tray
        self._tray: QSystemTrayIcon | None = None
        self._asked = False
        self._about = ""

    def show(self, lines: Sequence[str], about: str = "") -> None:
        """Announce this, such as work that is over, a line each. `about`: what is wrong; empty: nothing."""
        if not lines or not self._wanted():
            return
        more = len(lines) - MOST_LINES
        shown = lines if more <= 0 else [*lines[:MOST_LINES], f"And {more} more."]
        if not self._asked:
            self._asked = True
            self._tray = self._make_tray()
        if self._tray is not None:
            icons = QSystemTrayIcon.MessageIcon
            self._about = about
            self._tray.show()
            text = "\n".join(shown).replace("<", "‹")  # some desktops read markup
            self._tray.showMessage(TITLE, text, icons.Warning if about else icons.Information, SHOWN_MS)

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
        self.clicked.emit(self._about)
