"""What a plan says about one card: its parts with their bytes, what would help, what the figures rest on; and the table
of the cards, with their memory against the capacity as bars. Main thread.

The details are low and narrow at first, so the parts are in two columns, and what would help right below them; where
there is room, beside them, and the parts have what stays at rest beside what they take at the peak.

Colour means device, and these cards are no devices here: the parts are shades of one hue, apart by lightness and by a
gap.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from devexplorer.core.base import MISSING, bytes_text
from devexplorer.core.planner.records import Fit, FitReport, Help
from devexplorer.gui.charts.shades import STEPS, ramp
from devexplorer.gui.fit.rows import (
    AT_PEAK,
    AT_REST,
    BATCH,
    CAPACITY,
    CARD,
    COLUMNS,
    ENERGY,
    FITS,
    MEMORY,
    PARTS,
    PEAK_TIP,
    RATE,
    REST_TIP,
    STEP,
    TOTAL,
    MemoryPart,
    as_tools_say,
    batch_and_step,
    sizes,
    step_range,
    verdict,
)
from devexplorer.gui.widgets import (
    EDGE_PX,
    PAD_PX,
    RIGHT,
    ElidedLabel,
    Index,
    Padded,
    Role,
    RowsModel,
    RowsTable,
    ScrollArea,
    current_theme,
    draw_text,
    grid,
    label,
    lay_out,
    push_button,
    put_in_order,
    vbox,
)

BAR_PX, SWATCH_PX, WORDS_PX = 10, 10, 50
CAPACITY_AT = 0.72
"""Where in the bar the capacity is: what does not fit is drawn beyond it, as far as there is room."""
_SHADES = {
    "parameters": 1.0,
    "gradients": 0.82,
    "optimizer": 0.64,
    "kv_cache": 0.64,
    "activations": 0.46,
    "buffers": 0.3,
}
"""Part -> place in the ramp, falling from left to right; what is trained has no cache."""
_WIDTHS = {CARD: 204, MEMORY: 110, TOTAL: 68, CAPACITY: 56, FITS: 58, BATCH: 88, STEP: 118, RATE: 124, ENERGY: 126}
_GIVES_UP = (ENERGY, CAPACITY, RATE, STEP, BATCH, TOTAL, MEMORY, FITS)
"""The bar and the details show the card's memory."""


def part_colour(key: str) -> QColor:
    """The colour of a part; greys for what is not the model's."""
    if key in _SHADES:
        return ramp(0)[int(_SHADES[key] * (STEPS - 1))]
    return QColor(current_theme().bar_context if key == "context" else current_theme().bar_other)


def paint_bar(painter: QPainter, where: QRectF, fit: Fit) -> None:
    """The parts from left to right, the capacity as a line, what is beyond it hatched."""
    theme = current_theme()
    limit = where.left() + where.width() * CAPACITY_AT
    painter.fillRect(QRectF(where.left(), where.top(), limit - where.left(), where.height()), theme.bar_free)
    scale = where.width() * CAPACITY_AT / max(fit.capacity_bytes, 1)
    x = where.left()
    for part, size in sizes(fit.bytes):
        width = min(max(size * scale, 1.0), where.right() - x)
        if width <= 0:
            break
        gap = 1.0 if width > 3 else 0.0
        painter.fillRect(QRectF(x, where.top(), width - gap, where.height()), part_colour(part.key))
        x += width
    if x > limit and not fit.fits:
        excess = QRectF(limit, where.top(), x - limit, where.height())
        painter.fillRect(excess, QBrush(QColor(theme.error), Qt.BrushStyle.BDiagPattern))
    painter.setPen(QPen(QColor(theme.text if fit.fits else theme.error), 2))
    painter.drawLine(int(limit), int(where.top()) - 2, int(limit), int(where.bottom()) + 2)


class BarDelegate(Padded):
    """Paints the column of the bars; `find` gives the fit of a row by its key."""

    def __init__(self, model: RowsModel, find: Callable[[object], Fit | None]) -> None:
        super().__init__()
        self._model, self._find = model, find

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        fit = self._find(self._model.rows[index.row()].key)
        room = QRectF(cell).adjusted(PAD_PX - 3, 0, -PAD_PX, 0)
        if fit is not None and index.column() == MEMORY and fit.bytes.total:
            bar = QRectF(room.left(), room.center().y() - BAR_PX / 2, room.width() - WORDS_PX, BAR_PX)
            paint_bar(painter, bar, fit)
        draw_text(painter, room, str(index.data()), "dim", align=RIGHT)
        return True


class Swatch(QWidget):
    """The colour of a part, before its name."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(SWATCH_PX, SWATCH_PX)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), part_colour(self._key))
        painter.setPen(current_theme().border_strong)
        painter.drawRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5))  # inside at any factor
        painter.end()


class CardsTable(RowsTable):
    """A row for each card. What room is left goes to the names, as far as they need it, then to the bar."""

    def __init__(self) -> None:
        widths = [_WIDTHS[column] for column in range(len(COLUMNS))]
        super().__init__(COLUMNS, "Cards", widths, stretched=MEMORY, gives_up=_GIVES_UP, named=(CARD,))


USABLE = ("bfloat16", "autocast", "checkpointing", "sgd", "half-batch", "two-cards")
"""Helps that the form can be set to."""
USE = "Set the form to this and plan again"
UNTRIED = "Not calculated (time limit reached):"
NOTHING_HELPS = "Nothing was found that would make it noticeably smaller."
_TITLE, _TAKES, _BATCH, _USE = range(4)


class HelpLine:
    """The widgets of one help, in a row of the grid."""

    def __init__(self, found: Help, use: Callable[[Help], object]) -> None:
        self.title = ElidedLabel()
        self.title.set_full_text(found.title)
        self.takes = label(
            f"{'✓' if found.fits else '✕'} {bytes_text(found.total_bytes)}", words="" if found.fits else "error"
        )
        self.batch = label(MISSING if found.largest_batch is None else f"{found.largest_batch:,}", words="soft")
        self.button = push_button("Use", lambda _checked: use(found), look="quiet", tip=USE, name=f"Use: {found.title}")
        self.button.setVisible(found.key in USABLE)
        for number in (self.takes, self.batch):
            number.setAlignment(RIGHT)
        for text in (self.title, self.takes, self.batch):
            text.setToolTip(words_of(found))

    @property
    def widgets(self) -> tuple[QWidget, ...]:
        """From left to right."""
        return self.title, self.takes, self.batch, self.button


def words_of(found: Help) -> str:
    """The whole sentence, with the largest batch and the time of a step."""
    fits = "It would fit." if found.fits else "It would not fit even so."
    step = f" A step would take {step_range(found)} (simulated)." if found.step_seconds is not None else ""
    batch = "" if found.largest_batch is None else f" Largest batch: {found.largest_batch:,}."
    return f"{found.words.rstrip('.')}. {fits}{batch}{step}"


class HelpsView(QWidget):
    """`use_requested` carries a `Help` to try, `helps_requested` asks what would help."""

    use_requested = Signal(object)
    helps_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[HelpLine] = []
        self.ask_button = push_button("What would help on this card?", self.helps_requested)
        self.nothing = label(NOTHING_HELPS, words="dim", wrap=True)
        self._ready, self._narrow = True, False
        takes = _head("takes (simulated)", "On the fullest card, simulated; ✓: it would fit")
        batch = _head("batch", "The largest batch that would fit")
        self._heads = (label("What would help", Role.STRONG), takes, batch)
        self._grid = grid(10, 0, self)
        self._grid.setColumnStretch(_TITLE, 1)
        for column, head in enumerate(self._heads):
            self._grid.addWidget(head, 0, column)
        self._grid.addWidget(self.nothing, 1, 0, 1, 4)
        self._grid.addWidget(self.ask_button, 2, 0, 1, 4, Qt.AlignmentFlag.AlignLeft)

    def show_helps(self, asked: FitReport | None) -> None:
        """Show those of a report; None before the question was asked."""
        helps = None if asked is None else asked.helps
        for line in self.lines:
            for widget in line.widgets:
                widget.hide()
                widget.deleteLater()
        self.lines = [HelpLine(result, self.use_requested.emit) for result in helps or ()]
        for row, line in enumerate(self.lines, 3):
            for column, widget in enumerate(line.widgets):
                self._grid.addWidget(widget, row, column)
        self._show_columns()
        self.nothing.setVisible(asked is not None and (not asked.helps or bool(asked.untried)))
        self.nothing.setText(
            NOTHING_HELPS if asked is None or not asked.untried else f"{UNTRIED} {', '.join(asked.untried)}."
        )
        self.ask_button.setVisible(helps is None)
        self.set_ready(self._ready)

    def set_narrow(self, narrow: bool) -> None:
        """Whether there is no room for the largest batches; the tips have them."""
        if narrow != self._narrow:
            self._narrow = narrow
            self._show_columns()

    def _show_columns(self) -> None:
        for column, head in enumerate(self._heads):
            head.setVisible(bool(self.lines) and not (self._narrow and column == _BATCH))
        for line in self.lines:
            line.batch.setHidden(self._narrow)

    def set_ready(self, ready: bool) -> None:
        """Whether a plan can be asked for now."""
        self._ready = ready
        for button in (self.ask_button, *(line.button for line in self.lines)):
            button.setEnabled(ready)


LEAST_PX = 300
BESIDE_FROM_PX = 680
"""From this width on what would help is beside the parts."""
TWO_COLUMNS_FROM_PX = 400
"""In two columns there is no room for the memory at rest, which is in the tips then."""
REST_FROM_PX = 340
"""Nor in one that is narrower than this, and what would help says no batches there."""
_COLUMNS = 2
TOGETHER = "\u2060"
"""No line ends here: `samples/s` is one word."""
_WIDTH = 5
"""Columns of the grid for a column of parts: swatch, name, peak, rest, gap."""


class _Parts(QWidget):
    """A swatch, a name, and what it takes at the peak and at rest, for each part that takes anything, from top to
    bottom and then beside it."""

    def __init__(self) -> None:
        super().__init__()
        self._grid = grid(8, 3, self)
        self.swatches: dict[str, Swatch] = {}
        self.names: dict[str, QLabel] = {}
        self.numbers: dict[str, QLabel] = {}
        """At the peak."""
        self.rests: dict[str, QLabel] = {}
        """At rest."""
        for part in PARTS:
            name = label(part.name, words="soft", tip=part.meaning)
            number, rest = label(selectable=True, align=RIGHT), label(words="soft", selectable=True, align=RIGHT)
            self.swatches[part.key], self.names[part.key] = Swatch(part.key), name
            self.numbers[part.key], self.rests[part.key] = number, rest
        self.heads = [_head(AT_PEAK, PEAK_TIP), _head(AT_REST, REST_TIP)]
        for offset, head in enumerate(self.heads):
            self._grid.addWidget(head, 0, 2 + offset)
        self._shown: list[MemoryPart] = []
        self._columns = 0
        self._with_rest = False

    def show_fit(self, fit: Fit) -> None:
        """The numbers of this card, or of all of them together."""
        taking = {part.key for moment in (fit.bytes, fit.rest) for part, _ in sizes(moment)}
        for part in PARTS:
            said = [
                (getattr(moment, part.key) if moment.total else None, when)
                for moment, when in ((fit.bytes, AT_PEAK), (fit.rest, AT_REST))
            ]
            tip = "\n".join(f"{size:,} bytes {when}, simulated" for size, when in said if size is not None)
            for number, (size, when) in zip((self.numbers[part.key], self.rests[part.key]), said, strict=True):
                text = MISSING if size is None else bytes_text(size)
                number.setText(text)
                number.setToolTip(tip)
                number.setAccessibleName(f"{part.name} {when}: {text}, simulated")
        shown = [part for part in PARTS if part.key in taking]
        self._arrange(shown, self._columns or _COLUMNS, with_rest=self._with_rest)

    def set_columns(self, columns: int, *, with_rest: bool) -> None:
        """How many parts are side by side, and whether what stays at rest is beside each."""
        self._arrange(self._shown, columns, with_rest=with_rest)

    def _arrange(self, parts: list[MemoryPart], columns: int, *, with_rest: bool) -> None:
        if (parts, columns, with_rest) == (self._shown, self._columns, self._with_rest):
            return
        self._shown, self._columns, self._with_rest = parts, columns, with_rest
        for part in PARTS:
            for widget in self._widgets(part):
                self._grid.removeWidget(widget)
                widget.setParent(self)  # the layout has let go of it
                widget.setVisible(part in parts)
        rows = -(-len(parts) // columns)
        for index, part in enumerate(parts):
            column, row = divmod(index, rows)
            for offset, widget in enumerate(self._widgets(part)):
                self._grid.addWidget(widget, row + 1, _WIDTH * column + offset)
        for part in parts:
            self.rests[part.key].setVisible(with_rest)
        for head in self.heads:
            head.setVisible(with_rest)
        for column in range(_COLUMNS):
            used = column < columns and column * rows < len(parts)
            self._grid.setColumnStretch(_WIDTH * column + 1, int(used))
            self._grid.setColumnMinimumWidth(_WIDTH * column + 4, 8 if used and column + 1 < columns else 0)

    def _widgets(self, part: MemoryPart) -> tuple[QWidget, ...]:
        return self.swatches[part.key], self.names[part.key], self.numbers[part.key], self.rests[part.key]


def _head(words: str, meaning: str) -> QLabel:
    return label(words, Role.LABEL, "dim", tip=meaning, align=RIGHT)


class FitDetails(ScrollArea):
    """What is known of it, from its memory to what the figures rest on."""

    def __init__(self) -> None:
        super().__init__(name="The chosen card in detail, simulated")
        self.title = label(role=Role.STRONG, wrap=True)
        self.verdict = label(words="soft", wrap=True)
        self.batch = label(wrap=True, selectable=True)
        self.parts = _Parts()
        self.tools = label(words="dim", wrap=True, selectable=True)
        self.helps = HelpsView()
        self.rests_title = label("Assumptions", Role.STRONG)
        self.rests = label(role=Role.LABEL, words="dim", wrap=True)
        self._shown: tuple[Fit, FitReport | None, FitReport] | None = None
        self._lay_out()

    def _lay_out(self) -> None:
        left = vbox(self.title, self.verdict, self.batch, self.parts, None, spacing=4)
        right = vbox(self.helps, 4, self.tools, self.rests_title, self.rests, None, spacing=4)
        self._both = vbox((left, 2), (right, 3), spacing=4, margins=(EDGE_PX, 4, EDGE_PX, 8))
        self.set_content(self._both)
        self.setMinimumWidth(LEAST_PX)

    def show_fit(self, fit: Fit, report: FitReport, asked: FitReport | None) -> None:
        """Show a card of a report; `asked` is the one with what would help there, None before the question was
        asked."""
        shown = (fit, asked, report)
        if self._shown is not None and all(item is other for item, other in zip(shown, self._shown, strict=True)):
            return
        self._shown = shown
        self.title.setText(f"{fit.gpu}, simulated")
        self.verdict.setText(verdict(fit))
        self.batch.setText(batch_and_step(fit).replace("samples/", f"samples/{TOGETHER}"))
        self.batch.setVisible(bool(self.batch.text()))
        self.parts.show_fit(fit)
        self.tools.setText(as_tools_say(fit))
        self.tools.setVisible(bool(self.tools.text()))
        self.helps.show_helps(asked)
        self.helps.setVisible(report.spec.serving is None and not report.measured)
        if asked is not None and asked.helps:
            put_in_order(self)  # their buttons are new
        self.rests_title.setVisible(bool(report.assumptions))
        self.rests.setText("\n".join(f"• {item}" for item in report.assumptions))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        beside = event.size().width() >= BESIDE_FROM_PX
        lay_out(self._both, beside=beside)
        self._both.setSpacing(24 if beside else 4)
        columns = 1 if beside or event.size().width() < TWO_COLUMNS_FROM_PX else _COLUMNS
        self.helps.set_narrow(event.size().width() < REST_FROM_PX)
        self.parts.set_columns(columns, with_rest=columns == 1 and event.size().width() >= REST_FROM_PX)
