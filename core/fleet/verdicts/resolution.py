"""How slow a card has to be for a check to tell, and what would help where that is more than a tenth. Pure functions,
any thread.

A card's score is limited by how much healthy cards differ, and by how uncertain each card's own figure is. Only the
second one shrinks when measurements take longer, with the root of their time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from devexplorer.core.fleet.records import GroupCase
from devexplorer.core.fleet.verdicts.scores import PARTS, Floats, Prior, Scores, critical, t_quantile

TENTH = 0.9
"""A card at this share of its equals should be told."""
MOST_LONGER = 60.0
"""Measurements that would have to take so many times as long are no advice."""
MARGIN = 1.5
"""For what is not known exactly."""
MANY = 200.0
"""Degrees of freedom with which the number of cards would be no reason."""
OF_MEDIAN = math.pi / 2
"""The variance of a median to that of a mean: a card's figure is the one, its error that of the other."""


class Coarse(NamedTuple):
    """What keeps a check from finding a card that is a tenth slower."""

    case: GroupCase
    slow_below: float
    """Share of the median of its equals from which on a card is called slow, of the card in the middle."""
    share: float | None = None
    """Of the rate: by how much healthy cards differ, or how uncertain one card's own figure is."""
    seconds: float | None = None
    """That each measurement should take."""


def coarse(scores: Scores, errors: Floats, seconds: Floats, prior: Prior, comparisons: int, alpha: float) -> Coarse:
    """Of scores that do not tell a tenth. `errors`: the standard error of each card's figure, NaN where it has too few
    blocks to know it; `seconds`: for how long each was measured. `alpha`: `FAMILY_WISE`."""
    limits = critical(scores, comparisons, alpha)
    slow_below = math.exp(-float(np.nanmedian(limits * scores.scale)))
    known = errors[np.isfinite(errors)]
    lasted = float(np.median(seconds))  # NaN where that is not known
    if not len(known):
        return Coarse(GroupCase.UNCERTAIN, slow_below, None, rounded(lasted * PARTS))
    others = float(np.median(scores.others))
    error2, spread2 = OF_MEDIAN * float(np.median(known)) ** 2, float(np.nanmedian(scores.spread)) ** 2
    healthy = max(spread2 - error2, 0.0)
    """Variance between healthy cards, without what is uncertain of each."""
    mostly = error2 > spread2 / 2
    if mostly:  # little can be known of it then
        healthy = min(healthy, prior.spread**2)
    enough = (math.log(TENTH) / float(np.nanmedian(limits))) ** 2 / (1 + math.pi / 2 / others)
    """Variance with which a tenth would just be told."""
    freedom = max(others - 1, 1.0)
    assumed = (enough * (prior.freedom + freedom) - prior.freedom * prior.spread**2) / freedom
    allowed = min(enough, assumed)
    """The same of the variance that is measured, to which the assumed one is added."""
    longer = error2 / (allowed - healthy) if allowed > healthy else math.inf
    if longer <= MOST_LONGER and (longer > 1.0 or mostly):
        wanted_s = rounded(lasted * max(longer, 1.0) * MARGIN)
        return Coarse(GroupCase.UNCERTAIN, slow_below, math.sqrt(error2), wanted_s)
    of_many = float(t_quantile(alpha / max(comparisons, 1), np.array(MANY)))
    if of_many * math.sqrt(healthy) <= -math.log(TENTH):
        return Coarse(GroupCase.FEW, slow_below)
    return Coarse(GroupCase.DIFFER, slow_below, math.sqrt(healthy))


def rounded(seconds: float) -> float | None:
    """Up to a duration that a person would write; None for none."""
    if not math.isfinite(seconds):
        return None
    if seconds < 10:
        step = 1.0
    elif seconds < 120:
        step = 10.0
    else:
        step = 60.0
    return math.ceil(seconds / step) * step
