"""Everything is as large as the system's font asks for. Main thread, before any other module of the window is imported.

Sizes are designed for a text of 13 px. Qt's scale factor enlarges all of them together, texts, rows, pictures and gaps,
so that nothing is cut off. Qt reads it once, when the application is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import shiboken6
from PySide6.QtCore import QMessageLogContext, QSize, QtMsgType, qInstallMessageHandler
from PySide6.QtGui import QFontDatabase, QFontInfo
from PySide6.QtWidgets import QApplication

from devexplorer.core.cli.startup import refuse

DESIGNED_PX, USUAL_PX = 13.0, 15.0
"""The text that sizes are designed for; desktops have up to this as their default."""
STEP = 0.05
SMALLEST = QSize(1000, 650)
"""The window that has to fit on the screen."""
VARIABLE = "QT_SCALE_FACTOR"


def scale_for(font_px: float, screen: QSize) -> float:
    """How much larger everything is with a system font of this size on a screen of this size, both as Qt counts pixels
    without it; 1 for the usual fonts and smaller ones."""
    if font_px <= USUAL_PX:
        return 1.0
    most = min(screen.width() / SMALLEST.width(), screen.height() / SMALLEST.height())
    return max(min(round(font_px / DESIGNED_PX / STEP) * STEP, most), 1.0)


def _refusal() -> Callable[[QtMsgType, QMessageLogContext, str], None]:
    """Where Qt cannot open a window (no compositor, another QT_QPA_PLATFORM) it says why, and then aborts the process:
    the first of what it says becomes our one line."""
    said: list[str] = []

    def handle(kind: QtMsgType, _context: QMessageLogContext, text: str) -> None:
        said.append(text)
        if kind == QtMsgType.QtFatalMsg:
            refuse(
                f"Qt cannot open a window: {said[0].rstrip('.')}. Check DISPLAY, WAYLAND_DISPLAY and QT_QPA_PLATFORM;"
                " 'devexplorer tour' runs with QT_QPA_PLATFORM=offscreen, and the other commands need no display."
            )
            os._exit(2)

    return handle


def make_application(arguments: list[str]) -> QApplication:
    """The application, at the scale of the system's font; QT_SCALE_FACTOR of the user counts instead."""
    there = QApplication.instance()
    if isinstance(there, QApplication):
        return there
    before = qInstallMessageHandler(_refusal())
    app = QApplication(arguments)
    qInstallMessageHandler(before)
    font = QFontInfo(QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont))
    scale = 1.0 if VARIABLE in os.environ else scale_for(font.pixelSize(), app.primaryScreen().availableSize())
    if scale == 1.0:
        return app
    shiboken6.delete(app)  # the font was not known before; every QObject that is there goes with it
    os.environ[VARIABLE] = f"{scale:.4f}"
    try:
        return QApplication(arguments)
    finally:
        del os.environ[VARIABLE]  # not for other programs
