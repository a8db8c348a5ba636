"""The curves over time as a table: one row per step of time, one column per curve. Main thread."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from devexplorer.core.session.marker import Marker
from devexplorer.gui.plots.curves import Floats, Unit
from devexplorer.gui.plots.series import Series
from devexplorer.gui.plots.time_axis import CLOCK_STEPS_S, TimeAxis, clock_text
from devexplorer.gui.widgets import Figures, number_texts

MOST_ROWS = 300
"""A plot has no more pixels to speak of. All readings are in its export."""


def curve_figures(
    series: Sequence[Series], axis: TimeAxis, unit: Unit, markers: Sequence[Marker], notes: Sequence[str]
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
            titles.append(", ".join(filter(None, (name, what, unit.name))))
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
            events[at] = "; ".join(filter(None, (events[at], marker.text)))
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
