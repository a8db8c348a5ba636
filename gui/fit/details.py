"""What a plan says about one card: its parts with their bytes, what would help, what the figures rest on. Main thread.

Low and narrow at first, so the parts are in two columns, and what would help right below them; where there is room,
beside them, and the parts have what stays at rest beside what they take at the peak.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QWidget

from devexplorer.core.base import MISSING, bytes_text
from devexplorer.core.planner.records import Fit, FitReport, Help
from devexplorer.gui.fit.bars import Swatch
from devexplorer.gui.fit.rows import (
    AT_PEAK,
    AT_REST,
    PARTS,
    PEAK_TIP,
    REST_TIP,
    MemoryPart,
    as_tools_say,
    batch_and_step,
    sizes,
    step_range,
    verdict,
)
from devexplorer.gui.widgets import (
    EDGE_PX,
    RIGHT,
    ElidedLabel,
    Role,
    ScrollArea,
    grid,
    label,
    lay_out,
    push_button,
    put_in_order,
    vbox,
)

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
        self.helps.setVisible(report.spec.serving is None)
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
