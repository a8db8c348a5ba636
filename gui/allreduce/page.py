"""The Allreduce page of the Benchmark tab: the sum over ranks, in many sizes. Main thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from devexplorer.core.allreduce.kind import FACTOR, AllReduceResult, AllReduceRow, AllReduceSpec, fastest, rate_of
from devexplorer.core.allreduce.messages import CPU_RANKS, DTYPES
from devexplorer.core.base import MISSING, bytes_text, count_text, number_text, parse_dtype, seconds_text
from devexplorer.core.benchmark.spec import parse_byte_sizes
from devexplorer.core.session import Run
from devexplorer.core.session.running import is_simulated
from devexplorer.gui.benchmark.base_page import PicturePage, took
from devexplorer.gui.charts.size_curve import GB_UNITS, Series, SizeCurve
from devexplorer.gui.forms.device_choice import DeviceChoice
from devexplorer.gui.widgets import Cell, Column, MenuEdit, RowsTable, TableRow, line_edit, numbers, splitter

SIZES = "4K:64M"
CHOICES = (
    ("4 KiB to 64 MiB, each twice the last", SIZES),
    ("small tensors: latency", "1K:64K"),
    ("64 MiB to 1 GiB", "64M:1G"),
    ("64 MiB", "64M"),
)
"""What the menu of sizes offers, and what it writes."""
COLUMNS = (
    numbers("size", "Bytes of each rank's tensor"),
    numbers("bus GB/s", "Algorithm bandwidth times 2·(n−1)/n: comparable with the rate of a link"),
    numbers("algorithm GB/s", "Bytes over seconds"),
    numbers("one all-reduce", "Median over blocks, of the slowest rank"),
    Column("values", "Whether every rank has the exact sum"),
)
WIDTHS_PX = (82, 76, 104, 104, 70)
TABLE_PX = 490


class RankDevices(DeviceChoice):
    """Until the user picks, it is every CUDA device, or every virtual GPU, where there are two; else the CPU, which has
    several ranks."""

    def _first(self, usable: list[str]) -> list[str]:
        kinds = {name: self._state.devices[name].info.kind for name in usable}
        groups = ([name for name in usable if kinds[name] == kind] for kind in ("cuda", "virtual"))
        return next((group for group in groups if len(group) > 1), [name for name in usable if name == "cpu"])


class AllReducePage(PicturePage[AllReduceSpec]):
    """One specification: a rank on each device, or several on the CPU."""

    kind = "allreduce"
    nothing = "No all-reduce has been measured in this session."
    device_choice = RankDevices

    def build(self) -> None:
        self.ranks_edit = line_edit(str(CPU_RANKS), str(CPU_RANKS), "Processes on the CPU", 48)
        self.dtype_edit = MenuEdit("float32", "dtype", [(name, name) for name in DTYPES], 116)
        self.sizes_edit = MenuEdit(SIZES, "bytes of each rank's tensor", CHOICES, 140)
        self.sizes_edit.setToolTip(
            "Sizes, separated by commas: 64K, 1M; FROM:TO takes twice the one before, from one to the other"
        )
        self.seconds_edit = line_edit("0.2", "0.2", "Seconds per size", 48)
        self.add_field("ranks on", self.devices)
        self._ranks = self.add_field("ranks", self.ranks_edit)
        self.add_fields(("dtype", self.dtype_edit), ("sizes", self.sizes_edit), ("seconds each", self.seconds_edit))
        self.table = RowsTable(COLUMNS, "Bandwidth by size", WIDTHS_PX, gives_up=(3, 2))
        self.curve = SizeCurve("Bus bandwidth over the size of a tensor", GB_UNITS)
        self.table.setMinimumWidth(220)
        pictures = splitter(self.table, self.curve, stretches=(0, 1))
        pictures.setSizes([TABLE_PX, TABLE_PX])
        self.add_picture(pictures)

    # the form

    @property
    def on_cpu(self) -> bool:
        """Whether the ranks are processes on the CPU."""
        return self.devices.chosen == ("cpu",)

    def check(self) -> None:
        self._ranks.setVisible(self.on_cpu)
        super().check()

    def specs(self) -> tuple[AllReduceSpec, ...]:
        """One for all ranks. Raises one `BadInput` with everything that is wrong."""
        findings, chosen = self.checked(), self.devices.chosen
        findings.add(*self.mixed_clocks(chosen))
        if "cpu" in chosen and not self.on_cpu:
            findings.add("ranks on the CPU and on cards cannot be in one world; choose devices of one kind")
        if len(chosen) == 1 and self._state.devices[chosen[0]].info.simulated:
            findings.add("an all-reduce needs two virtual GPUs or more; choose another one", virtual_helps=True)
        ranks = findings.count(self.ranks_edit.text().strip(), "ranks") if self.on_cpu else None
        if ranks == 1:
            findings.add("an all-reduce needs two ranks or more")
        dtype = findings.checked(lambda: parse_dtype(self.dtype_edit.text()))
        if dtype is not None and dtype not in DTYPES:
            findings.add(f"an all-reduce of {dtype} is not measured; take one of {', '.join(DTYPES)}")
        sizes = findings.checked(lambda: parse_byte_sizes(self.sizes_edit.text(), FACTOR))
        seconds = findings.seconds(self.seconds_edit.text().strip())
        findings.demand_none()
        assert dtype is not None
        assert sizes is not None
        assert seconds is not None
        return (AllReduceSpec(devices=chosen, ranks=ranks, dtype=dtype, sizes=sizes, seconds=seconds),)

    def describe(self, specs: Sequence[AllReduceSpec]) -> str:
        """How many ranks and sizes, and how long they take."""
        spec = specs[0]
        measuring = took(len(spec.sizes) * spec.seconds)
        return f"{count_text(spec.own_ranks, 'rank')}, {count_text(len(spec.sizes), 'size')}, {measuring} of measuring"

    # the runs

    def tell(self, run: Run, rows: Sequence[AllReduceRow]) -> None:
        assert isinstance(run.spec, AllReduceSpec)
        result, backend = run.result, ""
        if isinstance(result, AllReduceResult) and not is_simulated(run, self._state):
            backend = result.backend
        wrong = next((f"✕ {row.reason}." for row in rows if row.verified is False and row.reason), "")
        self.summary.say(headline(rows), words(run.spec, backend), run, warning=wrong)

    def draw(self, run: Run, rows: Sequence[AllReduceRow]) -> None:
        spec = run.spec
        assert isinstance(spec, AllReduceSpec)
        self.table.set_rows([table_row(row) for row in rows])
        rates = [(float(row.bytes), rate) for row in rows if (rate := rate_of(row)) is not None]
        rates.sort(key=lambda pair: pair[0])
        points = tuple((size, rate.median, rate.p20, rate.p80) for size, rate in rates)
        between = (float(min(spec.sizes)), float(max(spec.sizes))) if len(spec.sizes) > 1 else None
        self.curve.set_axis("", partial(bytes_text, digits=0), count_text(spec.world_size, "rank"), between)
        colour = self._state.look_of(spec.device)[0]
        name = "bus bandwidth" if spec.world_size > 1 else "algorithm bandwidth"
        self.curve.set_curves([Series(name, colour, points, is_simulated(run, self._state))] if points else [])


def table_row(row: AllReduceRow) -> TableRow:
    """A size in the table."""
    seconds = None if row.operation_seconds is None else row.operation_seconds.median
    rates = [
        MISSING if rate is None else number_text(rate.median) for rate in (row.bus_gb_per_s, row.algorithm_gb_per_s)
    ]
    if row.verified is False:
        values = Cell("✕ wrong", "error", row.reason or "")
    elif row.verified:
        values = Cell("correct")
    else:
        values = Cell("—")
    return TableRow(row.bytes, (Cell(bytes_text(row.bytes, 0)), *map(Cell, rates), Cell(seconds_text(seconds)), values))


def headline(rows: Sequence[AllReduceRow]) -> str:
    """`229 GB/s at 256 MiB`: the best bandwidth; empty where nothing was measured."""
    row = fastest(rows)
    rate = None if row is None else rate_of(row)
    if row is None or rate is None:
        return ""
    return f"{number_text(rate.median)} GB/s at {bytes_text(row.bytes, 0)}"


def words(spec: AllReduceSpec, backend: str) -> str:
    """What was measured, in a sentence."""
    bandwidth = "Bus bandwidth" if spec.world_size > 1 else "Algorithm bandwidth"
    over = f" over {backend}" if backend else ""
    return f"{bandwidth} of the sum of one {spec.dtype} tensor of each of {count_text(spec.world_size, 'rank')}{over}."
