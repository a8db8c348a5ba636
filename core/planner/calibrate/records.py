"""The records of a calibration: what a card measured of itself. Any thread."""

from __future__ import annotations

from devexplorer.core.records import BaseResult, BaseSpec, Record, Spread


class CalibrateSpec(BaseSpec, tag="calibrate"):
    """A card's own factors of the cost model, by a few kernels of each class."""

    device: str
    seconds: float = 10.0
    """Of all measurements together."""


class CalibrationRow(Record, omit_defaults=True):
    """One measurement of a calibration beside what the cost model says."""

    factor: str
    """The factor that it gives: a key of `core.virtual.device.cost.SCALED`."""
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
