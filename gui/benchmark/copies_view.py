"""What came out of a bandwidth run: the matrix of all pairs, and the curve over the size of one pair. Main thread."""

from __future__ import annotations

from functools import partial
from typing import Literal

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QStyleOptionViewItem,
    QWidget,
)

from devexplorer.core.base import MISSING, bytes_text, number_text
from devexplorer.core.records import BandwidthRow, BandwidthSpec
from devexplorer.core.session import Run, State
from devexplorer.gui.benchmark.copies import WRONG, Copies, Kind, latency_words, pair_text, rate_text, row_words
from devexplorer.gui.benchmark.runs import is_simulated, rows_of, state_cell
from devexplorer.gui.benchmark.summary import Summary
from devexplorer.gui.charts.size_curve import GB_UNITS, Series, SizeCurve
from devexplorer.gui.widgets import (
    EDGE_PX,
    Colour,
    ElidedLabel,
    Role,
    ScrollArea,
    font,
    hbox,
    holder,
    label,
    splitter,
    vbox,
)
from devexplorer.gui.widgets.form_fields import Choice
from devexplorer.gui.widgets.table import PAD_PX, Cell, Column, Padded, RowsModel, RowsTable, TableRow, numbers

NAME_PX, CELL_PX = 92, 70
LEAST_PX = 132
"""Height of matrix and curve; in less they are scrolled."""
LATENCY = "µs per copy"
QUANTITIES = (
    ("GB/s", "GB/s", "Decimal GB/s of data arrived"),
    (LATENCY, LATENCY, "Median time of one copy, from the call to its end"),
)


class _Badges(Padded):
    """Cells of the matrix; a rate whose data arrived wrong has a red frame."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        super().paint(painter, option, index)
        text = str(index.data())
        if not text.startswith(WRONG):
            return
        colour = index.data(Qt.ItemDataRole.ForegroundRole)
        width = QFontMetrics(font(Role.TEXT)).horizontalAdvance(text) + 12
        rect = option.rect
        box = QRectF(rect.right() - PAD_PX - width + 4.5, rect.top() + 3.5, width, rect.height() - 8)
        painter.save()
        painter.setPen(QPen(colour if isinstance(colour, QColor) else QColor("red"), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(box, 3, 3)
        painter.restore()


class CopiesView(QWidget):
    """Feed it with `set_runs`; `summary.changed` asks for that again."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._shown: tuple[object, ...] = ()
        self._copies = Copies(())
        self._run: Run | None = None
        self._spec: BandwidthSpec | None = None
        self.pair: tuple[str, str] | None = None
        """Source and destination of the curve."""
        self._picked = False
        """Whether the user has chosen the pair; until then it is the first that goes from one device to another."""
        self.summary = Summary("The run on show")
        self.model = RowsModel(())
        self.table = RowsTable(self.model, "Every pair: rows are sources, columns destinations", [])
        self.table.selectionModel().currentChanged.connect(self._on_cell)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectItems)
        self.table.setItemDelegate(_Badges(self.table))
        self.table.horizontalHeader().setStretchLastSection(False)
        self.table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.note = ElidedLabel(Role.LABEL, "dim")
        """Which of the figures are simulated: a row of the matrix can hold both kinds."""
        self.quantity = Choice("What the matrix shows", QUANTITIES)
        self.bytes = Choice("Bytes per copy")
        self.how = Choice("Kind of copy")
        self.curve = SizeCurve("Bandwidth over the size of a copy", GB_UNITS)
        self._lay_out()
        for choice in (self.quantity, self.bytes, self.how):
            choice.currentIndexChanged.connect(self._draw)

    def _lay_out(self) -> None:
        bar = hbox(
            self.quantity, label("of", Role.LABEL, "dim"), self.bytes, self.how, None, margins=(EDGE_PX, 2, EDGE_PX, 2)
        )
        self.note.setContentsMargins(EDGE_PX, 0, EDGE_PX, 4)
        matrix = holder(vbox(bar, (self.table, 1), self.note, spacing=2))
        self.table.setMinimumHeight(LEAST_PX - 32)
        self.splitter = splitter(matrix, self.curve, stretches=(0, 1))
        self.curve.setMinimumSize(220, LEAST_PX)
        area = ScrollArea(self.splitter, sideways=True)  # in a low tab the matrix would be a header and no row
        area.setMinimumHeight(56)
        matrix.setMinimumWidth(300)
        hbox(self.summary, (area, 1), spacing=0, parent=self)

    def _split(self, columns: int) -> None:
        """The matrix gets what it needs, three fifths at most; the curve the rest."""
        needed, room = NAME_PX + columns * CELL_PX + 16, max(self.splitter.width(), 700)
        matrix = max(min(needed, round(0.6 * room)), 330)
        self.splitter.setSizes([matrix, max(room - matrix, 220)])

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._spec is not None:
            self._split(len(self._spec.destinations))

    def choose(self, source: str, destination: str) -> None:
        """Show the curve of this pair, and its cell as the current one."""
        self.pair, self._picked = (source, destination), True
        if self._run is not None:
            self._draw()

    def set_runs(self, runs: list[Run]) -> None:
        """Offer these (at least one), the newest first, and show the chosen one as far as it has come."""
        run = self.summary.offer(runs)
        assert isinstance(run.spec, BandwidthSpec)
        rows = rows_of(run)
        shown = (run.run, len(rows), run.ended)
        if shown != self._shown:
            if self._run is None or run.run != self._run.run:
                self._begin(run.spec)
            self._shown, self._run, self._spec = shown, run, run.spec
            self._copies = Copies(rows)
            self._offer_kinds(run.spec)
            if not self._picked and rows:
                first = next((row for row in rows if row.source != row.destination), rows[0])
                self.pair = (first.source, first.destination)
            self._draw()
        self._tell(run)

    def _begin(self, spec: BandwidthSpec) -> None:
        """Another run: its columns, its sizes, the largest first."""
        columns = [Column("from ↓  to →"), *(numbers(name) for name in spec.destinations)]
        self.model.set_columns(columns)
        for number in range(len(spec.destinations) + 1):
            self.table.setColumnWidth(number, CELL_PX if number else NAME_PX)
        self._split(len(spec.destinations))
        self.bytes.offer((size, bytes_text(size, 0), "") for size in sorted(spec.sizes, reverse=True))
        pairs = (*spec.sources, *spec.destinations)
        if self.pair is not None and not set(self.pair) <= set(pairs):
            self.pair, self._picked = None, False
        self._offer_kinds(spec)

    def _offer_kinds(self, spec: BandwidthSpec) -> None:
        with_host = "cpu" in (*spec.sources, *spec.destinations) and len({*spec.sources, *spec.destinations}) > 1
        kinds = [Kind(pinned) for pinned in sorted(spec.pinned, reverse=True)] if with_host else [Kind()]
        kinds += [Kind(both_ways=True)] if spec.both_ways else []
        self.how.offer((kind, kind.words if with_host or kind.both_ways else "one way", "") for kind in kinds)
        self.how.setVisible(len(kinds) > 1)

    @property
    def _kind(self) -> Kind:
        return self.how.value or Kind()

    def _draw(self) -> None:
        spec, latency = self._spec, self.quantity.value == LATENCY
        if self._run is None or spec is None:
            return
        size, kind = int(self.bytes.value or 0), self._kind
        rows = []
        for source in spec.sources:
            result = [
                (destination, self._copies.find(source, destination, size, kind)) for destination in spec.destinations
            ]
            cells = [self._cell(row, source, destination, latency=latency) for destination, row in result]
            rows.append(TableRow(source, (Cell(source, self._colour(source)), *cells)))
        self.model.set_rows(rows)
        self.note.set_full_text(self._copies.simulated_words)
        self.note.setVisible(bool(self.note.full_text))
        self._draw_curve()
        self._tell(self._run)

    def _cell(self, row: BandwidthRow | None, source: str, destination: str, *, latency: bool) -> Cell:
        text = rate_text(row, latency=latency)
        colour: Colour | Literal[""] = "error" if text.startswith(WRONG) else "dim" if text == MISSING else ""
        words = row_words(row, source, destination)
        if text.startswith(WRONG) and row is not None:
            words += "\n" + self._copies.route_words(source, destination, row.bytes)
        return Cell(text, colour, words)

    def _colour(self, name: str) -> int:
        return self._state.look_of(name)[0]

    def _draw_curve(self) -> None:
        if self.pair is None:
            self.curve.set_curves(())
            return
        source, destination = self.pair
        colour = self._colour(source if destination == "cpu" else destination)
        host = (source == "cpu") != (destination == "cpu")
        kinds = [Kind(), *([Kind(pinned=False)] if host else []), Kind(both_ways=True)]
        series = []
        for kind in kinds:
            points = self._copies.curve(source, destination, kind)
            if not points:
                continue
            rows = [self._copies.find(source, destination, int(point[0]), kind) for point in points]
            simulated = any(row.simulated for row in rows if row is not None)
            name = kind.words if host or kind.both_ways else "one way"
            mark = "square" if kind.both_ways else "" if kind.pinned else "ring"
            series.append(Series(name, colour, points, simulated, mark))
        sizes = self._spec.sizes if self._spec is not None else ()
        between = (float(min(sizes)), float(max(sizes))) if len(sizes) > 1 else None
        self.curve.set_axis("", partial(bytes_text, digits=0), pair_text(source, destination), between)
        self.curve.set_curves(series)

    def _on_cell(self, current: QModelIndex, _previous: QModelIndex) -> None:
        if self._run is None or self._spec is None or not current.isValid() or current.column() == 0:
            return
        self.pair = (self._spec.sources[current.row()], self._spec.destinations[current.column() - 1])
        self._picked = True
        self._draw_curve()
        self._tell(self._run)

    def _tell(self, run: Run) -> None:
        """The chosen pair in words; what arrived wrong anywhere comes first."""
        rows = self._copies.rows
        state = state_cell(run)
        missing = sum(row.gb_per_s is None for row in rows)
        self.summary.explain(row.reason for row in rows if row.gb_per_s is None)
        facts = ["1 copy" if len(rows) == 1 else f"{len(rows):,} copies", f"{missing} not measured" if missing else ""]
        wrong = self._copies.wrong()
        if self.pair is None:
            facts += ["simulated"] if is_simulated(run, self._state) else []
            self.summary.say(
                "Nothing is measured yet." if not run.ended else "Nothing was measured.", "", state, *facts
            )
            return
        source, destination = self.pair
        size, kind = int(self.bytes.value or 0), self._kind
        row = self._copies.find(source, destination, size, kind)
        is_model = (
            is_simulated(run, self._state) if row is None else row.simulated
        )  # a copy on the host beside virtual GPUs is measured
        facts += ["simulated"] if is_model else []
        warning = ""
        if self._copies.is_wrong(source, destination):
            warning = (
                f"✕ What arrived differs from what was sent. {self._copies.route_words(source, destination, size)}"
            )
        elif wrong:
            warning = (
                "✕ Data arrives wrong:"
                f" {', '.join(pair_text(*pair) for pair in wrong[:3])}{', …' if len(wrong) > 3 else ''}"
            )
        smallest = [
            (float(size), result)
            for size in self._copies.sizes
            if (result := self._copies.find(source, destination, size, kind))
        ]
        if row is None or row.gb_per_s is None:
            headline = f"{pair_text(source, destination)}: not measured"
            words = row.reason or "" if row is not None else ""
        else:
            headline = f"{pair_text(source, destination)}: {number_text(row.gb_per_s.median)} GB/s"
            checked = "Equal bit by bit." if row.verified else "" if row.verified is False else "Not compared."
            words = " ".join(filter(None, [f"Copies of {bytes_text(row.bytes, 0)}.", latency_words(smallest), checked]))
        self.summary.say(headline, words, state, *facts, warning=warning)
