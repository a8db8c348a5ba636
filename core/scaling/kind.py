"""The kind `scaling`: the same job on several devices at once, and in turn on one. Any thread; no torch until a run is
checked."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from devexplorer.core.base import BadInput, Findings, number_text, seconds_text, shape_text
from devexplorer.core.benchmark.kind import (
    ALL_DEVICES,
    DTYPE,
    UNITS,
    BenchmarkKind,
    Entry,
    Figure,
    Headline,
    Option,
    RunInputs,
    Shape,
    exact,
    figure,
    joined,
    named_devices,
    read_result,
    read_spec,
    write,
)
from devexplorer.core.benchmark.matmul_kind import check_shapes, product_dtype
from devexplorer.core.benchmark.spec import parse_shape
from devexplorer.core.records import BaseResult, BaseSpec, Conditions, DeviceInfo

if TYPE_CHECKING:
    from devexplorer.core.benchmark.timing import Runner
    from devexplorer.core.devices.backend import DeviceRegistry


class ScalingSpec(BaseSpec, tag="scaling"):
    """The same job once per device: all at once, and one after the other on the first device."""

    devices: tuple[str, ...]
    dtype: str = "float32"
    size: int = 1000
    """Side of the square matrices."""
    iterations: int = 1000
    """Products per job."""

    @property
    def device(self) -> str:
        """The device that the run is listed under."""
        return self.devices[0]


class DeviceWall(msgspec.Struct, frozen=True):
    """How long one job took."""

    device: str
    seconds: float


MOST_SLOWER_ALONE = 1.5
"""A device that takes longer than so many times for a job alone than for one beside others was held up by something
else."""


class ScalingResult(BaseResult, tag="scaling"):
    """A finished (or stopped) scaling run."""

    spec: ScalingSpec
    parallel_seconds: float | None
    """Until the last of the jobs was done, all started at once; None when it was stopped before."""
    sequential_seconds: float | None
    """All jobs one after the other on the first device."""
    walls: tuple[DeviceWall, ...] = ()
    """Each job of the parallel part."""

    @property
    def speedup(self) -> float | None:
        """Sequential over parallel."""
        if self.parallel_seconds is None or self.sequential_seconds is None or self.parallel_seconds <= 0:
            return None
        return self.sequential_seconds / self.parallel_seconds

    @property
    def efficiency(self) -> float | None:
        """Speed-up per device."""
        return None if self.speedup is None else self.speedup / len(self.spec.devices)

    @property
    def unreliable(self) -> str | None:
        """Why the speed-up means nothing, in one sentence: the first device was far slower alone than beside the
        others."""
        own = next((wall.seconds for wall in self.walls if wall.device == self.spec.device), None)
        if self.sequential_seconds is None or not own:
            return None
        slower = self.sequential_seconds / len(self.spec.devices) / own
        if slower <= MOST_SLOWER_ALONE:
            return None
        return (
            f"{self.spec.device} took {slower:.1f} times as long for a job when nothing else ran as beside the others,"
            " so something else held the machine up; measure again when it is quiet."
        )


class ScalingEntry(Entry, kw_only=True):
    """A run."""

    devices: tuple[str, ...] = ()
    dtype: str
    shape: Shape
    parallel_seconds: float | None = None
    sequential_seconds: float | None = None
    speedup: float | None = None
    efficiency: float | None = None
    unreliable: str | msgspec.UnsetType | None = msgspec.UNSET
    """Only there where the speed-up is."""
    walls: tuple[DeviceWall, ...] = ()


class ScalingKind(BenchmarkKind[ScalingSpec, ScalingResult]):
    """The same job on every device."""

    spec, result, entry = ScalingSpec, ScalingResult, ScalingEntry
    page = "devexplorer.gui.scaling.page:ScalingPage"
    title, brief, about = (
        "Scaling",
        "Parallel",
        "measure the same job on several devices, at once and one after the other",
    )
    meaning = "The same job on several devices at once against one after the other"
    columns = ("device", "job", ">seconds", "")
    options = (
        ALL_DEVICES,
        DTYPE,
        Option("--size", "rows and columns of the matrices, one number (default 1000)", "N|MxNxK"),
        Option("--iterations", "products per job (default 1000)", "N"),
    )

    def specs(self, arguments: argparse.Namespace, findings: Findings) -> list[ScalingSpec]:
        m, n, k = findings.checked(partial(parse_shape, arguments.size or "1000"), (1, 1, 1))
        if not m == n == k:
            findings.add(f"bench scaling multiplies square matrices; write --size {m}, not --size {arguments.size}")
        return [
            ScalingSpec(
                devices=named_devices(arguments, default=()),
                iterations=findings.count(arguments.iterations, "--iterations") or 1000,
                dtype=product_dtype(arguments, findings),
                size=m,
            )
        ]

    def on_devices(self, spec: ScalingSpec, devices: Sequence[DeviceInfo]) -> ScalingSpec:
        """The virtual GPUs where there are some (someone asked for them), else the accelerators, and the CPU too where
        those are fewer than two."""
        if spec.devices:
            return spec
        usable = [info for info in devices if info.usable]
        groups = (
            tuple(info.id for info in usable if info.simulated),
            tuple(info.id for info in usable if info.kind != "cpu"),
        )
        every = tuple(info.id for info in usable)
        return msgspec.structs.replace(spec, devices=next((group for group in groups if len(group) > 1), every))

    def devices(self, spec: ScalingSpec) -> tuple[str, ...]:
        return tuple(dict.fromkeys(spec.devices))

    def check(self, spec: ScalingSpec, registry: DeviceRegistry) -> ScalingSpec:
        from devexplorer.core.scaling.run import check_scaling  # torch

        return check_scaling(spec, registry)

    def runner(self, spec: ScalingSpec, inputs: RunInputs) -> Runner[Any]:
        from devexplorer.core.scaling.run import ScalingRun  # torch

        return ScalingRun(spec, inputs.run, inputs.registry, inputs.stop, inputs.clock)

    def caption(self, spec: ScalingSpec) -> str:
        return f"scaling {spec.iterations} of {shape_text((spec.size,) * 3)} {spec.dtype} on {len(spec.devices)}"

    def choice_text(self, spec: ScalingSpec, where: str) -> str:
        return f"{where}, {spec.size}³ {spec.dtype}"

    def figures(self, result: ScalingResult) -> tuple[Figure, ...]:
        known = (
            ("seconds", "at once", result.parallel_seconds),
            ("seconds", "one after the other", result.sequential_seconds),
            ("speedup", "", reliable_speedup(result)),
        )
        return tuple(
            figure(
                (name,) if name else (),
                quantity,
                exact(value),
                result,
                result.simulated,
            )
            for quantity, name, value in known
            if value is not None
        )

    def headline(self, result: ScalingResult) -> Headline:
        speedup = reliable_speedup(result)
        return Headline(None if speedup is None else exact(speedup), UNITS["speedup"])

    def subject(self, result: ScalingResult) -> str:
        return f"{result.spec.iterations:,} × {result.spec.size}³ on {len(result.spec.devices)} devices"

    def rows(self, result: ScalingResult, conditions: Conditions) -> list[tuple[str, ...]]:
        spec = result.spec
        job = f"{spec.iterations:,} × {shape_text((spec.size,) * 3)} {spec.dtype}"
        remarks = joined(simulated=result.simulated)
        return [(wall.device, job, number_text(wall.seconds), remarks) for wall in result.walls]

    def summary(self, result: ScalingResult, conditions: Conditions) -> str:
        texts = [
            f"at once {seconds_text(result.parallel_seconds)}",
            f"one after the other on {result.spec.device} {seconds_text(result.sequential_seconds)}",
        ]
        if result.speedup is not None and result.efficiency is not None:
            texts.append(f"{number_text(result.speedup)} times as fast, {100 * result.efficiency:.0f} % per device")
        line = joined(*texts, joined(simulated=result.simulated, stopped=result.stopped))
        return line if result.unreliable is None else f"{line}\nUnreliable: {result.unreliable}"

    def entries(self, result: ScalingResult, conditions: Conditions | None) -> list[Entry]:
        spec = result.spec
        return [
            write(
                ScalingEntry,
                result,
                spec,
                shape=(spec.size,) * 3,
                iterations=spec.iterations,
                unreliable=result.unreliable or msgspec.UNSET,
            )
        ]

    def read(self, entries: Sequence[Any]) -> ScalingResult:
        (entry,) = entries
        devices = entry.devices or tuple(wall.device for wall in entry.walls) or (entry.device,)
        spec = read_spec(entry, ScalingSpec, devices=devices, size=entry.shape[0], iterations=entry.iterations)
        jobs = len(entry.walls) + (len(devices) if entry.sequential_seconds is not None else 0)
        return read_result(entries, ScalingResult, spec=spec, iterations=jobs * entry.iterations)

    def check_imported(self, result: ScalingResult) -> ScalingResult:
        check_shapes([(result.spec.size,)])
        if not result.spec.devices:
            raise BadInput("it names no device")
        return result

    def incomparable(self, results: Sequence[ScalingResult]) -> str:
        work = {(result.spec.size, result.spec.iterations, len(result.spec.devices)) for result in results}
        if len(work) == 1:
            return ""
        return (
            "these scaling runs did different amounts of work; choose runs of one size, iterations and number of"
            " devices"
        )


def reliable_speedup(result: ScalingResult) -> float | None:
    """None as well where something else held the machine up."""
    return result.speedup if result.unreliable is None else None
