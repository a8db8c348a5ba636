"""What came out of a sweep: the heat map or the curve, and beside it the best shape in words. Main thread."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from PySide6.QtWidgets import QWidget

from devexplorer.core.base import BadInput, count_text, number_text, shape_text
from devexplorer.core.benchmark.kinds.sweep import fastest
from devexplorer.core.benchmark.spec import parse_shape
from devexplorer.core.records import SweepCell, SweepSpec
from devexplorer.core.session import Run, State
from devexplorer.gui.benchmark.runs import cells_of, is_simulated, state_cell
from devexplorer.gui.benchmark.summary import Summary, beside
from devexplorer.gui.benchmark.sweeps import Arrangement, Shape, arrange, ceiling, cell_words
from devexplorer.gui.charts.heat_map import HeatMap
from devexplorer.gui.charts.size_curve import Series, SizeCurve
from devexplorer.gui.widgets import hbox, stack

Place = tuple[int, int] | float
"""Column and row of the map, or x of the curve."""


class SweepView(QWidget):
    """Feed it with `set_runs`; `summary.changed` asks for that again, `summary.acted` for what is left of the run on
    show."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self.summary = Summary("The sweep on show")
        self.map = HeatMap()
        self.curve = SizeCurve("Throughput over the size")
        self._pictures = stack(self.map, self.curve)
        self._shown: int | None = None
        """The run that is drawn."""
        self._drawn: tuple[SweepCell, ...] = ()
        self._best: SweepCell | None = None
        self._arrangement = Arrangement("")
        self._cells: dict[Place, SweepCell] = {}
        self._now_place: tuple[int, int] | None = None
        self._pointed: Place | None = None
        hbox(beside(self.summary, self._pictures), parent=self)
        self.map.set_words(lambda place: cell_words(self._cells[place], self._best) if place in self._cells else "")
        self.map.pointed.connect(self._point)
        self.curve.pointed.connect(self._point)

    def set_runs(self, runs: list[Run]) -> None:
        """Offer these (at least one), the newest first, and show the chosen one as far as it has come."""
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
        self._tell(run)

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
        self.curve.set_curves(
            series, None if not datasheet else (datasheet, f"datasheet {number_text(datasheet)} TFLOP/s")
        )

    def _point(self, place: Place | None) -> None:
        self._pointed = place
        run = self.summary.choice.run
        if run is not None:
            self._tell(run)

    def _tell(self, run: Run) -> None:
        """The best shape; while something is pointed at, that instead."""
        assert isinstance(run.spec, SweepSpec)
        cells, top = self._drawn, self._best
        pointed = None if self._pointed is None else self._cells.get(self._pointed)
        state = state_cell(run)
        total = None if run.spec.search_seconds is not None else len(run.spec.shapes)
        count = f"{len(cells)} of {total} shapes" if total is not None else count_text(len(cells), "shape")
        missing = sum(cell.tflops is None for cell in cells)
        self.summary.explain(cell.reason for cell in cells if cell.tflops is None)
        facts = [
            count,
            f"{missing} not measured" if missing else "",
            "simulated" if is_simulated(run, self._state) else "",
        ]
        cell = pointed if pointed is not None else top
        action = left_to_do(run) if run.ended else ""
        if cell is None:
            self.summary.say(
                "Nothing is measured yet." if not run.ended else "Nothing was measured.",
                "",
                state,
                *facts,
                action=action,
            )
            return
        first, *rest = cell_words(cell, top).split("\n")
        if pointed is None and cell.tflops is not None:
            share = (
                f", {100 * cell.tflops.median / run.datasheet_tflops:.0f} % of the datasheet"
                if run.datasheet_tflops
                else ""
            )
            headline, words = f"{number_text(cell.tflops.median)} TFLOP/s at {first}", f"The best so far{share}."
            words = words if not run.ended else f"The best{share}."
        else:
            headline, words = first, "\n".join(rest)
        self.summary.say(headline, words, state, *facts, action=action)


def left_to_do(run: Run) -> str:
    """What the button of a sweep that has not been all the way says; empty: it has."""
    assert isinstance(run.spec, SweepSpec)
    if run.spec.search_seconds is not None:
        return "Search on"
    left = len(run.spec.shapes) - len(cells_of(run))
    return f"Resume, {count_text(left, 'shape')} left" if left > 0 else ""
