"""What the cards of a simulated fleet would read, and how fast each is: declared noise from a seed, and the defects
that were asked for. Vectors over all cards; any thread, one at a time.

What is assumed, for want of datasheets that say it:

- Healthy cards of one type differ by a factor with a standard deviation of 1.5 %, and a block of measuring by 1 %.
- Power, temperature and clock are those of `core.devices.board_model`.
- The driver of a hot card lowers the clock by what the card is slower.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from devexplorer.core.base import BadInput, count_text
from devexplorer.core.devices.board_model import (
    HOT_C,
    IDLE,
    IDLE_C,
    IDLE_CLOCK,
    LOADED_C,
    TOO_HOT,
    power_share,
    settled_c,
    warmed,
)
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.fleet.simulated.defects import Defect
from devexplorer.core.records import DeviceSample

Floats = npt.NDArray[np.float64]

BETWEEN_CARDS = 0.015
BETWEEN_BLOCKS = 0.01


class VirtualCards:
    """`nodes` machines with the same cards. Arrays have the shape `(nodes, cards)`."""

    def __init__(self, nodes: int, profiles: Sequence[Profile], defects: Sequence[Defect] = (), seed: int = 0) -> None:
        """Raises `BadInput` where a defect is of a card that there is not."""
        self.nodes, self.profiles, self.defects = nodes, tuple(profiles), tuple(defects)
        self.shape = nodes, len(profiles)
        for defect in defects:
            if defect.node >= nodes or defect.card >= len(profiles):
                there_is = f"{count_text(nodes, 'node')} with {count_text(len(profiles), 'card')}"
                raise BadInput(
                    f"--defect {defect.kind}:{defect.node}/{defect.card}: the fleet has {there_is}, counted from 0"
                )
        self._random = np.random.default_rng(seed)
        self.factor = np.clip(self._random.normal(1.0, BETWEEN_CARDS, self.shape), 0.9, 1.1)
        """Of each card's rate; a part of the simulation, not of what is measured."""
        self._own_c = self._random.normal(0.0, 1.5, self.shape)
        self._temperature = IDLE_C + self._own_c
        self._clock = np.array([profile.boost_clock_mhz or np.nan for profile in profiles])
        self._power = np.array([profile.tdp_w or np.nan for profile in profiles])
        self._last_s = np.full(nodes, np.nan)
        self.loaded = np.zeros(self.shape, dtype=bool)
        """Which cards are measured now."""

    def share_missing(self, *kinds: str) -> Floats:
        """What the defects of these kinds take from the rate of each card, 0 to 1."""
        missing = np.zeros(self.shape)
        for defect in self.defects:
            if defect.kind in kinds:
                missing[defect.node, defect.card] = max(missing[defect.node, defect.card], defect.share)
        return missing

    @property
    def lost(self) -> npt.NDArray[np.bool_]:
        """Cards that do not answer."""
        return self.share_missing("lost") > 0

    def noise(self, count: int) -> Floats:
        """The factors of `count` blocks of measuring."""
        return self._random.normal(1.0, BETWEEN_BLOCKS, count)

    def samples(self, now: float, names: Sequence[str], part: slice = slice(None)) -> list[tuple[DeviceSample, ...]]:
        """A reading of each card that answers, by node, of these nodes. `names`: ids of the cards of a node."""
        elapsed = np.nan_to_num(now - self._last_s[part]).clip(0.0)[:, None]
        self._last_s[part] = now
        loaded, hot, own = self.loaded[part], self.share_missing("hot")[part], self._own_c[part]
        goal = settled_c(loaded.astype(float), np.where(hot > 0, HOT_C, LOADED_C)) + own
        kept = self._temperature[part] = warmed(self._temperature[part], goal, elapsed)
        jitter = self._random.normal(0.0, 1.0, (2, *kept.shape))
        memory = np.array([profile.memory_bytes for profile in self.profiles])
        rows = zip(
            np.round(kept + 0.3 * jitter[0]),
            self._power * power_share(loaded.astype(float)) * (1 + 0.01 * jitter[1]),
            self._clock * np.where(loaded, 1 - hot, IDLE_CLOCK),
            np.where(self.share_missing("pcie")[part] > 0, 4, 16),
            (hot > 0) & loaded,
            loaded,
            self.lost[part],
            np.where(loaded, 0.2, 0.0) * memory,
            strict=True,
        )
        return [tuple(self._readings(now, names, *row)) for row in rows]

    def _readings(self, now: float, names: Sequence[str], *rows: npt.NDArray[np.generic]) -> list[DeviceSample]:
        readings = []
        columns = zip(*(row.tolist() for row in rows), strict=True)
        for name, profile, values in zip(names, self.profiles, columns, strict=True):
            temperature, power, clock, width, throttled, loaded, lost, used = values
            if lost:
                continue
            reasons: tuple[str, ...] = ()
            if throttled:
                reasons = (TOO_HOT,)
            elif not loaded:
                reasons = (IDLE,)
            readings.append(
                DeviceSample(
                    device=name,
                    time_unix_s=now,
                    memory_used_bytes=int(used),
                    memory_total_bytes=profile.memory_bytes,
                    utilization_percent=100.0 if loaded else 0.0,
                    temperature_c=temperature,
                    power_w=None if power != power else round(power, 1),
                    power_cap_w=profile.tdp_w,
                    sm_clock_mhz=None if clock != clock else round(clock),
                    throttle_reasons=reasons,
                    pcie_width=width,
                    ecc_corrected=0,
                    ecc_uncorrected=0,
                    simulated=True,
                )
            )
        return readings
