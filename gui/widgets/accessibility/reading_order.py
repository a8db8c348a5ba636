"""Tab goes where the eye goes: chains focus in the order of layouts. Main thread.

Qt chains widgets in the order in which they are made. A page that is made when it is first shown, or a legend that
grows, would come last.
"""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QLayout, QScrollArea, QSplitter, QTabWidget, QWidget


def reading_order(root: QWidget) -> Iterator[QWidget]:
    """The widgets in `root`, itself first, that the Tab key can reach, as layouts and splitters show them. One that
    places its children itself, without a layout, names them (`tab_stops`)."""
    if root.focusPolicy() & Qt.FocusPolicy.TabFocus and not isinstance(root, QTabWidget):
        yield root
    layout = root.layout()
    if isinstance(root, QTabWidget):
        yield root.tabBar()
        yield from _inside(root.currentWidget())
    elif (tab_stops := getattr(root, "tab_stops", None)) is not None:
        yield from tab_stops()
    elif isinstance(root, QSplitter):
        for number in range(root.count()):
            yield from _inside(root.widget(number))
    elif isinstance(root, QScrollArea):
        yield from _inside(root.widget())
    elif layout is not None:
        yield from _of(layout)


def _inside(widget: QWidget | None) -> Iterator[QWidget]:
    return reading_order(widget) if widget is not None else iter(())


def _of(layout: QLayout) -> Iterator[QWidget]:
    """Asks for no `QLayoutItem`: its Python object would outlive it, and be taken for what Qt makes at that address
    later."""
    owner = layout.parentWidget()
    inside: list[QObject] = [*layout.children(), *(owner.children() if owner is not None else ())]
    places = {
        place: part for part in inside if isinstance(part, QWidget | QLayout) and (place := layout.indexOf(part)) >= 0
    }
    for _, part in sorted(places.items()):
        yield from _of(part) if isinstance(part, QLayout) else _inside(part)


def chain(first: QWidget, *roots: QWidget) -> None:
    """Have Tab go from `first` through all `roots` in reading order; what followed `first` comes after them."""
    before = first
    for root in roots:
        for widget in reading_order(root):
            if widget is not before:
                QWidget.setTabOrder(before, widget)
                before = widget


def put_in_order(root: QWidget) -> None:
    """Have Tab go through `root` in reading order, beginning where `root` itself is in the window's chain."""
    chain(root, root)
