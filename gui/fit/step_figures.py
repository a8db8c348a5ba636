"""What the roofline of a step is drawn from: classes of operations and the card's limits. Pure; main thread."""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.base import MISSING, number_text, seconds_text
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.records import Fit, FitSpec, StepPart
from devexplorer.core.virtual.device.terms import unit_of
from devexplorer.gui.widgets import Figures

SAME = 1.01
"""Rates that near to each other are one line."""


class StepPoint(NamedTuple):
    """A class of operations in the step; all simulated."""

    operations: str
    seconds: float
    share: float
    """Of the cards' time."""
    intensity: float | None
    """FLOP per byte; None: its FLOP are not counted."""
    tflops: float | None
    gb_per_s: float
    bandwidth_share: float
    """Bytes per second over the card's bandwidth."""
    compute_share: float
    """Of its time, in kernels that computing bounds."""


class StepFigures(NamedTuple):
    """Everything that is drawn."""

    points: tuple[StepPoint, ...]
    """What takes longest first."""
    rates: tuple[tuple[str, float], ...]
    """dtypes with the card's TFLOP/s, the lowest first."""
    gb_per_s: float
    """The card's bandwidth, by its datasheet."""
    across: tuple[float, float]
    """FLOP per byte, from and to."""
    up: tuple[float, float]
    """TFLOP/s."""
    strip_roof: float
    """TFLOP/s at which the memory's line is drawn for classes without counted FLOP."""


def step_figures(fit: Fit, spec: FitSpec, profile: Profile) -> StepFigures | None:
    """Of a fit on this card, or several of the same; None where it has no step."""
    total = sum(part.seconds for part in fit.parts)
    if not total:
        return None
    points = tuple(_point(part, total, profile) for part in fit.parts if part.seconds > 0)
    rates = _rates(spec, profile)
    ridges = [rate * 1e3 / profile.memory_gb_s for _, rate in rates]
    intensities = [point.intensity for point in points if point.intensity]
    across = min(*ridges, *intensities) / 4, max(*ridges, *intensities) * 3
    achieved = [point.tflops for point in points if point.tflops]
    entry = profile.memory_gb_s * across[0] / 1e3
    up = min(*achieved, entry / 2, entry) / 2, max(rate for _, rate in rates) * 2
    return StepFigures(points, rates, profile.memory_gb_s, across, up, max(entry, up[0] * 8))


def _point(part: StepPart, total: float, profile: Profile) -> StepPoint:
    gb_per_s = part.nbytes / part.seconds / 1e9
    return StepPoint(
        operations=part.operations,
        seconds=part.seconds,
        share=part.seconds / total,
        intensity=part.flop / part.nbytes if part.flop and part.nbytes else None,
        tflops=part.flop / part.seconds / 1e12 if part.flop and part.nbytes else None,
        gb_per_s=gb_per_s,
        bandwidth_share=max(gb_per_s / profile.memory_gb_s, 1e-3),
        compute_share=part.compute_bound_seconds / part.seconds,
    )


def _rates(spec: FitSpec, profile: Profile) -> tuple[tuple[str, float], ...]:
    """Of float32's vectors, and of the unit that computes the products."""
    products = spec.autocast or spec.dtype or "float32"
    dtypes = ["float32", products] + (["tf32"] if products == "float32" and "tf32" in profile.tflops else [])
    result: dict[str, float] = {}
    for dtype in dtypes:
        rate = unit_of(dtype, profile)[1] / 1e12
        if all(not 1 / SAME <= rate / known <= SAME for known in result.values()):
            result["TF32" if dtype == "tf32" else dtype] = rate
    return tuple(sorted(result.items(), key=lambda item: item[1]))


def point_text(point: StepPoint) -> str:
    """`convolutions: 12.8 ms, 49 % of the step; 13.3 TFLOP/s at 352 FLOP per byte; 96 % of it bound by computing`."""
    rate = (
        f"{number_text(point.tflops)} TFLOP/s at {number_text(point.intensity)} FLOP per byte"
        if point.intensity
        else f"{number_text(point.gb_per_s)} GB/s, FLOP not counted"
    )
    bound = f"{100 * point.compute_share:.0f} % bound by computing" if point.compute_share >= 0.005 else "memory-bound"
    return f"{point.operations}: {seconds_text(point.seconds)}, {100 * point.share:.0f} % (simulated); {rate}; {bound}"


def figures_table(found: StepFigures) -> Figures:
    """For "Show as table"."""
    rows: list[tuple[str, ...]] = [
        (
            point.operations,
            f"{1e3 * point.seconds:.4g}",
            f"{100 * point.share:.1f}",
            MISSING if point.intensity is None else f"{point.intensity:.4g}",
            MISSING if point.tflops is None else f"{point.tflops:.4g}",
            f"{point.gb_per_s:.4g}",
            f"{100 * point.compute_share:.0f}",
        )
        for point in found.points
    ]
    columns = ("Operations", "ms simulated", "% of the time", "FLOP per byte", "TFLOP/s simulated", "GB/s simulated",
               "% bound by computing")  # fmt: skip
    limits = [f"{name} {rate:,g} TFLOP/s" for name, rate in found.rates]
    return Figures(columns, rows, f"Datasheet: memory {found.gb_per_s:,g} GB/s; {'; '.join(limits)}")
