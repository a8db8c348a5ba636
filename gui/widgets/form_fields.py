"""What forms are made of: fields with names, and choices, in as many lines as they need. Main thread."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QIcon, QKeyEvent
from PySide6.QtWidgets import QApplication, QComboBox, QLayout, QLayoutItem, QLineEdit, QMenu, QSizePolicy, QWidget

from devexplorer.gui.widgets.icons import icon
from devexplorer.gui.widgets.layouts import hbox, holder, line_edit
from devexplorer.gui.widgets.panel import EDGE_PX, label
from devexplorer.gui.widgets.theme import Role, current_theme, theme_changed

GAP_PX = 8
"""Between two widgets and between two lines."""


class WrappingLayout(QLayout):
    """Lines of widgets, each in the middle of its line's height and as wide as it wants to be."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._items: list[QLayoutItem] = []
        self.setContentsMargins(0, 0, 0, 0)

    def addItem(self, item: QLayoutItem) -> None:
        self._items.append(item)

    def count(self) -> int:
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def expandingDirections(self) -> Qt.Orientation:
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        margins = self.contentsMargins()
        lines = self._lines(width - margins.left() - margins.right())
        gaps = GAP_PX * max(len(lines) - 1, 0)
        return sum(map(_height, lines)) + gaps + margins.top() + margins.bottom()

    def sizeHint(self) -> QSize:
        """All in one line."""
        items = [item for item in self._items if not item.isEmpty()]
        width = sum(item.sizeHint().width() for item in items) + GAP_PX * max(len(items) - 1, 0)
        return QSize(width, _height(items)).grownBy(self.contentsMargins())

    def minimumSize(self) -> QSize:
        """The widest alone in its line."""
        items = [item for item in self._items if not item.isEmpty()]
        width = max((item.sizeHint().width() for item in items), default=0)
        return QSize(width, _height(items)).grownBy(self.contentsMargins())

    def setGeometry(self, rect: QRect) -> None:
        super().setGeometry(rect)
        room = rect.marginsRemoved(self.contentsMargins())
        lines = self._lines(room.width())
        top = room.top() + max(0, rect.height() - self.heightForWidth(rect.width())) // 2
        for line in lines:
            left, height = room.left(), _height(line)
            for item in line:
                size = item.sizeHint()
                item.setGeometry(QRect(QPoint(left, top + (height - size.height()) // 2), size))
                left += size.width() + GAP_PX
            top += height + GAP_PX

    def _lines(self, width: int) -> list[list[QLayoutItem]]:
        lines: list[list[QLayoutItem]] = []
        used = 0
        for item in self._items:
            if item.isEmpty():
                continue
            needed = item.sizeHint().width()
            if lines and used + GAP_PX + needed <= width:
                lines[-1].append(item)
                used += GAP_PX + needed
            else:
                lines.append([item])
                used = needed
        return lines


def _height(items: list[QLayoutItem]) -> int:
    return max((item.sizeHint().height() for item in items), default=0)


class Choice(QComboBox):
    """A few values to choose from, each with a text and a meaning as its tooltip.

    The values are kept here: Qt would turn tuples into lists.
    """

    def __init__(self, name: str, items: Iterable[tuple[object, str, str]] = ()) -> None:
        """`items`: value, words, meaning."""
        super().__init__()
        self.setAccessibleName(name)
        self._values: list[object] = []
        self.offer(items)
        self.currentIndexChanged.connect(self._explain)

    def offer(self, items: Iterable[tuple[object, str, str]]) -> None:
        """Offer these from now on; what is chosen stays chosen if it is among them. Emits nothing."""
        offered = list(items)
        if [(self.itemText(index), self._values[index]) for index in range(self.count())] == [
            (words, value) for value, words, _ in offered
        ]:
            return
        kept = self.currentText()
        self.blockSignals(True)
        self.clear()
        self._values = [value for value, _, _ in offered]
        for index, (_, words, meaning) in enumerate(offered):
            self.addItem(words)
            self.setItemData(index, meaning or None, Qt.ItemDataRole.ToolTipRole)
        self.setCurrentIndex(max(self.findText(kept), 0))
        self.blockSignals(False)
        self._explain()

    @property
    def value(self) -> Any:
        """What is chosen; None where nothing is offered."""
        index = self.currentIndex()
        return self._values[index] if 0 <= index < len(self._values) else None

    def choose(self, value: object) -> None:
        """Choose the item with this value."""
        if value in self._values:
            self.setCurrentIndex(self._values.index(value))

    def _explain(self) -> None:
        self.setToolTip(self.currentData(Qt.ItemDataRole.ToolTipRole) or "")


class TypedChoice(QComboBox):
    """A list that can be typed into as well: a click anywhere opens it, and what is typed then replaces the text."""

    def __init__(self) -> None:
        super().__init__()
        self._line = line_edit()
        self.setLineEdit(self._line)
        for part in (self._line, self.view()):
            part.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        line = self._line
        if watched is line and event.type() == QEvent.Type.MouseButtonRelease:
            line.selectAll()
            self.showPopup()
        elif watched is not line and event.type() == QEvent.Type.KeyPress and _types(event):
            self.hidePopup()
            QApplication.sendEvent(line, event)
            return True
        return super().eventFilter(watched, event)


def _types(event: QEvent) -> bool:
    """Whether a key writes a character."""
    return isinstance(event, QKeyEvent) and bool(event.text().strip()) and event.text().isprintable()


class MenuEdit(QLineEdit):
    """A line to type in, or to fill from a menu."""

    def __init__(
        self, text: str, name: str, choices: Iterable[tuple[str, str]], width_px: int, placeholder: str = ""
    ) -> None:
        """`choices`: the text of each menu item, and what it fills in."""
        super().__init__(text, placeholderText=placeholder or name)
        self.setAcceptDrops(False)  # as those of `line_edit`
        self.setAccessibleName(name)
        self.setFixedWidth(width_px)
        self.menu = QMenu(self)
        """What the arrow opens."""
        self.offer(choices)
        self._show = self.addAction(QIcon(), QLineEdit.ActionPosition.TrailingPosition)
        self._draw_arrow()
        theme_changed.connect(self._draw_arrow)
        self._show.setText(f"Choose {name}")
        self.setCursorPosition(0)  # a long text is read from its beginning
        self._show.triggered.connect(lambda: self.menu.popup(self.mapToGlobal(self.rect().bottomLeft())))

    def offer(self, choices: Iterable[tuple[str, str]]) -> None:
        """Have these in the menu: the text of each item, and what it fills in."""
        self.menu.clear()
        for words, filled in choices:
            self.menu.addAction(words, functools.partial(self.fill, filled))

    def fill(self, text: str) -> None:
        """Have this text, seen from its beginning."""
        self.setText(text)
        self.setCursorPosition(0)

    def _draw_arrow(self) -> None:
        self._show.setIcon(icon("chevron", current_theme().dim))


class FormRow(QWidget):
    """The fields of a form, from left to right, in as many lines as they need."""

    def __init__(self) -> None:
        super().__init__()
        self.row = WrappingLayout(self)
        self.row.setContentsMargins(EDGE_PX, 0, 0, 0)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Minimum)

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest):  # a field was shown, or became wider
            self.setMinimumHeight(self.heightForWidth(self.width()))
        return done


def labelled(words: str, field: QWidget) -> QWidget:
    """A field behind its name; hidden and shown together."""
    name = label(words, Role.LABEL, "dim")
    name.setObjectName("name")
    name.setBuddy(field)
    return holder(hbox(name, field, spacing=6))
