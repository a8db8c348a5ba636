"""Tab goes where the eye goes, and keys reach what they are meant for. Main thread.

Qt chains widgets in the order in which they are made: a page that is made when it is first shown, or a legend that
grows, would come last. So focus is chained in the order of layouts.

Fields for text take their letters themselves; a `QComboBox` looks for what begins with them, but lets a shortcut of the
window go first.

On AZERTY the key of the 1 gives `&`, and 1 only with Shift: Qt's shortcut Ctrl+1 does not hear it. The key's scan code
is the same everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication, QComboBox, QLayout, QScrollArea, QSplitter, QTabWidget, QWidget


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


_NO_LETTER = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier


class TypingKeys(QObject):
    """Watches the list of choices that has the focus, in any window of the application."""

    def __init__(self, app: QApplication, parent: QObject | None = None) -> None:
        super().__init__(parent)
        app.focusChanged.connect(self._focus_changed)

    def _focus_changed(self, old: QWidget | None, new: QWidget | None) -> None:
        if isinstance(old, QComboBox):
            old.removeEventFilter(self)
        if isinstance(new, QComboBox):
            new.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() != QEvent.Type.ShortcutOverride or not isinstance(event, QKeyEvent):
            return super().eventFilter(watched, event)
        if event.modifiers() & _NO_LETTER or not event.text().isprintable() or not event.text():
            return super().eventFilter(watched, event)
        event.accept()  # the key comes to the list
        return True


FIRST_SCAN_CODE = 2 if sys.platform == "win32" else 10
"""Of the key of the 1: as the keyboard sends it on Windows, 8 more on X11 and Wayland (evdev)."""
_PREFIXES = {Qt.KeyboardModifier.ControlModifier: "Ctrl+", Qt.KeyboardModifier.AltModifier: "Alt+"}


def digit_key(event: QKeyEvent) -> str:
    """`Ctrl+1` or `Alt+4` for a key that only its place says it of; empty for others, and for what Qt hears itself."""
    prefix, place = _PREFIXES.get(event.modifiers()), event.nativeScanCode() - FIRST_SCAN_CODE
    if prefix is None or not 0 <= place < 10 or Qt.Key.Key_0 <= event.key() <= Qt.Key.Key_9:
        return ""
    return f"{prefix}{(place + 1) % 10}"
