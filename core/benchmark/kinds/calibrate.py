"""The kind `calibrate`: a card's own factors of the cost model. Any thread; no torch until a run is made."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from devexplorer.core.base import MISSING, BadInput, Findings, count_text, number_text, range_text, seconds_text
from devexplorer.core.benchmark.calibrate.check import card_of, check_calibrate
from devexplorer.core.benchmark.calibrate.solving import combined
from devexplorer.core.benchmark.calibrate.store import CalibrationStore, calibration_of
from devexplorer.core.benchmark.figures import UNITS, Figure, Headline, figure
from devexplorer.core.benchmark.kinds.entries import Entry, read, read_result, read_spec, write
from devexplorer.core.benchmark.kinds.kind import BenchmarkKind, Option, RunInputs, joined, named_devices, verified_text
from devexplorer.core.records import (
    CalibrateResult,
    CalibrateSpec,
    CalibrationFactor,
    CalibrationRow,
    Conditions,
    Spread,
)
from devexplorer.core.virtual.device.calibration import MEMORY, TITLES

if TYPE_CHECKING:
    from devexplorer.core.benchmark.runner import Runner
    from devexplorer.core.devices.backend import DeviceRegistry

QUANTITIES = {"TFLOP/s": "tflops", "GB/s": "gb_per_s", "s": "seconds"}
"""Unit of a row -> quantity of a figure."""
CARDS = Option("--device", "CUDA devices or virtual GPUs to calibrate (default: cuda:0)", "D", several=True)


class CalibrateEntry(Entry, kw_only=True):
    """One measurement, and the factors of all of them."""

    card: str
    factor: str
    text: str
    unit: str = ""
    measured: Spread | None = None
    modelled: float | None = None
    value: Spread | None = None
    noise: float | None = None
    reason: str | None = None
    unusable: str | None = None
    """Why the run is no calibration of the card."""
    factors: tuple[CalibrationFactor, ...] = ()


class CalibrateKind(BenchmarkKind[CalibrateSpec, CalibrateResult]):
    """What a card reaches, class by class, of what the cost model says of its profile."""

    spec, result, entry = CalibrateSpec, CalibrateResult, CalibrateEntry
    title, about = "Calibrations", "measure a card's own factors of the cost model, for fit"
    meaning = "What this card reaches of what the cost model says, class by class: Fit plans with it"
    columns = ("device", "", ">measured", ">modelled", ">factor", ">range", ">noise", "verified", "")
    wrong_values = "they do not agree with higher precision, or not all bytes arrived"
    options = (CARDS, Option("--seconds", "how long to measure (default 10)", "S"))

    def specs(self, arguments: argparse.Namespace, findings: Findings) -> list[CalibrateSpec]:
        seconds = findings.seconds(arguments.seconds, "--seconds") or CalibrateSpec(device="").seconds
        default = ("cuda:0",) if arguments.virtual is None else ("vgpu:0",)
        return [CalibrateSpec(device=name, seconds=seconds) for name in named_devices(arguments, default)]

    def check(self, spec: CalibrateSpec, registry: DeviceRegistry) -> CalibrateSpec:
        return check_calibrate(spec, registry)

    def runner(self, spec: CalibrateSpec, inputs: RunInputs) -> Runner[Any]:
        from devexplorer.core.benchmark.calibrate.run import CalibrateRun  # torch
        from devexplorer.core.benchmark.copying import Copier  # torch
        from devexplorer.core.benchmark.matmul import cache_flush  # torch
        from devexplorer.core.benchmark.timing import timer_for  # torch

        info = inputs.registry.info(spec.device)
        return CalibrateRun(
            spec,
            inputs.run,
            card_of(info),
            timer_for(spec.device, inputs.registry, inputs.stop, paced=False),
            Copier(inputs.registry, inputs.stop, {spec.device} if info.simulated else set()),
            inputs.stop.is_set,
            inputs.clock,
            flush=None if info.simulated else cache_flush,
        )

    def float32_mode(self, spec: CalibrateSpec) -> str | None:
        """It needs both meanings, one after the other, so nothing else that multiplies may run."""
        return f"calibration of {spec.device}"

    def duration(self, spec: CalibrateSpec) -> float | None:
        return spec.seconds

    def caption(self, spec: CalibrateSpec) -> str:
        return "calibrate"

    def choice_text(self, spec: CalibrateSpec, where: str) -> str:
        return f"{where}, {spec.seconds:g} s"

    def figures(self, result: CalibrateResult) -> tuple[Figure, ...]:
        return tuple(
            figure((row.text,), QUANTITIES[row.unit], row.measured, row, result.simulated)
            for row in result.rows
            if row.measured is not None
        )

    def headline(self, result: CalibrateResult) -> Headline:
        """The rate of memory."""
        row = next((row for row in result.rows if row.factor == MEMORY), None)
        return Headline(None if row is None else row.measured, UNITS["gb_per_s"])

    def subject(self, result: CalibrateResult) -> str:
        return count_text(len(combined(result.rows)), "factor")

    def subject_tip(self, result: CalibrateResult) -> str:
        return factors_text(combined(result.rows))

    def rows(self, result: CalibrateResult, conditions: Conditions) -> list[tuple[str, ...]]:
        return [
            (
                result.spec.device, row.text, *row_texts(row),
                verified_text(row.verified, "no"),
                joined(row.reason or "", simulated=result.simulated),
            )
            for row in result.rows
        ]  # fmt: skip

    def summary(self, result: CalibrateResult, conditions: Conditions) -> str:
        found = combined(result.rows)
        text = f"{result.card}: {factors_text(found)}" if found else "No factor could be measured."
        text = joined(text, simulated=result.simulated, stopped=result.stopped)
        return "\n".join(filter(None, (text, result.unusable)))

    def keep(self, result: CalibrateResult, conditions: Conditions) -> str:
        """The card's own calibration, which Fit plans with."""
        if result.unusable is not None:
            return ""
        kept = CalibrationStore().save(calibration_of(result, conditions))
        return f"Saved as '{kept.name}', which Fit can plan with."

    def is_curve(self, result: CalibrateResult) -> bool:
        return False

    def entries(self, result: CalibrateResult, conditions: Conditions | None) -> list[Entry]:
        shared = {"factors": combined(result.rows), "unusable": result.unusable}
        return [write(CalibrateEntry, row, result, result.spec, **shared) for row in result.rows]

    def read(self, entries: Sequence[Any]) -> CalibrateResult:
        rows = tuple(read(entry, CalibrationRow) for entry in entries)
        return read_result(entries, CalibrateResult, spec=read_spec(entries[0], CalibrateSpec), rows=rows)

    def belong_together(self, first: Any, other: Any) -> bool:
        return (first.device, first.card, first.conditions) == (other.device, other.card, other.conditions)

    def check_imported(self, result: CalibrateResult) -> CalibrateResult:
        for row in result.rows:
            if row.measured is not None and row.unit not in QUANTITIES:
                raise BadInput(f"a calibration in it has the unit '{row.unit}'; there are {', '.join(QUANTITIES)}")
        return result

    def incomparable(self, results: Sequence[CalibrateResult]) -> str:
        if len({result.card for result in results}) == 1:
            return ""
        return "these calibrations are of different cards; choose runs of one card"


def row_texts(row: CalibrationRow) -> tuple[str, str, str, str, str]:
    """Measured, modelled, the factor with its range, noise."""
    noise = MISSING if row.noise is None else f"{100 * row.noise:.1f} %"
    if row.measured is None or row.modelled is None:
        return (MISSING,) * 5
    if row.unit == "s":
        measured, modelled = seconds_text(row.measured.median), seconds_text(row.modelled)
    else:
        measured = f"{number_text(row.measured.median)} {row.unit}"
        modelled = f"{number_text(row.modelled)} {row.unit}"
    if row.value is None:
        return measured, modelled, MISSING, MISSING, noise
    value = row.value
    return measured, modelled, f"{value.median:.3f}", range_text(f"{value.p20:.3f}", f"{value.p80:.3f}"), noise


def factors_text(factors: Sequence[CalibrationFactor]) -> str:
    """`memory bandwidth 0.97, float32 products 1.02, …`"""
    return ", ".join(f"{TITLES.get(factor.name, factor.name)} {factor.value:.2f}" for factor in factors)
