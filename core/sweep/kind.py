"""The kind `sweep`: products of many shapes, or the search for the fastest. Any thread; no torch until a run is
made."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import Findings, count_text, flops_text, shape_text
from devexplorer.core.benchmark.kind import (
    DEVICE,
    DTYPE,
    UNITS,
    BenchmarkKind,
    Entry,
    Figure,
    Headline,
    Option,
    RunInputs,
    Shape,
    figure,
    joined,
    named_devices,
    published_tflops,
    read,
    read_result,
    read_spec,
    spread_texts,
    write,
)
from devexplorer.core.benchmark.matmul_kind import check_shapes, product_dtype
from devexplorer.core.benchmark.published import best, verdict
from devexplorer.core.benchmark.spec import free_bytes, parse_shapes
from devexplorer.core.records import BaseResult, BaseSpec, Conditions, DeviceInfo, Spread

if TYPE_CHECKING:
    from devexplorer.core.benchmark.timing import Runner
    from devexplorer.core.devices.backend import DeviceRegistry

SIZES = "256:2048:256"


class SweepCell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One shape of a sweep."""

    m: int
    n: int
    k: int
    tflops: Spread | None = None
    """None with a reason: it could not be measured."""
    iterations: int = 0
    reason: str | None = None
    verified: bool | None = None
    """Whether its values were compared with a higher precision and agreed; None: not compared."""
    seconds: float | None = None
    """All its iterations together, on the device's clock."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.m, self.n, self.k


class SweepSpec(BaseSpec, tag="sweep"):
    """Matrix products of many shapes on one device, one after the other in burst mode."""

    device: str
    dtype: str = "float32"
    shapes: tuple[tuple[int, int, int], ...] = ()
    """(M, N, K) each, in the order in which they are measured. A search adds to them."""
    search_seconds: float | None = None
    """Look for the shape with the highest throughput for so long, starting from `shapes`; None: measure `shapes`, no
    more."""
    shape_seconds: float = 0.2
    """Measured time per shape."""
    done: tuple[SweepCell, ...] = ()
    """What an earlier run has measured already: taken over, not measured again."""


class SweepResult(BaseResult, tag="sweep"):
    """A finished (or stopped) sweep."""

    spec: SweepSpec
    cells: tuple[SweepCell, ...]
    """In the order of measurement, those of `spec.done` first."""
    datasheet_tflops: float | None = None


class SweepEntry(Entry, kw_only=True):
    """A shape, as a product in burst mode."""

    dtype: str
    shape: Shape
    mode: str = "burst"
    tflops: Spread | None = None
    reason: str | None = None
    datasheet_tflops: float | None = None
    published_tflops: float | None = None


class SweepKind(BenchmarkKind[SweepSpec, SweepResult]):
    """Products of many shapes on one device."""

    spec, result, entry = SweepSpec, SweepResult, SweepEntry
    part, page = SweepCell, "devexplorer.gui.sweep.page:SweepPage"
    title, about = "Sweeps", "measure matrix products of many shapes, or look for the fastest"
    meaning = "Products of many shapes: which are fast, and the search for the fastest"
    columns = ("device", "dtype", ">shape", ">TFLOP/s median", ">p20", ">p80", ">iterations", "")
    across = "cube root of M·N·K"
    measures_throughput = True
    rate_name = "best"
    not_compared = frozenset({"device", "shapes", "done"})
    options = (
        DEVICE,
        DTYPE,
        Option("--size", "one shape, as --sizes", "N|MxNxK"),
        Option("--seconds", "how long to measure each shape (default 0.2)", "S"),
        Option(
            "--sizes",
            f'shapes: "256:4096:256", "512,1024", "1024x256:1024:256x4096" (default {SIZES})',
            "RANGES",
        ),
        Option("--search", "look for the fastest shape for so long, beginning with --sizes", "SECONDS"),
    )

    def specs(self, arguments: argparse.Namespace, findings: Findings) -> list[SweepSpec]:
        if arguments.size is not None and arguments.sizes is not None:
            findings.add("--size and --sizes are the same to a sweep; give one of them")
        text = arguments.size if arguments.sizes is None else arguments.sizes
        if text is None and arguments.search is None:  # a search knows where to begin
            text = SIZES
        spec = SweepSpec(
            device="cpu",
            dtype=product_dtype(arguments, findings),
            shapes=findings.checked(partial(parse_shapes, text), ((1, 1, 1),)) if text is not None else (),
            search_seconds=findings.seconds(arguments.search, "--search"),
            shape_seconds=findings.seconds(arguments.seconds, "--seconds") or 0.2,
        )
        return [replace(spec, device=name) for name in named_devices(arguments)]

    def check(self, spec: SweepSpec, registry: DeviceRegistry) -> SweepSpec:
        from devexplorer.core.sweep.run import check_sweep  # torch

        return check_sweep(spec, registry)

    def runner(self, spec: SweepSpec, inputs: RunInputs) -> Runner[Any]:
        from devexplorer.core.benchmark.matmul import cache_flush, product_maker  # torch
        from devexplorer.core.benchmark.timing import timer_for  # torch
        from devexplorer.core.sweep.run import SweepRun  # torch

        info = inputs.registry.info(spec.device)
        return SweepRun(
            spec,
            inputs.run,
            timer_for(spec.device, inputs.registry, inputs.stop, paced=False),
            kind=info.kind,
            make=product_maker(simulated=info.simulated),
            flush=None if info.kind in ("cpu", "virtual") else cache_flush,
            free_bytes=partial(free_bytes, inputs.registry, spec.device),
            datasheet_tflops=self.datasheet_tflops(spec, info),
            clock=inputs.clock,
        )

    def datasheet_tflops(self, spec: SweepSpec, info: DeviceInfo) -> float | None:
        return info.datasheet_tflops.get(spec.dtype)

    def caption(self, spec: SweepSpec) -> str:
        return f"sweep {spec.dtype}"

    def choice_text(self, spec: SweepSpec, where: str) -> str:
        what = "search" if spec.search_seconds is not None else f"{len(spec.shapes)} shapes"
        return f"{spec.device} {spec.dtype}, {what}"

    def figures(self, result: SweepResult) -> tuple[Figure, ...]:
        return tuple(
            figure(
                (shape_text(cell.shape),),
                "tflops",
                cell.tflops,
                cell,
                result.simulated,
                math.cbrt(cell.m * cell.n * cell.k),  # the side of the cube with as many multiplications
            )
            for cell in result.cells
            if cell.tflops is not None
        )

    def headline(self, result: SweepResult) -> Headline:
        return Headline(self.throughput(result), UNITS["tflops"], None, result.datasheet_tflops, False)

    def subject(self, result: SweepResult) -> str:
        cell = fastest(result.cells)
        count = len(result.cells)
        return count_text(count, "shape") if cell is None else f"{shape_text(cell.shape)}, the best"

    def subject_tip(self, result: SweepResult) -> str:
        return f"The fastest of {count_text(len(result.cells), 'shape')}"

    def throughput(self, result: SweepResult) -> Spread | None:
        cell = fastest(result.cells)
        return None if cell is None else cell.tflops

    def rows(self, result: SweepResult, conditions: Conditions) -> list[tuple[str, ...]]:
        spec = result.spec
        return [
            (spec.device, spec.dtype, shape_text(cell.shape), *spread_texts(cell.tflops), f"{cell.iterations:,}",
             cell.reason or joined(simulated=result.simulated))
            for cell in result.cells
        ]  # fmt: skip

    def summary(self, result: SweepResult, conditions: Conditions) -> str:
        cell = fastest(result.cells)
        if cell is None or cell.tflops is None:
            return "No shape could be measured."
        median = cell.tflops.median
        share = verdict(median, result.datasheet_tflops, best(conditions.device_name, result.spec.dtype))
        text = f"fastest: {shape_text(cell.shape)} with {flops_text(median)}"
        return joined(text, share, joined(simulated=result.simulated, stopped=result.stopped))

    def is_curve(self, result: SweepResult) -> bool:
        """Not where shapes of very different sides have places next to each other."""
        return all(cell.m == cell.n == cell.k for cell in result.cells if cell.tflops is not None)

    def entries(self, result: SweepResult, conditions: Conditions | None) -> list[Entry]:
        published = published_tflops(conditions, result.spec.dtype)
        return [
            write(SweepEntry, cell, result, result.spec, mode="burst", published_tflops=published)
            for cell in result.cells
        ]

    def read(self, entries: Sequence[Any]) -> SweepResult:
        cells = tuple(read(entry, SweepCell, m=entry.shape[0], n=entry.shape[1], k=entry.shape[2]) for entry in entries)
        spec = read_spec(entries[0], SweepSpec, shapes=tuple(entry.shape for entry in entries))
        return read_result(entries, SweepResult, spec=spec, cells=cells)

    def belong_together(self, first: Any, other: Any) -> bool:
        return (first.device, first.dtype, first.conditions) == (other.device, other.dtype, other.conditions)

    def check_imported(self, result: SweepResult) -> SweepResult:
        check_shapes(cell.shape for cell in result.cells)
        return result


def fastest(cells: Sequence[SweepCell]) -> SweepCell | None:
    """The shape with the highest throughput; None where none was measured."""
    known = [cell for cell in cells if cell.tflops is not None]
    return max(known, key=lambda cell: cell.tflops.median if cell.tflops else 0.0, default=None)
