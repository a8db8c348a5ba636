"""What the sensors of a simulated card read: power, temperature and SM clock, by how busy it is. One model for virtual
GPUs and simulated fleets; docs/virtual_gpus.md says what is assumed. Pure, any thread.

`busy` is a share of time, 0 to 1. Figures of many cards are arrays of one shape.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Figures = TypeVar("Figures", float, npt.NDArray[np.float64])

IDLE_C, LOADED_C, HOT_C = 32.0, 66.0, 91.0
"""Where the temperature settles: without work, under full load, and under full load where cooling fails."""
LIMIT_C = 87.0
"""From here on the driver lowers the clock."""
IDLE_POWER, LOADED_POWER = 0.15, 0.95
"""Shares of the power limit."""
IDLE_CLOCK = 0.1
"""Share of the boost clock, without work."""
WARM_UP_S = 20.0
"""In which the difference to the final temperature falls to 1/e."""
TOO_HOT = "too hot (the driver lowers the clocks)"
IDLE = "idle"


def power_share(busy: Figures) -> Figures:
    """Of the power limit."""
    return IDLE_POWER + (LOADED_POWER - IDLE_POWER) * busy


def settled_c(busy: Figures, loaded_c: Figures) -> Figures:
    """The temperature that a card approaches; `loaded_c` under full load."""
    return IDLE_C + (loaded_c - IDLE_C) * busy


def warmed(before_c: Figures, final_c: Figures, seconds: Figures) -> Figures:
    """The temperature after `seconds` on the way from one to the other."""
    kept: Figures = math.e ** (-seconds / WARM_UP_S)
    return final_c + (before_c - final_c) * kept


def clock_share(busy: float, temperature_c: float) -> float:
    """Of the boost clock: a card that is at its limit gives up 2 % for each degree above it, at most half."""
    if busy <= 0:
        return IDLE_CLOCK
    if temperature_c < LIMIT_C:
        return 1.0
    return max(0.98 - 0.02 * (temperature_c - LIMIT_C), 0.5)
