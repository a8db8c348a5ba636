"""A layout whose widgets stand side by side and go on in the next line where the width ends, as words do. Main
thread."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QWidget

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
