"""What a roofline is drawn from: the points, and how high the roof is, by stored and current runs of one device. No
widgets; any thread.

Method: Williams, Waterman and Patterson, Roofline (CACM 52, 2009). The intensity of a product is its operations over
the bytes of A, B and the output, each counted once: what must go through memory at least. The measured roof is the best
throughput of each dtype, and the rate of the largest copies within the device; such a copy reads each byte and writes
it, so its traffic is twice the rate at which data arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from devexplorer.core.bandwidth.kind import LEAST_COPY_BYTES, TRAFFIC, BandwidthResult, BandwidthRow
from devexplorer.core.base import bytes_text, number_text, rate_texts, shape_text
from devexplorer.core.benchmark.kind import title
from devexplorer.core.benchmark.published import best as best_published
from devexplorer.core.benchmark.published import verdict
from devexplorer.core.benchmark.spec import PRODUCTS, operand_bytes
from devexplorer.core.history.filter import device_here, device_of
from devexplorer.core.records import BenchResult, DeviceInfo, MatmulResult, Spread, StoredRun
from devexplorer.core.scaling.kind import ScalingResult
from devexplorer.core.sweep.kind import SweepCell, SweepResult


class RooflineTarget(NamedTuple):
    """A device that a roofline can be drawn of: one that is here, or one that only the history knows."""

    key: str
    id: str
    """Empty for one that is not here: its number says nothing here."""
    name: str
    """Of the card."""
    simulated: bool
    info: DeviceInfo | None = None
    """None: not here."""
    place: str = ""
    """Where it is, if it is not here."""

    @property
    def text(self) -> str:
        """For a list to choose from."""
        return "   ".join(
            part for part in (self.id, self.name, "simulated" if self.simulated else "", self.place) if part
        )


class Point(NamedTuple):
    """One throughput."""

    intensity: float
    """FLOP per byte."""
    tflops: float
    dtype: str
    what: str
    shape: str
    """`4096×4096×4096`"""
    spread: Spread
    mode: str = "burst"
    run: int | None = None
    """Number in the history; None: of this session, and not (yet) kept."""
    when_unix_s: float | None = None
    is_wrong: bool = False
    """The values did not agree with a higher precision: no part of the roof."""


class Ceiling(NamedTuple):
    """How fast one dtype was, and could be."""

    dtype: str
    best: Point | None
    datasheet: float | None
    """TFLOP/s."""
    words: str
    """`81 % of datasheet, 94 % of the best published`; empty where nothing is measured or there is nothing to compare
    with."""
    best_published: float | None = None


class Memory(NamedTuple):
    """How fast memory was, and could be; GB/s, decimal."""

    gb_per_s: float | None = None
    datasheet: float | None = None
    copied_bytes: int = 0
    reason: str = ""
    """Why it is not measured."""


class DrawnRoofline(NamedTuple):
    """Everything that is drawn."""

    target: RooflineTarget
    points: tuple[Point, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    memory: Memory = Memory()
    left_out: int = 0
    """Runs of this device whose intensity is unknown."""

    @property
    def is_empty(self) -> bool:
        """Nothing is measured, and no datasheet is known."""
        return not self.points and not self.ceilings and self.memory.gb_per_s is None and self.memory.datasheet is None

    def roof(self, point: Point) -> float | None:
        """TFLOP/s that the measured roof allows at a point's intensity; None where no such roof is measured."""
        if self.memory.gb_per_s is None:
            return None
        best = [item.best.tflops for item in self.ceilings if item.dtype == point.dtype and item.best is not None]
        return min(point.intensity * self.memory.gb_per_s / 1e3, *best)


# --- devices ----------------------------------------------------------------------------------------------------------


def key_of(info: DeviceInfo) -> str:
    """What identifies a device of this machine."""
    return info.uuid or f"{info.id} {info.name}"


def key_of_run(run: StoredRun, here: Sequence[DeviceInfo]) -> str:
    """The same of the device that a run measured, whether it is here or not."""
    info, known = device_here(run, here), run.conditions
    return key_of(info) if info is not None else known.uuid or f"{known.host} {device_of(run)} {known.device_name}"


def targets(here: Sequence[DeviceInfo], runs: Iterable[StoredRun]) -> tuple[RooflineTarget, ...]:
    """Devices of this machine that torch can use, then those that only runs of the history know."""
    result = {
        key_of(info): RooflineTarget(key_of(info), info.id, info.name, info.simulated, info)
        for info in here
        if info.usable
    }
    for run in runs:
        key = key_of_run(run, here)
        if key not in result and kinds_with_points(run.result):
            known = run.conditions
            place = f"on {known.host}" if known.host and run.imported else "not here"
            result[key] = RooflineTarget(
                key, "", known.device_name or device_of(run), run.result.simulated, None, place
            )
    return tuple(result.values())


def kinds_with_points(result: BenchResult) -> bool:
    """Whether a run can say anything about a roofline."""
    return isinstance(result, MatmulResult | SweepResult | BandwidthResult | ScalingResult)


# --- points -----------------------------------------------------------------------------------------------------------


def intensity(m: int, n: int, k: int, dtype: str) -> float:
    """FLOP per byte of a product.

    >>> round(intensity(4096, 4096, 4096, "bfloat16"))
    1365
    """
    return 2 * m * n * k / sum(operand_bytes(m, n, k, dtype))


def points_of(
    result: BenchResult, device: str, run: int | None = None, when_unix_s: float | None = None
) -> Iterator[Point]:
    """Every throughput with a known intensity that a result holds about the device of that id."""
    match result:
        case MatmulResult(spec=spec, tflops=spread) if spread.median > 0:
            sides, wrong = spec.shape, result.verified is False
            yield _point(sides, spec.dtype, spread, title(spec), spec.mode, run, when_unix_s, wrong)
        case SweepResult(cells=cells, spec=spec):
            yield from cell_points(cells, spec.dtype, run, when_unix_s)
        case ScalingResult(spec=spec, walls=walls):
            seconds = next((wall.seconds for wall in walls if wall.device == device and wall.seconds > 0), None)
            if seconds is not None:
                sides, wrong = (spec.size,) * 3, result.verified is False
                tflops = 2 * spec.size**3 * spec.iterations / seconds / 1e12
                spread = Spread(tflops, tflops, tflops)
                yield _point(sides, spec.dtype, spread, title(spec), "scaling", run, when_unix_s, wrong)


def cell_points(
    cells: Iterable[SweepCell], dtype: str, run: int | None = None, when_unix_s: float | None = None
) -> Iterator[Point]:
    """Shapes of a sweep, those that were measured."""
    for cell in cells:
        if cell.tflops is not None and cell.tflops.median > 0:
            sides = cell.shape
            wrong = cell.verified is False  # only in imported files: wrong values have no speed here
            name = f"sweep {shape_text(sides)} {dtype}"
            yield _point(sides, dtype, cell.tflops, name, "burst", run, when_unix_s, wrong)


def _point(
    sides: tuple[int, int, int],
    dtype: str,
    spread: Spread,
    what: str,
    mode: str,
    run: int | None,
    when_unix_s: float | None,
    is_wrong: bool,
) -> Point:
    at = intensity(*sides, dtype)
    return Point(at, spread.median, dtype, what, shape_text(sides), spread, mode, run, when_unix_s, is_wrong)


def inner_copies(result: BenchResult, device: str) -> Iterator[BandwidthRow]:
    """Copies within the device that were large enough and arrived right."""
    if isinstance(result, BandwidthResult):
        for row in result.rows:
            is_inner = row.source == row.destination == device and not row.both_ways
            if is_inner and row.gb_per_s is not None and row.verified is not False and row.bytes >= LEAST_COPY_BYTES:
                yield row


# --- the roof ---------------------------------------------------------------------------------------------------------


def roofline(
    target: RooflineTarget, points: Iterable[Point], copies: Iterable[BandwidthRow], left_out: int = 0
) -> DrawnRoofline:
    """Put together what is known of one device."""
    every = tuple(points)
    best: dict[str, Point] = {}
    for point in every:
        if not point.is_wrong and point.tflops > (best[point.dtype].tflops if point.dtype in best else 0.0):
            best[point.dtype] = point
    sheet = target.info.datasheet_tflops if target.info is not None else {}
    order = {name: place for place, name in enumerate(PRODUCTS)}
    names = sorted({*best, *sheet}, key=lambda name: (order.get(name, len(order)), name))
    ceilings = tuple(_ceiling(target, name, best.get(name), sheet.get(name)) for name in names)
    return DrawnRoofline(target, every, ceilings, _memory(target, tuple(copies)), left_out)


def _ceiling(target: RooflineTarget, dtype: str, best: Point | None, datasheet: float | None) -> Ceiling:
    row = best_published(target.name, dtype)
    words = verdict(best.tflops, datasheet, row, best.mode) if best is not None else ""
    return Ceiling(dtype, best, datasheet, words, row.peak_burst if row is not None else None)


def _memory(target: RooflineTarget, copies: tuple[BandwidthRow, ...]) -> Memory:
    """Of the largest copies the fastest."""
    datasheet = target.info.memory_gb_s if target.info is not None else None
    largest = max((row.bytes for row in copies), default=0)
    rates = [row.gb_per_s.median for row in copies if row.bytes == largest and row.gb_per_s is not None]
    if not rates:
        where = target.id or "this device"
        reason = (
            f"No copy of {bytes_text(LEAST_COPY_BYTES, 0)} or more within {where} has been measured, so the measured"
            " slope is unknown."
        )
        return Memory(None, datasheet, 0, reason)
    return Memory(TRAFFIC * max(rates), datasheet, largest)


def point_words(point: Point, drawn: DrawnRoofline) -> list[str]:
    """A point in words, line by line."""
    roof = drawn.roof(point)
    ceiling = next((item for item in drawn.ceilings if item.dtype == point.dtype), None)
    worth = ""
    if ceiling is not None and not point.is_wrong:
        row = best_published(drawn.target.name, point.dtype)
        worth = verdict(point.tflops, ceiling.datasheet, row, point.mode)
    spread = point.spread
    middle, low, high, unit = rate_texts("TFLOP/s", point.tflops, spread.p20, spread.p80)
    return [
        f"{middle} {unit}" + (", simulated" if drawn.target.simulated else ""),
        f"middle 60 % from {low} to {high}" if spread.p80 > spread.p20 else "",
        f"{number_text(point.intensity)} FLOP per byte",
        "" if roof is None else f"{100 * point.tflops / roof:.0f} % of the measured roof there",
        worth,
        "✕ the values were wrong" if point.is_wrong else "",
    ]
