"""What came out of a sweep: the heat map or the curve, and beside it the best shape in words. Main thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from PySide6.QtWidgets import QHBoxLayout, QStackedLayout, QWidget

from devexplorer.core.benchmark.spec import parse_shape
from devexplorer.core.errors import BadInput
from devexplorer.core.formats import count_text, number_text, shape_text
from devexplorer.core.records.benchmark import SweepCell, SweepSpec
from devexplorer.core.state import Run, State
from devexplorer.gui.item_models.runs import cells_of, is_simulated, state_cell
from devexplorer.gui.item_models.sweeps import Arrangement, Shape, arrange, best, ceiling, cell_words
from devexplorer.gui.panels.bench_summary import Summary, beside
from devexplorer.gui.plots.heat_map import HeatMap
from devexplorer.gui.plots.size_curve import Series, SizeCurve
from devexplorer.gui.theme import Theme, device_colour


class SweepView(QWidget):
    """Feed it with `set_runs`; `summary.changed` asks for that again, `summary.acted` for what is left of the run on show."""

    def __init__(self, state: State, theme: Theme) -> None:
        super().__init__()
        self._state, self._theme = state, theme
        self.summary = Summary("The sweep on show")
        self.map = HeatMap(theme)
        self.curve = SizeCurve(theme, "Throughput over the size")
        both = QWidget()
        self._pictures = QStackedLayout(both)
        self._pictures.addWidget(self.map)
        self._pictures.addWidget(self.curve)
        self._shown: tuple[object, ...] = ()
        self._arrangement = Arrangement("")
        self._cells: dict[object, SweepCell] = {}
        self._pointed: object = None
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(beside(self.summary, both))
        self.map.pointed.connect(self._point)
        self.curve.pointed.connect(self._point)

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        self._theme = theme
        self.map.set_theme(theme)
        self.curve.set_theme(theme)
        self._shown = ()

    def set_runs(self, runs: list[Run]) -> None:
        """Offer these (at least one), the newest first, and show the chosen one as far as it has come."""
        self.summary.choice.set_runs(runs)
        run = self.summary.choice.run
        assert run is not None
        assert isinstance(run.spec, SweepSpec)
        cells = cells_of(run)
        shown = (run.run, len(cells), run.ended, self._theme.name, run.latest.text if run.latest is not None else "")
        if shown != self._shown:
            if shown[:1] != self._shown[:1]:
                self._arrangement, self._pointed = Arrangement(""), None
            self._shown = shown
            self._draw(run, run.spec, cells)
        self._tell(run)

    def _draw(self, run: Run, spec: SweepSpec, cells: Sequence[SweepCell]) -> None:
        device = self._state.devices.get(run.spec.device)
        colour = self._theme.cpu if device is None else device_colour(device.colour, self._theme)
        arrangement = arrange(spec.shapes, searched=spec.search_seconds is not None)
        if arrangement.kind == "grid":
            self._draw_map(run, arrangement, cells, colour)
        else:
            self._draw_curve(run, arrangement, cells, colour)
        self._pictures.setCurrentWidget(self.map if arrangement.kind == "grid" else self.curve)
        self._arrangement = arrangement

    def _draw_map(self, run: Run, arrangement: Arrangement, cells: Sequence[SweepCell], colour: str) -> None:
        if arrangement != self._arrangement:
            self.map.set_grid(arrangement.xs, arrangement.ys, arrangement.x_name, arrangement.y_name)
        columns = {x: at for at, x in enumerate(arrangement.xs)}
        rows = {y: at for at, y in enumerate(arrangement.ys)}

        def place(shape: Shape) -> tuple[int, int]:
            x, y = arrangement.place(shape)
            return columns[x], rows[y]

        top = best(cells)
        self._cells = {place((cell.m, cell.n, cell.k)): cell for cell in cells}
        values = {place((cell.m, cell.n, cell.k)): cell.tflops.median if cell.tflops else None for cell in cells}
        words = {place((cell.m, cell.n, cell.k)): cell_words(cell, top) for cell in cells}
        self.map.set_device(colour, simulated=is_simulated(run, self._state))
        self.map.set_values(values, words, self._now(run, place))

    def _now(self, run: Run, place: Callable[[Shape], tuple[int, int]]) -> tuple[int, int] | None:
        """The shape that is measured at present, as the run's latest point names it."""
        if run.ended or run.latest is None or not isinstance(run.spec, SweepSpec):
            return None
        try:
            shape = parse_shape(run.latest.text)
        except BadInput:
            return None
        return place(shape) if shape in run.spec.shapes else None

    def _draw_curve(self, run: Run, arrangement: Arrangement, cells: Sequence[SweepCell], colour: str) -> None:
        measured = [(number, cell, cell.tflops) for number, cell in enumerate(cells, 1) if cell.tflops is not None]
        on_line = arrangement.kind == "line"
        xs = [arrangement.place((cell.m, cell.n, cell.k))[0] if on_line else number for number, cell, _ in measured]
        self._cells = {float(x): cell for x, (_, cell, _) in zip(xs, measured, strict=True)}
        points = [(float(x), spread.median, spread.p20, spread.p80) for x, (_, _, spread) in zip(xs, measured, strict=True)]
        simulated = is_simulated(run, self._state)
        series = [Series(run.spec.device, colour, tuple(sorted(points)), simulated)]
        if on_line:
            ends = (float(arrangement.xs[0]), float(arrangement.xs[-1])) if len(arrangement.xs) > 1 else None
            self.curve.set_axis(arrangement.x_name, lambda x: f"{x:.0f}", arrangement.fixed, ends)
        else:
            shapes = {x: shape_text((cell.m, cell.n, cell.k)) for x, cell in self._cells.items() if isinstance(x, float)}
            highest = ceiling([point[1] for point in points])
            best_line = tuple((point[0], top, top, top) for point, top in zip(points, highest, strict=True))
            series.append(Series("best so far", colour, best_line, quiet=True))
            self.curve.set_axis("", lambda x: shapes.get(x, f"{x:.0f}"), "in the order of measurement")
        datasheet = run.datasheet_tflops
        self.curve.set_curves(series, None if not datasheet else (datasheet, f"datasheet {number_text(datasheet)} TFLOP/s"))

    def _point(self, place: object) -> None:
        self._pointed = place
        run = self.summary.choice.run
        if run is not None:
            self._tell(run)

    def _tell(self, run: Run) -> None:
        """The best shape; while something is pointed at, that instead."""
        assert isinstance(run.spec, SweepSpec)
        cells = cells_of(run)
        top, pointed = best(cells), self._cells.get(self._pointed)
        state = state_cell(run, self._theme)
        total = None if run.spec.search_seconds is not None else len(run.spec.shapes)
        count = f"{len(cells)} of {total} shapes" if total is not None else count_text(len(cells), "shape")
        missing = sum(cell.tflops is None for cell in cells)
        facts = [f"{state.text}, {count}", f"{missing} not measured" if missing else ""]
        facts += ["simulated"] if is_simulated(run, self._state) else []
        stand = dataclasses.replace(state, text=", ".join(filter(None, facts)))
        cell = pointed if pointed is not None else top
        action = left_to_do(run) if run.ended else ""
        if cell is None:
            self.summary.say("Nothing is measured yet." if not run.ended else "Nothing was measured.", "", stand, action=action)
            return
        first, *rest = cell_words(cell, top).split("\n")
        if pointed is None and cell.tflops is not None:
            share = f", {100 * cell.tflops.median / run.datasheet_tflops:.0f} % of the datasheet" if run.datasheet_tflops else ""
            headline, words = f"{number_text(cell.tflops.median)} TFLOP/s at {first}", f"The best so far{share}."
            words = words if not run.ended else f"The best{share}."
        else:
            headline, words = first, "\n".join(rest)
        self.summary.say(headline, words, stand, action=action)


def left_to_do(run: Run) -> str:
    """What the button of a sweep that has not been all the way says; empty: it has."""
    assert isinstance(run.spec, SweepSpec)
    if run.spec.search_seconds is not None:
        return "Search on"
    left = len(run.spec.shapes) - len(cells_of(run))
    return f"Resume, {count_text(left, 'shape')} left" if left > 0 else ""
