"""What the arguments of `devexplorer bench` ask for, as specifications. No torch, main thread."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from devexplorer.core.base.dtypes import parse_dtype
from devexplorer.core.benchmark.ranges import parse_byte_sizes, parse_shapes
from devexplorer.core.benchmark.spec import check_product, parse_shape
from devexplorer.core.cli.bench.arguments import BENCHMARKS, MODES, TAKEN_BY
from devexplorer.core.cli.terminal.findings import Findings
from devexplorer.core.cli.terminal.options import AUTOCAST, count, one_of, seconds
from devexplorer.core.models.shapes import parse_input_shapes
from devexplorer.core.records.benchmark import BandwidthSpec, BenchSpec, MatmulSpec, ModelSpec, ScalingSpec, SweepSpec
from devexplorer.core.records.devices import DeviceInfo

SECONDS = {"live": 5.0, "burst": 2.0, "sustained": 10.0}
"""Measured when nothing else is asked for, by mode; sustained: until the speed has settled, and its window."""
SIZE, SCALING_SIZE, SIZES = "1024", "1000", "256:2048:256"
OPTIMIZERS = ("sgd", "adam", "adamw")
TRANSPOSES = ("", "a", "b", "ab", "ba")


def specs(arguments: argparse.Namespace, findings: Findings) -> list[BenchSpec]:
    """One specification per run; harmless values where something is wrong. Devices that nobody named are left to
    `on_devices`."""
    make: dict[str, Callable[[argparse.Namespace, Findings], list[BenchSpec]]] = {
        "matmul": _matmul, "sweep": _sweep, "bandwidth": _bandwidth, "scaling": _scaling, "model": _model,
    }  # fmt: skip
    kind = arguments.benchmark
    if kind not in BENCHMARKS:
        findings.add(f"there is no benchmark '{kind}'; there are {', '.join(BENCHMARKS)}")
        return []
    for name, kinds in TAKEN_BY.items():
        if kind not in kinds and getattr(arguments, name) is not None:
            findings.add(
                f"{_written(name, arguments)} means nothing to bench {kind}; it is for bench {' and '.join(kinds)}"
            )
    return make[kind](arguments, findings)


def _written(name: str, arguments: argparse.Namespace) -> str:
    if name == "target":
        return f"the target '{arguments.target}'"
    return {"sources": "--from", "destinations": "--to"}.get(name, f"--{name.replace('_', '-')}")


def on_devices(spec: BenchSpec, devices: Sequence[DeviceInfo]) -> BenchSpec:
    """Fill in the devices of a run that takes several when none was named: copies between all of them; jobs on the
    virtual GPUs where there are some (somebody asked for them), else on the accelerators, and on the CPU too where
    those are fewer than two.
    """
    usable = tuple(info.id for info in devices if info.usable)
    match spec:
        case ScalingSpec(devices=()):
            accelerators = tuple(info.id for info in devices if info.usable and info.kind != "cpu")
            virtual = tuple(info.id for info in devices if info.usable and info.simulated)
            several = next((group for group in (virtual, accelerators) if len(group) > 1), usable)
            return msgspec.structs.replace(spec, devices=several)
        case BandwidthSpec():
            return msgspec.structs.replace(
                spec, sources=spec.sources or usable, destinations=spec.destinations or usable
            )
    return spec


def _matmul(arguments: argparse.Namespace, findings: Findings) -> list[BenchSpec]:
    m, n, k = findings.checked(partial(parse_shape, arguments.size or SIZE), (1, 1, 1))
    mode = one_of(arguments.mode, MODES, "--mode", findings) or "live"
    transpose = (
        one_of(arguments.transpose and arguments.transpose.casefold(), TRANSPOSES, "--transpose", findings) or ""
    )
    iterations = count(arguments.iterations, "--iterations", findings)
    duration = seconds(arguments.seconds, "--seconds", findings)
    if arguments.seconds is None and arguments.iterations is None:
        duration = SECONDS[mode]
    spec = MatmulSpec(
        device="cpu",
        dtype=_dtype(arguments, findings),
        m=m,
        n=n,
        k=k,
        batch=count(arguments.batch, "--batch", findings) or 1,
        transpose_a="a" in transpose,
        transpose_b="b" in transpose,
        flush_cache=bool(arguments.flush_cache),
        mode=mode,
        seconds=duration,
        iterations=iterations,
    )
    return [msgspec.structs.replace(spec, device=name) for name in _devices(arguments)]


def _sweep(arguments: argparse.Namespace, findings: Findings) -> list[BenchSpec]:
    if arguments.size is not None and arguments.sizes is not None:
        findings.add("--size and --sizes are the same to a sweep; give one of them")
    text = (
        arguments.sizes or arguments.size or ("" if arguments.search is not None else SIZES)
    )  # a search knows where to begin
    shapes = findings.checked(partial(parse_shapes, text), ((1, 1, 1),)) if text else ()
    spec = SweepSpec(
        device="cpu",
        dtype=_dtype(arguments, findings),
        shapes=shapes,
        search_seconds=seconds(arguments.search, "--search", findings),
        shape_seconds=seconds(arguments.seconds, "--seconds", findings) or 0.2,
    )
    return [msgspec.structs.replace(spec, device=name) for name in _devices(arguments)]


def _bandwidth(arguments: argparse.Namespace, findings: Findings) -> list[BenchSpec]:
    named = tuple(_devices(arguments, default=()))
    given = BandwidthSpec(sources=(), destinations=())
    if arguments.pinned and arguments.pageable:
        findings.add("--pinned and --pageable each leave the other out; leave both away to measure both")
    kinds = (*([True] if arguments.pinned else []), *([False] if arguments.pageable else []))
    sizes = (
        given.sizes
        if arguments.bytes is None
        else findings.checked(partial(parse_byte_sizes, arguments.bytes), given.sizes)
    )
    return [
        BandwidthSpec(
            sources=_names(arguments.sources) or named,
            destinations=_names(arguments.destinations) or named,
            sizes=sizes,
            pinned=kinds or given.pinned,
            both_ways=bool(arguments.both_ways),
            seconds=seconds(arguments.seconds, "--seconds", findings) or given.seconds,
        )
    ]


def _scaling(arguments: argparse.Namespace, findings: Findings) -> list[BenchSpec]:
    m, n, k = findings.checked(partial(parse_shape, arguments.size or SCALING_SIZE), (1, 1, 1))
    if not m == n == k:
        findings.add(f"bench scaling multiplies square matrices; write --size {m}, not --size {arguments.size}")
    iterations = count(arguments.iterations, "--iterations", findings) or 1000
    return [
        ScalingSpec(
            devices=tuple(_devices(arguments, default=())),
            dtype=_dtype(arguments, findings),
            size=m,
            iterations=iterations,
        )
    ]


def _model(arguments: argparse.Namespace, findings: Findings) -> list[BenchSpec]:
    if arguments.optimizer is not None and not arguments.train:
        findings.add("--optimizer says how to train; give --train as well")
    autocast = arguments.autocast and findings.checked(partial(parse_dtype, arguments.autocast), None)
    shapes = findings.checked(partial(parse_input_shapes, arguments.input), ()) if arguments.input else ()
    given = shapes[0][0][0] if shapes and shapes[0][0] else 8
    spec = ModelSpec(
        target=arguments.target or "mlp",
        device="cpu",
        batch=count(arguments.batch_size, "--batch-size", findings) or given,
        train=bool(arguments.train),
        optimizer=one_of(arguments.optimizer and arguments.optimizer.casefold(), OPTIMIZERS, "--optimizer", findings)
        or "sgd",
        autocast=one_of(autocast, AUTOCAST, "--autocast", findings),
        compiled=bool(arguments.compile),
        seconds=seconds(arguments.seconds, "--seconds", findings) or SECONDS["live"],
        inputs=arguments.input if shapes else "",
    )
    return [msgspec.structs.replace(spec, device=name) for name in _devices(arguments)]


def _names(groups: list[list[str]] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for group in groups or () for name in group))


def _devices(arguments: argparse.Namespace, default: tuple[str, ...] = ("cpu",)) -> tuple[str, ...]:
    return _names(arguments.device) or default


def _dtype(arguments: argparse.Namespace, findings: Findings) -> str:
    return findings.checked(lambda: check_product(parse_dtype(arguments.dtype or "float32", tf32=True)), "float32")
