"""What the samples of one run say: spreads, noise, which of them are kept; the length of a block. Pure functions, any
thread; no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from devexplorer.core.records import Spread

Floats = npt.NDArray[np.float64]

FEWEST = 4
"""Parts that each of two runs needs to be compared: of three and three, 1 in 10 ways to deal is as extreme as can
be."""
QUIET, NOISY = 0.01, 0.05
"""Interquartile range over median: below the one a run is quiet, above the other noisy."""
MOST_SAMPLES = 200
_IQR_OVER_P20_P80 = 0.6745 / 0.8416
"""Of a normal distribution: its quartiles lie 0.6745 deviations from the median, its 20th and 80th percentile
0.8416."""


def spread(samples: Sequence[float]) -> Spread:
    """Median, 20th and 80th percentile; raises `ValueError` without a sample."""
    if not len(samples):
        raise ValueError("a spread needs at least one sample")
    p20, median, p80 = (float(value) for value in np.percentile(np.asarray(samples, dtype=np.float64), (20, 50, 80)))
    return Spread(median=median, p20=min(p20, median), p80=max(p80, median))  # interpolation can be off by one rounding


def noise(samples: Sequence[float]) -> float | None:
    """Interquartile range over median. None where there are fewer than two samples, or no positive median."""
    if len(samples) < 2:
        return None
    lower, median, upper = np.percentile(np.asarray(samples, dtype=np.float64), (25, 50, 75))
    return max(float((upper - lower) / median), 0.0) if median > 0 else None


def noise_of_spread(known: Spread) -> float | None:
    """What `noise` would be if the samples were normally distributed; None where all three figures are one (a single
    sample, say)."""
    if known.median <= 0 or known.p80 <= known.p20:
        return None
    return (known.p80 - known.p20) / known.median * _IQR_OVER_P20_P80


def noise_verdict(value: float | None) -> str:
    """A verdict of one or two words; empty where the noise is not known."""
    if value is None:
        return ""
    if value < QUIET:
        return "quiet"
    return "noisy" if value > NOISY else "some noise"


def thinned(samples: Sequence[float], most: int = MOST_SAMPLES) -> tuple[float, ...]:
    """At most so many of the samples, evenly chosen, in their order, the first and the last among them."""
    if len(samples) <= most:
        return tuple(map(float, samples))
    return tuple(float(samples[index]) for index in np.linspace(0, len(samples) - 1, most).round().astype(int))


T = TypeVar("T")

STOPPED_EARLY = "stopped early"
"""Why a run that the user stopped has no result."""
BLOCK_SECONDS = 0.05
LONGEST_BLOCK = 10_000
"""Iterations."""
MOST_KEPT = 200_000
"""Kept for the percentiles."""


def block_length(each: float) -> int:
    """Iterations of `each` seconds that fill a block: 1 at least."""
    return int(min(max(BLOCK_SECONDS / each, 1), LONGEST_BLOCK)) if each > 0 else LONGEST_BLOCK


class Samples(Generic[T]):
    """Figures in the order in which they were measured. When there are too many, every second one is kept, then every
    fourth, …"""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self.kept: list[T] = []
        self._most = most
        self._stride = 1
        self._seen = 0

    def add(self, samples: Iterable[T]) -> None:
        """Remember samples."""
        for sample in samples:
            if self._seen % self._stride == 0:
                self.kept.append(sample)
            self._seen += 1
            if len(self.kept) > self._most:
                del self.kept[1::2]
                self._stride *= 2
