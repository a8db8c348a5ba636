"""A window for one widget under test: it has no layout, so the widget has exactly the size that the test gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

W = TypeVar("W", bound=QWidget)


def hosted(qtbot: QtBot, make: Callable[[QWidget], W], width: int = 600, height: int = 500) -> W:
    """Show what `make(parent)` returns, in `parent` if it is not there yet; it is deleted when the test ends."""
    host = QWidget()
    qtbot.addWidget(host)
    qtbot.__dict__.setdefault("kept", []).append(host)  # qtbot itself keeps weak references only
    host.resize(1600, 1400)
    widget = make(host)
    if widget.parent() is None:
        widget.setParent(host)
    widget.resize(width, height)
    host.show()
    return widget
