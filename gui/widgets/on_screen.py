"""Keeps a window, with its title bar, on the part of a screen that the desktop's panels leave free. Main thread only.

How thick a frame is, a window manager says only after the window is there: so the window is made a little smaller than
the screen at first, and looked at again when it has its frame.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QMargins, QObject, QRect, QSize, QTimer
from PySide6.QtGui import QGuiApplication, QRegion, QScreen
from PySide6.QtWidgets import QWidget

TITLE_BAR_PX = 40
"""About as high as title bars get."""
LOOKS_MS = (0, 200, 1000)
"""After the window was shown; window managers take their time."""
_UNWATCHED = ("offscreen", "minimal")
"""Platforms without a visible screen."""


def first_size(wanted: QSize, available: QSize) -> QSize:
    """The size of a window that has no frame yet and is to fit with one."""
    return wanted.boundedTo(QSize(available.width(), available.height() - TITLE_BAR_PX))


def fitted(frame: QRect, available: Sequence[QRect], home: int = 0) -> QRect:
    """`frame` where it lies on the available parts of all screens, otherwise moved, then made smaller, to fit on that
    of number `home`."""
    on_screens = QRegion()
    for part in available:
        on_screens += part
    if QRegion(frame).subtracted(on_screens).isEmpty():
        return frame
    room = available[home]
    size = frame.size().boundedTo(room.size())
    left = min(max(frame.left(), room.left()), room.left() + room.width() - size.width())
    top = min(max(frame.top(), room.top()), room.top() + room.height() - size.height())
    return QRect(left, top, size.width(), size.height())


def fit(window: QWidget, available: Sequence[QRect], home: int = 0) -> None:
    """Move and resize `window` so that it is on screen with its frame; one that is maximized is the window manager's
    business."""
    if window.isMaximized() or window.isFullScreen() or window.isMinimized():
        return
    outer, inner = window.frameGeometry(), window.geometry()
    frame = QMargins(
        inner.left() - outer.left(),
        inner.top() - outer.top(),
        outer.right() - inner.right(),
        outer.bottom() - inner.bottom(),
    )
    wanted = fitted(outer, available, home)
    if wanted != outer:
        window.setGeometry(wanted.marginsRemoved(frame))


class OnScreen(QObject):
    """Looks after `window` once it is shown, and when screens change."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._shown = False

    def shown(self) -> None:
        """The window was shown; the first time counts."""
        if self._shown or QGuiApplication.platformName() in _UNWATCHED:
            return
        self._shown = True
        for after_ms in LOOKS_MS:
            QTimer.singleShot(after_ms, self._window, self._look)
        app = QGuiApplication.instance()
        assert isinstance(app, QGuiApplication)
        for screen in app.screens():
            screen.availableGeometryChanged.connect(self._look)
        app.screenRemoved.connect(self._look)

    def _look(self, _what: object = None) -> None:
        screens = QGuiApplication.screens()
        mine: QScreen = self._window.screen()
        if screens:
            fit(
                self._window,
                [screen.availableGeometry() for screen in screens],
                screens.index(mine) if mine in screens else 0,
            )
