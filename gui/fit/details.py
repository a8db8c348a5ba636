"""What a plan says about one card: its parts with their bytes, what would help, what the figures rest on. Main thread.

Low and narrow at first, so the parts are in two columns, and what would help right below them; where there is room,
beside them, and the parts have what stays at rest beside what they take at the peak.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QLabel, QVBoxLayout, QWidget

from devexplorer.core.base import MISSING, bytes_text
from devexplorer.core.records import Fit, FitReport
from devexplorer.gui.fit.bars import Swatch
from devexplorer.gui.fit.helps import HelpsView
from devexplorer.gui.fit.rows import (
    AT_PEAK,
    AT_REST,
    PARTS,
    PEAK_TIP,
    REST_TIP,
    Part,
    as_tools_say,
    batch_and_step,
    sizes,
    verdict,
)
from devexplorer.gui.widgets import EDGE_PX, Role, ScrollArea, grid, label, put_in_order

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
            name, number, rest = label(part.name, words="soft"), _number(""), _number("soft")
            name.setToolTip(part.meaning)
            self.swatches[part.key], self.names[part.key] = Swatch(part.key), name
            self.numbers[part.key], self.rests[part.key] = number, rest
        self.heads = [_head(AT_PEAK, PEAK_TIP), _head(AT_REST, REST_TIP)]
        for offset, head in enumerate(self.heads):
            self._grid.addWidget(head, 0, 2 + offset)
        self._shown: list[Part] = []
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

    def _arrange(self, parts: list[Part], columns: int, *, with_rest: bool) -> None:
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

    def _widgets(self, part: Part) -> tuple[QWidget, ...]:
        return self.swatches[part.key], self.names[part.key], self.numbers[part.key], self.rests[part.key]


def _number(words: str) -> QLabel:
    number = label(words=words)
    number.setAlignment(Qt.AlignmentFlag.AlignRight)
    number.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return number


def _head(text: str, tip: str) -> QLabel:
    head = label(text, words="dim")
    head.setAlignment(Qt.AlignmentFlag.AlignRight)
    head.setToolTip(tip)
    return head


class FitDetails(ScrollArea):
    """`use_requested` carries a `Help` to try, `helps_requested` asks what would help on this card."""

    use_requested = Signal(object)
    helps_requested = Signal()

    def __init__(self) -> None:
        super().__init__(name="The chosen card in detail, simulated")
        self.title = label(role=Role.STRONG, wrap=True)
        self.verdict = label(words="soft", wrap=True)
        self.batch = label(wrap=True, selectable=True)
        self.parts = _Parts()
        self.tools = label(words="dim", wrap=True, selectable=True)
        self.helps = HelpsView()
        self.helps.use_requested.connect(self.use_requested)
        self.helps.helps_requested.connect(self.helps_requested)
        self.rests_title = label("What the figures rest on", Role.STRONG)
        self.rests = label(role=Role.LABEL, words="dim", wrap=True)
        self._shown: tuple[Fit, FitReport | None, FitReport] | None = None
        self._lay_out()

    def _lay_out(self) -> None:
        left, right = QVBoxLayout(), QVBoxLayout()
        for column in (left, right):
            column.setSpacing(4)
        for widget in (self.title, self.verdict, self.batch, self.parts):
            left.addWidget(widget)
        left.addStretch(1)
        right.addWidget(self.helps)
        right.addSpacing(4)
        right.addWidget(self.tools)
        right.addWidget(self.rests_title)
        right.addWidget(self.rests)
        right.addStretch(1)
        self._both = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._both.setContentsMargins(EDGE_PX, 4, EDGE_PX, 8)
        self._both.setSpacing(4)
        self._both.addLayout(left, 2)
        self._both.addLayout(right, 3)
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
        self._both.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        self._both.setSpacing(24 if beside else 4)
        columns = 1 if beside or event.size().width() < TWO_COLUMNS_FROM_PX else _COLUMNS
        self.helps.set_narrow(event.size().width() < REST_FROM_PX)
        self.parts.set_columns(columns, with_rest=columns == 1 and event.size().width() >= REST_FROM_PX)
