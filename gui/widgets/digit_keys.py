"""Ctrl and Alt with the digits of the upper row on every keyboard layout. Main thread.

On AZERTY the key of the 1 gives `&`, and 1 only with Shift: Qt's shortcut Ctrl+1 does not hear it. The key's scan code
is the same everywhere.
"""

from __future__ import annotations

import sys

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication, QWidget

FIRST_SCAN_CODE = 2 if sys.platform == "win32" else 10
"""Of the key of the 1: as the keyboard sends it on Windows, 8 more on X11 and Wayland (evdev)."""
_PREFIXES = {Qt.KeyboardModifier.ControlModifier: "Ctrl+", Qt.KeyboardModifier.AltModifier: "Alt+"}


class DigitKeys(QObject):
    """Watches the keys that come to a window of the application; what Qt hears itself is left to Qt."""

    pressed = Signal(str)
    """`Ctrl+1`, `Alt+4`."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        app = QApplication.instance()
        assert app is not None
        app.focusChanged.connect(self._focus_changed)  # type: ignore[attr-defined]

    def _focus_changed(self, old: QWidget | None, new: QWidget | None) -> None:
        """Keys come to the widget with the keyboard first: only that one is watched."""
        if old is not None:
            old.removeEventFilter(self)
        if new is not None and new.window() is self._window:
            new.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            prefix = _PREFIXES.get(event.modifiers())
            digit = (event.nativeScanCode() - FIRST_SCAN_CODE + 1) % 10
            on_the_row = 0 <= event.nativeScanCode() - FIRST_SCAN_CODE < 10
            if prefix and on_the_row and not Qt.Key.Key_0 <= event.key() <= Qt.Key.Key_9:
                self.pressed.emit(f"{prefix}{digit}")
                return True
        return super().eventFilter(watched, event)
