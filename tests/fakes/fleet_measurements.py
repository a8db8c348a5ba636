"""Simulated measurements of many cards, with declared and seeded noise and with injected defects. Any thread.

Everything that is made here is marked simulated. The noise model, which is an assumption and no measurement:

- a healthy card differs from its kind by one factor, the same for all of its measurements (σ `cards`): two measurements
  of one card are then no independent evidence, which makes finding a slow one harder, not easier;
- from run to run of one card σ `runs`, from block to block σ `blocks`, where each block carries the share `carried` of
  the deviation of the one before it (AR(1));
- all normal in the logarithm.

A defect multiplies the rates that it slows, and changes the readings that would show it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from devexplorer.core.fleet.records import CardMeasurement, CauseId, LoadReadings, MeasuredKind, Rates
from devexplorer.core.fleet.verdicts.scores import Floats


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations, as shares."""

    cards: float = 0.015
    blocks: float = 0.01
    runs: float = 0.005
    carried: float = 0.0


class DefectKind(enum.Enum):
    """What is wrong with a card."""

    SLOW = "slow"
    HOT = "hot"
    POWER = "power"
    PCIE = "pcie"
    GENERATION = "generation"
    ECC = "ecc"
    PROCESS = "process"
    LINK = "link"
    LOST = "lost"

    @property
    def cause(self) -> CauseId | None:
        """What a check should name; None: the card is lost."""
        return _CAUSES.get(self)


_CAUSES = {
    DefectKind.SLOW: CauseId.CARD,
    DefectKind.HOT: CauseId.THERMAL,
    DefectKind.POWER: CauseId.POWER_CAP,
    DefectKind.PCIE: CauseId.PCIE_WIDTH,
    DefectKind.GENERATION: CauseId.PCIE_GENERATION,
    DefectKind.ECC: CauseId.ECC,
    DefectKind.PROCESS: CauseId.OTHER_PROCESS,
    DefectKind.LINK: CauseId.LINK,
}
_ON_CARD = (MeasuredKind.MATMUL, MeasuredKind.MEMORY)
_SLOWED: dict[DefectKind, tuple[MeasuredKind, ...]] = {
    DefectKind.PCIE: (MeasuredKind.COPIES,),
    DefectKind.GENERATION: (MeasuredKind.COPIES,),
    DefectKind.LINK: (MeasuredKind.PEER, MeasuredKind.ALLREDUCE),
}
"""Others slow products and memory."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One card's."""

    kind: DefectKind
    factor: float = 0.9
    """What its rates are multiplied by."""


RATES = {MeasuredKind.MATMUL: 700.0, MeasuredKind.MEMORY: 3000.0, MeasuredKind.COPIES: 55.0, MeasuredKind.PEER: 350.0}
"""Of a card without deviation; TFLOP/s and GB/s."""


def block_noise(rng: np.random.Generator, shape: tuple[int, ...], noise: Noise) -> Floats:
    """Logarithms; the last axis is time."""
    steps = rng.normal(0.0, noise.blocks, shape)
    if noise.carried == 0.0:
        return steps
    fresh = np.sqrt(1 - noise.carried**2)
    for index in range(1, shape[-1]):
        steps[..., index] = noise.carried * steps[..., index - 1] + fresh * steps[..., index]
    return steps


def measured(
    rng: np.random.Generator,
    cards: int,
    defects: dict[int, Defect],
    noise: Noise | None = None,
    *,
    kinds: Sequence[MeasuredKind] = tuple(RATES),
    blocks: int = 30,
    former_runs: int = 0,
    name: str = "NVIDIA H100 80GB HBM3",
    decoys: float = 0.0,
) -> tuple[CardMeasurement, ...]:
    """A fleet of eight cards a machine, each measured in blocks of a second; cards count from 0.

    `decoys`: the chance that a card, healthy or not, has a reading that differs and slows nothing.
    """
    noise = noise or Noise()
    deviations = rng.normal(0.0, noise.cards, cards)
    capped = bool(rng.random() < 0.5)
    result = []
    for index in range(cards):
        defect = defects.get(index)
        if defect is not None and defect.kind is DefectKind.LOST:
            rates: tuple[Rates, ...] = ()
        else:
            rates = tuple(_rates(rng, kind, deviations[index], defect, noise, blocks, former_runs) for kind in kinds)
        readings = _healthy(rng, float(deviations[index]), capped)
        if defect is not None:
            readings = _with_defect(rng, readings, defect)
        if rng.random() < decoys:
            readings = _with_decoy(rng, readings)
        result.append(
            CardMeasurement(
                machine=f"node{index // 8}",
                device=f"vgpu:{index % 8}",
                name=name,
                memory_total_bytes=80 << 30,
                power_limit_default_w=700.0,
                rates=rates,
                readings=readings,
                lost=defect is not None and defect.kind is DefectKind.LOST,
                simulated=True,
            )
        )
    return tuple(result)


def _rates(
    rng: np.random.Generator,
    kind: MeasuredKind,
    deviation: float,
    defect: Defect | None,
    noise: Noise,
    blocks: int,
    former_runs: int,
) -> Rates:
    slowed = () if defect is None else _SLOWED.get(defect.kind, _ON_CARD)
    factor = defect.factor if defect is not None and kind in slowed else 1.0
    base = RATES[kind] * np.exp(deviation)
    now = base * factor * np.exp(rng.normal(0.0, noise.runs) + block_noise(rng, (blocks,), noise))
    former = base * np.exp(rng.normal(0.0, noise.runs, former_runs))
    return Rates(kind=kind, blocks=tuple(now.tolist()), block_s=1.0, former=tuple(former.tolist()))


# --- readings ---------------------------------------------------------------------------------------------------------

_READINGS = 60
"""One a second."""


def _healthy(rng: np.random.Generator, deviation: float, capped: bool) -> LoadReadings:
    """`capped`: the whole fleet runs into its power limit, as many cards do under products."""
    share = rng.binomial(_READINGS, 0.95 if capped else 0.02) / _READINGS
    return LoadReadings(
        sm_clock_mhz=1700 * float(np.exp(deviation + rng.normal(0, 0.003))),
        memory_clock_mhz=2619.0,
        power_w=float(rng.normal(692 if capped else 610, 8)),
        power_cap_w=700.0,
        temperature_c=float(rng.normal(64, 3)),
        throttled={"power cap": share} if share else {},
        ecc_corrected=int(rng.poisson(0.2)),
        ecc_uncorrected=0,
        remapping_pending=False,
        pcie_generation=5,
        pcie_width=16,
        pcie_generation_max=5,
        pcie_width_max=16,
        pcie_replays=int(rng.poisson(1.0)),
        other_processes=int(rng.binomial(1, 0.1)),
        other_utilization_percent=float(rng.exponential(0.3)),
    )


def _with_defect(rng: np.random.Generator, readings: LoadReadings, defect: Defect) -> LoadReadings:
    clock = (readings.sm_clock_mhz or 0.0) * defect.factor
    changed: dict[str, Any]
    match defect.kind:
        case DefectKind.HOT:
            share = rng.binomial(_READINGS, rng.uniform(0.3, 1.0)) / _READINGS
            changed = {
                "sm_clock_mhz": clock,
                "temperature_c": float(rng.normal(86, 2)),
                "throttled": {**(readings.throttled or {}), "too hot (the driver lowers the clocks)": share},
            }
        case DefectKind.POWER:
            cap = 700.0 * defect.factor**1.5  # below the knee, power grows faster than the clock
            share = rng.binomial(_READINGS, 0.95) / _READINGS
            changed = {
                "sm_clock_mhz": clock,
                "power_cap_w": cap,
                "power_w": float(rng.normal(cap - 6, 4)),
                "throttled": {"power cap": share},
            }
        case DefectKind.PCIE:
            changed = {"pcie_width": int(rng.choice((4, 8)))}
        case DefectKind.GENERATION:
            changed = {"pcie_generation": int(rng.choice((3, 4)))}
        case DefectKind.ECC:
            changed = {"ecc_corrected": int(rng.poisson(float(rng.uniform(20, 400))))}
        case DefectKind.PROCESS:
            share = 100 * (1 - defect.factor)
            changed = {"other_processes": 1, "other_utilization_percent": float(rng.normal(share, share / 5))}
        case DefectKind.SLOW if rng.random() < 0.5:
            changed = {"sm_clock_mhz": clock}
        case _:
            changed = {}
    return replace(readings, **changed)


def _with_decoy(rng: np.random.Generator, readings: LoadReadings) -> LoadReadings:
    """One reading that differs without slowing anything, or is not known."""
    choices: tuple[dict[str, Any], ...] = (
        {"temperature_c": (readings.temperature_c or 0.0) + 10},
        {"other_processes": 2, "other_utilization_percent": (readings.other_utilization_percent or 0.0) + 1.5},
        {"ecc_corrected": (readings.ecc_corrected or 0) + 6},
        {"pcie_generation": min(4, readings.pcie_generation or 4)},
        {"throttled": None},
        {"power_cap_w": min(690.0, readings.power_cap_w or 690.0)},
    )
    return replace(readings, **choices[int(rng.integers(len(choices)))])
