"""The Sweep page of the Benchmark tab: products of many shapes, as a heat map or a curve that fills while it is measured. Main thread."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Sequence

import msgspec
from PySide6.QtWidgets import QWidget

from devexplorer.core.benchmark.spec import check_fits, check_limits, check_product, parse_seconds, parse_shape
from devexplorer.core.dtypes import parse_dtype
from devexplorer.core.errors import BadInput
from devexplorer.core.formats import count_text
from devexplorer.core.records.benchmark import BenchSpec, MatmulSpec, SweepSpec
from devexplorer.core.state import Run, State
from devexplorer.gui.item_models.runs import cells_of
from devexplorer.gui.item_models.sweeps import SIDES, Shape
from devexplorer.gui.panels.bench_fields import Choice, DtypeEdit, Findings, edit, parse_side, parse_sizes
from devexplorer.gui.panels.bench_matmul import free_bytes
from devexplorer.gui.panels.bench_page import BenchPage
from devexplorer.gui.panels.bench_sweep_view import SweepView, left_to_do
from devexplorer.gui.panels.device_choice import DeviceChoice
from devexplorer.gui.panels.panel import label
from devexplorer.gui.theme import Theme

KINDS = (
    ("square", "M = N = K", "Square matrices of each size"),
    ("grid", "M × N", "Every pair of M and N of these sizes, with one K"),
    ("M", "along M", "M takes each size, N and K stay"),
    ("N", "along N", "N takes each size, M and K stay"),
    ("K", "along K", "K takes each size, M and N stay"),
    ("search", "search", "Look for the shape with the highest throughput, from one shape on, inside a budget of seconds"),
)
EXAMPLE = "256 to 4096 by 256"
MOST_SHAPES = 2500
DEFAULTS = {
    "square": ("256 to 4096 by 256", "", "0.2"),
    "grid": ("256 to 2048 by 256", "2048", "0.1"),
    "search": ("1024", "", "30"),
}
"""Sizes, the other sides, seconds."""
ALONG = ("64 to 2048 by 64", "2048x2048", "0.1")


class SweepPage(BenchPage):
    """One specification per chosen device."""

    kind, title = "sweep", "Sweep"
    nothing = "No sweep has run in this session."

    def __init__(self, state: State, theme: Theme, clock: Callable[[], float] = time.time) -> None:
        super().__init__(state, theme, clock)
        self.devices = DeviceChoice(state)
        self.dtype_edit = DtypeEdit()
        self.shapes = Choice("Shapes", KINDS)
        self.sizes_edit = edit(DEFAULTS["square"][0], EXAMPLE, "Sizes", 150)
        self.sizes_edit.setToolTip("A list (512, 1024), or a range: 256 to 4096 by 256, or doubling: 256 to 4096 ×2")
        self.others_edit = edit("", "2048", "The other sides", 84)
        self.seconds_edit = edit(DEFAULTS["square"][2], "0.2", "Seconds", 48)
        for words, field in (("measure", self.devices), ("dtype", self.dtype_edit), ("", self.shapes)):
            self.add_field(words, field)
        self._sizes = self.add_field("sizes", self.sizes_edit)
        self._others = self.add_field("K", self.others_edit)
        self._seconds = self.add_field("seconds each", self.seconds_edit)
        self.view = SweepView(state, theme)
        self.set_results(self.view)
        self.shapes.currentIndexChanged.connect(self._new_kind)
        self.view.summary.changed.connect(self.refresh)
        self.view.summary.acted.connect(self.resume)
        self._kind_before = "square"
        self._new_kind()
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        self.dtype_edit.set_theme(theme)
        self.view.set_theme(theme)
        super().set_theme(theme)

    def refresh(self) -> None:
        """Show devices and runs as they are now."""
        self.devices.refresh()
        super().refresh()

    # the form

    @property
    def _kind(self) -> str:
        return str(self.shapes.value)

    def _new_kind(self) -> None:
        kind = self._kind
        before, after = (DEFAULTS.get(which, ALONG) for which in (self._kind_before, kind))
        fields = (self.sizes_edit, self.others_edit, self.seconds_edit)
        for field, old, new in zip(fields, before, after, strict=True):
            if field.text().strip() in (old, ""):  # what somebody has typed stays
                field.blockSignals(True)
                field.setText(new)
                field.blockSignals(False)
        self._kind_before = kind
        self._name(self._sizes, "from" if kind == "search" else "sizes")
        self._name(self._others, "K" if kind == "grid" else " × ".join(side for side in SIDES if side != kind))
        self._name(self._seconds, "seconds in all" if kind == "search" else "seconds each")
        self._others.setVisible(kind not in ("square", "search"))
        self.check()

    @staticmethod
    def _name(both: QWidget, words: str) -> None:
        name = both.findChild(type(label()), "name")
        assert name is not None
        name.setText(words)

    def _shapes(self, found: Findings) -> list[Shape]:
        kind, text = self._kind, self.sizes_edit.text()
        if kind == "search":
            start = found.read(parse_shape, text)
            return [start] if start is not None else []
        sizes = found.read(lambda text: parse_sizes(text, parse_side, EXAMPLE), text) or ()
        match kind:
            case "square":
                shapes = [(size, size, size) for size in sizes]
            case "grid":
                k = found.read(parse_side, self.others_edit.text())
                shapes = [(m, n, k) for m in sizes for n in sizes] if k is not None else []
            case _:
                others = found.read(_two_sides, self.others_edit.text())
                at = SIDES.index(kind)
                shapes = [_inserted(others, at, size) for size in sizes] if others is not None else []
        if len(shapes) > MOST_SHAPES:
            found.add(f"{len(shapes):,} shapes are too many for one sweep; take larger steps, {MOST_SHAPES:,} shapes at most")
        return shapes

    def specs(self) -> tuple[SweepSpec, ...]:
        """One per device. Raises one `BadInput` with everything that is wrong."""
        found = Findings()
        if not self.devices.chosen:
            found.add("no device is chosen; choose at least one")
        dtype = found.read(lambda text: parse_dtype(text, tf32=True), self.dtype_edit.text())
        if dtype is not None:
            found.read(check_product, dtype)
        shapes = self._shapes(found)
        seconds = found.read(parse_seconds, self.seconds_edit.text().strip())
        found.refuse()
        assert dtype is not None
        assert seconds is not None
        searched = self._kind == "search"
        products = [MatmulSpec(device=self.devices.chosen[0], dtype=dtype, m=m, n=n, k=k) for m, n, k in shapes]
        for product in products:
            if not found.lines:  # one of them is enough to say
                found.read(check_limits, product)
        largest = max(products, key=lambda product: (product.m * product.k + product.k * product.n + product.m * product.n))
        for device in self.devices.chosen:
            largest = msgspec.structs.replace(largest, device=device)
            found.read(functools.partial(check_fits, largest), free_bytes(self._state.devices[device]))
        found.refuse()
        return tuple(
            SweepSpec(
                device=device,
                dtype=dtype,
                shapes=tuple(shapes),
                search_seconds=seconds if searched else None,
                shape_seconds=0.2 if searched else seconds,
            )
            for device in self.devices.chosen
        )

    def describe(self, specs: Sequence[BenchSpec]) -> str:
        """How many shapes, and how long they take to measure."""
        spec = specs[0]
        assert isinstance(spec, SweepSpec)
        if spec.search_seconds is not None:
            return f"searches for {spec.search_seconds:g} s, each shape {spec.shape_seconds:g} s"
        seconds = len(spec.shapes) * spec.shape_seconds
        took = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
        return f"{count_text(len(spec.shapes), 'shape')}, {took} of measuring and the warm-up"

    def offer(self, specs: Sequence[BenchSpec]) -> str:
        """`Sweep 16 shapes on vgpu:0`."""
        spec = specs[0]
        assert isinstance(spec, SweepSpec)
        names = ", ".join(spec.device for spec in specs)
        return f"Search on {names}" if spec.search_seconds is not None else f"Sweep {count_text(len(spec.shapes), 'shape')} on {names}"

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


def _two_sides(text: str) -> tuple[int, int]:
    parts = [part for part in re.split(r"[x×*,]", text) if part.strip()]
    if len(parts) not in (1, 2):
        raise BadInput(f"'{text}' are not the two other sides; write one number (2048) or two (2048x1024)")
    sides = [parse_side(part) for part in parts]
    return sides[0], sides[-1]


def _inserted(others: tuple[int, int], at: int, size: int) -> Shape:
    sides = [*others]
    sides.insert(at, size)
    return sides[0], sides[1], sides[2]
