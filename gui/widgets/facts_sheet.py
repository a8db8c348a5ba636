"""Groups of facts in columns, like the face of an instrument. Main thread.

Painted, not built of labels: a hundred numbers that change twice a second stay one widget, the layout stays,
and only the rows that changed are painted. Rows are walked with the arrow keys; Ctrl+C copies a value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import (
    QFont,
    QFontMetrics,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QMenu, QScrollArea, QSizePolicy

from devexplorer.core.base import MISSING
from devexplorer.core.telemetry.fact_rows import Group, Row
from devexplorer.gui.widgets.layouts import RIGHT
from devexplorer.gui.widgets.panel import EDGE_PX
from devexplorer.gui.widgets.picture import Picture, draw_text, paint_focus, text_width
from devexplorer.gui.widgets.theme import Role, current_theme, font

ROW_PX, TITLE_PX, GROUP_GAP_PX, COLUMN_GAP_PX = 20, 24, 12, 32
LEAST_COLUMN_PX, MOST_COLUMN_PX = 264, 380
_UNIT = re.compile(r"(.*\d) ([^\d\s]+)")


class _Place(NamedTuple):
    """Where a row is."""

    group: int
    row: int
    box: QRect


class FactsSheet(Picture):
    """Shows the groups of the last `set_groups`. Its height follows from its width: put it into a scroll area that
    resizes it."""

    def __init__(self) -> None:
        super().__init__("Facts")
        self.groups: tuple[Group, ...] = ()
        """What is on show."""
        self._places: list[_Place] = []
        self._titles: list[QRect] = []
        self._current: int | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    @property
    def columns(self) -> int:
        """How many columns the groups are in."""
        return len({box.left() for box in self._titles})

    @property
    def current(self) -> Row | None:
        """The row that the keyboard is on."""
        return None if self._current is None else self._row(self._places[self._current])

    def set_groups(self, groups: tuple[Group, ...]) -> None:
        """Show `groups`. Where only values changed, only their rows are painted again."""
        if groups == self.groups:
            return
        old, self.groups = self.groups, groups
        if _shape(old) != _shape(groups):
            self._current = None
            self._lay_out()
            self.updateGeometry()
            self.update()
            return
        for place in self._places:
            if self._row(place) != old[place.group].rows[place.row]:
                self.update(place.box)

    def _row(self, place: _Place) -> Row:
        return self.groups[place.group].rows[place.row]

    # geometry

    def _lay_out(self) -> None:
        """Columns of about equal height, groups in reading order."""
        self._places, self._titles = [], []
        if not self.groups:
            return
        room = max(self.width() - 2 * EDGE_PX, LEAST_COLUMN_PX)
        most = max((room + COLUMN_GAP_PX) // (LEAST_COLUMN_PX + COLUMN_GAP_PX), 1)
        columns = in_columns([_height(group) for group in self.groups], most)
        width = min((room - (len(columns) - 1) * COLUMN_GAP_PX) // len(columns), MOST_COLUMN_PX)
        for index, numbers in enumerate(columns):
            left, top = EDGE_PX + index * (width + COLUMN_GAP_PX), 8
            for number in numbers:
                self._titles.append(QRect(left, top, width, TITLE_PX))
                top += TITLE_PX + 2
                for row in range(len(self.groups[number].rows)):
                    self._places.append(_Place(number, row, QRect(left, top, width, ROW_PX)))
                    top += ROW_PX
                top += GROUP_GAP_PX
        self.setMinimumHeight(max((place.box.bottom() for place in self._places), default=0) + 1 + 8)

    def resizeEvent(self, event: QResizeEvent) -> None:
        if event.size().width() != event.oldSize().width():
            self._lay_out()

    def sizeHint(self) -> QSize:
        return QSize(2 * EDGE_PX + LEAST_COLUMN_PX, self.minimumHeight())

    # painting

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        for number, box in enumerate(self._titles):
            if event.region().intersects(box):
                title = QRectF(box.adjusted(0, 0, 0, -4))
                draw_text(painter, title, self.groups[number].title, "text", Role.STRONG)
                painter.setPen(current_theme().border)
                painter.drawLine(box.left(), box.bottom() - 1, box.right(), box.bottom() - 1)
        for index, place in enumerate(self._places):
            if event.region().intersects(place.box):
                self._paint_row(painter, place.box, self._row(place), current=index == self._current)
        if self._current is None:
            paint_focus(painter, self)

    def _paint_row(self, painter: QPainter, box: QRect, row: Row, *, current: bool) -> None:
        theme = current_theme()
        if current:
            around = box.adjusted(-6, 0, 6, 0)
            painter.fillRect(around, theme.selection)
            if self.hasFocus():
                painter.setPen(theme.focus)
                painter.drawRect(around.adjusted(0, 0, -1, -1))
        value, unit, room = self._measure(box, row)
        name = box.adjusted(0, 0, -room - 12, 0)
        draw_text(painter, QRectF(name), row.label, "dim", Role.TEXT)
        right = QRect(box)
        if unit:
            draw_text(painter, QRectF(right), unit, "dim", Role.TEXT, RIGHT)
            right.setRight(right.right() - text_width(unit, Role.TEXT) - 4)
        medium = _value_font()
        painter.setFont(medium)
        painter.setPen(theme.warning if row.warning else theme.dim if row.value == MISSING else theme.text)
        shown = QFontMetrics(medium).elidedText(value, _elide(row), room - (box.right() - right.right()))
        painter.drawText(right, RIGHT, shown)

    def _measure(self, box: QRect, row: Row) -> tuple[str, str, int]:
        """The value without its unit, behind a sign if it is a warning; the unit; the pixels that both may take."""
        match = _UNIT.fullmatch(row.value)
        value, unit = match.groups() if match else (row.value, "")
        if row.warning:
            value = f"▲ {value}"
        wanted = QFontMetrics(_value_font()).horizontalAdvance(value) + (text_width(unit, Role.TEXT) + 4 if unit else 0)
        label = min(text_width(row.label, Role.TEXT) + 2, box.width() // 2)
        return value, unit, min(wanted + 1, box.width() - label - 12)

    # what can be asked and done

    def words_of(self, place: _Place) -> str:
        """The tooltip of a row: all of its value, what it means, why something is missing."""
        row = self._row(place)
        first = f"{row.label}: {row.value}"
        return "\n".join(part for part in (first, row.why and f"Not known: {row.why}", row.meaning) if part)

    def tip_at(self, point: QPointF) -> str:
        """All of the row's value, what it means, why something is missing; empty where there is no row."""
        index = self._at(point.toPoint())
        return "" if index is None else self.words_of(self._places[index])

    def _at(self, position: QPoint) -> int | None:
        return next(
            (index for index, place in enumerate(self._places) if place.box.adjusted(-6, 0, 6, 0).contains(position)),
            None,
        )

    def _go_to(self, at: int | None) -> None:
        for old in (self._current, at):
            if old is not None:
                self.update(self._places[old].box.adjusted(-6, 0, 6, 0))
        self._current = at
        self.setAccessibleDescription("" if at is None else self.words_of(self._places[at]).replace("\n", ". "))

    def copy_value(self) -> None:
        """Put the current row's value on the clipboard."""
        if self.current is not None:
            QGuiApplication.clipboard().setText(self.current.value)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._go_to(self._at(event.position().toPoint()))
        if event.button() == Qt.MouseButton.RightButton and self._current is not None:
            menu = QMenu(self)
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            menu.addAction("Copy value", self.copy_value)
            menu.popup(event.globalPosition().toPoint())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        last = len(self._places) - 1
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_value()
        elif event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Up) and last >= 0:
            step = 1 if event.key() == Qt.Key.Key_Down else -1
            self._go_to(0 if self._current is None else min(max(self._current + step, 0), last))
            self._show_current()
        else:
            super().keyPressEvent(event)

    def _show_current(self) -> None:
        """Scroll to the current row, when a scroll area is round this."""
        viewport = self.parentWidget()
        area = viewport.parentWidget() if viewport is not None else None
        if self._current is not None and isinstance(area, QScrollArea):
            centre = self._places[self._current].box.center()
            area.ensureVisible(centre.x(), centre.y(), LEAST_COLUMN_PX // 2, 2 * ROW_PX)

    def focusInEvent(self, event: object) -> None:
        self.update()

    def focusOutEvent(self, event: object) -> None:
        self.update()


def _value_font() -> QFont:
    chosen = font(Role.TEXT)
    chosen.setWeight(QFont.Weight.Medium)
    return chosen


def _elide(row: Row) -> Qt.TextElideMode:
    """Long identifiers differ at their end."""
    return Qt.TextElideMode.ElideRight if " " in row.value else Qt.TextElideMode.ElideMiddle


def _shape(groups: tuple[Group, ...]) -> list[tuple[str, list[str]]]:
    return [(group.title, [row.label for row in group.rows]) for group in groups]


def _height(group: Group) -> int:
    return TITLE_PX + 2 + len(group.rows) * ROW_PX + GROUP_GAP_PX


def in_columns(heights: Sequence[int], most: int) -> list[list[int]]:
    """The numbers of the groups in at most `most` columns, in order, so that the highest column is as low as can be.

    >>> in_columns([3, 1, 1, 1], 2)
    [[0], [1, 2, 3]]
    """

    def filled(limit: int) -> list[list[int]]:
        columns: list[list[int]] = [[]]
        for number, height in enumerate(heights):
            if columns[-1] and sum(heights[other] for other in columns[-1]) + height > limit:
                columns.append([])
            columns[-1].append(number)
        return columns

    low, high = max(heights, default=0), sum(heights)
    while low < high:
        middle = (low + high) // 2
        if len(filled(middle)) <= most:
            high = middle
        else:
            low = middle + 1
    return filled(low)
