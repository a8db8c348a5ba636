"""The command palette (Ctrl+K): every action by its words, with its key, or the reason why it cannot be done now. Main thread only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QDialog, QLineEdit, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

from devexplorer.gui.theme import Role, font

SIZE_PX = (560, 420)


class Choice(NamedTuple):
    """One line of the palette."""

    text: str
    detail: str
    """The key, or why it cannot be done now."""
    enabled: bool
    run: Callable[[], None]


class CommandPalette(QDialog):
    """Type, choose with the arrow keys, Enter. Words may stand in any order."""

    def __init__(self, choices: list[Choice], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("palette")
        self.setWindowTitle("Commands")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(*SIZE_PX)
        self._choices = choices
        self.field = QLineEdit()
        self.field.setFont(font(Role.TEXT))
        self.field.setPlaceholderText("What do you want to do?")
        self.field.setAccessibleName("Search commands")
        self.field.textChanged.connect(self._filter)
        self.field.returnPressed.connect(self._run)
        self.field.installEventFilter(self)
        self.list = QListWidget()
        self.list.setObjectName("boxed")
        self.list.setFont(font(Role.TEXT))
        self.list.setAccessibleName("Commands")
        self.list.itemActivated.connect(lambda _item: self._run())
        self.list.itemClicked.connect(lambda _item: self._run())
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 12, 12, 12)
        layout.setSpacing(8)
        layout.addWidget(self.field)
        layout.addWidget(self.list)
        self._filter("")

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Up and down move in the list while the cursor stays in the field."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1}.get(Qt.Key(event.key()))
            if step is not None and self.list.count():
                self.list.setCurrentRow((self.list.currentRow() + step) % self.list.count())
                return True
        return super().eventFilter(watched, event)

    def _filter(self, text: str) -> None:
        words = text.lower().split()
        self.list.clear()
        for choice in self._choices:
            if all(word in choice.text.lower() for word in words):
                item = QListWidgetItem(f"{choice.text}    {choice.detail}" if choice.detail else choice.text)
                item.setData(Qt.ItemDataRole.UserRole, choice)
                if not choice.enabled:
                    item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsEnabled)
                self.list.addItem(item)
        self.list.setCurrentRow(0)

    def _run(self) -> None:
        item = self.list.currentItem()
        if item is None or not item.flags() & Qt.ItemFlag.ItemIsEnabled:
            return
        choice: Choice = item.data(Qt.ItemDataRole.UserRole)
        self.accept()
        choice.run()
