"""What a card measured of itself: its own factors of the cost model. Plain frozen records, made on any thread."""

from __future__ import annotations

from devexplorer.core.records.base import Record


class CalibrationFactor(Record):
    """How one class of work on a card compares with the cost model."""

    name: str
    """One of `core.virtual.device.calibration.SCALED`."""
    value: float
    """Measured over modelled, in the unit of the quantity: above 1 a rate is faster, a time slower."""
    low: float
    """The 20th percentile of the samples over the modelled figure."""
    high: float
    """The 80th."""


class Calibration(Record, omit_defaults=True):
    """A card's own factors, and where and when they were measured."""

    name: str
    """What the calibrated card is called among the cards: `Tesla T4 calibrated on 27 Nov 2026`, and
    ` (simulated)` where a virtual GPU was."""
    card: str
    """The profile that the factors are relative to."""
    factors: tuple[CalibrationFactor, ...]
    measured_unix_s: float
    device: str = ""
    uuid: str | None = None
    host: str = ""
    """The machine that the card is in."""
    torch_version: str = ""
    simulated: bool = False
    """Measured on a virtual GPU: it says what the cost model says."""

    @property
    def values(self) -> dict[str, float]:
        """Factor by name."""
        return {factor.name: factor.value for factor in self.factors}

    @property
    def key(self) -> tuple[str, str | None, str, str, bool]:
        """Calibrations with equal keys are of one card in one environment: the newer one replaces the other."""
        return self.card, self.uuid, self.host, self.torch_version, self.simulated
