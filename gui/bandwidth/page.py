"""The Bandwidth page of the Benchmark tab: copies between all chosen devices, in many sizes; the matrix of
all pairs, and the curve over the size of one pair. Main thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal, NamedTuple

from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QWidget,
)

from devexplorer.core.bandwidth.kind import BandwidthResult, BandwidthRow, BandwidthSpec
from devexplorer.core.base import MISSING, bytes_text, count_text, joined, number_text, seconds_text
from devexplorer.core.benchmark.spec import parse_byte_sizes
from devexplorer.core.session import Run, State
from devexplorer.gui.benchmark.base_page import WIDTH_PX, BenchPage, Summary, took
from devexplorer.gui.charts.size_curve import GB_UNITS, Series, SizeCurve
from devexplorer.gui.forms.device_choice import AllDevices
from devexplorer.gui.widgets import (
    EDGE_PX,
    Cell,
    Choice,
    Colour,
    Column,
    MenuEdit,
    Role,
    RowsTable,
    ScrollArea,
    TableRow,
    check_box,
    hbox,
    holder,
    label,
    line_edit,
    numbers,
    splitter,
    vbox,
)
from devexplorer.gui.widgets.table import LEAST_ROWS, ROW_PX

WRONG = "✕"
"""In front of a rate whose data arrived wrong."""
COMPARED = {
    True: "what arrived is equal bit by bit",
    False: f"{WRONG} what arrived differs from what was sent",
    None: "not compared",
}
SMALL_BYTES = 64 << 10
"""Copies up to this size show latency more than bandwidth."""
NAME_PX, CELL_PX, NARROW_CELL_PX, LEAST_CURVE_PX, LEAST_SUMMARY_PX = 90, 70, 54, 198, 190
LEAST_MATRIX_PX = 300
LATENCY = "µs per copy"
QUANTITIES = (
    ("GB/s", "GB/s", "Decimal GB/s of data arrived"),
    (LATENCY, LATENCY, "Median time of one copy, from the call to its end"),
)
MEMORY = (
    ((True, False), "pinned and pageable", "Copies from and to both kinds of host memory"),
    ((True,), "pinned", "Page-locked host memory, which the device reads and writes itself"),
    ((False,), "pageable", "Host memory as torch.empty gives it; the driver copies it once more"),
)
SIZES = "4K,64K,1M,16M,256M"
CHOICES = (
    ("five sizes", SIZES),
    ("4 KiB to 1 GiB, each four times the last", "4K:1G"),
    ("small copies: latency", "1K:64K"),
    ("1 GiB", "1G"),
)
"""What the menu of sizes offers, and what it writes."""
MOST_COPIES = 5000


class CopyKind(NamedTuple):
    """How copies were made. Both ways at once is measured once per pair, and with pinned memory."""

    pinned: bool = True
    """Kind of host memory; without meaning where the host is not involved."""
    both_ways: bool = False

    @property
    def words(self) -> str:
        """For a menu and a legend."""
        if self.both_ways:
            return "both ways at once"
        return "pinned" if self.pinned else "pageable"


class CopyRows:
    """The rows of one run, to be looked up."""

    def __init__(self, rows: Iterable[BandwidthRow]) -> None:
        self.rows = tuple(rows)
        self._by_key = {(row.source, row.destination, row.bytes, row.pinned, row.both_ways): row for row in self.rows}
        self.sizes = tuple(sorted({row.bytes for row in self.rows}))

    def find(self, source: str, destination: str, size: int, kind: CopyKind) -> BandwidthRow | None:
        """The copy. One that does not involve the host is found under either kind of host memory, one both ways under
        either direction."""
        host = (source == "cpu") != (destination == "cpu")
        pinned = (kind.pinned or kind.both_ways) if host else None
        result = self._by_key.get((source, destination, size, pinned, kind.both_ways))
        return result or (self._by_key.get((destination, source, size, pinned, True)) if kind.both_ways else None)

    @property
    def simulated_words(self) -> str:
        """Which figures of the matrix are simulated; empty: none."""
        if not any(row.simulated for row in self.rows):
            return ""
        real = dict.fromkeys(pair_text(row.source, row.destination) for row in self.rows if not row.simulated)
        return f"simulated except {', '.join(real)}" if real else "simulated"

    def round_trip(self, source: str, destination: str, size: int) -> BandwidthRow | None:
        """What was measured through the host, for a pair of accelerators whose data arrives wrong: there pinned memory
        is involved."""
        return (
            self._by_key.get((source, destination, size, True, False)) if "cpu" not in (source, destination) else None
        )

    def curve(self, source: str, destination: str, kind: CopyKind) -> tuple[tuple[float, float, float, float], ...]:
        """(bytes, GB/s median, p20, p80) of a pair, rising."""
        result = (self.find(source, destination, size, kind) for size in self.sizes)
        return tuple(
            (float(row.bytes), row.gb_per_s.median, row.gb_per_s.p20, row.gb_per_s.p80)
            for row in result
            if row is not None and row.gb_per_s is not None
        )

    def wrong(self) -> list[tuple[str, str]]:
        """Pairs whose data arrived wrong at least once."""
        return list(dict.fromkeys((row.source, row.destination) for row in self.rows if row.verified is False))

    def is_wrong(self, source: str, destination: str) -> bool:
        """Whether data of this pair arrived wrong in any size."""
        return any(row.verified is False for row in self.rows if (row.source, row.destination) == (source, destination))

    def route_words(self, source: str, destination: str, size: int) -> str:
        """The way round for a pair that cannot be trusted: through the host, and how fast that was where it was
        measured."""
        words = f'Copy through the host: x.cpu().to("{destination}")'
        row = self.round_trip(source, destination, size)
        if row is None or row.gb_per_s is None:
            return f"{words}."
        if row.verified:
            right = "equal bit by bit"
        elif row.verified is False:
            right = "wrong as well"
        else:
            right = "not compared"
        return f"{words}, {number_text(row.gb_per_s.median)} GB/s, {right}."


def rate_text(row: BandwidthRow | None, *, latency: bool = False) -> str:
    """A cell of the matrix: GB/s, or microseconds per copy; a sign where the data arrived wrong."""
    if row is None:
        return MISSING
    spread = row.seconds if latency else row.gb_per_s
    if spread is None:
        return MISSING
    text = number_text(spread.median * 1e6 if latency else spread.median)
    return f"{WRONG} {text}" if row.verified is False else text


def pair_text(source: str, destination: str) -> str:
    """`cuda:0 → cuda:1`, or `within cuda:0`."""
    return f"within {source}" if source == destination else f"{source} → {destination}"


def row_words(row: BandwidthRow | None, source: str, destination: str) -> str:
    """One copy in words, a line for each fact."""
    pair = pair_text(source, destination)
    if row is None:
        return f"{pair}\nnot measured (yet)"
    memory = ""
    if row.pinned is not None:
        memory = f", {'pinned' if row.pinned else 'pageable'} host memory"
    lines = [f"{pair}, {bytes_text(row.bytes, 0)}{memory}"]
    if row.gb_per_s is None:
        return "\n".join([*lines, f"not measured: {row.reason or 'no reason is known'}"])
    lines.append(
        f"{number_text(row.gb_per_s.median)} GB/s, p20 {number_text(row.gb_per_s.p20)}, p80"
        f" {number_text(row.gb_per_s.p80)}"
    )
    lines += [f"{seconds_text(row.seconds.median)} per copy"] if row.seconds is not None else []
    lines += ["there and back at once, the sum of both"] if row.both_ways else []
    lines.append(COMPARED[row.verified])
    lines += [row.reason] if row.reason else []
    return "\n".join([*lines, *(["simulated"] if row.simulated else [])])


def latency_words(rows: Iterable[BandwidthRow | None]) -> str:
    """`4 KiB takes 9.8 µs`: of the smallest copy, where it is a small one."""
    for row in rows:
        if row is not None and row.seconds is not None and row.bytes <= SMALL_BYTES:
            return f"{bytes_text(row.bytes, 0)} takes {seconds_text(row.seconds.median)}."
    return ""


class CopiesView(QWidget):
    """Feed it with `set_runs`; `summary.changed` asks for that again."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._shown: tuple[object, ...] = ()
        self._copies = CopyRows(())
        self._run: Run | None = None
        self._spec: BandwidthSpec | None = None
        self.pair: tuple[str, str] | None = None
        """Source and destination of the curve."""
        self._picked = False
        """Whether the user has chosen the pair; until then it is the first that goes from one device to another."""
        self.summary = Summary(state)
        self.table = RowsTable((), "Every pair: rows are sources, columns destinations", [])
        self.table.selectionModel().currentChanged.connect(self._on_cell)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectItems)
        self.table.horizontalHeader().setStretchLastSection(False)
        self.table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        """Which of the figures are simulated: a row of the matrix can hold both kinds."""
        self.quantity = Choice("What the matrix shows", QUANTITIES)
        self.bytes = Choice("Bytes per copy")
        self.how = Choice("Kind of copy")
        self.curve = SizeCurve("Bandwidth over the size of a copy", GB_UNITS)
        self._lay_out()
        for choice in (self.quantity, self.bytes, self.how):
            choice.currentIndexChanged.connect(self._draw)

    def _lay_out(self) -> None:
        bar = hbox(
            self.quantity, label("of", Role.LABEL, "dim"), self.bytes, self.how, None, margins=(EDGE_PX, 2, EDGE_PX, 2)
        )
        matrix = holder(vbox(bar, (self.table, 1), spacing=2))
        self.splitter = splitter(matrix, self.curve, stretches=(0, 1))
        self.curve.setMinimumWidth(LEAST_CURVE_PX)
        self._area = ScrollArea(self.splitter, sideways=True)  # in a low tab the matrix would be a header and no row
        self._area.setMinimumHeight(56)
        matrix.setMinimumWidth(LEAST_MATRIX_PX)
        hbox(self.summary, (self._area, 1), spacing=0, parent=self)

    def _split(self, spec: BandwidthSpec) -> None:
        """The matrix gets what it needs, the curve the rest; many columns are narrow, then the curve is below, then the
        summary is narrow, before the matrix is cut. Above the curve it is whole: the page scrolls, not both."""
        columns = len(spec.destinations)
        room, cell = self.width() - self._area.verticalScrollBar().sizeHint().width(), CELL_PX
        if NAME_PX + columns * CELL_PX + 16 > 0.6 * (room - WIDTH_PX):
            cell = NARROW_CELL_PX
        for number in range(columns + 1):
            self.table.setColumnWidth(number, cell if number else NAME_PX)
        matrix = max(NAME_PX + columns * cell + 18, LEAST_MATRIX_PX)
        self.summary.setFixedWidth(max(min(room - matrix, WIDTH_PX), LEAST_SUMMARY_PX))
        rest = room - self.summary.width() - matrix - self.splitter.handleWidth()
        below = rest < LEAST_CURVE_PX
        self.splitter.setOrientation(Qt.Orientation.Vertical if below else Qt.Orientation.Horizontal)
        self.table.setMinimumHeight((1 + (len(spec.sources) if below else LEAST_ROWS)) * ROW_PX + 2)  # the frame
        if not below:
            self.splitter.setSizes([matrix, rest])

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._spec is not None:
            self._split(self._spec)

    def set_runs(self, runs: list[Run]) -> None:
        """Offer these (at least one), the newest first, and show the chosen one as far as it has come."""
        run = self.summary.offer(runs)
        assert isinstance(run.spec, BandwidthSpec)
        rows = run.result.rows if isinstance(run.result, BandwidthResult) else tuple(run.parts)
        shown = (run.run, len(rows), run.ended)
        if shown != self._shown:
            if self._run is None or run.run != self._run.run:
                self._begin(run.spec)
            self._shown, self._run, self._spec = shown, run, run.spec
            self._copies = CopyRows(rows)
            self._offer_kinds(run.spec)
            if not self._picked and rows:
                first = next((row for row in rows if row.source != row.destination), rows[0])
                self.pair = (first.source, first.destination)
            self._draw()
        self._tell(run)

    def _begin(self, spec: BandwidthSpec) -> None:
        """Another run: its columns, its sizes, the largest first."""
        columns = [Column("from ↓ to →"), *(numbers(name) for name in spec.destinations)]
        self.table.rows_model.set_columns(columns)
        self._split(spec)
        self.bytes.offer((size, bytes_text(size, 0), "") for size in sorted(spec.sizes, reverse=True))
        pairs = (*spec.sources, *spec.destinations)
        if self.pair is not None and not set(self.pair) <= set(pairs):
            self.pair, self._picked = None, False
        self._offer_kinds(spec)

    def _offer_kinds(self, spec: BandwidthSpec) -> None:
        with_host = "cpu" in (*spec.sources, *spec.destinations) and len({*spec.sources, *spec.destinations}) > 1
        kinds = [CopyKind(pinned) for pinned in sorted(spec.pinned, reverse=True)] if with_host else [CopyKind()]
        kinds += [CopyKind(both_ways=True)] if spec.both_ways else []
        self.how.offer((kind, kind.words if with_host or kind.both_ways else "one way", "") for kind in kinds)
        self.how.setVisible(len(kinds) > 1)

    @property
    def _kind(self) -> CopyKind:
        return self.how.value or CopyKind()

    def _draw(self) -> None:
        spec, latency = self._spec, self.quantity.value == LATENCY
        if self._run is None or spec is None:
            return
        size, kind = int(self.bytes.value or 0), self._kind
        rows = []
        for source in spec.sources:
            result = [
                (destination, self._copies.find(source, destination, size, kind)) for destination in spec.destinations
            ]
            cells = [self._cell(row, source, destination, latency=latency) for destination, row in result]
            rows.append(TableRow(source, (Cell(source, self._colour(source)), *cells)))
        self.table.set_rows(rows)
        self._draw_curve()
        self._tell(self._run)

    def _cell(self, row: BandwidthRow | None, source: str, destination: str, *, latency: bool) -> Cell:
        text = rate_text(row, latency=latency)
        colour: Colour | Literal[""] = ""
        if text.startswith(WRONG):
            colour = "error"
        elif text == MISSING:
            colour = "dim"
        words = row_words(row, source, destination)
        if text.startswith(WRONG) and row is not None:
            words += "\n" + self._copies.route_words(source, destination, row.bytes)
        return Cell(text, colour, words)

    def _colour(self, name: str) -> int:
        return self._state.look_of(name)[0]

    def _draw_curve(self) -> None:
        if self.pair is None:
            self.curve.set_curves(())
            return
        source, destination = self.pair
        colour = self._colour(source if destination == "cpu" else destination)
        host = (source == "cpu") != (destination == "cpu")
        kinds = [CopyKind(), *([CopyKind(pinned=False)] if host else []), CopyKind(both_ways=True)]
        series = []
        for kind in kinds:
            points = self._copies.curve(source, destination, kind)
            if not points:
                continue
            rows = [self._copies.find(source, destination, int(point[0]), kind) for point in points]
            simulated = any(row.simulated for row in rows if row is not None)
            name = kind.words if host or kind.both_ways else "one way"
            if kind.both_ways:
                mark = "square"
            elif kind.pinned:
                mark = ""
            else:
                mark = "ring"
            series.append(Series(name, colour, points, simulated, mark))
        sizes = self._spec.sizes if self._spec is not None else ()
        between = (float(min(sizes)), float(max(sizes))) if len(sizes) > 1 else None
        self.curve.set_axis("", partial(bytes_text, digits=0), pair_text(source, destination), between)
        self.curve.set_curves(series)

    def _on_cell(self, current: QModelIndex, _previous: QModelIndex) -> None:
        if self._run is None or self._spec is None or not current.isValid() or current.column() == 0:
            return
        self.pair = (self._spec.sources[current.row()], self._spec.destinations[current.column() - 1])
        self._picked = True
        self._draw_curve()
        self._tell(self._run)

    def _tell(self, run: Run) -> None:
        """The chosen pair in words; what arrived wrong anywhere comes first."""
        rows = self._copies.rows
        missing = sum(row.gb_per_s is None for row in rows)
        self.summary.explain(row.reason for row in rows if row.gb_per_s is None)
        count = "1 copy" if len(rows) == 1 else f"{len(rows):,} copies"
        facts = count, f"{missing} not measured" if missing else ""
        wrong = self._copies.wrong()
        if self.pair is None:
            self.summary.say("", "", run, *facts)
            return
        source, destination = self.pair
        size, kind = int(self.bytes.value or 0), self._kind
        row = self._copies.find(source, destination, size, kind)
        warning = ""
        if self._copies.is_wrong(source, destination):
            warning = (
                f"✕ What arrived differs from what was sent. {self._copies.route_words(source, destination, size)}"
            )
        elif wrong:
            warning = (
                "✕ Data arrives wrong:"
                f" {', '.join(pair_text(*pair) for pair in wrong[:3])}{', …' if len(wrong) > 3 else ''}"
            )
        smallest = (self._copies.find(source, destination, size, kind) for size in self._copies.sizes)
        if row is None or row.gb_per_s is None:
            headline = f"{pair_text(source, destination)}: not measured"
            words = row.reason or "" if row is not None else ""
        else:
            headline = f"{pair_text(source, destination)}: {number_text(row.gb_per_s.median)} GB/s"
            checked = "Not compared." if row.verified is None else ""
            words = joined(" ", latency_words(smallest), checked)
        self.summary.say(headline, words, run, *facts, warning=warning, simulated=self._copies.simulated_words)


class BandwidthPage(BenchPage[BandwidthSpec]):
    """One specification: every pair of the chosen devices."""

    kind = "bandwidth"
    nothing = "No copy has been measured in this session."
    device_choice = AllDevices

    def build(self) -> None:
        self.sizes_edit = MenuEdit(SIZES, "bytes per copy", CHOICES, 196)
        self.sizes_edit.setToolTip(
            "Sizes, separated by commas: 64K, 1M; FROM:TO takes four times the one before, from one to the other"
        )
        self.memory = Choice("Host memory", MEMORY)
        self.both_ways = check_box("bidirectional", tip="Also copy there and back at the same time")
        self.seconds_edit = line_edit("0.2", "0.2", "Seconds per copy", 48)
        self.add_fields(
            ("between", self.devices),
            ("sizes", self.sizes_edit),
            ("host", self.memory),
            ("", self.both_ways),
            ("seconds each", self.seconds_edit),
        )
        self.view = CopiesView(self._state)
        self.set_results(self.view)
        self.view.summary.changed.connect(self.refresh)

    # the form

    def specs(self) -> tuple[BandwidthSpec, ...]:
        """One for all pairs. Raises one `BadInput` with everything that is wrong."""
        findings, chosen = self.checked(), self.devices.chosen
        findings.add(*self.mixed_clocks([name for name in chosen if name != "cpu"]))
        sizes = findings.checked(lambda: parse_byte_sizes(self.sizes_edit.text()))
        seconds = findings.seconds(self.seconds_edit.text().strip())
        findings.demand_none()
        assert sizes is not None
        assert seconds is not None
        largest, both = max(sizes), self.both_ways.isChecked()
        simulated = any(self._state.devices[name].info.simulated for name in chosen)
        for name in chosen:
            if name == "cpu" and simulated:
                continue  # what a virtual GPU copies has no values: the host's memory does not count
            free, needed = self._state.devices[name].free_bytes, 2 * largest  # within one device, or there and back
            if free is not None and needed > free:
                words = f"copies of {bytes_text(largest)} need {bytes_text(needed)} on {name}"
                findings.add(f"{words}, and {bytes_text(free)} are free; take less")
        spec = BandwidthSpec(
            sources=chosen,
            destinations=chosen,
            sizes=sizes,
            pinned=self.memory.value,
            both_ways=both,
            seconds=seconds,
        )
        if (count := copies(spec)) > MOST_COPIES:
            findings.add(
                f"{count:,} measurements are too many for one run; take fewer devices or sizes, {MOST_COPIES:,} at most"
            )
        findings.demand_none()
        return (spec,)

    def describe(self, specs: Sequence[BandwidthSpec]) -> str:
        """How many pairs and sizes, and how long they take."""
        spec = specs[0]
        pairs = count_text(len(spec.sources) * len(spec.destinations), "pair")
        return f"{pairs} in {count_text(len(spec.sizes), 'size')}, {took(copies(spec) * spec.seconds)} of measuring"

    # the runs

    def show_runs(self, runs: list[Run]) -> None:
        """The chosen one, as far as it has come."""
        self.view.set_runs(runs)


def copies(spec: BandwidthSpec) -> int:
    """How many rows there are to measure: both kinds of host memory where it is involved, both ways once per pair and
    pinned."""
    pairs = [(source, destination) for source in spec.sources for destination in spec.destinations]
    host = [pair for pair in pairs if ("cpu" in pair) and len(set(pair)) == 2]
    together = {frozenset(pair) for pair in pairs if len(set(pair)) == 2 and (pair not in host or True in spec.pinned)}
    one_way = len(host) * len(spec.pinned) + len(pairs) - len(host)
    return (one_way + (len(together) if spec.both_ways else 0)) * len(spec.sizes)
