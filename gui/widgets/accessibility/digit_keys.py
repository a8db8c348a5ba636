"""Ctrl and Alt with the digits of the upper row on every keyboard layout. Main thread.

On AZERTY the key of the 1 gives `&`, and 1 only with Shift: Qt's shortcut Ctrl+1 does not hear it. The key's scan code
is the same everywhere.
"""

from __future__ import annotations

import sys

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent

FIRST_SCAN_CODE = 2 if sys.platform == "win32" else 10
"""Of the key of the 1: as the keyboard sends it on Windows, 8 more on X11 and Wayland (evdev)."""
_PREFIXES = {Qt.KeyboardModifier.ControlModifier: "Ctrl+", Qt.KeyboardModifier.AltModifier: "Alt+"}


def digit_key(event: QKeyEvent) -> str:
    """`Ctrl+1` or `Alt+4` for a key that only its place says it of; empty for others, and for what Qt hears itself."""
    prefix, place = _PREFIXES.get(event.modifiers()), event.nativeScanCode() - FIRST_SCAN_CODE
    if prefix is None or not 0 <= place < 10 or Qt.Key.Key_0 <= event.key() <= Qt.Key.Key_9:
        return ""
    return f"{prefix}{(place + 1) % 10}"
