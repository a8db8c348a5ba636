"""A panel with curves over the time that all plots share: axes, markers, cursor, selection, legend. Main thread; the
heartbeat calls `refresh`.

What costs is done only when it must be: curves are made once and take arrays, while live they move as one group and the
axes stand still, markers are painted by one item, texts change twice a second. Pens are one pixel wide: wide and
antialiased ones cost fifty times as much (tests/benchmarks/plot_cost.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QSize, QTimer
from PySide6.QtGui import QContextMenuEvent, QFontMetrics, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QMenu, QToolButton, QWidget

from devexplorer.core.base import MISSING, bytes_text, joined, number_text
from devexplorer.core.session import Device, Marker, State
from devexplorer.core.telemetry.history import History, Span
from devexplorer.core.telemetry.metrics import Metric
from devexplorer.gui.plots.canvas import Canvas, Cursor, CursorReading, SelectionItem, TimeViewBox
from devexplorer.gui.plots.curves import Floats, Unit, YScale, axis_units
from devexplorer.gui.plots.legend import Legend, LegendLine, LegendRow
from devexplorer.gui.plots.markers import DASHES, MarkerLine, limits
from devexplorer.gui.plots.time_axis import CLOCK_STEPS_S, TimeAxis, TimeNote, clock_text, duration_text
from devexplorer.gui.widgets import (
    EDGE_PX,
    EmptyState,
    Figures,
    MenuLine,
    Panel,
    Role,
    current_theme,
    device_colour,
    font,
    number_texts,
    offer_menu,
    put_in_order,
    theme_changed,
)

MOST_ROWS = 300
"""A plot has no more pixels to speak of. All readings are in its export."""
BUTTON_EDGE_PX = 5
"""Border and padding of the button in the style sheet."""
USUAL, LEAST, LEAST_WITH_ROW = QSize(640, 232), QSize(240, 137), QSize(240, 150)
"""The size of every plot, and of the place that it is in; with a row for the legend."""
TEXTS_S = 0.45
"""Texts change twice a second: a number that runs faster cannot be read. A beat may come a little early."""
EPOCH_S = 3600.0
"""x counts from a moment that is no longer ago than this: an SVG file has six digits of it."""
LONGEST_WAIT_S = 1.0
"""A live picture is drawn again when time has moved it by a pixel, and never later than this: a plot of a day would be
painted 30 times a second for nothing."""
STEP_PX = 4
"""A curve that nobody touches moves by so much at once: less would cost more than it shows."""


class TimelineSeries(NamedTuple):
    """A curve or an area as readout and selection see it."""

    key: str
    """What it is called."""
    colour: str
    """`#RRGGBB`"""
    simulated: bool
    history: History
    metric: str


class Drawn(NamedTuple):
    """What a curve or a stack was drawn from."""

    key: tuple[object, ...] = ()
    """As long as it is the same, new readings only add to the picture."""
    version: tuple[int, int] = (-1, -1)
    """Of the history."""
    left_s: float = math.nan
    """Unix time from which on it is complete."""
    right_s: float = math.nan
    """Unix time until which it is complete; inf when it has the newest reading."""
    at_s: float = -math.inf
    """When it was drawn."""


def curve_figures(
    series: Sequence[TimelineSeries], axis: TimeAxis, unit: Unit, markers: Sequence[Marker], notes: Sequence[str]
) -> Figures | None:
    """What the plot shows of these curves, the mean of each step; where single readings are no longer kept, lowest and
    highest too. None: nothing is known."""
    left, right = axis.left_unix_s, min(axis.right_unix_s, axis.clock_unix_s)
    least = max([(right - left) / MOST_ROWS, *(line.history.seconds_at(left) for line in series)])
    step = next((step for step in CLOCK_STEPS_S if step >= least), CLOCK_STEPS_S[-1])
    first = math.floor(left / step)
    count = math.floor(right / step) - first + 1
    titles, columns = [], []
    for line in series:
        window = line.history.window(line.metric, left, right, step)
        rows = _in_steps(np.floor(window.times / step) - first, window.low, window.mean, window.high, count)
        name = f"{line.key}{' simulated' if line.simulated else ''}"
        parts = {"lowest": rows[0], "mean": rows[1], "highest": rows[2]} if window.seconds else {"": rows[1]}
        for what, values in parts.items():
            titles.append(joined(", ", name, what, unit.name))
            columns.append(values / unit.factor)
    known = np.flatnonzero(~np.isnan(columns).all(axis=0)) if columns else np.empty(0, dtype=np.intp)
    if not len(known):
        return None
    shown = range(int(known[0]), int(known[-1]) + 1)
    texts = [[clock_text((first + at) * step, step) for at in shown]]
    texts += [number_texts(values[shown.start : shown.stop]) for values in columns]
    events = [""] * len(shown)
    for marker in markers:
        at = math.floor(marker.time_unix_s / step) - first - shown.start
        if 0 <= at < len(events):
            events[at] = joined("; ", events[at], marker.text)
    if any(events):
        titles.append("Event")
        texts.append(events)
    words = f"Each row is the mean of {step:g} s from its time on. Export in the plot's time menu has every reading."
    return Figures(("Time", *titles), list(zip(*texts, strict=True)), "\n".join((words, *notes)))


def _in_steps(places: Floats, low: Floats, mean: Floats, high: Floats, count: int) -> tuple[Floats, Floats, Floats]:
    """Lowest, mean and highest of each of `count` steps; `places` says in which step each value is."""
    inside = (places >= 0) & (places < count) & ~np.isnan(mean)
    at = places[inside].astype(np.intp)
    number = np.bincount(at, minlength=count)
    lowest, highest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(lowest, at, low[inside])
    np.maximum.at(highest, at, high[inside])
    means = np.bincount(at, weights=mean[inside], minlength=count) / np.maximum(number, 1)
    unknown = number == 0
    return tuple(np.where(unknown, np.nan, values) for values in (lowest, means, highest))  # type: ignore[return-value]


def title_button(header: QHBoxLayout, menu: QMenu) -> QToolButton:
    """Put a button with this menu, which the caller owns, at the beginning of the header."""
    button = QToolButton(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
    button.setProperty("look", "title")
    button.setMenu(menu)
    button.setFont(font(Role.STRONG))
    button.setToolTip("Choose what this plot shows")
    header.insertWidget(0, button)
    margins = header.contentsMargins()  # the text is where the label's was
    header.setContentsMargins(margins.left() - BUTTON_EDGE_PX, margins.top(), margins.right(), margins.bottom())
    return button


class TimelinePlot(Panel):
    """Base of all plots. Subclasses draw, and say which series, scale, guides and texts."""

    def __init__(self, metric: Metric, state: State, axis: TimeAxis, empty: EmptyState) -> None:
        """`empty`: shown in place of the curves while there are none."""
        super().__init__(metric.label, "")
        self._state, self._axis, self._metric = state, axis, metric
        self._scale = YScale(axis_units(metric.unit))
        self._epoch_s: float | None = None
        self._moved_to_s = math.inf
        self._newest_marker: Marker | None = None
        self._texts_at_s = -math.inf
        self._axis_is_stale = True
        self._in_header: list[QWidget] = []
        self._header_of: tuple[object, ...] = ()
        """What the header was arranged for."""
        self._spans: dict[str, Span] = {}
        self._title_button: QToolButton | None = None
        self.in_menu: list[MenuLine] = []
        """What the context menu has below its own."""

        self._view = TimeViewBox(axis)
        self.canvas = Canvas(axis, self._view)
        self.canvas.setToolTip("")
        self._group = pg.ItemGroup()  # all curves; scrolling moves this one item
        self._view.addItem(self._group, ignoreBounds=True)
        self._selected = SelectionItem()
        self._view.addItem(self._selected, ignoreBounds=True)
        self.cursor_box = Cursor(self.canvas)
        self.legend = Legend()
        self.legend.changed.connect(self._legend_changed)
        self._header.addWidget(self.legend)
        self._legend_row = LegendRow(self.legend, self._header, self._subtitle)
        self.time_note = TimeNote(axis, self.canvas)
        self._view.sigResized.connect(self.time_note.follow)
        self.set_content(self.canvas)
        self._rows.insertWidget(1, self._legend_row)
        self.empty = empty
        self.set_empty_state(empty)
        self.set_title(metric.label)
        self._view.sigResized.connect(self._axis_changed)
        axis.changed.connect(self._axis_changed)
        axis.cursor_moved.connect(self._show_readout)
        axis.selection_changed.connect(self._selection_changed)
        theme_changed.connect(self._recolour)

    def add_to_header(self, widget: QWidget) -> None:
        super().add_to_header(widget)
        self._in_header.append(widget)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._axis_is_stale = True  # nothing was drawn while it was hidden
        put_in_order(self)  # Qt reorders what moves into another window, and the header was filled last

    def set_menu(self, menu: QMenu) -> None:
        """Make the title a quiet button with this menu, which the caller owns."""
        self._title_button = title_button(self._header, menu)
        self._title.hide()
        self.set_title(self.title)

    @property
    def title(self) -> str:
        """What is shown, in words."""
        return self._title.text()

    def set_title(self, text: str) -> None:
        """Change the title."""
        self._title.setText(text)
        self.setAccessibleName(text)
        self.canvas.setAccessibleName(f"{text} over time")
        if self._title_button is not None:
            button_text = f"{text} ▾"
            self._title_button.setText(button_text)
            # Qt would leave room for an icon and centre the text in it.
            self._title_button.setFixedWidth(
                QFontMetrics(self._title_button.font()).horizontalAdvance(button_text) + 2 * BUTTON_EDGE_PX
            )
            self._title_button.setAccessibleName(f"Shown: {text}")

    # What subclasses say

    def _draw(self) -> bool:
        """Bring the curves up to date; returns whether one of them changed."""
        raise NotImplementedError

    def _forget_drawn(self) -> None:
        """Draw everything again next time: x counts from another moment."""
        raise NotImplementedError

    def _series(self) -> list[TimelineSeries]:
        """What is shown, in the order of the legend."""
        raise NotImplementedError

    def _entries(self) -> list[LegendLine]:
        """What the legend has."""
        raise NotImplementedError

    def _highest_shown(self) -> float:
        """The largest value between the plot's edges."""
        raise NotImplementedError

    def _rescale(self, highest_shown: float) -> bool:
        """Fit the scale to what is shown; returns whether it changed."""
        if self._metric.top is not None:
            return self._scale.set_top(max(self._metric.top, highest_shown))
        return self._scale.fit(highest_shown)

    def rescale(self) -> None:
        """Choose the scale again, and draw."""
        self._scale.stale = self._axis_is_stale = True
        self._refresh_now()

    def _guides(self) -> list[tuple[float, str, str]]:
        """Horizontal lines: value in the stored unit, label, colour."""
        return []

    def _limit_guides(self, metric: str, devices: list[Device]) -> list[tuple[float, str, str]]:
        """What these devices are measured against, as far as it is in range."""
        guides = limits(metric, devices, self._value_text)
        return [(limit, text, current_theme().dim) for limit, text in guides if limit <= self._scale.top]

    def _latest_s(self, history: History) -> float:
        """Until when to read: the right edge, or the newest reading where that is later."""
        newest_s = history.latest_unix_s
        right_s = self._axis.right_unix_s
        return right_s if self._axis.paused or math.isnan(newest_s) else max(right_s, newest_s)

    def _is_drawn(self, drawn: Drawn, key: tuple[object, ...], version: tuple[int, int], points: Floats) -> bool:
        """Whether everything was drawn that is in range; new readings wait for half a pixel's time, the first do
        not."""
        axis = self._axis
        waited = not len(points) or abs(axis.clock_unix_s - drawn.at_s) >= min(self._pixel_s, LONGEST_WAIT_S)
        grew = version != drawn.version and drawn.right_s == math.inf and waited
        return drawn.key == key and drawn.left_s <= axis.left_unix_s <= axis.right_unix_s <= drawn.right_s and not grew

    def _readout_titles(self) -> list[str]:
        """Lines over the readout's own."""
        return []

    def _subtitles(self) -> list[str]:
        """Wordings of the dimmed part of the header, longest first; the first that fits beside the legend is taken."""
        return [self._scale.unit.name]

    def _value_text(self, value: float) -> str:
        """With its unit."""
        if math.isnan(value):
            return MISSING
        if self._metric.unit == "bytes":
            return bytes_text(value)
        return f"{self._number_text(value)} {self._scale.unit.name}".rstrip()

    def _number_text(self, value: float) -> str:
        """In the axis' unit."""
        return number_text(value / self._scale.unit.factor)

    def refresh(self, now_unix_s: float) -> None:
        """Draw what changed since the last call; up to 30 times a second."""
        self._axis.advance(now_unix_s)
        if self._epoch_s is None:
            self._epoch_s = self._axis.now_unix_s
        if not self.isVisible():
            return
        if abs(self._axis.now_unix_s - self._epoch_s) > EPOCH_S:
            self._epoch_s = self._axis.now_unix_s
            self._axis_is_stale = True
            self._forget_drawn()
        anew = self._axis_is_stale or math.isinf(self._texts_at_s)
        if self.is_empty and not anew:
            return  # what is asked for below is not seen
        texts_are_due = anew or abs(now_unix_s - self._texts_at_s) >= TEXTS_S
        moved_to_s = self._epoch_s - self._axis.now_unix_s
        moved = not self.is_empty and abs(moved_to_s - self._moved_to_s) >= min(self._pixel_s, LONGEST_WAIT_S)
        newest = self._state.markers[-1] if self._state.markers else None
        if not (moved or texts_are_due or newest is not self._newest_marker):
            return  # time has not moved the picture, and readings wait for as long: most beats end here
        self._newest_marker = newest
        changed = self._draw()
        if changed or moved or self._axis_is_stale:
            self._moved_to_s = moved_to_s
            self._group.setPos(moved_to_s, 0.0)
        if (changed or texts_are_due) and self._rescale(self._highest_shown()):
            self._axis_is_stale = texts_are_due = True
        if self._axis_is_stale:
            self._apply_axis()
        if texts_are_due:
            self._texts_at_s = now_unix_s
            self._measure_selection()
            self._refresh_texts(anew)
        self._draw_lines()
        if self._axis.cursor_s is not None or self._axis.selection is not None:
            self._show_readout()

    def _recolour(self) -> None:
        self._axis_is_stale = True

    @property
    def legend_entries(self) -> list[LegendLine]:
        """What is shown, for a picture of the plot: all of it, also what has no room in the header."""
        return [entry for entry in self._entries() if self.legend.shows(entry.device)]

    def figures(self) -> Figures | None:
        """What the curves show, as numbers."""
        notes = (*self._readout_titles(), *(text for _, text, _ in self._guides()))
        return curve_figures(self._series(), self._axis, self._scale.unit, self._state.markers, notes)

    def spoken(self) -> str:
        """The values at the cursor, or the newest, for a screen reader."""
        at_s = None if self._axis.cursor_s is None else self._axis.now_unix_s + self._axis.cursor_s
        words = [] if at_s is None else [clock_text(at_s)]
        for line in self._series():
            value = line.history.latest(line.metric) if at_s is None else line.history.value_at(line.metric, at_s)
            words.append(f"{line.key}{' simulated' if line.simulated else ''} {self._value_text(value)}")
        return ", ".join((*words, *self._readout_titles()))

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        pause = (
            "Continue" if self._axis.paused else "Pause the plots",
            partial(self._axis.set_paused, not self._axis.paused),
        )
        offer_menu(self, event, self.legend.choices(event.globalPos()), [pause, *self.in_menu])

    @property
    def metrics_shown(self) -> tuple[str, ...]:
        """Ids of what is shown, for an export of readings."""
        return tuple(dict.fromkeys(line.metric for line in self._series())) or (self._metric.id,)

    @property
    def range_unix_s(self) -> tuple[float, float]:
        """What is shown of time."""
        return self._axis.left_unix_s, self._axis.right_unix_s

    @contextmanager
    def without_cursor(self) -> Iterator[None]:
        """For a picture, which has no cursor."""
        was_visible = self.cursor_box.line.isVisible()
        self.cursor_box.line.hide()
        yield
        self.cursor_box.line.setVisible(was_visible)

    def sizeHint(self) -> QSize:
        return USUAL

    def minimumSizeHint(self) -> QSize:
        return LEAST_WITH_ROW if self.legend.from_left else LEAST

    # Drawing

    @property
    def _pixel_s(self) -> float:
        """What one pixel spans."""
        return self._axis.width_s / max(float(self._view.width()), 1.0)

    @property
    def step_s(self) -> float:
        """How long the curves take to move by `STEP_PX`; infinite where none moves."""
        still = self.is_empty or self._axis.paused or not self.isVisible()
        return math.inf if still else STEP_PX * self._pixel_s

    def _draw_lines(self) -> None:
        axis = self._axis
        per_s = float(self._view.width()) / axis.width_s
        markers = [
            MarkerLine(
                round((marker.time_unix_s - axis.left_unix_s) * per_s),
                marker.text,
                self._marker_colour(marker.device),
                DASHES.get(marker.kind, ()),
            )
            for marker in self._state.markers
            if axis.left_unix_s <= marker.time_unix_s <= axis.right_unix_s
        ]
        markers.sort(key=lambda line: line.at_px)  # at one pixel the newest stays the last
        self.canvas.show_lines(markers, self._guides())
        chosen = axis.selection
        now_s = axis.now_unix_s
        self._selected.show_span(None if chosen is None else (chosen[0] - now_s, chosen[1] - now_s))

    def _marker_colour(self, device: str | None) -> str:
        known = self._state.devices.get(device or "")
        return current_theme().dim if known is None else device_colour(known.colour)

    def _refresh_texts(self, anew: bool) -> None:
        entries, wordings = self._entries(), self._subtitles()
        self.time_note.follow()
        header_of = (entries, wordings, self.title, self.width(), *map(QWidget.isHidden, self._in_header))
        if header_of == self._header_of and not anew:
            return  # to ask what everything in it needs takes longer than to move the curves
        self._header_of = header_of
        stops = self.legend.tab_stops()
        self.legend.set_entries(entries)
        if self.legend.tab_stops() != stops:
            put_in_order(self)
        metrics = QFontMetrics(self._subtitle.font())
        title: QWidget = self._title_button or self._title
        in_header = [widget for widget in (title, *self._in_header) if not widget.isHidden()]
        taken = sum(widget.sizeHint().width() + self._header.spacing() for widget in in_header)
        spare = self.width() - taken - 2 * EDGE_PX - self._header.spacing()
        self._legend_row.choose_place(spare - metrics.horizontalAdvance(wordings[-1]) - self._header.spacing())
        taken += 0 if self.legend.from_left else self.legend.sizeHint().width() + self._header.spacing()
        text = next(
            (w for w in wordings if metrics.horizontalAdvance(w) + taken + 2 * EDGE_PX <= self.width()), wordings[-1]
        )
        self.set_subtitle(text)
        self._subtitle.setMinimumWidth(metrics.horizontalAdvance(text) + 2)

    # Time axis, cursor, selection

    def _axis_changed(self) -> None:
        self._axis_is_stale = True
        QTimer.singleShot(0, self, self._refresh_stale)  # at once, and once for several changes

    def _refresh_stale(self) -> None:
        if self._axis_is_stale:
            self._refresh_now()

    def _refresh_now(self) -> None:
        if self._epoch_s is not None:  # before the heartbeat begins the time is unknown
            self.refresh(self._axis.clock_unix_s)

    def _apply_axis(self) -> None:
        self._axis_is_stale = False
        self._view.setXRange(self._axis.left_s, self._axis.right_s, padding=0)
        self._view.setYRange(0, self._scale.top, padding=0)
        self.canvas.left.show_ticks(self._scale.ticks)
        self.canvas.bottom.show_ticks(self._axis.ticks(self.canvas.bottom.geometry().width()))

    def _legend_changed(self) -> None:
        self._texts_at_s = -math.inf
        self._refresh_now()

    def _selection_changed(self) -> None:
        if not self.isVisible() or self._epoch_s is None:
            return
        self._measure_selection()
        self._draw_lines()
        self._show_readout()

    def _measure_selection(self) -> None:
        chosen = self._axis.selection
        self._spans = (
            {} if chosen is None else {line.key: line.history.span(line.metric, *chosen) for line in self._series()}
        )

    def _show_readout(self) -> None:
        axis, selection = self._axis, self._measured_selection()
        if (axis.cursor_s is None and selection is None) or not self.isVisible() or self.is_empty:
            self.cursor_box.hide()
            return
        self.cursor_box.show_line(axis.cursor_s)
        titles, heads = self._readout_titles(), []
        at_s, time_s = axis.right_s, math.nan
        series = self._series()
        if axis.cursor_s is not None:
            at_s, time_s = axis.cursor_s, axis.now_unix_s + axis.cursor_s
            bin_s = max((line.history.seconds_at(time_s) for line in series), default=0.0)
            ago = "" if axis.paused or axis.still else f"−{duration_text(-axis.cursor_s)} · "
            titles.append(f"{ago}{clock_text(time_s)}{f' · mean of {bin_s:g} s' if bin_s else ''}")
            heads.append("here")
        if selection is not None:
            early, late = selection
            unit = self._scale.unit.name
            titles.append(
                f"{clock_text(early)} to {clock_text(late)} ·"
                f" {duration_text(late - early)}{f' · {unit}' if unit else ''}"
            )
            heads += ["min", "mean", "max"]
            if axis.cursor_s is None:
                at_s = late - axis.now_unix_s
        readings = [
            CursorReading(line.key, line.colour, self._values(line, time_s, selection), line.simulated)
            for line in series
        ]
        x_px = (min(max(at_s, axis.left_s), axis.right_s) - axis.left_s) / axis.width_s * self._view.width()
        self.cursor_box.show_box(x_px, titles, heads, readings)

    def _measured_selection(self) -> tuple[float, float] | None:
        """The selected span as far as there is something to say of it: it is in the picture, and something was read in
        it."""
        axis = self._axis
        if axis.selection is None or axis.selection[1] < axis.left_unix_s or axis.selection[0] > axis.right_unix_s:
            return None
        return axis.selection if any(self._span(line, axis.selection).readings for line in self._series()) else None

    def _span(self, line: TimelineSeries, selection: tuple[float, float]) -> Span:
        return self._spans.get(line.key) or line.history.span(line.metric, *selection)

    def _values(self, line: TimelineSeries, time_s: float, selection: tuple[float, float] | None) -> tuple[str, ...]:
        """One value with its unit at the cursor, or with a selection four numbers whose unit is in the title."""
        here = () if self._axis.cursor_s is None else (line.history.value_at(line.metric, time_s),)
        if selection is None:
            return tuple(self._value_text(value) for value in here)
        span = self._span(line, selection)
        return tuple(self._number_text(value) for value in (*here, span.low, span.mean, span.high))
