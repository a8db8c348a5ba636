"""The documents of `bench --json` read back as results: the way back of `core.benchmark.documents`. Any thread; no
torch.

A sweep and a bandwidth run have an entry for each shape and each copy; entries that follow each other with the same
device, dtype and conditions are one run again. What a document does not hold (what was asked for but not measured) is
not made up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from devexplorer.core.base.errors import BadInput
from devexplorer.core.benchmark.statistics import MOST_SAMPLES
from devexplorer.core.records.benchmark import (
    BandwidthResult,
    BandwidthRow,
    BandwidthSpec,
    BenchResult,
    Conditions,
    DeviceWall,
    MatmulResult,
    MatmulSpec,
    ModelResult,
    ModelSpec,
    ScalingResult,
    ScalingSpec,
    Spread,
    SweepCell,
    SweepResult,
    SweepSpec,
)

Read = tuple[BenchResult, Conditions | None]
Shape = tuple[int, int, int]


class _Run(msgspec.Struct, kw_only=True):
    device: str
    simulated: bool = False
    iterations: int = 0
    seconds: float | None = None
    verified: bool | None = None
    stopped: bool = False
    failure: str | None = None
    threads: int | None = None
    torch: str | None = None
    conditions: Conditions | None = None

    def shared(self) -> dict[str, Any]:
        """Fields that every result has."""
        return {
            "run": 0,
            "stopped": self.stopped,
            "simulated": self.simulated,
            "seconds": self.seconds or 0.0,
            "iterations": self.iterations,
            "threads": self.threads,
            "torch_version": self.torch or "",
            "verified": self.verified,
            "failure": self.failure,
        }


class _Matmul(_Run, kw_only=True):
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


class _Cell(_Run, kw_only=True):
    dtype: str
    shape: Shape
    tflops: Spread | None = None
    reason: str | None = None
    datasheet_tflops: float | None = None


class _Copy(_Run, kw_only=True):
    source: str
    destination: str
    bytes: int
    device: str = ""
    pinned: bool | None = None
    both_ways: bool = False
    gb_per_s: Spread | None = None
    copy_seconds: Spread | None = None
    reason: str | None = None


class _Scaling(_Run, kw_only=True):
    devices: tuple[str, ...] = ()
    dtype: str
    shape: Shape
    parallel_seconds: float | None = None
    sequential_seconds: float | None = None
    walls: tuple[DeviceWall, ...] = ()


class _Model(_Run, kw_only=True):
    target: str
    inputs: str | None = None
    batch: int
    train: bool = False
    optimizer: str | None = None
    autocast: str | None = None
    compiled: bool = False
    samples_per_s: Spread
    step_seconds: Spread
    tflops: Spread | None = None
    flop_per_step: int | None = None
    peak_memory_bytes: int | None = None


_KINDS: dict[str, type[_Run]] = {
    "matmul": _Matmul,
    "sweep": _Cell,
    "bandwidth": _Copy,
    "scaling": _Scaling,
    "model": _Model,
}


def results(benchmark: str, runs: Sequence[dict[str, Any]]) -> Iterator[tuple[int, Read]]:
    """Every result with the number, from 1 on, of its first entry. Raises `BadInput` that names the entry that is
    wrong."""
    read: list[_Run] = []
    for number, content in enumerate(runs, 1):
        name = content.get("benchmark", benchmark)
        if not isinstance(name, str) or name not in _KINDS:
            raise BadInput(f"run {number}: there is no benchmark {str(name)[:40]!r}; it is one of {', '.join(_KINDS)}")
        try:
            read.append(msgspec.convert(content, type=_KINDS[name]))
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadInput(f"run {number}: {error}") from None
    start = 0
    while start < len(read):
        stop = start + 1
        while stop < len(read) and _together(read[start], read[stop]):
            stop += 1
        yield start + 1, (_result(read[start:stop]), read[start].conditions)
        start = stop


def _together(first: _Run, other: _Run) -> bool:
    """Whether both are parts of one run."""
    if isinstance(first, _Cell) and isinstance(other, _Cell):
        return (first.device, first.dtype, first.conditions) == (other.device, other.dtype, other.conditions)
    return (
        isinstance(first, _Copy)
        and isinstance(other, _Copy)
        and (first.device, first.conditions) == (other.device, other.conditions)
    )


def _result(entries: Sequence[_Run]) -> BenchResult:
    match entries[0]:
        case _Matmul() as run:
            return _matmul(run)
        case _Cell():
            return _sweep([entry for entry in entries if isinstance(entry, _Cell)])
        case _Copy():
            return _bandwidth([entry for entry in entries if isinstance(entry, _Copy)])
        case _Scaling() as run:
            devices = run.devices or tuple(wall.device for wall in run.walls) or (run.device,)
            spec = ScalingSpec(devices=devices, dtype=run.dtype, size=run.shape[0], iterations=run.iterations)
            jobs = len(run.walls) + (len(devices) if run.sequential_seconds is not None else 0)
            return ScalingResult(
                spec=spec,
                walls=run.walls,
                parallel_seconds=run.parallel_seconds,
                sequential_seconds=run.sequential_seconds,
                **run.shared() | {"iterations": jobs * run.iterations},
            )
        case _Model() as run:
            return _model(run)
    raise AssertionError("every kind is read")


def _matmul(run: _Matmul) -> MatmulResult:
    m, n, k = run.shape
    spec = MatmulSpec(
        device=run.device,
        dtype=run.dtype,
        m=m,
        n=n,
        k=k,
        batch=run.batch,
        transpose_a=run.transpose_a,
        transpose_b=run.transpose_b,
        flush_cache=run.flush_cache,
        mode=run.mode,
        seconds=None,
    )
    return MatmulResult(
        spec=spec,
        tflops=run.tflops,
        blocks=run.blocks,
        noise=run.noise,
        parts_tflops=run.parts_tflops or (),
        samples_tflops=run.samples_tflops or (),
        drift=run.drift,
        datasheet_tflops=run.datasheet_tflops,
        **run.shared(),
    )


def _sweep(entries: Sequence[_Cell]) -> SweepResult:
    first = entries[0]
    cells = tuple(
        SweepCell(*entry.shape, entry.tflops, entry.iterations, entry.reason, entry.verified, entry.seconds)
        for entry in entries
    )
    spec = SweepSpec(device=first.device, dtype=first.dtype, shapes=tuple(entry.shape for entry in entries))
    return SweepResult(
        spec=spec, cells=cells, datasheet_tflops=first.datasheet_tflops, **first.shared() | _summed(entries)
    )


def _bandwidth(entries: Sequence[_Copy]) -> BandwidthResult:
    rows = tuple(
        BandwidthRow(
            source=entry.source,
            destination=entry.destination,
            bytes=entry.bytes,
            pinned=entry.pinned,
            both_ways=entry.both_ways,
            gb_per_s=entry.gb_per_s,
            seconds=entry.copy_seconds,
            iterations=entry.iterations,
            verified=entry.verified,
            reason=entry.reason,
            simulated=entry.simulated or "vgpu:" in entry.source + entry.destination,
            measured_seconds=entry.seconds,
        )
        for entry in entries
    )
    spec = BandwidthSpec(
        sources=tuple(dict.fromkeys(row.source for row in rows)),
        destinations=tuple(dict.fromkeys(row.destination for row in rows)),
        sizes=tuple(dict.fromkeys(row.bytes for row in rows)),
        pinned=tuple(dict.fromkeys(row.pinned for row in rows if row.pinned is not None)),
        both_ways=any(row.both_ways for row in rows),
    )
    shared = entries[0].shared() | _summed(entries) | {"simulated": any(row.simulated for row in rows)}
    return BandwidthResult(spec=spec, rows=rows, **shared)


def _model(run: _Model) -> ModelResult:
    spec = ModelSpec(
        target=run.target,
        inputs=run.inputs or "",
        device=run.device,
        batch=run.batch,
        train=run.train,
        optimizer=run.optimizer or "sgd",
        autocast=run.autocast,
        compiled=run.compiled,
    )
    return ModelResult(
        spec=spec,
        samples_per_s=run.samples_per_s,
        step_seconds=run.step_seconds,
        flop_per_step=run.flop_per_step,
        tflops=run.tflops,
        peak_memory_bytes=run.peak_memory_bytes,
        **run.shared(),
    )


def _summed(entries: Sequence[_Run]) -> dict[str, Any]:
    compared = [entry.verified for entry in entries if entry.verified is not None]
    return {
        "iterations": sum(entry.iterations for entry in entries),
        "seconds": sum(entry.seconds or 0.0 for entry in entries),
        "verified": all(compared) if compared else None,
    }
