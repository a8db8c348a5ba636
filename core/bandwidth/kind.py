"""The kind `bandwidth`: copies between and within devices. Any thread; no torch until a run is checked."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from devexplorer.core.base import BadInput, Findings, bytes_text, seconds_text
from devexplorer.core.benchmark.kind import (
    ALL_DEVICES,
    UNITS,
    BenchmarkKind,
    Entry,
    Figure,
    Headline,
    Option,
    RunInputs,
    figure,
    flat,
    joined,
    named_devices,
    read,
    read_result,
    spread_texts,
    verified_text,
    write,
)
from devexplorer.core.benchmark.spec import parse_byte_sizes
from devexplorer.core.devices.catalog import sheet_of
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.records import BaseResult, BaseSpec, Conditions, DeviceInfo, Record, Spread

if TYPE_CHECKING:
    from devexplorer.core.benchmark.timing import Runner
    from devexplorer.core.devices.backend import DeviceRegistry

LEAST_COPY_BYTES = 64 << 20
"""Smaller copies stay in the cache of a large card, and say nothing about its memory."""
TRAFFIC = 2
"""Bytes read and written for each byte that a copy within the device delivers."""
MOST_BYTES = 1 << 62
"""Of one copy in an imported file."""


class BandwidthSpec(BaseSpec, tag="bandwidth"):
    """Copies between devices, or within one: every pair of `sources` and `destinations` in every size."""

    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    sizes: tuple[int, ...] = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28)
    """Bytes per copy."""
    pinned: tuple[bool, ...] = (True, False)
    """Kinds of host memory to measure with; without meaning where the host is not involved."""
    both_ways: bool = False
    """Also copy there and back at the same time."""
    seconds: float = 0.2
    """Measured time per pair, size and kind."""

    @property
    def device(self) -> str:
        """The device that the run is listed under."""
        return next((name for name in (*self.destinations, *self.sources) if name != "cpu"), "cpu")


class BandwidthRow(Record, omit_defaults=True):
    """One pair, size and kind of copy."""

    source: str
    destination: str
    bytes: int
    pinned: bool | None = None
    """Kind of host memory; None where the host is not involved."""
    both_ways: bool = False
    """There and back at once; the rate is the sum of both."""
    gb_per_s: Spread | None = None
    """Decimal GB/s of data arrived; a copy within one device counts once."""
    seconds: Spread | None = None
    """Of one copy, from the call to its end: its latency where it is small."""
    iterations: int = 0
    verified: bool | None = None
    """Whether what arrived was compared bit by bit and equal; None: not compared."""
    reason: str | None = None
    """Why it was not measured."""
    simulated: bool = False
    measured_seconds: float | None = None
    """All copies of `gb_per_s` together, on the clock that timed them."""


class BandwidthResult(BaseResult, tag="bandwidth"):
    """A finished (or stopped) bandwidth run."""

    spec: BandwidthSpec
    rows: tuple[BandwidthRow, ...]


class BandwidthEntry(Entry, kw_only=True):
    """One pair, size and kind of copy."""

    source: str
    destination: str
    bytes: int
    device: str = ""
    pinned: bool | None = None
    both_ways: bool = False
    gb_per_s: Spread | None = None
    copy_seconds: Spread | None = None
    reason: str | None = None


class BandwidthKind(BenchmarkKind[BandwidthSpec, BandwidthResult]):
    """Copies between all pairs of devices, in many sizes."""

    spec, result, entry = BandwidthSpec, BandwidthResult, BandwidthEntry
    part, page = BandwidthRow, "devexplorer.gui.bandwidth.page:BandwidthPage"
    title, about = "Bandwidth", "measure copies between devices"
    meaning = "Copies between and within devices: how fast, how soon, and whether the data arrives right"
    columns = ("from", "to", ">size", "host memory", ">GB/s median", ">p20", ">p80", ">one copy", "verified", "")
    across = "bytes of a copy"
    datasheet_note = (
        "A copy within a card reads and writes every byte: at most it is half as fast as the memory of the datasheet."
    )
    wrong_values = "the data that arrived differs"
    options = (
        ALL_DEVICES,
        Option("--seconds", "how long to measure each copy (default 0.2)", "S"),
        Option("--from", "copy from there (default: the devices)", "D", "sources", several=True),
        Option("--to", "copy to there (default: the devices)", "D", "destinations", several=True),
        Option("--bytes", 'bytes per copy: "4K,1M" or "4K:1G" (default 4K,64K,1M,16M,256M)', "SIZES"),
        Option("--pinned", "pinned host memory only (default: both)"),
        Option("--pageable", "pageable host memory only (default: both)"),
        Option("--both-ways", "there and back at once, too"),
    )

    def specs(self, arguments: argparse.Namespace, findings: Findings) -> list[BandwidthSpec]:
        named = named_devices(arguments, default=())
        default = BandwidthSpec(sources=(), destinations=())
        if arguments.pinned and arguments.pageable:
            findings.add("--pinned and --pageable exclude each other; omit both to measure both")
        pinned = (*([True] if arguments.pinned else []), *([False] if arguments.pageable else []))
        sizes = findings.parsed(arguments.bytes, parse_byte_sizes, default.sizes)
        return [
            BandwidthSpec(
                sources=flat(arguments.sources) or named,
                destinations=flat(arguments.destinations) or named,
                sizes=sizes,
                pinned=pinned or default.pinned,
                both_ways=bool(arguments.both_ways),
                seconds=findings.seconds(arguments.seconds, "--seconds") or default.seconds,
            )
        ]

    def on_devices(self, spec: BandwidthSpec, devices: Sequence[DeviceInfo]) -> BandwidthSpec:
        """Copies between all of them where none was named."""
        usable = tuple(info.id for info in devices if info.usable)
        return replace(spec, sources=spec.sources or usable, destinations=spec.destinations or usable)

    def devices(self, spec: BandwidthSpec) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*spec.sources, *spec.destinations)))

    def check(self, spec: BandwidthSpec, registry: DeviceRegistry) -> BandwidthSpec:
        from devexplorer.core.bandwidth.run import check_bandwidth  # torch

        return check_bandwidth(spec, registry)

    def runner(self, spec: BandwidthSpec, inputs: RunInputs) -> Runner[Any]:
        from devexplorer.core.bandwidth.run import BandwidthRun  # torch

        return BandwidthRun(spec, inputs.run, inputs.registry, inputs.stop, inputs.clock)

    def caption(self, spec: BandwidthSpec) -> str:
        return f"bandwidth {', '.join(self.devices(spec))}"

    def choice_text(self, spec: BandwidthSpec, where: str) -> str:
        return f"{where}, {len(spec.sizes)} sizes"

    def figures(self, result: BandwidthResult) -> tuple[Figure, ...]:
        return tuple(
            figure(row_key(row), "gb_per_s", row.gb_per_s, row, row.simulated, float(row.bytes))._replace(
                seconds=row.measured_seconds
            )
            for row in result.rows
            if row.gb_per_s is not None
        )

    def headline(self, result: BandwidthResult) -> Headline:
        row = chief_copy(result)
        return Headline(None if row is None else row.gb_per_s, UNITS["gb_per_s"])

    def datasheet(self, result: BandwidthResult, conditions: Conditions, of: Figure | None = None) -> float | None:
        """Of large copies within the card that the conditions name."""
        chief = chief_copy(result)
        size: float | None
        if of is not None:
            key, size = of.key, of.place
        elif chief is not None:
            key, size = row_key(chief), chief.bytes
        else:
            return None
        device = result.spec.device
        if key[:1] != (f"{device} → {device}",) or key[-1] or (size or 0) < LEAST_COPY_BYTES:
            return None
        memory = _memory_gb_s(conditions.device_name)
        return None if memory is None else memory / TRAFFIC

    def subject(self, result: BandwidthResult) -> str:
        row, count = chief_copy(result), len(result.rows)
        return f"{count} copies" if row is None else f"{row.source} → {row.destination}, 1 of {count}"

    def subject_tip(self, result: BandwidthResult) -> str:
        row, count = chief_copy(result), f"{len(result.rows):,} copies"
        if row is None:
            return f"{count}, none of them measured"
        memory = memory_text(row) and f" with {memory_text(row)} memory"
        return f"{bytes_text(row.bytes, 0)} {row.source} → {row.destination}{memory}, of {count}"

    def rows(self, result: BandwidthResult, conditions: Conditions) -> list[tuple[str, ...]]:
        return [
            (
                row.source, row.destination, bytes_text(row.bytes, 0), memory_text(row), *spread_texts(row.gb_per_s),
                seconds_text(row.seconds.median if row.seconds is not None else None),
                verified_text(row.verified, "no: the data differs"),
                row.reason or joined("both ways" if row.both_ways else "", simulated=row.simulated),
            )
            for row in result.rows
        ]  # fmt: skip

    def entries(self, result: BandwidthResult, conditions: Conditions | None) -> list[Entry]:
        device = result.spec.device
        return [
            write(BandwidthEntry, row, result, device=device, copy_seconds=row.seconds, seconds=row.measured_seconds)
            for row in result.rows
        ]

    def read(self, entries: Sequence[Any]) -> BandwidthResult:
        rows = tuple(
            marked(read(entry, BandwidthRow, seconds=entry.copy_seconds, measured_seconds=entry.seconds))
            for entry in entries
        )
        spec = BandwidthSpec(
            sources=tuple(dict.fromkeys(row.source for row in rows)),
            destinations=tuple(dict.fromkeys(row.destination for row in rows)),
            sizes=tuple(dict.fromkeys(row.bytes for row in rows)),
            pinned=tuple(dict.fromkeys(row.pinned for row in rows if row.pinned is not None)),
            both_ways=any(row.both_ways for row in rows),
        )
        simulated = any(row.simulated for row in rows)
        return read_result(entries, BandwidthResult, spec=spec, rows=rows, simulated=simulated)

    def belong_together(self, first: Any, other: Any) -> bool:
        return (first.device, first.conditions) == (other.device, other.conditions)

    def check_imported(self, result: BandwidthResult) -> BandwidthResult:
        if not all(0 < row.bytes < MOST_BYTES for row in result.rows):
            raise BadInput("a copy in it has no size")
        return replace(result, rows=tuple(map(marked, result.rows)))

    def roles(self, result: BandwidthResult) -> dict[str, str]:
        names = self.devices(result.spec)
        accelerators = [name for name in names if name != "cpu"]
        first = 2 if "cpu" in names else 1
        return {"cpu": "cpu"} | {name: f"device {number}" for number, name in enumerate(accelerators, first)}


@lru_cache(maxsize=256)
def _memory_gb_s(device_name: str) -> float | None:
    """By the datasheet; remembered, since a table asks for it row by row."""
    sheet = sheet_of(device_name, load_profiles())
    return None if sheet is None else sheet.memory_gb_s


def row_key(row: BandwidthRow) -> tuple[str, ...]:
    """`("cpu → cuda:0", "1.00 MiB", "pinned", "both ways")`; what does not apply is empty."""
    ways = "both ways" if row.both_ways else ""
    return (f"{row.source} → {row.destination}", bytes_text(row.bytes), memory_text(row), ways)


def memory_text(row: BandwidthRow) -> str:
    """The kind of host memory; empty where the host is not involved."""
    if row.pinned is None:
        return ""
    return "pinned" if row.pinned else "pageable"


def chief_copy(result: BandwidthResult) -> BandwidthRow | None:
    """The copy that a run is known by, the same one in equal runs: within the device it is listed under, else to it,
    else the first pair; the largest, one way, from pinned memory. Of the copies whose data arrived right: the speed of
    others says nothing."""
    device = result.spec.device
    right = [row for row in result.rows if row.gb_per_s is not None and row.verified is not False]

    def rank(row: BandwidthRow) -> tuple[bool, bool, bool, int, bool]:
        to_it = row.destination == device
        return to_it and row.source == device, to_it, not row.both_ways, row.bytes, row.pinned is True

    most = max(map(rank, right), default=None)
    if most is None:
        return None
    if not most[1]:  # nothing went there: of the first pair only
        right = [row for row in right if (row.source, row.destination) == (right[0].source, right[0].destination)]
    return max(right, key=rank)


def marked(row: BandwidthRow) -> BandwidthRow:
    """The copy, simulated where a virtual GPU takes part, whatever a file says."""
    return replace(row, simulated=row.simulated or "vgpu:" in row.source + row.destination)
