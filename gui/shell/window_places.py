"""Where each window was on each screen, so that it comes back there. Main thread only.

Qt's `saveGeometry` counts screens by number, and the numbers change when one is plugged in. So a place is kept by name
and size of its screen, from that screen's corner on.
"""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QByteArray, QRect, Qt
from PySide6.QtGui import QGuiApplication, QScreen
from PySide6.QtWidgets import QWidget

from devexplorer.core.session import Place
from devexplorer.gui.widgets import fitted

MAIN = "main"
"""The window itself; the others are called as their panels."""
MOST = 8
"""Screens that are remembered for a window."""


class WindowPlaces:
    """`restore` before a window is shown, `remember` before it is gone."""

    def __init__(self, places: Mapping[str, Mapping[str, Place]], earlier: str = "") -> None:
        """`earlier`: what Qt kept of the main window in an earlier version."""
        self.places = {name: dict(known) for name, known in places.items()}
        """By window and screen; the screen that a window was on last comes last."""
        self._earlier = QByteArray.fromBase64(earlier.encode())

    def remember(self, window: QWidget, name: str = MAIN) -> None:
        """Where the window is now, or is when it is no longer maximized."""
        screen = window.screen()
        rect = window.normalGeometry().translated(-screen.geometry().topLeft())
        known = self.places.setdefault(name, {})
        known.pop(_key(screen), None)
        known[_key(screen)] = Place(rect.x(), rect.y(), rect.width(), rect.height(), window.isMaximized())
        for old in list(known)[:-MOST]:
            del known[old]

    def restore(self, window: QWidget, name: str = MAIN) -> None:
        """Put it on the screen that it was on last, where it was there; without that screen, on the main one."""
        known = self.places.get(name)
        if not known:
            if name == MAIN and not self._earlier.isEmpty():
                window.restoreGeometry(self._earlier)
            return
        last, screens, main = next(reversed(known)), QGuiApplication.screens(), QGuiApplication.primaryScreen()
        screen = next((one for one in screens if _key(one) == last), main)
        place = known.get(_key(screen), known[last])
        rect = QRect(place.left, place.top, place.width, place.height).translated(screen.geometry().topLeft())
        if _key(screen) != last:
            screens = [main]
        window.setGeometry(fitted(rect, [one.availableGeometry() for one in screens], screens.index(screen)))
        if place.maximised:
            window.setWindowState(window.windowState() | Qt.WindowState.WindowMaximized)


def _key(screen: QScreen) -> str:
    return f"{screen.name()} {screen.size().width()}x{screen.size().height()}"
