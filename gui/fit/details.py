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
from devexplorer.core.planner.messages import step_text
from devexplorer.core.planner.records import Fit, FitReport, Help
from devexplorer.gui.charts.shades import STEPS, ramp
from devexplorer.gui.fit.rows import (
    BATCH,
    CAPACITY,
    CARD,
    COLUMNS,
    ENERGY,
    FITS,
    MEMORY,
    PARTS,
    RATE,
    STEP,
    TOTAL,
    as_tools_say,
    batch_and_step,
    sizes,
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
_WIDTHS = (204, 110, 68, 56, 58, 88, 118, 124, 126)
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
        super().__init__(COLUMNS, "Cards", _WIDTHS, stretched=MEMORY, gives_up=_GIVES_UP, named=(CARD,))


USABLE = ("bfloat16", "autocast", "checkpointing", "sgd", "half-batch", "two-cards")
"""Helps that the form can be set to."""
USE = "Set the form to this and plan again"
UNTRIED = "Not calculated (time limit reached):"
NOTHING_HELPS = "Nothing was found that would make it noticeably smaller."
_BATCH = 2


class HelpLine:
    """The widgets of one help, in a row of the grid."""

    def __init__(self, found: Help, use: Callable[[Help], object]) -> None:
        self.title = ElidedLabel()
        self.title.set_full_text(found.title)
        mark, words = ("✓", "") if found.fits else ("✕", "error")
        self.takes = label(f"{mark} {bytes_text(found.total_bytes)}", words=words, align=RIGHT)
        batch = MISSING if found.largest_batch is None else f"{found.largest_batch:,}"
        self.batch = label(batch, words="soft", align=RIGHT)
        self.button = push_button("Use", lambda _checked: use(found), look="quiet", tip=USE, name=f"Use: {found.title}")
        self.button.setVisible(found.key in USABLE)
        tip = found.words
        if found.step_seconds is not None:
            tip += f" A step would take {step_text(found)} (simulated)."
        for text in (self.title, self.takes, self.batch):
            text.setToolTip(tip)
        self.widgets: tuple[QWidget, ...] = (self.title, self.takes, self.batch, self.button)
        """From left to right."""


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
        self._heads = (
            label("What would help", Role.STRONG),
            _head("takes (simulated)", "On the fullest card, simulated; ✓: it would fit"),
            _head("batch", "The largest batch that would fit"),
        )
        self._grid = grid(10, 0, self)
        self._grid.setColumnStretch(0, 1)
        for column, head in enumerate(self._heads):
            self._grid.addWidget(head, 0, column)
        self._grid.addWidget(self.nothing, 1, 0, 1, 4)
        self._grid.addWidget(self.ask_button, 2, 0, 1, 4, Qt.AlignmentFlag.AlignLeft)

    def show_helps(self, asked: FitReport | None) -> None:
        """Show those of a report; None before the question was asked."""
        for line in self.lines:
            for widget in line.widgets:
                widget.hide()
                widget.deleteLater()
        self.lines = []
        if asked is not None:
            self.lines = [HelpLine(found, self.use_requested.emit) for found in asked.helps]
            untried = f"{UNTRIED} {', '.join(asked.untried)}."
            self.nothing.setText(untried if asked.untried else NOTHING_HELPS)
        for row, line in enumerate(self.lines, 3):
            for column, widget in enumerate(line.widgets):
                self._grid.addWidget(widget, row, column)
        self.nothing.setVisible(asked is not None and (not asked.helps or bool(asked.untried)))
        self.ask_button.setVisible(asked is None)
        self.set_narrow(self._narrow)
        self.set_ready(self._ready)

    def set_narrow(self, narrow: bool) -> None:
        """Whether there is no room for the largest batches; the tips have them."""
        self._narrow = narrow
        for column, head in enumerate(self._heads):
            head.setVisible(bool(self.lines) and not (narrow and column == _BATCH))
        for line in self.lines:
            line.batch.setHidden(narrow)

    def set_ready(self, ready: bool) -> None:
        """Whether a plan can be asked for now."""
        self._ready = ready
        for button in (self.ask_button, *(line.button for line in self.lines)):
            button.setEnabled(ready)


PEAK_TIP = "At the moment when most is allocated, often when backward begins: then there is hardly a gradient"
REST_TIP = "After the step, until the next one"
LEAST_PX = 300
BESIDE_FROM_PX = 680
"""From this width on what would help is beside the parts."""
TWO_COLUMNS_FROM_PX = 400
"""In two columns there is no room for the memory at rest, which is in the tips then."""
REST_FROM_PX = 340
"""Nor in one that is narrower than this, and what would help says no batches there."""
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
        self.numbers: dict[str, QLabel] = {}
        """At the peak."""
        self.rests: dict[str, QLabel] = {}
        """At rest."""
        self._widgets: dict[str, tuple[QWidget, ...]] = {}
        for part in PARTS:
            number, rest = label(selectable=True, align=RIGHT), label(words="soft", selectable=True, align=RIGHT)
            self.numbers[part.key], self.rests[part.key] = number, rest
            self._widgets[part.key] = Swatch(part.key), label(part.name, words="soft", tip=part.meaning), number, rest
        self.heads = _head("at the peak", PEAK_TIP), _head("at rest", REST_TIP)
        for column, head in enumerate(self.heads, 2):
            self._grid.addWidget(head, 0, column)
        self._shown: list[str] = []
        self._arranged: tuple[list[str], int, bool] | None = None
        self._columns, self._with_rest = 2, False

    def show_fit(self, fit: Fit) -> None:
        """The numbers of this card, or of all of them together."""
        self._shown = []
        for part in PARTS:
            peak, rest = getattr(fit.bytes, part.key), getattr(fit.rest, part.key)
            if peak or rest:
                self._shown.append(part.key)
            tip = [f"{peak:,} bytes at the peak, simulated"]
            if fit.rest.total:
                tip.append(f"{rest:,} bytes at rest, simulated")
            said = (
                (self.numbers[part.key], fit.bytes, peak, "at the peak"),
                (self.rests[part.key], fit.rest, rest, "at rest"),
            )
            for number, moment, size, when in said:
                text = bytes_text(size) if moment.total else MISSING
                number.setText(text)
                number.setToolTip("\n".join(tip))
                number.setAccessibleName(f"{part.name} {when}: {text}, simulated")
        self._arrange()

    def set_columns(self, columns: int, *, with_rest: bool) -> None:
        """How many parts are side by side, and whether what stays at rest is beside each."""
        self._columns, self._with_rest = columns, with_rest
        self._arrange()

    def _arrange(self) -> None:
        arranged = self._shown, self._columns, self._with_rest
        if arranged == self._arranged:
            return
        self._arranged = arranged
        for widgets in self._widgets.values():
            for widget in widgets:
                self._grid.removeWidget(widget)
                widget.setParent(self)  # the layout has let go of it
                widget.hide()
        rows = -(-len(self._shown) // self._columns)
        for index, key in enumerate(self._shown):
            column, row = divmod(index, rows)
            for offset, widget in enumerate(self._widgets[key]):
                self._grid.addWidget(widget, row + 1, _WIDTH * column + offset)
                if self._with_rest or widget is not self.rests[key]:
                    widget.show()
        for head in self.heads:
            head.setVisible(self._with_rest)
        both = self._columns == 2 and len(self._shown) > rows
        self._grid.setColumnStretch(1, 1)
        self._grid.setColumnMinimumWidth(_WIDTH - 1, 8 if both else 0)
        self._grid.setColumnStretch(_WIDTH + 1, int(both))


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
        columns = 1 if beside or event.size().width() < TWO_COLUMNS_FROM_PX else 2
        self.helps.set_narrow(event.size().width() < REST_FROM_PX)
        self.parts.set_columns(columns, with_rest=columns == 1 and event.size().width() >= REST_FROM_PX)
