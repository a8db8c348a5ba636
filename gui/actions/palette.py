"""The command palette (Ctrl+K): every action by its words, with its key, or the reason why it cannot be done now;
exercises and the glossary by what they say. Main thread only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QDialog, QHeaderView, QTreeWidget, QTreeWidgetItem, QWidget

from devexplorer.gui.widgets import CENTRE, RIGHT, Role, font, label, line_edit, vbox

SIZE_PX, AROUND_PX = (840, 460), 60


class PaletteChoice(NamedTuple):
    """One line of the palette."""

    text: str
    detail: str
    """The key, or why it cannot be done now."""
    enabled: bool
    run: Callable[[], object]
    also: str = ""
    """More words that it is found by."""


class CommandPalette(QDialog):
    """Type, choose with the arrow keys, Enter. Words may come in any order."""

    def __init__(
        self,
        choices: list[PaletteChoice],
        parent: QWidget,
        name: str = "Commands",
        question: str = "What do you want to do?",
    ) -> None:
        super().__init__(parent)
        self.setObjectName("palette")
        self.setWindowTitle(name)
        self.resize(min(SIZE_PX[0], parent.width() - AROUND_PX), SIZE_PX[1])
        self._choices = choices
        self.field = line_edit(placeholder=question, name=f"Search {name.lower()}")
        self.field.setFont(font(Role.TEXT))
        self.field.textChanged.connect(self._filter)
        self.field.returnPressed.connect(self._run)
        self.field.installEventFilter(self)
        self.list = QTreeWidget(columnCount=2)
        self.list.setObjectName("boxed")
        self.list.setFont(font(Role.TEXT))
        self.list.setAccessibleName(name)
        self.list.setHeaderHidden(True)
        self.list.setRootIsDecorated(False)
        self.list.header().setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.nothing = label("Nothing matches. Try fewer letters.", words="dim", align=CENTRE)
        self.list.itemActivated.connect(lambda _item: self._run())
        self.list.itemClicked.connect(lambda _item: self._run())
        vbox(self.field, self.list, (self.nothing, 1), margins=12, parent=self)
        self._filter("")

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Up and down move in the list while the cursor stays in the field."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            step = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1}.get(Qt.Key(event.key()))
            count = self.list.topLevelItemCount()
            if step is not None and count:
                self._select((self.list.currentIndex().row() + step) % count)
                return True
        return super().eventFilter(watched, event)

    def _filter(self, text: str) -> None:
        words = text.lower().split()
        self.list.clear()
        dim = self.palette().placeholderText()
        found = [choice for choice in self._choices if _has(words, choice.text, choice.also)]
        for choice in sorted(found, key=lambda choice: not _has(words, choice.text)):  # its name counts most
            item = QTreeWidgetItem(self.list, [choice.text, choice.detail])
            item.setTextAlignment(1, RIGHT)
            item.setForeground(1, dim)
            item.setToolTip(1, choice.detail)
            item.setData(0, Qt.ItemDataRole.UserRole, choice)
            item.setData(0, Qt.ItemDataRole.AccessibleTextRole, ", ".join(filter(None, choice[:2])))
            if not choice.enabled:
                item.setDisabled(True)
                item.setForeground(0, dim)
        self._select(0)
        self.nothing.setVisible(self.list.topLevelItemCount() == 0)
        self.list.setVisible(self.list.topLevelItemCount() > 0)

    def _select(self, row: int) -> None:
        self.list.setCurrentIndex(self.list.model().index(row, 0))

    def _run(self) -> None:
        item = self.list.currentItem()
        if item is None or item.isDisabled():
            return
        choice: PaletteChoice = item.data(0, Qt.ItemDataRole.UserRole)
        self.accept()
        choice.run()


def _has(words: list[str], *texts: str) -> bool:
    text = " ".join(texts).lower()
    return all(word in text for word in words)
