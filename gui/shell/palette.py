"""The command palette (Ctrl+K): every action by its words, with its key, or the reason why it cannot be done now. Main
thread only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPersistentModelIndex, QSize, Qt
from PySide6.QtGui import QColor, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QDialog,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from devexplorer.gui.widgets.layouts import CENTRE, line_edit, vbox
from devexplorer.gui.widgets.panel import label
from devexplorer.gui.widgets.theme import Role, font, theme_of

SIZE_PX = (600, 460)
ROW_PX = 26


class Choice(NamedTuple):
    """One line of the palette."""

    text: str
    detail: str
    """The key, or why it cannot be done now."""
    enabled: bool
    run: Callable[[], object]


class _TwoColumns(QStyledItemDelegate):
    """The words of a choice at the left; its key, or why it cannot be done now, dimmed at the right."""

    def sizeHint(self, _option: QStyleOptionViewItem, _index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(100, ROW_PX)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        choice: Choice = index.data(Qt.ItemDataRole.UserRole)
        theme = theme_of(option.palette)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(theme.selection))
            painter.drawRoundedRect(option.rect, 4, 4)
        room = option.rect.adjusted(8, 0, -8, 0)
        painter.setFont(font(Role.TEXT))
        painter.setPen(QColor(theme.text if choice.enabled else theme.dim))
        middle = Qt.AlignmentFlag.AlignVCenter
        painter.drawText(room, middle | Qt.AlignmentFlag.AlignLeft, choice.text)
        room.setLeft(room.left() + painter.fontMetrics().horizontalAdvance(choice.text) + 24)
        painter.setFont(font(Role.LABEL))
        painter.setPen(QColor(theme.dim))
        detail = painter.fontMetrics().elidedText(choice.detail, Qt.TextElideMode.ElideRight, room.width())
        painter.drawText(room, middle | Qt.AlignmentFlag.AlignRight, detail)
        painter.restore()


class CommandPalette(QDialog):
    """Type, choose with the arrow keys, Enter. Words may come in any order."""

    def __init__(self, choices: list[Choice], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("palette")
        self.setWindowTitle("Commands")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(*SIZE_PX)
        self._choices = choices
        self.field = line_edit(placeholder="What do you want to do?", name="Search commands")
        self.field.setFont(font(Role.TEXT))
        self.field.textChanged.connect(self._filter)
        self.field.returnPressed.connect(self._run)
        self.field.installEventFilter(self)
        self.list = QListWidget()
        self.list.setObjectName("boxed")
        self.list.setFont(font(Role.TEXT))
        self.list.setAccessibleName("Commands")
        self.list.setItemDelegate(_TwoColumns(self.list))
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.nothing = label("No matching actions. Try fewer letters.", words="dim", align=CENTRE)
        self.list.itemActivated.connect(lambda _item: self._run())
        self.list.itemClicked.connect(lambda _item: self._run())
        vbox(self.field, self.list, (self.nothing, 1), margins=12, parent=self)
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
                item = QListWidgetItem(choice.text)
                item.setData(Qt.ItemDataRole.UserRole, choice)
                item.setData(
                    Qt.ItemDataRole.AccessibleTextRole,
                    f"{choice.text}, {choice.detail}" if choice.detail else choice.text,
                )
                if not choice.enabled:
                    item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsEnabled)
                self.list.addItem(item)
        self.list.setCurrentRow(0)
        self.nothing.setVisible(self.list.count() == 0)
        self.list.setVisible(self.list.count() > 0)

    def _run(self) -> None:
        item = self.list.currentItem()
        if item is None or not item.flags() & Qt.ItemFlag.ItemIsEnabled:
            return
        choice: Choice = item.data(Qt.ItemDataRole.UserRole)
        self.accept()
        choice.run()
