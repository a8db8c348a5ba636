"""What a measured time says about one factor, when those of the other classes are known: the cost model turned round.
Pure functions, any thread; no torch.

    seconds of a kernel = (compute⁴ + memory⁴)^¼ + kernel          (`core.virtual.device.cost`)
    seconds of a launch = (kernel⁴ + host⁴)^¼, in a stream of tiny operations
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.calibrate.records import CalibrationRow
from devexplorer.core.records import CalibrationFactor, Spread
from devexplorer.core.virtual.device.cost import (
    COPY_SECONDS,
    KERNEL,
    KNEE,
    MEMORY,
    HostCall,
    Roofline,
    Work,
    cost_parameters,
    scaled,
    transfer_seconds,
)

LEAST_SHARE = 0.05
"""Of a time: what is sought has to take at least so much of it, else the measurement says nothing about it."""


def combined(rows: Iterable[CalibrationRow]) -> tuple[CalibrationFactor, ...]:
    """The factors of all measurements so far; of several for one factor the geometric mean (float16 and bfloat16, both
    directions of a link)."""
    values: dict[str, list[Spread]] = {}
    for row in rows:
        if row.value is not None:
            values.setdefault(row.factor, []).append(row.value)
    return tuple(
        CalibrationFactor(
            name=name,
            value=math.prod(each.median for each in known) ** (1 / len(known)),
            low=min(each.p20 for each in known),
            high=max(each.p80 for each in known),
        )
        for name, known in values.items()
    )


def roofline_of(card: Profile, factors: Mapping[str, float]) -> Roofline:
    """The cost model of a card with these factors."""
    return Roofline(card, scaled(cost_parameters(), factors))


def without(seconds: float, other: float) -> float | None:
    """What takes, together with `other`, so long as a sum of the model's powers; None: too little to tell."""
    rest = seconds**KNEE - other**KNEE
    least = LEAST_SHARE * seconds
    return rest ** (1 / KNEE) if rest > 0 and rest ** (1 / KNEE) >= least else None


def memory_factors(card: Profile, long: Work, seconds: Sequence[float], tiny: Work, tiny_seconds: float) -> list[float]:
    """By each time of a long kernel that only reads and writes, beside the time of a tiny one."""
    model = Roofline(card)
    between = model.bounds(long)[1] - model.bounds(tiny)[1]
    return [between / (each - tiny_seconds) for each in seconds if each > tiny_seconds]


def kernel_factors(card: Profile, tiny: Work, seconds: Sequence[float], factors: Mapping[str, float]) -> list[float]:
    """By each time of a tiny kernel."""
    memory = roofline_of(card, {MEMORY: factors.get(MEMORY, 1.0)}).bounds(tiny)[1]
    return [(each - memory) / cost_parameters()[KERNEL] for each in seconds if each > memory]


def host_factors(seconds: Sequence[float], on_device: float) -> list[float]:
    """By each time of a tiny operation in a stream of them, of which the card itself takes `on_device`."""
    modelled = cost_parameters()[HostCall.FORWARD]
    return [host / modelled for each in seconds if (host := without(each, on_device)) is not None]


def compute_factors(card: Profile, work: Work, seconds: Sequence[float], factors: Mapping[str, float]) -> list[float]:
    """By each time of a kernel that computes; `factors`: those of everything else in it."""
    model = roofline_of(card, factors)
    compute, memory, layout = model.bounds(work)
    fixed = cost_parameters()[KERNEL] * factors.get(KERNEL, 1.0) + layout
    return [
        compute / spent for each in seconds if each > fixed and (spent := without(each - fixed, memory)) is not None
    ]


def link_factors(card: Profile, nbytes: int, seconds: Sequence[float]) -> list[float]:
    """By each time of a copy between the card and the host."""
    modelled = transfer_seconds(card, None, nbytes) - COPY_SECONDS
    return [modelled / (each - COPY_SECONDS) for each in seconds if each > COPY_SECONDS]
