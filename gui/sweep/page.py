"""The Sweep page of the Benchmark tab: products of many shapes, or the search for the fastest one; the
heat map or the curve, and beside it the best shape in words. Main thread."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from devexplorer.core.base import BadInput, bytes_text, count_text, flops_text, rate_texts, shape_text
from devexplorer.core.benchmark.spec import check_chip, operand_bytes, parse_shape, parse_shapes
from devexplorer.core.session import Run
from devexplorer.core.session.running import is_simulated
from devexplorer.core.sweep.kind import SweepCell, SweepResult, SweepSpec, fastest
from devexplorer.gui.benchmark.base_page import DtypeEdit, PicturePage, took
from devexplorer.gui.charts.size_curve import Series, SizeCurve
from devexplorer.gui.sweep.heat_map import HeatMap
from devexplorer.gui.widgets import Choice, MenuEdit, line_edit, stack

Shape = tuple[int, int, int]
SIDES = ("M", "N", "K")
Place = tuple[int, int] | float
"""Column and row of the map, or x of the curve."""
MEASURE, SEARCH = "measure", "search"
WAYS = (
    (MEASURE, "these shapes", "Measure each of these shapes, one after the other"),
    (
        SEARCH,
        "search",
        "Look for the shape with the highest throughput inside a budget of seconds, beginning with these",
    ),
)
SHAPES = (
    ("squares", "256:4096:256"),
    ("M × N, K 2048", "256:2048:128x256:2048:128x2048"),
    ("along M", "64:2048:64x2048x2048"),
    ("along N", "2048x64:2048:64x2048"),
    ("along K", "2048x2048x64:2048:64"),
    ("tiles: squares around 1024", "896:1152:16"),
)
"""What the menu offers, and what it writes."""
SECONDS = {MEASURE: "0.2", SEARCH: "30"}
"""The field's content until the user types."""
MOST_SHAPES = 2500
"""On show in the window; the command line takes more."""


@dataclass(frozen=True)
class SweepArrangement:
    """`grid`: columns `xs` and rows `ys`; `line`: a curve over `xs`; `order`: a curve over the number of the
    measurement, from 1."""

    kind: str
    x_name: str = ""
    y_name: str = ""
    fixed: str = ""
    """What all shapes share, in words: `K 4096`."""
    xs: tuple[int, ...] = ()
    ys: tuple[int, ...] = ()

    def place(self, shape: Shape) -> tuple[int, int]:
        """Value along x and y of a shape on a grid or a line."""
        return shape[SIDES.index(self.x_name[0])], shape[SIDES.index(self.y_name[0])] if self.y_name else 0


def arrange(shapes: Sequence[Shape], *, searched: bool = False) -> SweepArrangement:
    """How these shapes are best looked at. Those of a search have no order but that of time."""
    varying = [index for index in range(3) if len({shape[index] for shape in shapes}) > 1]
    fixed = (
        ", ".join(f"{SIDES[index]} {shapes[0][index]}" for index in range(3) if index not in varying) if shapes else ""
    )
    if searched or not shapes or not varying:
        return SweepArrangement("order", fixed="" if searched else fixed)
    tied = [index for index in varying if all(shape[index] == shape[varying[0]] for shape in shapes)]
    if tied == varying:
        xs = tuple(sorted({shape[tied[0]] for shape in shapes}))
        return SweepArrangement("line", " = ".join(SIDES[index] for index in tied), fixed=fixed, xs=xs)
    if len(varying) == 2 and len(set(shapes)) > max(len({shape[index] for shape in shapes}) for index in varying):
        y, x = varying
        xs, ys = (tuple(sorted({shape[index] for shape in shapes})) for index in (x, y))
        return SweepArrangement("grid", SIDES[x], SIDES[y], fixed, xs, ys)
    return SweepArrangement("order", fixed=fixed)


def cell_words(cell: SweepCell, top: SweepCell | None) -> str:
    """One shape in words, a line for each fact."""
    shape = shape_text(cell.shape)
    if cell.tflops is None:
        return f"{shape}\nnot measured: {cell.reason or 'no reason is known'}"
    middle, low, high, unit = rate_texts("TFLOP/s", cell.tflops.median, cell.tflops.p20, cell.tflops.p80)
    lines = [shape, f"{middle} {unit}, p20 {low}, p80 {high}"]
    if cell is top:
        lines.append("the best of this sweep")
    elif top is not None and top.tflops is not None:
        lines.append(f"{100 * cell.tflops.median / top.tflops.median:.0f} % of the best")
    return "\n".join([*lines, f"{cell.iterations:,} iterations"] if cell.iterations else lines)


def ceiling(values: Sequence[float]) -> list[float]:
    """The highest value so far, one for each of `values`."""
    result: list[float] = []
    for value in values:
        result.append(max(value, result[-1]) if result else value)
    return result


def cells_of(run: Run) -> tuple[SweepCell, ...]:
    """What a sweep has measured, an earlier run's part included."""
    if isinstance(run.result, SweepResult):
        return run.result.cells
    done = run.spec.done if isinstance(run.spec, SweepSpec) else ()
    return (*done, *run.parts)


def left_to_do(run: Run) -> str:
    """What the button of a sweep that has not been all the way says; empty: it has."""
    assert isinstance(run.spec, SweepSpec)
    if run.spec.search_seconds is not None:
        return "Search on"
    left = len(run.spec.shapes) - len(cells_of(run))
    return f"Resume, {count_text(left, 'shape')} left" if left > 0 else ""


class SweepPage(PicturePage[SweepSpec]):
    """One specification per chosen device."""

    kind = "sweep"
    nothing = "No sweep has run in this session."

    def build(self) -> None:
        self.dtype_edit = DtypeEdit()
        self.way = Choice("What to do with the shapes", WAYS)
        self.shapes_edit = MenuEdit(SHAPES[0][1], "shapes", SHAPES, 250, "squares from 256 on")
        self.shapes_edit.setToolTip("Shapes, separated by commas: 1024, 64x128x32; FROM:TO:STEP in place of any side")
        self.seconds_edit = line_edit(SECONDS[MEASURE], SECONDS[MEASURE], "Seconds", 48)
        self.add_fields(
            ("", self.devices),
            ("dtype", self.dtype_edit),
            ("", self.way),
            ("shapes", self.shapes_edit),
        )
        self._each = self.add_field("seconds each", self.seconds_edit)
        self.map = HeatMap()
        self.curve = SizeCurve("Throughput over the size")
        self._pictures = stack(self.map, self.curve)
        self._drawn: tuple[SweepCell, ...] = ()
        self._best: SweepCell | None = None
        self._arrangement = SweepArrangement("")
        self._cells: dict[Place, SweepCell] = {}
        self._now_place: tuple[int, int] | None = None
        self._pointed: Place | None = None
        self.map.set_words(lambda place: cell_words(self._cells[place], self._best) if place in self._cells else "")
        self.map.pointed.connect(self._point)
        self.curve.pointed.connect(self._point)
        self.way.currentIndexChanged.connect(self._new_way)
        self.add_picture(self._pictures)
        self.summary.acted.connect(self.resume)

    # the form

    def _new_way(self) -> None:
        search = self.way.value == SEARCH
        if self.seconds_edit.text().strip() in (*SECONDS.values(), ""):  # what the user has typed stays
            self.seconds_edit.setText(SECONDS[self.way.value])
        if search and self.shapes_edit.text() == SHAPES[0][1]:
            self.shapes_edit.clear()
        elif not search and not self.shapes_edit.text().strip():
            self.shapes_edit.setText(SHAPES[0][1])
        self.rename(self._each, "seconds in all" if search else "seconds each")
        self.check()

    def specs(self) -> tuple[SweepSpec, ...]:
        """One per device. Raises one `BadInput` with everything that is wrong."""
        findings = self.checked()
        search = self.way.value == SEARCH
        dtype = findings.checked(self.dtype_edit.parse)
        shapes: tuple[Shape, ...] = ()
        if self.shapes_edit.text().strip() or not search:
            shapes = findings.checked(lambda: parse_shapes(self.shapes_edit.text())) or ()
        if len(shapes) > MOST_SHAPES:
            findings.add(
                f"{len(shapes):,} shapes are too many to be shown; take larger steps, {MOST_SHAPES:,} at most, or the"
                " command line"
            )
        seconds = findings.seconds(self.seconds_edit.text().strip())
        findings.demand_none()
        assert dtype is not None
        assert seconds is not None
        for name in self.devices.chosen:
            device = self._state.devices[name]
            free = device.free_bytes
            if findings.passes(functools.partial(check_chip, dtype, device.info)) and shapes and free is not None:
                least = min(_bytes(shape, dtype) for shape in shapes)
                if least > free:
                    words = (
                        f"none of these shapes fits on {name}: the smallest needs {bytes_text(least)}, and"
                        f" {bytes_text(free)} are free"
                    )
                    findings.add(f"{words}; take smaller ones")
        findings.demand_none()
        return tuple(
            SweepSpec(
                device=name,
                dtype=dtype,
                shapes=shapes,
                search_seconds=seconds if search else None,
                shape_seconds=float(SECONDS[MEASURE]) if search else seconds,
            )
            for name in self.devices.chosen
        )

    def describe(self, specs: Sequence[SweepSpec]) -> str:
        """How many shapes, how long they take to measure, and how many of them will be left out."""
        spec = specs[0]
        if spec.search_seconds is not None:
            return f"searches for {took(spec.search_seconds)}, each shape for {spec.shape_seconds:g} s"
        words = (
            f"{count_text(len(spec.shapes), 'shape')}, {took(len(spec.shapes) * spec.shape_seconds)} of measuring"
            " plus warm-up"
        )
        large = max(sum(self._does_not_fit(each, shape) for shape in spec.shapes) for each in specs)
        return f"{words}; {large} of them do not fit and are left out" if large else words

    def _does_not_fit(self, spec: SweepSpec, shape: Shape) -> bool:
        free = self._state.devices[spec.device].free_bytes
        return free is not None and _bytes(shape, spec.dtype) > free

    # the runs

    @property
    def selected_active(self) -> Run | None:
        """The sweep shown, where several run."""
        run = self.summary.run
        return run if run is not None and not run.ended and len(self.active) > 1 else None

    def show_runs(self, runs: list[Run]) -> None:
        run = self.summary.offer(runs)
        assert isinstance(run.spec, SweepSpec)
        cells = cells_of(run)
        if run.run != self._shown:
            self._shown = run.run
            self._begin(run, run.spec)
        new = cells[len(self._drawn) :]
        if new or not cells:
            self._drawn = cells
            self._best = fastest(cells)
        if self._arrangement.kind == "grid":
            self._fill_map(run, new)
        elif new or not cells:
            self._draw_curve(run)
        self.tell(run, self._drawn)

    def _begin(self, run: Run, spec: SweepSpec) -> None:
        """Another run: nothing of it is drawn yet."""
        self._arrangement = arrange(spec.shapes, searched=spec.search_seconds is not None)
        self._drawn, self._best, self._cells, self._pointed = (), None, {}, None
        arrangement = self._arrangement
        grid = arrangement.kind == "grid"
        if grid:
            self.map.set_grid(arrangement.xs, arrangement.ys, arrangement.x_name, arrangement.y_name)
            self.map.set_device(self._colour(run), simulated=is_simulated(run, self._state))
        self._pictures.setCurrentWidget(self.map if grid else self.curve)

    def _colour(self, run: Run) -> int:
        return self._state.look_of(run.spec.device)[0]

    def _place(self, shape: Shape) -> tuple[int, int]:
        x, y = self._arrangement.place(shape)
        return bisect.bisect_left(self._arrangement.xs, x), bisect.bisect_left(self._arrangement.ys, y)

    def _fill_map(self, run: Run, new: Sequence[SweepCell]) -> None:
        result = {self._place(cell.shape): cell for cell in new}
        now = self._now(run)
        if result or now != self._now_place:
            for place, cell in result.items():
                self._cells[place] = cell
            self._now_place = now
            self.map.add({place: cell.tflops.median if cell.tflops else None for place, cell in result.items()}, now)

    def _now(self, run: Run) -> tuple[int, int] | None:
        """The shape that is being measured, as the run's latest point names it."""
        if run.ended or run.latest is None or not isinstance(run.spec, SweepSpec):
            return None
        try:
            shape = parse_shape(run.latest.text)
        except BadInput:
            return None
        x, y = self._arrangement.place(shape)
        return self._place(shape) if x in self._arrangement.xs and y in self._arrangement.ys else None

    def _draw_curve(self, run: Run) -> None:
        arrangement = self._arrangement
        on_line = arrangement.kind == "line"
        measured = [
            (number, cell, cell.tflops) for number, cell in enumerate(self._drawn, 1) if cell.tflops is not None
        ]
        result: dict[Place, SweepCell] = {}
        points = []
        for number, cell, spread in measured:
            x = float(arrangement.place(cell.shape)[0] if on_line else number)
            result[x] = cell
            points.append((x, spread.median, spread.p20, spread.p80))
        self._cells = result
        points.sort()
        series = [Series(run.spec.device, self._colour(run), tuple(points), is_simulated(run, self._state))]
        if on_line:
            ends = (float(arrangement.xs[0]), float(arrangement.xs[-1]))
            self.curve.set_axis(arrangement.x_name, lambda x: f"{x:.0f}", arrangement.fixed, ends)
        else:
            highest = ceiling([point[1] for point in points])
            best_line = tuple((point[0], top, top, top) for point, top in zip(points, highest, strict=True))
            series.append(Series("best so far", "dim", best_line, quiet=True))
            self.curve.set_axis("", lambda x: shape_text(result[x].shape), "in the order of measurement")
        datasheet = run.datasheet_tflops
        self.curve.set_curves(series, None if not datasheet else (datasheet, f"datasheet {flops_text(datasheet)}"))

    def _point(self, place: Place | None) -> None:
        self._pointed = place
        run = self.summary.run
        if run is not None:
            self.tell(run, self._drawn)

    def tell(self, run: Run, rows: Sequence[SweepCell]) -> None:
        """The best shape; while something is pointed at, that instead."""
        assert isinstance(run.spec, SweepSpec)
        top = self._best
        pointed = None if self._pointed is None else self._cells.get(self._pointed)
        total = None if run.spec.search_seconds is not None else len(run.spec.shapes)
        count = f"{len(rows)} of {total} shapes" if total is not None else count_text(len(rows), "shape")
        missing = sum(cell.tflops is None for cell in rows)
        self.summary.explain(cell.reason for cell in rows if cell.tflops is None)
        facts = count, f"{missing} not measured" if missing else ""
        cell = pointed if pointed is not None else top
        action = left_to_do(run) if run.ended else ""
        if cell is None:
            self.summary.say("", "", run, *facts, action=action)
            return
        first, *rest = cell_words(cell, top).split("\n")
        if pointed is None and cell.tflops is not None:
            share = (
                f", {100 * cell.tflops.median / run.datasheet_tflops:.0f} % of the datasheet"
                if run.datasheet_tflops
                else ""
            )
            headline, words = f"{flops_text(cell.tflops.median)} at {first}", f"The best so far{share}."
            words = words if not run.ended else f"The best{share}."
        else:
            headline, words = first, "\n".join(rest)
        self.summary.say(headline, words, run, *facts, action=action)

    def resume(self) -> None:
        """Measure what is left of the sweep shown; what it has measured already is taken over."""
        run = self.summary.run
        if run is not None and run.ended and isinstance(run.spec, SweepSpec) and left_to_do(run):
            self.request((msgspec.structs.replace(run.spec, done=cells_of(run)),))


def _bytes(shape: Shape, dtype: str) -> int:
    return sum(operand_bytes(*shape, dtype))
