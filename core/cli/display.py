"""Whether there is a display that a window could open on: Qt aborts where there is none. Main thread, no Qt."""

from __future__ import annotations

import ctypes
import os
import socket
import sys


def missing_display() -> str | None:
    """One sentence when Qt would abort for want of a display; None when it can start."""
    if os.environ.get("QT_QPA_PLATFORM") or sys.platform in ("win32", "darwin"):
        return None
    if os.environ.get("WAYLAND_DISPLAY"):
        return None
    display = os.environ.get("DISPLAY", "")
    if not display:
        return "There is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)."
    if display.startswith(":") and not _answers(display[1:].partition(".")[0]):
        return f"The display {display} does not answer."
    try:
        ctypes.CDLL("libxcb-cursor.so.0")
    except OSError:
        return "Qt needs the library libxcb-cursor (Debian and Ubuntu: apt-get install libxcb-cursor0)."
    return None


def _answers(number: str) -> bool:
    """Whether an X server listens on a local display."""
    for address in (f"/tmp/.X11-unix/X{number}", f"\0/tmp/.X11-unix/X{number}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(address)
            except OSError:
                continue
            return True
    return False
