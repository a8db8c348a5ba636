"""Rows and columns of widgets in one expression. Main thread."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLayout, QVBoxLayout, QWidget

Item = QWidget | QLayout | None | tuple[QWidget | QLayout | None, int]
Margins = tuple[int, int, int, int]
T = TypeVar("T", bound=QBoxLayout)
NO_MARGINS = (0, 0, 0, 0)


def hbox(*items: Item, spacing: int = 8, margins: Margins = NO_MARGINS) -> QHBoxLayout:
    """Widgets and layouts side by side; `(item, stretch)` gives an item its share, None is an empty stretch."""
    return _filled(QHBoxLayout(), items, spacing, margins)


def vbox(*items: Item, spacing: int = 8, margins: Margins = NO_MARGINS, parent: QWidget | None = None) -> QVBoxLayout:
    """The same one below the other; `parent`: the widget that gets the layout."""
    return _filled(QVBoxLayout() if parent is None else QVBoxLayout(parent), items, spacing, margins)


def _filled(layout: T, items: tuple[Item, ...], spacing: int, margins: tuple[int, int, int, int]) -> T:
    layout.setSpacing(spacing)
    layout.setContentsMargins(*margins)
    for entry in items:
        item, stretch = entry if isinstance(entry, tuple) else (entry, 0)
        if item is None:
            layout.addStretch(max(stretch, 1))
        elif isinstance(item, QWidget):
            layout.addWidget(item, stretch)
        else:
            layout.addLayout(item, stretch)
    return layout
