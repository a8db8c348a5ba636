"""The Scaling page of the Benchmark tab: the same job on several devices at once, and one after the other on one. Main
thread."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from devexplorer.core.base import Findings, joined, number_text, seconds_text, shape_text
from devexplorer.core.benchmark.spec import check_fits, check_matmul, parse_shape
from devexplorer.core.records import MatmulSpec
from devexplorer.core.scaling.kind import ScalingResult, ScalingSpec
from devexplorer.core.session import Run
from devexplorer.core.session.running import is_simulated
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.benchmark.base_page import DtypeEdit, PicturePage
from devexplorer.gui.charts.wall_bars import Bar, WallBars
from devexplorer.gui.forms.device_choice import AlikeDevices
from devexplorer.gui.widgets import CPU, can_add_virtual, line_edit

ALONE = "This compares two real or two virtual devices; there is only one of each here."


class ScalingPage(PicturePage[ScalingSpec]):
    """One specification: one job per chosen device."""

    kind = "scaling"
    nothing = "No scaling has been measured in this session."
    device_choice = AlikeDevices

    def build(self) -> None:
        self.dtype_edit = DtypeEdit()
        self.size_edit = line_edit("1000", "1000", "Size", 64, tip="Side of the square matrices")
        self.iterations_edit = line_edit("1000", "1000", "Products per job", 64)
        self.add_fields(
            ("devices", self.devices),
            ("dtype", self.dtype_edit),
            ("size", self.size_edit),
            ("products per job", self.iterations_edit),
        )
        self.bars = WallBars()
        self.add_picture(self.bars)
        self.empty.button.setText("Add two virtual GPUs")

    def follow(self, context: WindowContext) -> None:
        """It is in this window from now on."""
        self.empty.chosen.connect(context.controller.add_two_virtual)

    def refresh(self) -> None:
        """Show devices and runs as they are now."""
        super().refresh()
        alone = self.alone and bool(self._state.usable_devices)
        self.empty.sentence.setText(ALONE if alone else self.nothing)
        self.empty.button.setVisible(alone and can_add_virtual(self._state))

    # the form

    def specs(self) -> tuple[ScalingSpec, ...]:
        """One for all devices. Raises one `BadInput` with everything that is wrong."""
        findings = Findings()
        chosen = self.devices.chosen
        if self.alone:
            findings.add(f"{ALONE[:-1]}; add virtual GPUs to try it")
        elif len(chosen) < 2:
            findings.add("scaling needs two devices or more; choose another one")
        else:
            findings.add(*self.mixed_clocks(chosen))
        dtype = findings.checked(self.dtype_edit.parse)
        sides = findings.checked(lambda: parse_shape(self.size_edit.text()))
        if sides is not None and len(set(sides)) > 1:
            findings.add(f"scaling multiplies square matrices, not {shape_text(sides)}; write one number")
        iterations = findings.count(self.iterations_edit.text(), "products per job")
        findings.demand_none()
        assert dtype is not None
        assert sides is not None
        assert iterations is not None
        size = sides[0]
        for name in chosen:
            device, job = self._state.devices[name], MatmulSpec(device=name, dtype=dtype, m=size, n=size, k=size)
            if findings.passes(functools.partial(check_matmul, job, device.info)):
                findings.passes(functools.partial(check_fits, job, device.free_bytes))
        findings.demand_none()
        return (ScalingSpec(devices=chosen, dtype=dtype, size=size, iterations=iterations),)

    @property
    def alone(self) -> bool:
        """Whether no two devices are here whose seconds can be compared."""
        usable = self._state.usable_devices
        simulated = sum(self._state.devices[name].info.simulated for name in usable)
        return max(simulated, len(usable) - simulated) < 2

    def describe(self, specs: Sequence[ScalingSpec]) -> str:
        """How many operations a job has."""
        spec = specs[0]
        work = 2 * spec.size**3 * spec.iterations / 1e12
        return f"{len(spec.devices)} jobs of {number_text(work)} TFLOP, at once and one after the other"

    def check(self) -> None:
        """Where there is nothing to compare with, virtual GPUs are the one thing that helps."""
        if not self._state.usable_devices or not self.alone:
            super().check()
            return
        self._problem = "This compares two devices or more, and there is only one here."
        self.say("")  # the empty state says it
        self.show_buttons()

    # the runs

    def tell(self, run: Run, rows: Sequence[Any]) -> None:
        assert isinstance(run.spec, ScalingSpec)
        result = run.result if isinstance(run.result, ScalingResult) else None
        self.summary.say(headline(result), words(run.spec, result), run)

    def draw(self, run: Run, rows: Sequence[Any]) -> None:
        spec, result = run.spec, run.result if isinstance(run.result, ScalingResult) else None
        assert isinstance(spec, ScalingSpec)
        walls = {wall.device: wall.seconds for wall in result.walls} if result is not None else {}

        def bar(group: str, device: str, seconds: float | None, jobs: int = 1) -> Bar:
            known = self._state.devices.get(device)
            simulated = known.info.simulated if known is not None else is_simulated(run, self._state)
            missing = "not measured" if run.ended else "not measured yet"
            return Bar(group, device, seconds, known.colour if known is not None else CPU, simulated, jobs, missing)

        sequential = result.sequential_seconds if result is not None else None
        parallel = (bar("in parallel", device, walls.get(device)) for device in spec.devices)
        self.bars.set_bars([*parallel, bar("one after the other", spec.device, sequential, len(spec.devices))])


def headline(result: ScalingResult | None) -> str:
    """`2.53 times as fast`; empty where nothing was measured."""
    if result is None:
        return ""
    if result.speedup is None:
        return "Stopped before both parts were measured."
    return f"{number_text(result.speedup)} times as fast{'' if result.unreliable is None else ', unreliable'}"


def words(spec: ScalingSpec, result: ScalingResult | None) -> str:
    """Both wall times, and what they say about the devices, as a colleague would."""
    job = f"{spec.iterations:,} products of {spec.size}×{spec.size} in {spec.dtype}"
    if result is None or result.speedup is None or result.efficiency is None:
        known = result.parallel_seconds if result is not None else None
        return f"{job}." if known is None else f"{job}: {seconds_text(known)} at once."
    times = (
        f"{seconds_text(result.parallel_seconds)} at once against {seconds_text(result.sequential_seconds)} one after"
        " the other"
    )
    count = len(spec.devices)
    share = f"{100 * result.efficiency:.0f} % of what {count} devices can give"
    return joined(" ", f"{job} for each of {count} jobs: {times}. Efficiency {share}.", result.unreliable)
