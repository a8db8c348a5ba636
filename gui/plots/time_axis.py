"""What all plots show of time: live or paused, how many seconds, where the cursor is; its control, a small button with
a menu for span, selection and export, and the note at every plot while it is paused. Main thread only.

x is always "seconds from now": negative in the past. While live, `now` moves and the axis does not, so that scrolling
costs the plots one `setPos` and no new axis. While paused, `now` does not move, the range pans and zooms, and the ticks
are clock times.
"""

from __future__ import annotations

import math
from datetime import datetime

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from devexplorer.gui.widgets import Role, ask_export, font

SPANS_S = (30.0, 120.0, 600.0, 3600.0, 21_600.0, 86_400.0)
"""Seconds that the live plots can show: readings up to ten minutes, bins of `core.telemetry.history` beyond."""

SHORTEST_S, LONGEST_S = 0.5, 86_400.0
"""Limits of the paused zoom."""

CLOCK_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600)
LIVE_STEPS_S = {30.0: 10.0, 120.0: 30.0, 600.0: 120.0, 3600.0: 600.0, 21_600.0: 3600.0, 86_400.0: 14_400.0}
MINUTE_TICKS_FROM_S = 1800.0
"""Clock times of steps this long and longer are written without seconds."""


class TimeAxis(QObject):
    """The time that all plots share; each of them reads it and listens to `changed`."""

    changed = Signal()
    """Span, pause, pan or zoom: everything but time passing."""
    cursor_moved = Signal()
    selection_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.now_unix_s = 0.0
        """x = 0. Does not move while paused."""
        self.paused = False
        self.still = False
        """Whether the right edge is a moment that is past."""
        self.age = ""
        """How long ago that was; empty: not known, or said elsewhere."""
        self.span_s = 120.0
        """Seconds shown while live."""
        self.left_s, self.right_s = -self.span_s, 0.0
        """What is shown, in seconds from `now_unix_s`."""
        self.cursor_s: float | None = None
        """Where the cursor is, in seconds from `now_unix_s`; None: nowhere."""
        self.selection: tuple[float, float] | None = None
        """A span chosen by hand, in unix seconds, the earlier first: it goes with the curves."""
        self._anchor_unix_s: float | None = None
        self.clock_unix_s = 0.0
        """The time of the last `advance`, paused or not."""

    @property
    def left_unix_s(self) -> float:
        """Left edge as a time."""
        return self.now_unix_s + self.left_s

    @property
    def right_unix_s(self) -> float:
        """Right edge as a time."""
        return self.now_unix_s + self.right_s

    @property
    def width_s(self) -> float:
        """Seconds shown now."""
        return self.right_s - self.left_s

    def ticks(self, width_px: float) -> list[tuple[float, str]]:
        """Of an axis this wide: seconds before now while live, clock times while paused or when time stands still."""
        if not (self.paused or self.still):
            return live_ticks(self.span_s)
        return clock_ticks(self.left_s, self.right_s, self.now_unix_s, most=max(int(width_px // 90), 2))

    def advance(self, now_unix_s: float) -> None:
        """Time passes: called by the heartbeat, as often as it likes."""
        moves, self.clock_unix_s = now_unix_s != self.clock_unix_s, now_unix_s
        if not self.paused:
            self.now_unix_s = now_unix_s
        if self.still and moves:
            self.changed.emit()

    def set_still(self, still: bool, age: str = "") -> None:
        """The right edge is not now: a recording is shown, or nothing comes from the machine. The axis tells the time
        then, and each plot this `age`."""
        changed, self.age = still != self.still, age
        if changed:
            self.still = still
            self.changed.emit()

    def set_paused(self, paused: bool) -> None:
        """Hold the picture, or go back to now."""
        if paused == self.paused:
            return
        self.paused = paused
        if not paused:
            self.now_unix_s = self.clock_unix_s
            self._show(-self.span_s, 0.0)
        self.changed.emit()

    def _show(self, left_s: float, right_s: float) -> None:
        """Show this range; the cursor stays where it is on the screen, where the pointer is, and so moves to
        another time."""
        if self.cursor_s is not None:
            self.cursor_s = left_s + (self.cursor_s - self.left_s) / self.width_s * (right_s - left_s)
        self.left_s, self.right_s = left_s, right_s

    def set_span(self, span_s: float) -> None:
        """Show that many seconds; while paused the right edge stays."""
        self.span_s = span_s
        self._show(self.right_s - span_s, self.right_s)
        self.changed.emit()

    def step_span(self, steps: int) -> None:
        """Next longer (1) or shorter (-1) of `SPANS_S`."""
        nearest = min(range(len(SPANS_S)), key=lambda index: abs(SPANS_S[index] - self.span_s))
        self.set_span(SPANS_S[min(max(nearest + steps, 0), len(SPANS_S) - 1)])

    def pan(self, seconds: float) -> None:
        """Show earlier (negative) or later times, never the future. Only while paused."""
        if self.paused:
            seconds = min(seconds, self.clock_unix_s - self.right_unix_s)
            self._show(self.left_s + seconds, self.right_s + seconds)
            self.changed.emit()

    def show_moment(self, unix_s: float) -> None:
        """Pause, with that time in the middle."""
        self.set_paused(True)
        self.pan(unix_s - self.now_unix_s - (self.left_s + self.right_s) / 2)

    def zoom(self, factor: float, about_s: float) -> None:
        """Show `factor` times as many seconds; `about_s` (seconds from now) stays where it is. Only while paused."""
        if self.paused:
            width = min(max(self.width_s * factor, SHORTEST_S), LONGEST_S)
            share = (about_s - self.left_s) / self.width_s
            self._show(about_s - share * width, about_s + (1 - share) * width)
            self.pan(0.0)  # not beyond the present; emits `changed`

    def set_cursor(self, seconds: float | None) -> None:
        """Put the cursor there (seconds from now, kept inside what is shown), or take it away."""
        if seconds is not None:
            seconds = min(max(seconds, self.left_s), self.right_s)
        if seconds != self.cursor_s:
            self.cursor_s = seconds
            self.cursor_moved.emit()

    def select(self, start_unix_s: float | None, end_unix_s: float | None = None) -> None:
        """Select what lies between two times (never the future), or nothing."""
        chosen = None
        if start_unix_s is not None and end_unix_s is not None:
            early, late = sorted(min(time, self.clock_unix_s) for time in (start_unix_s, end_unix_s))
            chosen = (early, late) if late > early else None
        self._anchor_unix_s = None
        if chosen != self.selection:
            self.selection = chosen
            self.selection_changed.emit()

    def mark(self) -> None:
        """Select with the cursor alone: the first call says where the selection begins, the second where it ends."""
        if self.cursor_s is None:
            return
        here = self.now_unix_s + self.cursor_s
        if self._anchor_unix_s is None:
            self._anchor_unix_s = here
        else:
            self.select(self._anchor_unix_s, here)

    def show_selection(self) -> None:
        """Pause, and show the selection and a little on both sides."""
        if self.selection is None:
            return
        early, late = self.selection
        width = min(max(1.1 * (late - early), SHORTEST_S), LONGEST_S)
        self.set_paused(True)
        left_s = (early + late - width) / 2 - self.now_unix_s
        self._show(left_s, left_s + width)
        self.pan(0.0)


def span_text(seconds: float) -> str:
    """`120` -> `2 min`, `21600` -> `6 h`."""
    if seconds >= 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def duration_text(seconds: float) -> str:
    """`12.34` -> `12.3 s`, `1000` -> `16 min 40 s`, `4000` -> `1 h 06 min`."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def clock_text(time_unix_s: float, step_s: float = 1.0) -> str:
    """Local wall-clock time: with tenths where steps are shorter than a second, without seconds where they are half
    hours."""
    moment = datetime.fromtimestamp(round(time_unix_s, 1))
    if step_s >= MINUTE_TICKS_FROM_S:
        return moment.strftime("%H:%M")
    return moment.strftime("%H:%M:%S") + (f".{moment.microsecond // 100_000}" if step_s < 1 else "")


def live_ticks(span_s: float) -> list[tuple[float, str]]:
    """Ticks of the live axis: `-120 s`, `-90`, … `now`; minutes from ten minutes on, hours from six hours on."""
    step = LIVE_STEPS_S.get(span_s, span_s / 4)
    if span_s >= 21_600:
        per_unit, unit = 3600.0, "h"
    elif span_s >= 600:
        per_unit, unit = 60.0, "min"
    else:
        per_unit, unit = 1.0, "s"
    ticks = [(-index * step, f"−{index * step / per_unit:g}") for index in range(round(span_s / step), 0, -1)]
    if ticks:
        ticks[0] = (ticks[0][0], f"{ticks[0][1]} {unit}")
    return [*ticks, (0.0, "now")]


def clock_ticks(left_s: float, right_s: float, now_unix_s: float, most: int) -> list[tuple[float, str]]:
    """Ticks of the paused axis at round local times, `most` of them at most."""
    width = right_s - left_s
    step = next((step for step in CLOCK_STEPS_S if width / step <= most), CLOCK_STEPS_S[-1])
    # Whole multiples of the step since local midnight, so that 15-minute steps fall on the quarter in every time zone.
    start = datetime.fromtimestamp(now_unix_s + left_s)
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    first = math.ceil((now_unix_s + left_s - midnight) / step - 1e-9)
    last = math.floor((now_unix_s + right_s - midnight) / step + 1e-9)
    times = [midnight + index * step for index in range(first, last + 1)]
    return [(time - now_unix_s, clock_text(time, step)) for time in times]


FORMATS = {
    "csv": "Readings as CSV",
    "parquet": "Readings as Parquet",
    "png": "Picture as PNG",
    "svg": "Picture as SVG",
}
"""What can be exported: the ending of the file, the text of the menu."""


TOLD_S = 3.0
"""How long a plot says how much time it shows, after that has changed."""
EDGE_PX, ABOVE_PX = 28, 28
"""Where it says so: from the right edge of the canvas, and above the times."""


class TimeNote(QToolButton):
    """In a corner of each plot: how old it is where nothing comes, that it is paused, with a click as the way back; how
    much time it shows, when that has changed."""

    def __init__(self, axis: TimeAxis, canvas: QWidget) -> None:
        super().__init__(canvas)
        self._canvas = canvas
        self._axis, self._width_s, self._changed_unix_s = axis, axis.width_s, -math.inf
        self.setFont(font(Role.LABEL))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.clicked.connect(lambda: axis.set_paused(False))
        axis.changed.connect(self.follow)
        self.hide()

    def follow(self) -> None:
        """Say what is the case now; call it again later, so that what has been said goes away."""
        axis = self._axis
        width = span_text(axis.width_s) if axis.width_s in SPANS_S else duration_text(axis.width_s)
        if abs(axis.width_s - self._width_s) > 1e-6 * axis.width_s:
            self._width_s, self._changed_unix_s = axis.width_s, axis.clock_unix_s
        is_new = 0 <= axis.clock_unix_s - self._changed_unix_s < TOLD_S
        words = [word for word, holds in ((axis.age, axis.age), ("paused", axis.paused), (width, is_new)) if holds]
        self.setText(" · ".join(words))
        self.setAccessibleName(f"Paused, {width} shown: go on" if axis.paused else f"{width} shown")
        self.setToolTip(f"Paused, {width} shown: a click, or Space, follows the present again" if axis.paused else "")
        self.setEnabled(axis.paused)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents, not axis.paused)
        self.adjustSize()
        room = self._canvas.size() - self.size()
        self.move(room.width() - EDGE_PX, room.height() - ABOVE_PX)
        self.setVisible(bool(words))


class TimeControl(QToolButton):
    """One is enough: all plots follow."""

    def __init__(self, axis: TimeAxis) -> None:
        super().__init__(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        self._axis = axis
        self.setProperty("look", "quiet")
        self.setFont(font(Role.LABEL))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        menu = QMenu(self)
        self.spans = {}
        for span in SPANS_S:
            self.spans[span] = menu.addAction(f"Show {span_text(span)}")
            self.spans[span].setCheckable(True)
            self.spans[span].triggered.connect(lambda _checked=False, seconds=span: axis.set_span(seconds))
        menu.addSeparator()
        self.zoom = menu.addAction("Zoom to the selection")
        self.zoom.triggered.connect(axis.show_selection)
        self.clear = menu.addAction("Clear the selection\tEsc")
        self.clear.triggered.connect(lambda: axis.select(None))
        menu.addSeparator()
        self.exports = {}
        export = menu.addMenu("Export")
        for ending, text in FORMATS.items():
            self.exports[ending] = export.addAction(f"{text}…")
            self.exports[ending].triggered.connect(lambda _checked=False, kind=ending: ask_export(self, kind, None))
        self.setMenu(menu)
        self.setToolTip(
            "How much time the plots show. Wheel (with Ctrl where plots scroll): more or less. While paused: it zooms,"
            " drag pans.\n"
            "Drag with Shift: select a span and see lowest, mean and highest."
        )
        axis.changed.connect(self._show)
        axis.selection_changed.connect(self._show)
        self._show()

    def _show(self) -> None:
        axis = self._axis
        self.setText(f"{span_text(axis.span_s)} ▾")
        self.setAccessibleName(f"Time shown: {span_text(axis.span_s)}{', paused' if axis.paused else ''}")
        for action in (self.zoom, self.clear):
            action.setEnabled(axis.selection is not None)
        for span, action in self.spans.items():
            action.setChecked(span == axis.span_s)
