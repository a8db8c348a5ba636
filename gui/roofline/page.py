"""The roofline tab: how fast one device was at each intensity, how fast it could be, and how near to that it came. Main
thread.

Feed it with stored runs (`show_runs`, or `set_source` and `refresh`); runs of this session that are not kept yet are
read from the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QComboBox, QWidget

from devexplorer.core.bandwidth.kind import LEAST_COPY_BYTES, BandwidthRow
from devexplorer.core.base import MISSING, bytes_text, count_text, flops_cell_text, flops_text, joined, number_text
from devexplorer.core.benchmark.kind import kind_name
from devexplorer.core.history.filter import device_of
from devexplorer.core.records import BenchResult, StoredRun
from devexplorer.core.roofline.figures import (
    Ceiling,
    DrawnRoofline,
    Point,
    RooflineTarget,
    cell_points,
    inner_copies,
    key_of,
    key_of_run,
    points_of,
    roofline,
    targets,
)
from devexplorer.core.session import Run, State
from devexplorer.core.sweep.kind import SweepSpec
from devexplorer.gui.history.rows import datasheet_tip, percent_cell
from devexplorer.gui.roofline.picture import NOWHERE, RooflinePicture, glyph
from devexplorer.gui.widgets import (
    EDGE_PX,
    Cell,
    Choice,
    Colour,
    Column,
    ElidedLabel,
    EmptyState,
    Role,
    RowsTable,
    TableRow,
    hbox,
    holder,
    label,
    numbers,
    push_button,
    splitter,
    stack,
    vbox,
)

MOST_RUNS = 1000
"""The newest of the history that are looked at."""
SIDE_PX = 552
COLUMNS = (
    Column("", "The mark of its runs, and the dtype"),
    numbers("FLOP/s", "The best of all runs that are drawn"),
    numbers("% of datasheet"),
    numbers("% of best", "Share of the best that was published for this card and dtype; shapes differ"),
    Column("with"),
)
WIDTHS = [132, 66, 104, 74, 60]


class RooflinePanel(QWidget):
    """`refresh` after `Change.RUNS`, `Change.POINTS` and `Change.DEVICES`, `reload` whenever what is kept has
    changed."""

    benchmark_requested = Signal()
    """The empty state's button."""
    run_chosen = Signal(int)
    """Number in the history of a run whose mark was clicked."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._source: Any = None
        self._is_old = False
        """Stored runs have changed since they were asked for."""
        self._runs: tuple[StoredRun, ...] = ()
        self._picked = ""
        """Key of the device that the user chose; empty: the first accelerator, or what there is."""
        self._targets: tuple[RooflineTarget, ...] = ()
        self._kept: tuple[list[Point], list[BandwidthRow], set[object], int] = ([], [], set(), 0)
        """Of the stored runs of the chosen device: points, copies, identities of results, number of runs left
        out."""
        self.drawn: DrawnRoofline = NOWHERE
        """What is shown."""
        self.chooser = Choice("Device")
        self.chooser.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.summary = ElidedLabel(words="soft")
        self.measure_button = push_button(
            "Measure…",
            self.benchmark_requested,
            tip="Open the benchmark tab: products give the ceilings, copies within the device the slope",
        )
        self.picture = RooflinePicture()
        self.table = RowsTable(COLUMNS, "Ceilings", WIDTHS)
        self.note = label("", Role.LABEL, "dim", wrap=True)
        self.empty = EmptyState("", "Start a benchmark")
        self._lay_out()
        self.chooser.activated.connect(self._pick)
        self.empty.chosen.connect(self.benchmark_requested)
        self.picture.point_chosen.connect(self._choose_run)
        self._list_devices()
        self._draw()

    def _lay_out(self) -> None:
        bar = hbox(
            self.chooser, (self.summary, 1), self.measure_button, spacing=EDGE_PX, margins=(EDGE_PX, 6, EDGE_PX, 4)
        )
        self.note.setContentsMargins(EDGE_PX, 0, EDGE_PX, 0)
        side = holder(vbox((self.table, 1), self.note, spacing=4, margins=(0, 0, 0, 4)))
        self.split = splitter(self.picture, side, sizes=[800, SIDE_PX], stretches=[1, 0])
        self._stack = stack(self.split, self.empty)
        vbox(bar, (self._stack, 1), spacing=0, margins=(0, 0, 0, 4), parent=self)

    # --- what the window calls

    def set_source(self, source: Any) -> None:
        """Where the runs are kept; None: not opened yet."""
        self._source = source
        self.reload()

    def reload(self) -> None:
        """Ask for the stored runs again; while the panel is hidden not before it is shown."""
        self._is_old = self._source is not None
        if self.isVisible():
            self._reload()

    def _reload(self) -> None:
        if self._source is not None and self._is_old:
            self._is_old = False
            self._source.request(None, "", MOST_RUNS, self.show_runs)

    def show_runs(self, runs: Sequence[StoredRun], _total: int) -> None:
        """Draw these runs, of which those of the chosen device count."""
        self._runs = tuple(runs)
        self._list_devices()
        self._take_stored()
        self._draw()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._reload()
        self.refresh()

    def refresh(self) -> None:
        """Take over devices and the runs of this session; while the panel is hidden not before it is shown."""
        if not self.isVisible():
            return
        before = self._targets
        self._list_devices()
        if self._targets != before:
            self._take_stored()
        self._draw()

    @property
    def target(self) -> RooflineTarget | None:
        """The device shown."""
        return next((target for target in self._targets if target.key == self.chooser.value), None)

    # --- inside

    def _pick(self) -> None:
        self._picked = self.chooser.value
        self._take_stored()
        self._draw()

    def _choose_run(self, point: Point) -> None:
        if point.run is not None:
            self.run_chosen.emit(point.run)

    def _list_devices(self) -> None:
        self._targets = targets([device.info for device in self._state.devices.values()], self._runs)
        self.chooser.offer((target.key, target.text, "") for target in self._targets)
        is_there = any(target.key == self._picked for target in self._targets)
        self.chooser.choose(self._picked if is_there else self._first)

    @property
    def _first(self) -> str:
        """The first accelerator that is here, else the first device."""
        here = [target for target in self._targets if target.info is not None] or list(self._targets)
        keys = [target.key for target in here if target.id != "cpu"] or [target.key for target in here]
        return keys[0] if keys else ""

    def _take_stored(self) -> None:
        """The chosen device's part of the history, which changes seldom; current runs are added each time it is
        drawn."""
        points: list[Point] = []
        copies: list[BandwidthRow] = []
        seen: set[object] = set()
        left_out = 0
        target, here = self.target, [device.info for device in self._state.devices.values()]
        for run in self._runs if target is not None else ():
            if target is not None and key_of_run(run, here) == target.key:
                device = device_of(run)
                seen.add(_mark(run.result))
                points += points_of(run.result, device, run.id, run.conditions.started_unix_s)
                copies += inner_copies(run.result, device)
                left_out += kind_name(run.result) == "model"
        self._kept = (points, copies, seen, left_out)

    def _draw(self) -> None:
        target = self.target
        drawn = NOWHERE
        if target is not None:
            points, copies, seen, left_out = self._kept
            now = [run for run in self._state.runs.values() if self._is_on(run, target)]
            new = [run.result for run in now if run.result is not None and _mark(run.result) not in seen]
            points = [*points, *(point for result in new for point in points_of(result, target.id)), *_unfinished(now)]
            copies = [*copies, *(row for result in new for row in inner_copies(result, target.id))]
            drawn = roofline(target, points, copies, left_out + sum(kind_name(result) == "model" for result in new))
        if drawn == self.drawn:
            return  # a benchmark that runs says something thirty times a second, and seldom something of this
        self.drawn = drawn
        self.picture.set_roofline(drawn, self._colour)
        self._show_side()
        self._stack.setCurrentWidget(self.empty if self.drawn.is_empty else self.split)

    def _is_on(self, run: Run, target: RooflineTarget) -> bool:
        device = self._state.devices.get(run.spec.device)
        return device is not None and key_of(device.info) == target.key

    @property
    def _colour(self) -> Colour:
        info = self.drawn.target.info
        device = self._state.devices.get(info.id) if info is not None else None
        return device.colour if device is not None else "dim"

    def _show_side(self) -> None:
        drawn = self.drawn
        name = drawn.target.id or drawn.target.name or "a device"
        self.empty.sentence.setText(
            f"Nothing of {name} is measured yet that a roofline could be drawn from: products of matrices give the"
            " ceilings, copies within the device the slope."
        )
        rows = [self._ceiling_row(ceiling) for ceiling in drawn.ceilings]
        memory = drawn.memory
        if memory.gb_per_s is not None or memory.datasheet is not None:
            share = (
                None if memory.gb_per_s is None or not memory.datasheet else 100 * memory.gb_per_s / memory.datasheet
            )
            rows.append(
                TableRow(
                    "memory",
                    (
                        Cell("╱  memory, GB/s", "dim" if memory.gb_per_s is None else ""),
                        Cell(number_text(memory.gb_per_s), tip=memory.reason),
                        percent_cell(share, f"datasheet {number_text(memory.datasheet)} GB/s"),
                        Cell(MISSING, tip="no published figure is known here"),
                        Cell(f"copies of {bytes_text(memory.copied_bytes, 0)}" if memory.copied_bytes else "", "dim"),
                    ),
                )
            )
        self.table.set_rows(rows)
        best = max((item for item in drawn.ceilings if item.best is not None), key=_reached, default=None)
        nothing = "" if drawn.is_empty else "Only the datasheet is known: nothing is measured yet."
        self.summary.set_full_text(_summary(best, drawn) if best is not None else nothing)
        self.measure_button.setVisible(not drawn.is_empty)
        notes = [memory.reason]
        if memory.gb_per_s is not None:
            notes.append(
                f"Memory: copies within the device of {bytes_text(LEAST_COPY_BYTES, 0)} or more, each byte read and"
                " written."
            )
        if drawn.left_out:
            notes.append(f"{count_text(drawn.left_out, 'model run')} left out, because the bytes moved are unknown.")
        self.note.setText(joined(" ", *notes))

    def _ceiling_row(self, ceiling: Ceiling) -> TableRow:
        best = ceiling.best
        sheet = None if best is None or not ceiling.datasheet else 100 * best.tflops / ceiling.datasheet
        share = None if best is None or not ceiling.best_published else 100 * best.tflops / ceiling.best_published
        published_tip = "no published figure is known here"
        if ceiling.best_published:
            published_tip = f"the best published is {flops_text(ceiling.best_published)}"
        return TableRow(
            ceiling.dtype,
            (
                Cell(
                    f"{glyph(ceiling.dtype, self.drawn)}  {ceiling.dtype}",
                    "" if best is not None else "dim",
                    ceiling.words,
                ),
                Cell(flops_cell_text(best.tflops)) if best is not None else Cell(MISSING, tip="not measured yet"),
                percent_cell(sheet, datasheet_tip(ceiling.datasheet)),
                percent_cell(share, published_tip),
                Cell(best.shape if best is not None else "", "dim", best.what if best is not None else ""),
            ),
        )


def _reached(ceiling: Ceiling) -> float:
    return ceiling.best.tflops if ceiling.best is not None else 0.0


def _summary(ceiling: Ceiling, drawn: DrawnRoofline) -> str:
    """`bfloat16 798 TFLOP/s: 81 % of datasheet, 94 % of the best published.`"""
    words = f": {ceiling.words}" if ceiling.words else ""
    simulated = ", simulated" if drawn.target.simulated else ""
    return f"{ceiling.dtype} {flops_text(_reached(ceiling))}{simulated}{words}."


def _mark(result: BenchResult) -> object:
    """Identifies a result of this session without comparing all of its figures."""
    return type(result), result.run, result.seconds, result.iterations


def _unfinished(runs: Iterable[Run]) -> Iterable[Point]:
    """Shapes of sweeps that still run."""
    for run in runs:
        if isinstance(run.spec, SweepSpec) and run.result is None:
            yield from cell_points(run.parts, run.spec.dtype)
