"""The kind `matmul`: products of one shape. Any thread; no torch until a run is made."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Findings, count_text, number_text, parse_dtype, shape_text
from devexplorer.core.benchmark.kind import (
    DEVICE,
    DTYPE,
    BenchmarkKind,
    Entry,
    Figure,
    Headline,
    Option,
    RunInputs,
    Shape,
    joined,
    named_devices,
    published_tflops,
    read_result,
    read_spec,
    spread_texts,
    write,
)
from devexplorer.core.benchmark.published import best, verdict
from devexplorer.core.benchmark.spec import (
    BY_COLUMNS,
    LARGEST_SIDE,
    MODES,
    check_fits,
    check_matmul,
    check_product,
    flush_bytes,
    free_bytes,
    parse_shape,
)
from devexplorer.core.benchmark.statistics import FEWEST, MOST_SAMPLES, noise, noise_of_spread, noise_verdict
from devexplorer.core.records import Conditions, DeviceInfo, MatmulResult, MatmulSpec, Spread

if TYPE_CHECKING:
    from devexplorer.core.benchmark.timing import Runner
    from devexplorer.core.devices.backend import DeviceRegistry

SECONDS = {"live": 5.0, "burst": 2.0, "sustained": 10.0}
"""Measured when nothing else is asked for, by mode; sustained: until the speed has settled, and its window."""
TRANSPOSES = ("", "a", "b", "ab", "ba")


class MatmulEntry(Entry, kw_only=True):
    """A product."""

    dtype: str
    shape: Shape
    mode: Literal["live", "burst", "sustained"] = "live"
    tflops: Spread
    batch: int = 1
    transpose_a: bool = False
    transpose_b: bool = False
    flush_cache: bool = False
    blocks: int = 0
    noise: float | None = None
    parts_tflops: tuple[float, ...] | None = None
    samples_tflops: Annotated[tuple[float, ...], msgspec.Meta(max_length=MOST_SAMPLES)] | None = None
    drift: float | None = None
    datasheet_tflops: float | None = None
    published_tflops: float | None = None


class MatmulKind(BenchmarkKind[MatmulSpec, MatmulResult]):
    """Products of one shape on one device."""

    spec, result, entry = MatmulSpec, MatmulResult, MatmulEntry
    page = "devexplorer.gui.benchmark.page:MatmulPage"
    title, about = "Matrix products", "measure matrix products"
    meaning = "Matrix products of one shape: how fast the device computes"
    running = "benchmark"
    columns = ("device", "dtype", ">shape", "mode", ">TFLOP/s median", ">p20", ">p80", ">iterations", ">seconds", "")
    one_table = measures_throughput = True
    options = (
        DEVICE,
        DTYPE,
        Option("--size", "shape of the product (default 1024)", "N|MxNxK"),
        Option("--seconds", "how long to measure (default 5, in burst mode 2, in sustained mode 10)", "S"),
        Option("--iterations", "stop after so many", "N"),
        Option("--mode", f"{', '.join(MODES)} (default live)", "MODE"),
        Option("--batch", "so many products at once (default 1)", "N"),
        Option("--transpose", "operands that are stored transposed", "a|b|ab"),
        Option("--flush-cache", "overwrite the L2 cache between iterations"),
    )

    def specs(self, arguments: argparse.Namespace, findings: Findings) -> list[MatmulSpec]:
        m, n, k = findings.checked(partial(parse_shape, arguments.size or "1024"), (1, 1, 1))
        mode = findings.one_of(arguments.mode, MODES, "--mode") or "live"
        transpose = findings.one_of(arguments.transpose and arguments.transpose.casefold(), TRANSPOSES, "--transpose")
        iterations = findings.count(arguments.iterations, "--iterations")
        seconds = findings.seconds(arguments.seconds, "--seconds")
        if arguments.seconds is None and arguments.iterations is None:
            seconds = SECONDS[mode]
        spec = MatmulSpec(
            device="cpu",
            dtype=product_dtype(arguments, findings),
            m=m,
            n=n,
            k=k,
            batch=findings.count(arguments.batch, "--batch") or 1,
            transpose_a="a" in (transpose or ""),
            transpose_b="b" in (transpose or ""),
            flush_cache=bool(arguments.flush_cache),
            mode=mode,
            seconds=seconds,
            iterations=iterations,
        )
        return [replace(spec, device=name) for name in named_devices(arguments)]

    def check(self, spec: MatmulSpec, registry: DeviceRegistry) -> MatmulSpec:
        info = registry.info(registry.choose(spec.device))
        spec = replace(spec, device=info.id, transpose_b=spec.transpose_b or spec.dtype in BY_COLUMNS)
        check_matmul(spec, info)
        check_fits(spec, free_bytes(registry, spec.device), info.kind)
        return spec

    def runner(self, spec: MatmulSpec, inputs: RunInputs) -> Runner[Any]:
        from devexplorer.core.benchmark.matmul import MatmulRun, cache_flush, product_maker  # torch
        from devexplorer.core.benchmark.timing import timer_for  # torch

        info = inputs.registry.info(spec.device)
        return MatmulRun(
            spec,
            inputs.run,
            timer_for(spec.device, inputs.registry, inputs.stop, paced=spec.mode == "live"),
            make=product_maker(simulated=info.simulated),
            flush=cache_flush if flush_bytes(spec, info.kind) else None,
            datasheet_tflops=self.datasheet_tflops(spec, info),
            clock=inputs.clock,
        )

    def datasheet_tflops(self, spec: MatmulSpec, info: DeviceInfo) -> float | None:
        return info.datasheet_tflops.get(spec.dtype)

    def duration(self, spec: MatmulSpec) -> float | None:
        return spec.seconds

    def ends(self, spec: MatmulSpec) -> bool:
        return spec.seconds is not None or spec.iterations is not None

    def caption(self, spec: MatmulSpec) -> str:
        batch = f"{spec.batch} of " if spec.batch > 1 else ""
        stored = (" A transposed" if spec.transpose_a else "") + (" B transposed" if spec.transpose_b else "")
        return f"matmul {batch}{shape_text(spec.shape)} {spec.dtype}{stored} {spec.mode}"

    def curve_texts(self, spec: MatmulSpec) -> tuple[str, ...]:
        cube = (f"{spec.dtype} {spec.m}³",) if spec.m == spec.n == spec.k else ()
        return f"{spec.dtype} {shape_text(spec.shape)}", *cube

    def figures(self, result: MatmulResult) -> tuple[Figure, ...]:
        samples = result.samples_tflops
        if not samples and len(result.parts_tflops) >= FEWEST:
            samples = result.parts_tflops
        measured = result.noise if result.noise is not None else noise(samples)
        known = measured if measured is not None else noise_of_spread(result.tflops)
        return (
            Figure(
                (), "tflops", result.tflops, samples, None if result.simulated else known, result.simulated,
                None, result.verified, result.iterations, result.seconds,
            ),
        )  # fmt: skip

    def headline(self, result: MatmulResult) -> Headline:
        (figure,) = self.figures(result)
        sustained = result.spec.mode == "sustained"
        return Headline(result.tflops, figure.unit, figure.noise, result.datasheet_tflops, sustained)

    def subject(self, result: MatmulResult) -> str:
        return product_text(result.spec)

    def subject_tip(self, result: MatmulResult) -> str:
        lines = (f"{result.spec.mode}: {count_text(result.iterations, 'iteration')}", product_tip(result.spec))
        return "\n".join(filter(None, lines))

    def throughput(self, result: MatmulResult) -> Spread | None:
        return result.tflops

    def rows(self, result: MatmulResult, conditions: Conditions) -> list[tuple[str, ...]]:
        spec = result.spec
        batch = (spec.batch,) if spec.batch > 1 else ()
        published = best(conditions.device_name, spec.dtype)
        remarks = joined(
            "wrong values" if result.verified is False else "",
            verdict(result.tflops.median, result.datasheet_tflops, published, spec.mode),
            "" if result.simulated else noise_verdict(result.noise),  # what is computed has none
            "" if result.drift is None else f"drift {100 * result.drift:+.1f} %",
            simulated=result.simulated,
            stopped=result.stopped,
        )
        shape = shape_text((*batch, *spec.shape))
        counts = (f"{result.iterations:,}", number_text(result.seconds))
        return [(spec.device, spec.dtype, shape, spec.mode, *spread_texts(result.tflops), *counts, remarks)]

    def entries(self, result: MatmulResult, conditions: Conditions | None) -> list[Entry]:
        spec = result.spec
        return [
            write(
                MatmulEntry,
                result,
                spec,
                parts_tflops=result.parts_tflops or None,
                samples_tflops=result.samples_tflops or None,
                published_tflops=published_tflops(conditions, spec.dtype),
            )
        ]

    def read(self, entries: Sequence[Any]) -> MatmulResult:
        (entry,) = entries
        m, n, k = entry.shape
        spec = read_spec(entry, MatmulSpec, m=m, n=n, k=k, seconds=None)
        return read_result(entries, MatmulResult, spec=spec)

    def check_imported(self, result: MatmulResult) -> MatmulResult:
        spec = result.spec
        check_shapes([(*spec.shape, spec.batch)])
        if not all(0 < value < math.inf for value in (*result.samples_tflops, *result.parts_tflops)):
            raise BadInput("a sample of its throughput is not above 0")
        return result


def product_dtype(arguments: argparse.Namespace, findings: Findings) -> str:
    """The dtype of `--dtype`, which products can be computed in."""
    return findings.checked(lambda: check_product(parse_dtype(arguments.dtype or "float32", tf32=True)), "float32")


def check_shapes(shapes: Iterable[tuple[int, ...]]) -> None:
    """Raise `BadInput` where a side of imported shapes is impossible."""
    if wrong := next((shape for shape in shapes if not all(1 <= side <= LARGEST_SIDE for side in shape)), None):
        raise BadInput(f"a size in it is below 1 or above {LARGEST_SIDE:,}: {wrong}")


def product_text(spec: MatmulSpec) -> str:
    """`8 × 512×512×64  Bᵀ  flushed`: what is multiplied."""
    batch = f"{spec.batch} × " if spec.batch > 1 else ""
    marks = [
        word for word, on in (("Aᵀ", spec.transpose_a), ("Bᵀ", spec.transpose_b), ("flushed", spec.flush_cache)) if on
    ]
    return "  ".join([f"{batch}{shape_text(spec.shape)}", *marks])


def product_tip(spec: MatmulSpec) -> str:
    """The same in full."""
    lines = (
        product_text(spec),
        f"{spec.batch} products at once" if spec.batch > 1 else "",
        "A is stored as K×M and read transposed" if spec.transpose_a else "",
        "B is stored as N×K and read transposed" if spec.transpose_b else "",
        "the L2 cache is overwritten between iterations" if spec.flush_cache else "",
    )
    return "\n".join(filter(None, lines))
