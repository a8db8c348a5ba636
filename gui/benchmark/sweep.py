"""The Sweep page of the Benchmark tab: products of many shapes, or the search for the fastest one. Main thread."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from devexplorer.core.base import bytes_text, count_text
from devexplorer.core.benchmark.ranges import parse_shapes
from devexplorer.core.benchmark.spec import check_chip, operand_bytes
from devexplorer.core.records import SweepSpec
from devexplorer.core.session import Run
from devexplorer.gui.benchmark.base_page import BenchPage
from devexplorer.gui.benchmark.runs import cells_of
from devexplorer.gui.benchmark.sweep_view import SweepView, left_to_do
from devexplorer.gui.benchmark.sweeps import Shape
from devexplorer.gui.widgets import line_edit
from devexplorer.gui.widgets.form_fields import Choice, DtypeEdit, MenuEdit, free_bytes, took

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


class SweepPage(BenchPage[SweepSpec]):
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
        self.view = SweepView(self._state)
        self.set_results(self.view)
        self.way.currentIndexChanged.connect(self._new_way)
        self.view.summary.changed.connect(self.refresh)
        self.view.summary.acted.connect(self.resume)

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
            free = free_bytes(device)
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
            f"{count_text(len(spec.shapes), 'shape')}, {took(len(spec.shapes) * spec.shape_seconds)} of measuring and"
            " the warm-up"
        )
        large = max(sum(self._does_not_fit(each, shape) for shape in spec.shapes) for each in specs)
        return f"{words}; {large} of them do not fit and are left out" if large else words

    def _does_not_fit(self, spec: SweepSpec, shape: Shape) -> bool:
        free = free_bytes(self._state.devices[spec.device])
        return free is not None and _bytes(shape, spec.dtype) > free

    def offer(self, specs: Sequence[SweepSpec]) -> str:
        """`Sweep 16 shapes on vgpu:0`."""
        spec = specs[0]
        names = ", ".join(spec.device for spec in specs)
        return (
            f"Search on {names}"
            if spec.search_seconds is not None
            else f"Sweep {count_text(len(spec.shapes), 'shape')} on {names}"
        )

    # the runs

    @property
    def selected_active(self) -> Run | None:
        """The sweep on show, where several run."""
        run = self.view.summary.choice.run
        return run if run is not None and not run.ended and len(self.active) > 1 else None

    def show_runs(self, runs: list[Run]) -> None:
        """The chosen one, as far as it has come."""
        self.view.set_runs(runs)

    def resume(self) -> None:
        """Measure what is left of the sweep on show; what it has measured already is taken over."""
        run = self.view.summary.choice.run
        if run is not None and run.ended and isinstance(run.spec, SweepSpec) and left_to_do(run):
            self.request((msgspec.structs.replace(run.spec, done=cells_of(run)),))


def _bytes(shape: Shape, dtype: str) -> int:
    return sum(operand_bytes(*shape, dtype))
