"""The values of the selected tensor: statistics, histogram (a bar per bin in the device's colour, what was there before
as an outline), first rows, its gradient; and the ways to change them. Main thread.

Values of a large tensor are not computed until the user asks: looking at gigabytes takes time on their device.

Values of a large tensor are not computed until the user asks: looking at gigabytes takes time on their device.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QSize, Qt, Signal
from PySide6.QtGui import QAccessible, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QVBoxLayout, QWidget

from devexplorer.core.base import MISSING, bytes_text, object_name, seconds_text
from devexplorer.core.parameters.records import Describe, Values
from devexplorer.core.parameters.state import ValuesState
from devexplorer.core.records import Fact, ObjectSnapshot, Row
from devexplorer.core.session import State
from devexplorer.gui.plots.canvas import PlotCanvas
from devexplorer.gui.plots.curves import CurveItem, Floats, round_values
from devexplorer.gui.widgets import (
    CENTRE,
    CPU,
    EDGE_PX,
    ElidedLabel,
    EmptyState,
    FactsTable,
    Figures,
    Picture,
    Role,
    ScrollArea,
    ShrinkingLabel,
    check_box,
    current_theme,
    device_colour,
    font,
    hbox,
    holder,
    label,
    lay_out,
    number_texts,
    push_button,
    theme_changed,
    vbox,
    why_not_live,
)

TICK_EVERY_PX, FEWEST_TICKS = 110, 3
MOST_DIGITS = 6
"""Behind or before the point; longer numbers are written with an exponent."""
MINUS = "−"
MIN_PX = QSize(240, 110)


def _bins(values: Values) -> tuple[Floats, Floats]:
    """Edges of the bins, and the share of the values per unit of the axis in each: areas are equal, whatever the bins'
    widths. Where all values are the same it is one bin around them."""
    if values.high <= values.low:
        return np.array([values.low - 1 / 80, values.low + 1 / 80]), np.ones(1)
    edges = np.linspace(values.low, values.high, len(values.counts) + 1)
    counts = np.array(values.counts, float)
    return edges, counts / max(counts.sum(), 1.0) / (edges[1] - edges[0])


def ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Round numbers from `low` to `high` with their texts, 1, 2 or 5 times a power of ten apart: about `most` of them,
    and no fewer than `FEWEST_TICKS`."""
    step, places = round_values(low, high, most)
    while step and len(places) < FEWEST_TICKS:
        most += 1
        step, places = round_values(low, high, most)
    ends = [(low, f"{low:.17g}"), (high, f"{high:.17g}")]
    if not step:
        return ends
    digits = max(-math.floor(math.log10(step) + 1e-9), 0)
    plain = digits <= MOST_DIGITS and max(abs(low), abs(high)) < 10**MOST_DIGITS
    texts = [(f"{place:,.{digits}f}" if plain and place else f"{place:g}").replace("-", MINUS) for place in places]
    # where rounded texts are the same, only the ends differ
    return list(zip(places, texts, strict=True)) if len(set(texts)) == len(texts) else ends


class Histogram(Picture):
    """Feed it with `show_values`; the tooltip of a bar says its edges and its count."""

    accessible_role = QAccessible.Role.Chart

    def __init__(self) -> None:
        super().__init__("Histogram")
        self._device = CPU
        self._values: Values | None = None
        self._before: Values | None = None
        self.legend, self.fullest = label("dashed: before", Role.LABEL, "dim"), label("", Role.LABEL, "dim")
        self.canvas = PlotCanvas(EDGE_PX, EDGE_PX)
        self._bars = pg.BarGraphItem(x0=[], x1=[], height=[])
        self._outline = CurveItem()
        for item in (self._bars, self._outline):
            self.canvas.view.addItem(item)
        vbox(
            hbox(self.legend, None, self.fullest, margins=(EDGE_PX, 0, EDGE_PX, 0)),
            (self.canvas, 1),
            spacing=0,
            parent=self,
        )
        self.canvas.view.sigResized.connect(self._draw)
        self.setMinimumSize(MIN_PX)
        theme_changed.connect(self._recolour)
        self._recolour()

    def _recolour(self) -> None:
        self.canvas.bottom.setPen(current_theme().border)
        self._draw()

    def show_values(self, values: Values | None, before: Values | None, device: int) -> None:
        """Show these; `before` is drawn as an outline on the same axis, `device` is a palette index."""
        self._values, self._before, self._device = values, before, device
        if values is not None and values.counts:
            self.setAccessibleDescription(f"{len(values.counts)} bins from {values.low:g} to {values.high:g}")
            self.fullest.setText(f"fullest bin: {max(values.counts):,} of {sum(values.counts):,}")
        self._draw()

    @property
    def span(self) -> tuple[float, float]:
        """The ends of the axis: of both histograms together."""
        shown = [item for item in (self._values, self._before) if item is not None and item.counts]
        low, high = min((item.low for item in shown), default=0.0), max((item.high for item in shown), default=1.0)
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    def _draw(self) -> None:
        values, before = self._values, self._before
        self.legend.setVisible(before is not None and bool(before.counts))
        if values is None or not values.counts:
            return
        edges, shares = _bins(values)
        wide = self.canvas.view.width() > 3 * len(shares)
        gap = pg.mkPen(current_theme().panel if wide else None, width=1)
        self._bars.setOpts(x0=edges[:-1], x1=edges[1:], height=shares, pen=gap, brush=device_colour(self._device))
        highest = shares.max()
        self._outline.setVisible(before is not None and bool(before.counts))
        if before is not None and before.counts:
            edges, shares = _bins(before)
            highest = max(highest, shares.max())
            self._outline.setData(
                np.pad(edges, 1, "edge"),
                np.pad(shares, 1),
                stepMode="center",
                pen=pg.mkPen(current_theme().text, width=1, style=Qt.PenStyle.DashLine),
            )
        self.canvas.view.setXRange(*self.span, padding=0)
        self.canvas.view.setYRange(0, highest or 1.0, padding=0)
        self.canvas.bottom.show_ticks(
            ticks(*self.span, max(int(self.canvas.width() / TICK_EVERY_PX), FEWEST_TICKS - 1))
        )

    def figures(self) -> Figures | None:
        rows: list[tuple[str, ...]] = []
        for what, values in (("now", self._values), ("before", self._before)):
            if values is not None and values.counts:
                same = values.high <= values.low
                edges = np.array([values.low, values.high]) if same else _bins(values)[0]
                texts = number_texts(edges)
                counts = [sum(values.counts)] if same else values.counts
                rows += zip([what] * len(counts), texts, texts[1:], map(str, counts), strict=False)
        return Figures(("Histogram", "From", "To", "Values"), rows) if rows else None

    def tip_at(self, point: QPointF) -> str:
        """What the bar at or above a point counts; empty where there is none."""
        values = self._values
        if values is None or not values.counts:
            return ""
        edges, _ = _bins(values)
        value = self.canvas.view.mapSceneToView(point).x()
        bar = int(np.searchsorted(edges, value, side="right")) - 1
        if not 0 <= bar < len(values.counts):
            return ""
        low, high = (edges[bar], edges[bar + 1]) if values.high > values.low else (values.low, values.high)
        return f"{values.counts[bar]:,} values from {low:.6g} to {high:.6g}"


FACTS_PX, ROWS_EDGE_PX, BESIDE_PX = 224, 24, 700
AT_ONCE = 1 << 20
"""Elements whose values are looked at without being asked."""
TOP_LEFT = Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft


class FirstValues(QLabel):
    """Rows of values in columns, as many columns as have room."""

    def __init__(self) -> None:
        super().__init__(textFormat=Qt.TextFormat.PlainText, alignment=TOP_LEFT)
        self.setFont(font(Role.CODE))
        self.setProperty("words", "soft")
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # never scrolled sideways
        self._rows = ""

    def show_rows(self, rows: str) -> int:
        """Show these lines; returns the width in which they have room."""
        self._rows = rows
        self._cut()
        return max(map(self.fontMetrics().horizontalAdvance, rows.splitlines()), default=0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._cut()

    def _cut(self) -> None:
        self.setText("\n".join(map(self._first_columns, self._rows.splitlines())))

    def _first_columns(self, line: str) -> str:
        """`0.1  0.2  …`"""
        shown = line
        while self.fontMetrics().horizontalAdvance(shown) > self.width() and "  " in line:
            line = line.rpartition("  ")[0].rstrip()
            shown = f"{line}  …"
        return shown


class ValuesPanel(QWidget):
    """Reads `ValuesState`; `set_selection` says what is selected."""

    command_requested = Signal(object)
    """A `Describe`."""
    initialise_requested = Signal()
    edit_requested = Signal()

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._target: str | None = None
        self._row: Row | None = None
        self._looked_at: ObjectSnapshot | None = None
        """The state of its object in which the values were last looked at without being asked."""
        self.title = ShrinkingLabel(Role.STRONG)
        self.title.cut = Qt.TextElideMode.ElideMiddle
        self.sample = ElidedLabel(words="dim")
        self.old = label(
            "▲ may have changed since",
            words="warning",
            tip="Something was done with it after its values were looked at",
        )
        self.look = push_button("Refresh", lambda: self._ask())
        self.exact = push_button("Exactly", lambda: self._ask(exact=True))
        self.gradient = check_box("gradient", tip="Show the gradient's values instead")
        self.gradient.toggled.connect(self.refresh)
        self.initialise = push_button("Initialise…", self.initialise_requested)
        self.edit = push_button("Edit an element…", self.edit_requested)
        self._tips = {
            self.exact: "Look at every element instead of a sample: takes longer",
            self.look: "Recompute the statistics on the tensor's device (V)",
            self.edit: "Set one element (E)",
            self.initialise: "Draw new values by a rule (I)",
        }
        self.facts = FactsTable(numbers=True)
        self.histogram = Histogram()
        self.none = label(words="dim", wrap=True, align=CENTRE)
        self.first = FirstValues()
        self.empty = EmptyState("", "Look at its values")
        self.empty.chosen.connect(lambda: self._ask())
        self._content = QWidget()
        self._lay_out()
        self.refresh()

    def _lay_out(self) -> None:
        top = hbox(
            self.title,
            (self.sample, 1),
            self.old,
            self.gradient,
            self.exact,
            self.look,
            self.edit,
            self.initialise,
        )
        facts = ScrollArea(self.facts, sideways=True)
        facts.setFixedWidth(FACTS_PX)
        rows = ScrollArea(self.first)
        self._rows = holder(vbox(label("first values", Role.LABEL, "dim"), (rows, 1), spacing=0))
        self._drawn = hbox((self.histogram, 1), (self.none, 1), (self._rows, 3), spacing=2 * EDGE_PX)
        row = hbox(facts, (self._drawn, 1), spacing=2 * EDGE_PX)
        vbox(top, (row, 1), spacing=6, margins=(EDGE_PX, 6, EDGE_PX, 2), parent=self._content)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._content)
        layout.addWidget(self.empty)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """A narrow page has the first values below the histogram."""
        super().resizeEvent(event)
        beside = event.size().width() >= BESIDE_PX
        lay_out(self._drawn, beside=beside)
        self._drawn.setSpacing(2 * EDGE_PX if beside else 0)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._look()

    # --- what the window calls
    # -----------------------------------------------------------------------------------------

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """Show the values of the one selected tensor."""
        result = ((target, row) for target in targets if (row := self._find(target)) is not None)
        tensors = list(itertools.islice(result, 2))  # enough to know whether it is exactly one
        self._target, self._row = tensors[0] if len(tensors) == 1 else (None, None)
        self._looked_at = None
        self.refresh()

    def _find(self, target: str) -> Row | None:
        row = self._state.row_of(target)
        if row is None or not row.initialised:
            return None
        return row if row.kind in ("parameter", "buffer", "gradient", "tensor") else None

    def refresh(self) -> None:
        """Show what is known now."""
        if self._target is not None:
            self._row = self._find(self._target)  # it may have moved
        self._look()
        described = None if self._target is None else self._state.part(ValuesState).values.get(self._target)
        self._content.setVisible(described is not None)
        self.empty.setVisible(described is None)
        if described is None:
            chosen = self._row is not None
            self.empty.sentence.setText(self._invitation())
            self.empty.button.setVisible(chosen)
            self.empty.follow(self._state)
            return
        reason = why_not_live(self._state)
        for button, words in self._tips.items():
            button.setEnabled(reason is None)
            button.setToolTip(reason or words)
        self.old.setVisible(self._target is not None and self._state.part(ValuesState).are_old(self._target))
        values = described.values
        self.exact.setVisible(values.sampled > 0)
        self.gradient.setVisible(values.gradient is not None)
        shown = values.gradient if self.gradient.isChecked() and values.gradient is not None else values
        before = described.before if shown is values and _drawable(described.before) else None
        self._show(shown, before)

    def _look(self) -> None:
        """Ask for the values of a small tensor once they can be seen, and again when they have changed."""
        if self._target is None or self._row is None or self._row.elements > AT_ONCE or not self.isVisible():
            return
        known, snapshot = self._state.part(ValuesState), self._state.objects.get(object_name(self._target))
        if self._target in known.values and not known.are_old(self._target):
            return
        if snapshot is not self._looked_at and not self._state.jobs and why_not_live(self._state) is None:
            self._looked_at = snapshot
            self.command_requested.emit(Describe(target=self._target, quiet=True))

    def _invitation(self) -> str:
        if self._target is None or self._row is None:
            return "Select one tensor, parameter or buffer: its values are shown here."
        return (
            f"{self._target} has {self._row.elements:,} values, {bytes_text(self._row.bytes)} on"
            f" {', '.join(self._row.devices)}."
        )

    def _show(self, values: Values, before: Values | None) -> None:
        self.title.say(values.target)
        self.sample.set_full_text(
            f"all but mean, NaN and Inf from a sample of {values.sampled:,}" if values.sampled else ""
        )
        self.facts.set_facts(_facts(values))
        colour = self._state.look_of(values.device)[0]
        self.histogram.show_values(values, before, colour)
        drawable = _drawable(values)
        self.histogram.setVisible(drawable)
        self.none.setVisible(not drawable)
        self.none.setText(
            "There is nothing to draw: no finite values, none that have an order, or some too far apart for an axis."
        )
        self._rows.setMaximumWidth(self.first.show_rows(values.first) + ROWS_EDGE_PX)
        known = self._state.objects.get(values.target)
        self._rows.setVisible(known is None or not known.values)  # those of a small tensor are in the inspector

    def _ask(self, *, exact: bool = False) -> None:
        if self._target is not None:
            self.command_requested.emit(Describe(target=self._target, exact=exact))


def _drawable(values: Values | None) -> bool:
    return values is not None and bool(values.counts) and math.isfinite(values.high - values.low)


def _facts(values: Values) -> tuple[Fact, ...]:
    numbers = (
        ("mean", values.mean),
        ("std", values.std),
        ("min", values.minimum),
        ("max", values.maximum),
        ("norm", values.norm),
    )
    facts = [Fact(name, MISSING if number is None else f"{number:.6g}") for name, number in numbers]
    facts.append(Fact("zeros", f"{values.zeros:,}"))
    warning = "▲ " if values.nans or values.infinities else ""
    facts.append(Fact("NaN, Inf", f"{warning}{values.nans:,}, {values.infinities:,}"))
    if values.sampled:
        facts.append(Fact("from a sample of", f"{values.sampled:,}"))
    facts.append(Fact("computed in", seconds_text(values.seconds, values.simulated)))
    return tuple(facts)
