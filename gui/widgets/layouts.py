"""Rows and columns of widgets in one expression. Main thread."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLayout, QVBoxLayout, QWidget

Part = QWidget | QLayout | None
Item = Part | int | tuple[Part, int] | tuple[Part, int, Qt.AlignmentFlag]
Margins = tuple[int, int, int, int]
T = TypeVar("T", bound=QBoxLayout)
NO_MARGINS = (0, 0, 0, 0)


def hbox(*items: Item, spacing: int = 8, margins: Margins = NO_MARGINS, parent: QWidget | None = None) -> QHBoxLayout:
    """Widgets and layouts side by side; `parent`: the widget that gets the layout.

    `(item, stretch)` gives an item its share, `(item, stretch, alignment)` its place in that. None is an empty stretch,
    a number a gap of so many pixels.
    """
    return _filled(QHBoxLayout() if parent is None else QHBoxLayout(parent), items, spacing, margins)


def vbox(*items: Item, spacing: int = 8, margins: Margins = NO_MARGINS, parent: QWidget | None = None) -> QVBoxLayout:
    """The same one below the other."""
    return _filled(QVBoxLayout() if parent is None else QVBoxLayout(parent), items, spacing, margins)


def _filled(layout: T, items: tuple[Item, ...], spacing: int, margins: Margins) -> T:
    layout.setSpacing(spacing)
    layout.setContentsMargins(*margins)
    for entry in items:
        if isinstance(entry, int):
            layout.addSpacing(entry)
            continue
        item, stretch, *alignment = entry if isinstance(entry, tuple) else (entry, 0)
        if item is None:
            layout.addStretch(max(stretch, 1))
        elif isinstance(item, QWidget):
            layout.addWidget(item, stretch, *alignment)
        else:
            layout.addLayout(item, stretch)
    return layout
