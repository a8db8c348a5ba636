"""The view of a fleet's grid: paints the cells that are seen, folds and unfolds, sorts by a click on a heading. Main
thread only."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPainter, QPolygonF
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from devexplorer.gui.fleet.model import (
    AGE,
    CARD,
    CHECK,
    COLUMNS,
    GIVES_UP,
    MODEL,
    SPARKS,
    STATE,
    THROTTLED,
    WIDTHS,
    FleetModel,
)
from devexplorer.gui.widgets import LEFT, PAD_PX, RIGHT, Role, RowsTable, current_theme, draw_text, text_width

INDENT_PX, SPARK_PX, BAR_PX, GAP_PX = 16, 44, 4, 6
POINTS = 40
"""Of a curve: each is the mean of three bins."""


class CellPainter(QStyledItemDelegate):
    """One for all cells; asks the model, never the style."""

    def __init__(self, model: FleetModel, view: FleetGrid) -> None:
        super().__init__(view)
        self._model = model
        self._curves: dict[tuple[int, int, int], QPolygonF] = {}
        self._bin = -1

    def forget(self) -> None:
        """Another fleet, or other cards: no curve is right any more."""
        self._curves.clear()

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        model, column, rect = self._model, index.column(), QRect(option.rect)
        row = model.row_at(index.row())
        theme = current_theme()
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, QColor(theme.selection))
        elif row < 0:
            painter.fillRect(rect, QColor(theme.card))
        cell = model.cell(row, column)
        left = rect.left() + (PAD_PX if column == CARD else 0)
        if column == CARD and row >= 0 and model.arrangement.by != "nothing":
            left += INDENT_PX
        room = rect.right() - PAD_PX - left
        if row >= 0 and column in SPARKS:
            self._paint_curve(painter, rect, row, column, cell.tone == "dim")
        if not math.isnan(cell.share):
            self._paint_bar(painter, rect, cell.share, cell.tone == "dim")
        if not cell.text:
            return
        if cell.alarmed:
            sign = QRect(rect.left() + 2, rect.top(), PAD_PX, rect.height())
            draw_text(painter, sign, "✕", "error")
        raised = 3 if not math.isnan(cell.share) else 0
        where = QRect(left, rect.top() - raised, room, rect.height())
        if cell.mark:
            where.setWidth(room - text_width(cell.mark) - GAP_PX)  # the mark stays whole
        role = Role.STRONG if row < 0 and column == CARD else Role.TEXT
        taken = draw_text(painter, where, cell.text, cell.tone, role, RIGHT if COLUMNS[column].is_number else LEFT)
        if cell.mark:
            beside = QRect(left + taken + GAP_PX, rect.top(), room - taken - GAP_PX, rect.height())
            draw_text(painter, beside, cell.mark, "dim")

    def _paint_bar(self, painter: QPainter, cell: QRect, share: float, dim: bool) -> None:
        theme = current_theme()
        whole = QRectF(cell.left() + 8, cell.bottom() - BAR_PX - 1, cell.width() - 8 - PAD_PX, BAR_PX - 1)
        painter.fillRect(whole, QColor(theme.bar_free))
        filled = QRectF(whole)
        filled.setWidth(whole.width() * min(max(share, 0.0), 1.0))
        painter.fillRect(filled, QColor(theme.bar_context if dim else theme.bar_other))

    def _paint_curve(self, painter: QPainter, cell: QRect, row: int, column: int, dim: bool) -> None:
        table = self._model.fleet.table
        if table.bin != self._bin:
            self._bin = table.bin
            self._curves.clear()
        key = (row, column, cell.height())
        curve = self._curves.get(key)
        if curve is None:
            name, low, high = SPARKS[column]
            curve = self._curves[key] = _curve(table.history(row, name), low, high, cell.height() - 8)
        if curve.isEmpty():
            return
        painter.setPen(QColor(current_theme().border_strong if dim else current_theme().bar_other))
        painter.translate(cell.left() + 8, cell.top() + 4)
        painter.drawPolyline(curve)
        painter.translate(-cell.left() - 8, -cell.top() - 4)


def _curve(values: npt.NDArray[np.float32], low: float, high: float, height: int) -> QPolygonF:
    parts = values.reshape(POINTS, -1)
    known = ~np.isnan(parts)
    counts = known.sum(axis=1)
    means = np.where(known, parts, 0).sum(axis=1) / np.maximum(counts, 1)
    xs = np.flatnonzero(counts)
    ys = height * (1 - np.clip((means[xs] - low) / (high - low), 0, 1))
    step = SPARK_PX / (POINTS - 1)
    return QPolygonF([QPointF(x * step, y) for x, y in zip(xs.tolist(), ys.tolist(), strict=True)])


class FleetGrid(RowsTable):
    """Shows a `FleetModel`; keeps what is selected through every change of the order."""

    chosen = Signal(object)
    """Another line is selected: its key; None: none is."""

    def __init__(self, model: FleetModel) -> None:
        super().__init__(model, "Cards of the fleet", WIDTHS, stretched=CHECK, gives_up=GIVES_UP, named=(MODEL, CARD))
        self._fleet = model
        self._key: object = None
        self._following = False
        """What is selected stays; only its line is another."""
        self._painter = CellPainter(model, self)
        self.setItemDelegate(self._painter)
        header = self.horizontalHeader()
        header.setSectionsClickable(True)
        header.sectionClicked.connect(self._sort_by)
        self.selectionModel().currentRowChanged.connect(self._moved)

    @property
    def key(self) -> object:
        """What is selected: a card (machine, device), the name of a group, or None."""
        return self._key

    @property
    def seen(self) -> tuple[int, int]:
        """First and last line shown."""
        first, last = self.rowAt(0), self.rowAt(self.viewport().height() - 1)
        return max(first, 0), last if last >= 0 else len(self._fleet.arrangement.lines) - 1

    def choose(self, key: object) -> None:
        """Select this, and have it in sight; a group that hides it is unfolded."""
        self._key = key
        if key is not None:
            self._fleet.reveal(key)
        self._follow(scroll=True)
        self.chosen.emit(key)

    def refresh(self) -> None:
        """There are new readings."""
        self._fleet.refresh(*self.seen)
        self._follow()

    def arranged(self) -> None:
        """The lines are in another order: the selection stays with what it was on."""
        self._painter.forget()
        self._follow(scroll=True)
        self.viewport().update()

    def _follow(self, *, scroll: bool = False) -> None:
        line = -1 if self._key is None else self._fleet.line_of(self._key)
        if line < 0 or line >= self._fleet.rowCount():
            self._following = True
            self.clearSelection()
            self.setCurrentIndex(QModelIndex())
            self._following = False
            return
        if line != self.currentIndex().row() or not self.selectionModel().hasSelection():
            selection = self.selectionModel()
            self._following = True
            selection.setCurrentIndex(
                self._fleet.index(line, 0), selection.SelectionFlag.ClearAndSelect | selection.SelectionFlag.Rows
            )
            self._following = False
        if scroll:
            self.scrollTo(self._fleet.index(line, 0))

    def _moved(self, current: QModelIndex) -> None:
        if not self._following and current.isValid() and current.row() < len(self._fleet.arrangement.lines):
            self._key = self._fleet.key_at(current.row())
            self.chosen.emit(self._key)

    # --- folding and sorting

    def fold(self, line: int, *, open_it: bool | None = None) -> bool:
        """Fold or unfold the heading there; False: there is none, or it is so already."""
        group = self._fleet.group_at(line) if 0 <= line < len(self._fleet.arrangement.lines) else None
        if group is None or open_it is group.open:
            return False
        self._fleet.toggle(group.name)
        self.arranged()
        return True

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        index = self.indexAt(event.position().toPoint())
        if event.button() == Qt.MouseButton.LeftButton and index.isValid() and index.column() == CARD:
            self.fold(index.row())

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        super().mouseDoubleClickEvent(event)
        index = self.indexAt(event.position().toPoint())
        if index.isValid() and index.column() != CARD:
            self.fold(index.row())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        line = self.currentIndex().row()
        if event.text() == "/":  # no search by the first letter: the filter of the page
            event.ignore()
            return
        match event.key():
            case Qt.Key.Key_Left if self.fold(line, open_it=False):
                return
            case Qt.Key.Key_Right if self.fold(line, open_it=True):
                return
            case Qt.Key.Key_Left if self._to_heading(line):
                return
            case Qt.Key.Key_Return | Qt.Key.Key_Enter if self.fold(line):
                return
        super().keyPressEvent(event)

    def _to_heading(self, line: int) -> bool:
        """From a card to its group."""
        if line < 0 or self._fleet.arrangement.by == "nothing":
            return False
        while line > 0 and self._fleet.group_at(line) is None:
            line -= 1
        self.selectRow(line)
        return True

    def _sort_by(self, column: int) -> None:
        """Numbers the largest first, verdicts the worst first; then the other way round; then as the cards came."""
        model = self._fleet
        down = column in (STATE, THROTTLED) or (COLUMNS[column].is_number and column != AGE)
        if model.column != column:
            model.order_by(column, descending=down)
        elif model.arrangement.descending == down:
            model.order_by(column, descending=not down)
        else:
            model.order_by(None)
        header = self.horizontalHeader()
        header.setSortIndicatorShown(model.column is not None)
        if model.column is not None:
            order = Qt.SortOrder.DescendingOrder if model.arrangement.descending else Qt.SortOrder.AscendingOrder
            header.setSortIndicator(model.column, order)
        self.arranged()
