"""Wall times of jobs as a table with bars on one scale of seconds. Main thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QContextMenuEvent, QPainter, QPen

from devexplorer.core.base import seconds_text
from devexplorer.gui.widgets import (
    Cell,
    Column,
    Figures,
    Index,
    Padded,
    RowsTable,
    TableRow,
    current_theme,
    device_pen,
    number_texts,
    numbers,
    offer_menu,
)

GROUP, NAME, BARS = 0, 1, 3
BAR_PX, WIDTHS = 16, [144, 150, 96, 100]


@dataclass(frozen=True)
class Bar:
    """One bar; those of a group are below each other."""

    group: str
    name: str
    seconds: float | None
    """None: not measured (yet)."""
    colour: int
    """Index into the palette."""
    simulated: bool = False
    jobs: int = 1
    """How many jobs, one after the other."""
    missing: str = "not measured"
    """Shown while there are no seconds."""

    @property
    def full_name(self) -> str:
        """With the word where it is simulated."""
        return f"{self.name}{' simulated' if self.simulated else ''}"


class BarCells(Padded):
    """Paints each bar as long as its time."""

    def __init__(self, table: WallBars) -> None:
        super().__init__(table)
        self._table = table

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        bar, box = self._table.bars[index.row()], self._table.box(index.row(), cell)
        pen = device_pen(bar.colour, simulated=bar.simulated)
        fill = pen.color()
        fill.setAlphaF(0.45 if bar.simulated else 1.0)
        painter.fillRect(box, fill)
        if box.width() and pen.style() != Qt.PenStyle.SolidLine:
            painter.setPen(pen)
            painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        painter.setPen(QPen(QColor(current_theme().panel), 2))
        for job in range(1, bar.jobs):  # the end of one is not measured: the marks only count the jobs
            x = box.left() + box.width() * job / bar.jobs
            painter.drawLine(QPointF(x, box.top()), QPointF(x, box.bottom()))
        return True


class WallBars(RowsTable):
    """Feed it with `set_bars`."""

    def __init__(self, *, grouped: bool = True) -> None:
        """Not `grouped`: all bars are of one group, which is named elsewhere."""
        columns = (Column("jobs"), Column("measured"), numbers("time"), Column(""))
        gives_up = (GROUP,) if grouped else ()
        super().__init__(columns, "Wall times", WIDTHS, gives_up=gives_up, named=(GROUP, NAME))
        self.setColumnHidden(GROUP, not grouped)
        self.setItemDelegateForColumn(BARS, BarCells(self))
        self.bars: tuple[Bar, ...] = ()

    def set_bars(self, bars: Sequence[Bar]) -> None:
        """Show these bars, from the top."""
        self.bars = tuple(bars)
        self.set_rows([self._row(number, bar) for number, bar in enumerate(bars)])
        self.viewport().update()  # one that is longer shortens the others

    def _row(self, number: int, bar: Bar) -> TableRow:
        is_first = number == 0 or self.bars[number - 1].group != bar.group
        time = Cell(bar.missing, "dim") if bar.seconds is None else Cell(seconds_text(bar.seconds))
        group = Cell(bar.group if is_first else "", "dim", bar.group)
        return TableRow(
            number, (group, Cell(bar.full_name, bar.colour, f"{bar.group}, {bar.full_name}"), time, Cell(""))
        )

    def box(self, number: int, cell: QRect) -> QRectF:
        """Where a bar is in its cell."""
        longest = max((bar.seconds or 0.0 for bar in self.bars), default=0.0) or 1.0
        width = (self.bars[number].seconds or 0.0) / longest * (cell.width() - BAR_PX)
        return QRectF(cell.left(), cell.center().y() - BAR_PX / 2 + 1, width, BAR_PX)

    def figures(self) -> Figures | None:
        """What it shows as numbers."""
        rows = [
            (bar.group, bar.full_name, str(bar.jobs), seconds)
            for bar, seconds in zip(self.bars, number_texts(bar.seconds for bar in self.bars), strict=True)
        ]
        return Figures(("Group", "Bar", "Jobs", "Wall time, s"), rows) if rows else None

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        offer_menu(self, event)
