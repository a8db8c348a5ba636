"""The figures of a run in one form, whatever kind of benchmark it was: comparisons, exports and reports read these.
Pure functions, any thread; no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from devexplorer.core.benchmark.statistics import noise_of_spread
from devexplorer.core.records import Spread

UNITS = {"tflops": "TFLOP/s", "gb_per_s": "GB/s", "samples_per_s": "samples/s", "seconds": "s", "speedup": "times"}
"""Quantity -> unit."""


class Figure(NamedTuple):
    """One quantity that a run measured."""

    key: tuple[str, ...]
    """What was measured; equal keys of two runs are the same thing."""
    quantity: str
    """A key of `UNITS`."""
    spread: Spread
    samples: tuple[float, ...] = ()
    """In the order of measurement; empty where only the spread is known."""
    noise: float | None = None
    """Interquartile range over median; None as well where it is simulated: what is computed has no noise."""
    simulated: bool = False
    place: float | None = None
    """Its position on the axis of a plot: the cube root of M·N·K, bytes of a copy."""
    verified: bool | None = None
    """Whether the values behind this very figure were compared and right; None: not compared."""
    iterations: int = 0
    seconds: float | None = None
    """How long this very figure was measured; None: unknown."""

    @property
    def label(self) -> str:
        """What was measured, as one text; empty where the run measured one thing only."""
        return ", ".join(part for part in self.key if part)

    @property
    def unit(self) -> str:
        """Unit of the number."""
        return UNITS[self.quantity]

    @property
    def more_is_better(self) -> bool:
        """Not so for durations."""
        return self.quantity != "seconds"


class Headline(NamedTuple):
    """The one figure that a run is known by."""

    spread: Spread | None
    unit: str
    noise: float | None = None
    datasheet: float | None = None
    """TFLOP/s of the datasheet, where the figure is comparable with it."""
    is_sustained: bool | None = None
    """Whether it compares with a published sustained figure (True) or burst figure (False); None: with neither."""


def figure(
    key: tuple[str, ...], quantity: str, known: Spread, measured: Any, simulated: bool, place: float | None = None
) -> Figure:
    """A figure of which only the spread is known; `measured` is the result, or the part of it, that it belongs to."""
    noise = None if simulated else noise_of_spread(known)
    how = measured.verified, measured.iterations, measured.seconds
    return Figure(key, quantity, known, (), noise, simulated, place, *how)


def simulated_text(known: Sequence[Figure]) -> str:
    """What to write beside the device of a simulated run of these figures. Of copies between a virtual GPU and devices
    that exist some can be real."""
    marks = {figure.simulated for figure in known}
    if len(marks) > 1:
        return "partly simulated"
    return "" if marks == {False} else "simulated"


def exact(value: float) -> Spread:
    """A quantity that was measured once."""
    return Spread(median=value, p20=value, p80=value)
