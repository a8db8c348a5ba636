"""What a card measured of itself: its own factors of the cost model, and the benchmark that finds them. Plain frozen
records, made on any thread."""

from __future__ import annotations

from devexplorer.core.records.base import Record
from devexplorer.core.records.benchmark_parts import BaseResult, Spread


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


class CalibrateSpec(Record, tag="calibrate"):
    """A card's own factors of the cost model, by a few kernels of each class."""

    device: str
    seconds: float = 10.0
    """Of all measurements together."""


class CalibrationRow(Record, omit_defaults=True):
    """One measurement of a calibration beside what the cost model says."""

    factor: str
    """The factor that it gives: a key of `core.virtual.device.calibration.SCALED`."""
    text: str
    """What was measured: `float16 product, 8192×8192×8192`."""
    unit: str = ""
    """`TFLOP/s`, `GB/s`, or `s` for one kernel or operation."""
    measured: Spread | None = None
    """In that unit."""
    modelled: float | None = None
    """The same by the cost model for a card of this profile."""
    value: Spread | None = None
    """The factor: measured over modelled of what the factor stands for alone; None with a reason."""
    reason: str | None = None
    noise: float | None = None
    """Interquartile range over median of the samples."""
    iterations: int = 0
    seconds: float = 0.0
    verified: bool | None = None


MOST_NOISE = 0.15
"""Interquartile range over median of a measurement: above it something else was using the card."""
MOST_HOST_NOISE = 0.6
"""The same of time on the host, which always has other things to do."""


class CalibrateResult(BaseResult, tag="calibrate"):
    """A finished (or stopped) calibration."""

    spec: CalibrateSpec
    card: str
    """The profile that the factors are relative to."""
    rows: tuple[CalibrationRow, ...]

    @property
    def unusable(self) -> str | None:
        """Why it is no calibration of the card, in one sentence; None: it is one."""
        if self.stopped:
            return "The calibration did not finish, so it was not saved."
        if self.verified is False:
            return "Wrong values came back, so the calibration was not saved."
        for row in self.rows:
            most = MOST_HOST_NOISE if row.factor == "host" else MOST_NOISE
            if row.noise is not None and row.noise > most:
                return (
                    f"{row.text} varied by {100 * row.noise:.0f} %, so the calibration was not saved: something else"
                    f" uses {self.spec.device} or its host. Calibrate again when it is idle."
                )
        return None
