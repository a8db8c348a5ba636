"""A history as the record that brings it to a window, and back. Pure but for the history; main thread of a host, and of
a window or its link.

The last two minutes in steps of a second, ten minutes of four seconds, an hour of twenty. Values keep 16 bits of their
mantissa: 1 MiB of 80 GiB, and fewer bytes when they are compressed.
"""

from __future__ import annotations

import math

import numpy as np

from devexplorer.core.base import LinkError
from devexplorer.core.machines.records import PastReadings
from devexplorer.core.telemetry.history import Floats, History

STEPS = ((3600.0, 20.0), (600.0, 4.0), (120.0, 1.0))
"""How many seconds ago steps of so many seconds begin."""
MOST_ROWS, MOST_METRICS = 4096, 64
LARGEST = 1e18
_KEPT_BITS = np.uint32(0xFFFFFF80)


def past_readings(device: str, history: History) -> PastReadings | None:
    """What there is of the last hour; None: nothing."""
    metrics, now = history.metrics[:MOST_METRICS], history.latest_unix_s
    if not metrics or math.isnan(now):
        return None
    times, values = [], []
    last = -math.inf
    for (begin, step), end in zip(STEPS, (*(begin for begin, _ in STEPS[1:]), 0.0), strict=True):
        window = history.table(metrics, now - begin, now - end)
        inside = (window.times > last) & (window.times <= now)
        if inside.any():
            part_times, part_values = _means(window.times[inside], window.mean[inside], step)
            times.append(part_times)
            values.append(part_values)
            last = float(part_times[-1])
    all_times = np.concatenate(times)
    kept = np.concatenate(values).T.astype("<f4", order="C").view("<u4") & _KEPT_BITS
    start = float(all_times[0])
    return PastReadings(
        device=device, start_unix_s=start, after_s=(all_times - start).astype("<f4").tobytes(), metrics=metrics,
        values=kept.tobytes(),
    )  # fmt: skip


def _means(times: Floats, values: Floats, step: float) -> tuple[Floats, Floats]:
    """One row for each step in which there are any: the mean of what is known, at the time of the last. A gap stays."""
    groups, known = np.floor(times / step), ~np.isnan(values)
    is_gap = np.logical_not(known.any(axis=1))
    begins = np.ones(len(times), dtype=np.bool_)
    begins[1:] = (groups[1:] != groups[:-1]) | (is_gap[1:] != is_gap[:-1])
    starts = np.flatnonzero(begins)
    counts = np.add.reduceat(known.astype(np.float64), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    ends = np.append(starts[1:], len(times)) - 1
    return times[ends], np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def unpacked(past: PastReadings) -> tuple[Floats, Floats]:
    """Times, and a row of values for each; `LinkError` when it is not what it should be."""
    count, rest = divmod(len(past.after_s), 4)
    metrics = len(past.metrics)
    if rest or count > MOST_ROWS or not 0 < metrics <= MOST_METRICS or len(past.values) != 4 * count * metrics:
        raise LinkError("past readings were refused: their sizes do not fit")
    after = np.frombuffer(past.after_s, dtype="<f4").astype(np.float64)
    values = np.frombuffer(past.values, dtype="<f4").reshape(metrics, count).T.astype(np.float64)
    in_order = bool(np.all(np.isfinite(after)) and np.all(np.diff(after) >= 0)) and (not count or after[0] >= 0)
    if not in_order or (count and after[-1] > 2 * STEPS[0][0]) or bool((np.abs(values) > LARGEST).any()):
        raise LinkError("past readings were refused: they hold times or values that cannot be shown")
    return past.start_unix_s + after, values
