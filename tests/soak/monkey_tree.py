"""The widgets of a window, looked at without leaving anything behind. Main thread.

PySide holds what `findChildren` or `childAt` of an ancestor found for as long as that ancestor lives: a window in which
something is looked for every few milliseconds would fill with what has long gone. What `children` gives is held by its
parent, and goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from PySide6.QtCore import QObject, QPoint, Qt
from PySide6.QtWidgets import QWidget

W = TypeVar("W", bound=QWidget)


def everything(root: QObject) -> Iterator[QObject]:
    """All that is below `root`, itself not included."""
    for child in root.children():
        yield child
        yield from everything(child)


def shown(root: QWidget, kind: type[W]) -> Iterator[W]:
    """The widgets of a kind that can be seen in `root`."""
    for child in root.children():
        if isinstance(child, QWidget) and child.isVisible() and not child.isWindow():
            if isinstance(child, kind):
                yield child
            yield from shown(child, kind)


def widget_at(root: QWidget, where: QPoint) -> QWidget:
    """The innermost widget that a click on `root` there would reach; `root` itself where there is no other."""
    for child in reversed(root.children()):
        if not isinstance(child, QWidget) or not child.isVisible() or child.isWindow():
            continue
        if child.geometry().contains(where) and not child.testAttribute(
            Qt.WidgetAttribute.WA_TransparentForMouseEvents
        ):
            return widget_at(child, where - child.pos())
    return root
