"""The Scaling page of the Benchmark tab: the same job on several devices at once, and one after the other on one. Main thread."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence

from devexplorer.core.benchmark.spec import check_fits, check_limits, check_product, parse_count
from devexplorer.core.dtypes import parse_dtype
from devexplorer.core.formats import number_text, seconds_text
from devexplorer.core.records.benchmark import BenchSpec, MatmulSpec, ScalingResult, ScalingSpec
from devexplorer.core.state import Run, State
from devexplorer.gui.item_models.runs import is_simulated, state_cell
from devexplorer.gui.panels.bench_fields import DtypeEdit, Findings, edit, parse_side
from devexplorer.gui.panels.bench_matmul import free_bytes
from devexplorer.gui.panels.bench_page import BenchPage
from devexplorer.gui.panels.bench_summary import Summary, beside
from devexplorer.gui.panels.device_choice import Accelerators
from devexplorer.gui.plots.wall_bars import Bar, WallBars
from devexplorer.gui.theme import CPU, Theme

ALONE = "Scaling compares two devices or more, and only the CPU is here."
AT_ONCE, IN_TURN = "at once, each job on its device", "one after the other"


class ScalingPage(BenchPage):
    """One specification: one job per chosen device."""

    kind, title = "scaling", "Scaling"
    nothing = "No scaling was measured in this session."

    def __init__(self, state: State, theme: Theme, clock: Callable[[], float] = time.time) -> None:
        super().__init__(state, theme, clock)
        self.devices = Accelerators(state)
        self.dtype_edit = DtypeEdit()
        self.size_edit = edit("1000", "1000", "Size", 64)
        self.size_edit.setToolTip("Side of the square matrices")
        self.iterations_edit = edit("1000", "1000", "Products per job", 64)
        self.add_field("devices", self.devices)
        self.add_field("dtype", self.dtype_edit)
        self.add_field("size", self.size_edit)
        self.add_field("products per job", self.iterations_edit)
        self.summary = Summary("The run on show")
        self.bars = WallBars(theme)
        self.set_results(beside(self.summary, self.bars))
        self.summary.changed.connect(self.refresh)
        self.check()
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        self.dtype_edit.set_theme(theme)
        self.bars.set_theme(theme)
        super().set_theme(theme)

    def refresh(self) -> None:
        """Show devices and runs as they are now."""
        self.devices.refresh()
        super().refresh()
        alone = len(self._state.usable_devices) == 1
        self.nothing_words.setText(ALONE if alone else self.nothing)

    # the form

    def specs(self) -> tuple[ScalingSpec, ...]:
        """One for all devices. Raises one `BadInput` with everything that is wrong."""
        found = Findings()
        chosen = self.devices.chosen
        if len(self._state.usable_devices) == 1:
            found.add("there is one device here, and scaling needs two; add virtual GPUs to try it")
        elif len(chosen) < 2:
            found.add("scaling needs two devices or more; choose another one")
        dtype = found.read(lambda text: parse_dtype(text, tf32=True), self.dtype_edit.text())
        if dtype is not None:
            found.read(check_product, dtype)
        size = found.read(parse_side, self.size_edit.text())
        iterations = found.read(lambda text: parse_count(text, "products per job"), self.iterations_edit.text())
        found.refuse()
        assert dtype is not None
        assert size is not None
        assert iterations is not None
        job = MatmulSpec(device=chosen[0], dtype=dtype, m=size, n=size, k=size, iterations=iterations)
        found.read(check_limits, job)
        for device in chosen:
            one = MatmulSpec(device=device, dtype=dtype, m=size, n=size, k=size)
            found.read(functools.partial(check_fits, one), free_bytes(self._state.devices[device]))
        found.refuse()
        return (ScalingSpec(devices=chosen, dtype=dtype, size=size, iterations=iterations),)

    def describe(self, specs: Sequence[BenchSpec]) -> str:
        """How many operations a job has."""
        spec = specs[0]
        assert isinstance(spec, ScalingSpec)
        work = 2 * spec.size**3 * spec.iterations / 1e12
        return f"{len(spec.devices)} jobs of {number_text(work)} TFLOP, at once and in turn"

    def offer(self, specs: Sequence[BenchSpec]) -> str:
        """`Compare vgpu:0 and vgpu:1`."""
        spec = specs[0]
        assert isinstance(spec, ScalingSpec)
        return f"Compare {' and '.join(spec.devices)}" if len(spec.devices) == 2 else f"Compare {len(spec.devices)} devices"

    def check(self) -> None:
        """Where only the CPU is here, virtual GPUs are the one thing that helps."""
        super().check()
        if len(self._state.usable_devices) == 1:
            possible = self._state.engine is not None and self._state.engine.virtual_unavailable is None
            self.show_offer("Add two virtual GPUs" if possible else "")

    def _take_offer(self) -> None:
        if len(self._state.usable_devices) == 1:
            self.virtual_offered.emit()
        else:
            self.start()

    # the runs

    def show_runs(self, runs: list[Run]) -> None:
        """The chosen one, as far as it has come."""
        self.summary.choice.set_runs(runs)
        run = self.summary.choice.run
        assert run is not None
        assert isinstance(run.spec, ScalingSpec)
        result = run.result if isinstance(run.result, ScalingResult) else None
        bars = self._bars(run, run.spec, result)
        if bars != self.bars.bars:
            self.bars.set_bars(bars)
        state = state_cell(run, self._theme)
        if is_simulated(run, self._state):
            state = dataclasses.replace(state, text=f"{state.text}, simulated")
        self.summary.say(headline(result, ended=run.ended), words(run.spec, result), state)

    def _bars(self, run: Run, spec: ScalingSpec, result: ScalingResult | None) -> tuple[Bar, ...]:
        walls = {wall.device: wall.seconds for wall in result.walls} if result is not None else {}

        def bar(group: str, device: str, seconds: float | None, jobs: int = 1) -> Bar:
            known = self._state.devices.get(device)
            simulated = known.info.simulated if known is not None else is_simulated(run, self._state)
            return Bar(group, device, seconds, known.colour if known is not None else CPU, simulated, jobs)

        sequential = result.sequential_seconds if result is not None else None
        return (
            *(bar(AT_ONCE, device, walls.get(device)) for device in spec.devices),
            bar(f"{IN_TURN}, {len(spec.devices)} jobs on {spec.device}", spec.device, sequential, len(spec.devices)),
        )


def headline(result: ScalingResult | None, *, ended: bool) -> str:
    """`2.53 times as fast`."""
    if result is None:
        return "Nothing was measured." if ended else "Nothing is measured yet."
    if result.speedup is None:
        return "Stopped before both parts were measured."
    return f"{number_text(result.speedup)} times as fast"


def words(spec: ScalingSpec, result: ScalingResult | None) -> str:
    """Both wall times, and what they say about the devices, as a colleague would."""
    job = f"{spec.iterations:,} products of {spec.size}×{spec.size} in {spec.dtype}"
    if result is None or result.speedup is None or result.efficiency is None:
        known = result.parallel_seconds if result is not None else None
        return f"{job}." if known is None else f"{job}: {seconds_text(known)} at once."
    times = f"{seconds_text(result.parallel_seconds)} at once against {seconds_text(result.sequential_seconds)} one after the other"
    count = len(spec.devices)
    share = f"{100 * result.efficiency:.0f} % of what {count} devices can give"
    return f"{job} for each of {count} jobs: {times}. Efficiency {share}."

