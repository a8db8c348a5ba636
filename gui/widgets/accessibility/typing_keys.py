"""Letters that are typed into a list of choices choose there: they are no shortcuts meanwhile. Main thread.

Fields for text take their letters themselves; a `QComboBox` looks for what begins with them, but lets a shortcut of the
window go first.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QApplication, QComboBox, QWidget

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
