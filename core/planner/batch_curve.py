"""Time and memory of a step over the batch, from one sample to more than the card holds. In the planner's process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.calculator import FitCalculator
from devexplorer.core.planner.limits import LARGEST_BATCH
from devexplorer.core.planner.records import BatchPoint, Fit

POINTS = 9
"""About so many batches: each is a run of the step without values."""


def curve_batches(batch: int, largest: int | None, *, at_least: bool) -> list[int]:
    """Powers of two up to the largest batch that fits, this one and the one that was asked for; then one that does not
    fit, unless the search ended at its limit.

    >>> curve_batches(8, 100, at_least=False)
    [1, 2, 4, 8, 16, 32, 64, 100, 200]
    """
    most = max(largest or batch, 1)
    every = max(math.ceil(math.log2(most) / (POINTS - 2)), 1) if most > 1 else 1
    powers = range(0, int(math.log2(most)) + 1, every)
    beyond = {min(2 * most, LARGEST_BATCH)} if largest is not None and not at_least else set()
    return sorted({2**power for power in powers} | {batch, most} | beyond)


def batch_curve(
    calculator: FitCalculator, profiles: Sequence[Profile], now: Fit, progress: Callable[[float, str], None]
) -> tuple[BatchPoint, ...]:
    """A point for each batch that can be run; nothing for cards that the model could not be divided over."""
    if not any(card.bytes.allocated for card in now.cards):
        return ()
    wanted = curve_batches(calculator.spec.batch, now.largest_batch, at_least=now.at_least)
    points, missing = [], []
    for index, batch in enumerate(wanted):
        progress(index / len(wanted), f"a step with a batch of {batch:,}")
        if not calculator.cache.has_time:
            missing = wanted[index:]
            break
        try:
            points.append(_point(calculator, profiles, batch))
        except (BadInput, Unavailable):  # a model that takes some batches only
            missing.append(batch)
    if missing:
        left_out = ", ".join(f"{batch:,}" for batch in missing)
        calculator.cache.notes[f"The curve over the batch lacks {left_out}: not run, or no time was left."] = None
    return tuple(points)


def _point(calculator: FitCalculator, profiles: Sequence[Profile], batch: int) -> BatchPoint:
    device_map = calculator.placed(profiles, calculator.config, batch)
    traces = calculator.cache.traces(calculator.config, batch, device_map)
    cards = calculator.cards(traces, profiles)
    fullest = max(cards, key=lambda card: card.bytes.total / card.capacity_bytes)
    fits = all(card.fits for card in cards)
    step = calculator.estimate(traces, profiles) if fits else None
    return BatchPoint(
        batch=batch,
        total_bytes=fullest.bytes.total,
        capacity_bytes=fullest.capacity_bytes,
        fits=fits,
        step_seconds=step and step.seconds,
        step_seconds_low=step and step.low,
        step_seconds_high=step and step.high,
    )
