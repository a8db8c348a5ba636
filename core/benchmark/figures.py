"""The figures of a run in one form, whatever kind of benchmark it was: comparisons, exports and reports read these.
Pure functions, any thread; no torch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from devexplorer.core.base.formats import bytes_text, shape_text
from devexplorer.core.benchmark.documents import kind
from devexplorer.core.benchmark.statistics import FEWEST, noise, noise_of_spread
from devexplorer.core.records.benchmark import (
    BandwidthResult,
    BandwidthRow,
    BandwidthSpec,
    BenchResult,
    BenchSpec,
    MatmulResult,
    MatmulSpec,
    ModelResult,
    ModelSpec,
    ScalingResult,
    ScalingSpec,
    Spread,
    SweepCell,
    SweepResult,
    SweepSpec,
)

__all__ = ["UNITS", "Figure", "dtype", "figures", "kind", "row_key", "title"]

UNITS = {"tflops": "TFLOP/s", "gb_per_s": "GB/s", "samples_per_s": "samples/s", "seconds": "s", "speedup": "times"}
"""Quantity -> what stands behind the number."""


class Figure(NamedTuple):
    """One quantity that a run measured."""

    key: tuple[str, ...]
    """What was measured, in words; equal keys of two runs are the same thing."""
    quantity: str
    """A key of `UNITS`."""
    spread: Spread
    samples: tuple[float, ...] = ()
    """In the order of measurement; empty where only the spread is known."""
    noise: float | None = None
    """Interquartile range over median; None as well where it is simulated: what is computed has no noise."""
    simulated: bool = False
    place: float | None = None
    """Where it stands on the axis of a plot: the cube root of M·N·K, bytes of a copy."""
    verified: bool | None = None
    """Whether the values behind this very figure were compared and right; None: not compared."""
    iterations: int = 0
    seconds: float | None = None
    """How long this very figure was measured; None: nobody noted it."""

    @property
    def label(self) -> str:
        """What was measured, as one text; empty where the run measured one thing only."""
        return ", ".join(part for part in self.key if part)

    @property
    def unit(self) -> str:
        """What stands behind the number."""
        return UNITS[self.quantity]

    @property
    def more_is_better(self) -> bool:
        """Not so for durations."""
        return self.quantity != "seconds"


def figures(result: BenchResult) -> tuple[Figure, ...]:
    """Everything that the run measured, in its order; what has a reason instead of a figure is left out."""
    match result:
        case MatmulResult():
            found = [_matmul(result)]
        case SweepResult(cells=cells, simulated=simulated):
            return tuple(
                _figure((f"{cell.m}×{cell.n}×{cell.k}",), "tflops", cell.tflops, simulated)._replace(
                    place=_side(cell), verified=cell.verified, iterations=cell.iterations, seconds=cell.seconds
                )
                for cell in cells
                if cell.tflops is not None
            )
        case BandwidthResult(rows=rows):
            return tuple(
                _figure(row_key(row), "gb_per_s", row.gb_per_s, row.simulated)._replace(
                    place=float(row.bytes),
                    verified=row.verified,
                    iterations=row.iterations,
                    seconds=row.measured_seconds,
                )
                for row in rows
                if row.gb_per_s is not None
            )
        case ScalingResult(simulated=simulated):
            known = (("at once", result.parallel_seconds), ("one after the other", result.sequential_seconds))
            found = [_figure((name,), "seconds", _one(value), simulated) for name, value in known if value is not None]
            if result.speedup is not None and result.unreliable is None:
                found.append(_figure((), "speedup", _one(result.speedup), simulated))
        case ModelResult(simulated=simulated):
            found = [_figure((), "samples_per_s", result.samples_per_s, simulated)]
            found += [] if result.tflops is None else [_figure((), "tflops", result.tflops, simulated)]
    return tuple(
        figure._replace(verified=result.verified, iterations=result.iterations, seconds=result.seconds)
        for figure in found
    )


def _matmul(result: MatmulResult) -> Figure:
    samples = result.samples_tflops
    if not samples and len(result.parts_tflops) >= FEWEST:
        samples = result.parts_tflops
    measured = result.noise if result.noise is not None else noise(samples)
    known = measured if measured is not None else noise_of_spread(result.tflops)
    return Figure((), "tflops", result.tflops, samples, None if result.simulated else known, result.simulated)


def _figure(key: tuple[str, ...], quantity: str, known: Spread, simulated: bool) -> Figure:
    return Figure(key, quantity, known, (), None if simulated else noise_of_spread(known), simulated)


def _side(cell: SweepCell) -> float:
    """Of the cube with as many multiplications."""
    return math.cbrt(cell.m * cell.n * cell.k)


def _one(value: float) -> Spread:
    return Spread(median=value, p20=value, p80=value)


def row_key(row: BandwidthRow) -> tuple[str, ...]:
    """`("cpu → cuda:0", "1.00 MiB", "pinned", "both ways")`; what does not apply is empty."""
    pinned = "" if row.pinned is None else "pinned" if row.pinned else "pageable"
    return (f"{row.source} → {row.destination}", bytes_text(row.bytes), pinned, "both ways" if row.both_ways else "")


def dtype(spec: BenchSpec) -> str | None:
    """The dtype of the run; None where it has none (copies) or keeps that of the model."""
    match spec:
        case MatmulSpec() | SweepSpec() | ScalingSpec():
            return spec.dtype
        case ModelSpec():
            return spec.autocast
        case BandwidthSpec():
            return None


def title(spec: BenchSpec) -> str:
    """What was measured, in a few words: `matmul 4096×4096×4096 bfloat16 burst`."""
    match spec:
        case MatmulSpec():
            shape = shape_text((spec.m, spec.n, spec.k))
            batch = f"{spec.batch} of " if spec.batch > 1 else ""
            stored = (" A transposed" if spec.transpose_a else "") + (" B transposed" if spec.transpose_b else "")
            return f"matmul {batch}{shape} {spec.dtype}{stored} {spec.mode}"
        case SweepSpec():
            return f"sweep {spec.dtype}"
        case BandwidthSpec():
            names = list(dict.fromkeys((*spec.sources, *spec.destinations)))
            return f"bandwidth {', '.join(names)}"
        case ScalingSpec():
            return f"scaling {spec.iterations} of {shape_text((spec.size,) * 3)} {spec.dtype} on {len(spec.devices)}"
        case ModelSpec():
            step = f"training with {spec.optimizer}" if spec.train else "forward"
            more = (f" autocast {spec.autocast}" if spec.autocast else "") + (" compiled" if spec.compiled else "")
            fed = f" of {spec.inputs}" if spec.inputs else ""
            return f"model {spec.target} {step}, batch {spec.batch}{fed}{more}"
