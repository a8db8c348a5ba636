"""What the plots over time keep of a curve: what it shows, and what it was drawn from. No widget, any thread."""

from __future__ import annotations

import math
from typing import NamedTuple

from devexplorer.core.telemetry.history import History


class Series(NamedTuple):
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
