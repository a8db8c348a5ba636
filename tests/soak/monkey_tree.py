"""Finds widgets of a window without leaking references. Main thread.

PySide keeps the results of `findChildren` or `childAt` alive as long as the ancestor: frequent searches in a window
would accumulate dead widgets. The results of `children` are kept by their parent only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from PySide6.QtCore import QObject, QPoint, Qt
from PySide6.QtWidgets import QWidget

W = TypeVar("W", bound=QWidget)


def everything(root: QObject) -> Iterator[QObject]:
    """All descendants of `root`."""
    for child in root.children():
        yield child
        yield from everything(child)


def shown(root: QWidget, kind: type[W]) -> Iterator[W]:
    """The visible widgets of a kind in `root`."""
    for child in root.children():
        if isinstance(child, QWidget) and child.isVisible() and not child.isWindow():
            if isinstance(child, kind):
                yield child
            yield from shown(child, kind)


def widget_at(root: QWidget, where: QPoint) -> QWidget:
    """The innermost widget that a click at this point of `root` would reach; `root` itself if there is no other."""
    for child in reversed(root.children()):
        if not isinstance(child, QWidget) or not child.isVisible() or child.isWindow():
            continue
        if child.geometry().contains(where) and not child.testAttribute(
            Qt.WidgetAttribute.WA_TransparentForMouseEvents
        ):
            return widget_at(child, where - child.pos())
    return root
