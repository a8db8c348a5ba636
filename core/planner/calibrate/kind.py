"""The kind `calibrate`: a card's own factors of the cost model, its records, and the cost model turned round: what a
measured time says about one factor. Any thread; no torch until a run is made.

    seconds of a kernel = (compute⁴ + memory⁴)^¼ + kernel          (`core.virtual.device.cost`)
    seconds of a launch = (kernel⁴ + host⁴)^¼, in a stream of tiny operations
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from devexplorer.core.base import (
    MISSING,
    BadInput,
    Findings,
    count_text,
    number_text,
    parse_seconds,
    range_text,
    seconds_text,
)
from devexplorer.core.benchmark.kind import (
    UNITS,
    BenchmarkKind,
    Entry,
    Figure,
    Headline,
    Option,
    RunInputs,
    figure,
    joined,
    named_devices,
    read,
    read_result,
    read_spec,
    verified_text,
    write,
)
from devexplorer.core.benchmark.spec import FLUSH_BYTES, Checks
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.catalog import sheet_of
from devexplorer.core.devices.profiles import Profile, load_profiles
from devexplorer.core.records import BaseResult, BaseSpec, CalibrationFactor, Conditions, DeviceInfo, Record, Spread
from devexplorer.core.virtual.device.cost import (
    COPY_SECONDS,
    KERNEL,
    KNEE,
    MEMORY,
    TITLES,
    HostCall,
    Roofline,
    Work,
    cost_parameters,
    scaled,
    transfer_seconds,
)

if TYPE_CHECKING:
    from devexplorer.core.benchmark.timing import Runner


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


LEAST_SHARE = 0.05
"""Of a time: what is sought has to take at least so much of it, else the measurement says nothing about it."""


def combined(rows: Iterable[CalibrationRow]) -> tuple[CalibrationFactor, ...]:
    """The factors of all measurements so far; of several for one factor the geometric mean (float16 and bfloat16, both
    directions of a link)."""
    values: dict[str, list[Spread]] = {}
    for row in rows:
        if row.value is not None:
            values.setdefault(row.factor, []).append(row.value)
    factors = []
    for name, known in values.items():
        mean = geometric_mean(each.median for each in known)
        low, high = min(each.p20 for each in known), max(each.p80 for each in known)
        factors.append(CalibrationFactor(name=name, value=mean, low=low, high=high))
    return tuple(factors)


def roofline_of(card: Profile, factors: Mapping[str, float]) -> Roofline:
    """The cost model of a card with these factors."""
    return Roofline(card, scaled(cost_parameters(), factors))


def without(seconds: float, other: float) -> float | None:
    """What takes, together with `other`, so long as a sum of the model's powers; None: too little to tell."""
    rest = max(seconds**KNEE - other**KNEE, 0.0) ** (1 / KNEE)
    return rest if rest and rest >= LEAST_SHARE * seconds else None


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
    known = [without(each, on_device) for each in seconds]
    return [host / modelled for host in known if host is not None]


def compute_factors(card: Profile, work: Work, seconds: Sequence[float], factors: Mapping[str, float]) -> list[float]:
    """By each time of a kernel that computes; `factors`: those of everything else in it."""
    compute, memory, layout = roofline_of(card, factors).bounds(work)
    fixed = cost_parameters()[KERNEL] * factors.get(KERNEL, 1.0) + layout
    known = [without(each - fixed, memory) for each in seconds if each > fixed]
    return [compute / spent for spent in known if spent is not None]


def link_factors(card: Profile, nbytes: int, seconds: Sequence[float]) -> list[float]:
    """By each time of a copy between the card and the host."""
    modelled = transfer_seconds(card, None, nbytes) - COPY_SECONDS
    return [modelled / (each - COPY_SECONDS) for each in seconds if each > COPY_SECONDS]


CALIBRATED_KINDS = ("cuda", "virtual")
NEEDED_BYTES = (768 << 20) + FLUSH_BYTES
"""The largest measurement and what empties the cache (`probes.Sizes`)."""
LONGEST_SECONDS = 600.0


def check_calibrate(spec: CalibrateSpec, registry: DeviceRegistry) -> CalibrateSpec:
    """The specification with its device's canonical name. Raises `BadInput` with everything that is wrong; allocates
    nothing."""
    checks = Checks(registry)
    device = next(iter(checks.devices((spec.device,))), None)
    seconds = checks.checked(lambda: parse_seconds(spec.seconds))
    if seconds is not None and seconds > LONGEST_SECONDS:
        checks.add(f"a calibration lasts {LONGEST_SECONDS:.0f} s at most, not {spec.seconds:g}")
    if device is not None:
        info = registry.info(device)
        if checks.checked(lambda: card_of(info)) is not None:
            checks.fits(device, NEEDED_BYTES, "a calibration needs")
    checks.demand_none()
    return replace(spec, device=device or spec.device)


def card_of(info: DeviceInfo) -> Profile:
    """The profile of a device. Raises `BadInput` where there is none: the cost model starts from a datasheet."""
    if info.kind not in CALIBRATED_KINDS:
        raise BadInput(
            f"{info.id} cannot be calibrated: the cost model is one of GPUs; choose a CUDA device or a virtual GPU"
        )
    if (info.uuid or "").upper().startswith("MIG-"):
        raise BadInput(f"{info.id} is a MIG instance, and the cost model is one of whole cards; choose a whole card")
    card = sheet_of(info.name, load_profiles())
    if card is None:
        raise BadInput(
            f"there is no profile of {info.name}, which a calibration is relative to; docs/virtual_gpus.md lists the"
            " cards that have one"
        )
    return card


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
    part, page = CalibrationRow, "devexplorer.gui.fit.calibrate_page:CalibratePage"
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
        from devexplorer.core.bandwidth.run import Copier  # torch
        from devexplorer.core.benchmark.matmul import cache_flush  # torch
        from devexplorer.core.benchmark.timing import timer_for  # torch
        from devexplorer.core.planner.calibrate.run import CalibrateRun  # torch

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
        rates = [row.measured for row in result.rows if row.factor == MEMORY]
        return Headline(rates[0] if rates else None, UNITS["gb_per_s"])

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
    if row.measured is None or row.modelled is None:
        return (MISSING,) * 5
    texts = []
    for value in (row.measured.median, row.modelled):
        texts.append(seconds_text(value) if row.unit == "s" else f"{number_text(value)} {row.unit}")
    factor = between = MISSING
    if row.value is not None:
        factor, between = f"{row.value.median:.3f}", range_text(f"{row.value.p20:.3f}", f"{row.value.p80:.3f}")
    noise = MISSING if row.noise is None else f"{100 * row.noise:.1f} %"
    return texts[0], texts[1], factor, between, noise


def factors_text(factors: Sequence[CalibrationFactor]) -> str:
    """`memory bandwidth 0.97, float32 products 1.02, …`"""
    return ", ".join(f"{TITLES.get(factor.name, factor.name)} {factor.value:.2f}" for factor in factors)
