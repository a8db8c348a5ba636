"""Benchmark results as the JSON documents of the command line, the clipboard and exports. No torch, no thread.

Keys may join; none changes its meaning. What is not known is null, and the key is there all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from devexplorer.core.benchmark.published import best
from devexplorer.core.records.benchmark import (
    BandwidthResult,
    BandwidthRow,
    BenchResult,
    Conditions,
    MatmulResult,
    ModelResult,
    ScalingResult,
    Spread,
    SweepCell,
    SweepResult,
)

Document = dict[str, Any]


def run_document(result: MatmulResult | ScalingResult | ModelResult, conditions: Conditions | None = None) -> Document:
    """The one entry of `"runs"` of a result that has one."""
    (document,) = run_documents(result, conditions)
    return document


def run_documents(result: BenchResult, conditions: Conditions | None = None) -> list[Document]:
    """The entries of `"runs"` of any result: one for each shape of a sweep and each copy of a bandwidth run, else
    one."""
    match result:
        case MatmulResult():
            runs = [_matmul(result, conditions)]
        case SweepResult():
            runs = [_cell(result, cell, conditions) for cell in result.cells]
        case BandwidthResult():
            runs = [_copy(result, row) for row in result.rows]
        case ScalingResult():
            runs = [_scaling(result)]
        case ModelResult():
            runs = [_model(result)]
    ended = {
        "stopped": result.stopped,
        "failure": result.failure,
        "threads": result.threads,
        "torch": result.torch_version or None,
    }
    return [{**run, **ended, "conditions": conditions_document(conditions)} for run in runs]


def benchmark_document(results: Sequence[tuple[BenchResult, Conditions | None]]) -> Document:
    """The document without its schema for results of one kind: `benchmark` and `runs`."""
    kinds = {kind(result) for result, _ in results}
    if len(kinds) != 1:
        raise ValueError(f"a document holds results of one kind, not of {sorted(kinds) or 'none'}")
    return {
        "benchmark": kinds.pop(),
        "runs": [run for result, conditions in results for run in run_documents(result, conditions)],
    }


def kind(result: BenchResult) -> str:
    """`matmul`, `sweep`, `bandwidth`, `scaling` or `model`."""
    tag = type(result).__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def conditions_document(conditions: Conditions | None) -> Document | None:
    """Every field by its name, null where it is not known; a spread as an object."""
    return (
        None
        if conditions is None
        else {name: _plain(value) for name, value in msgspec.structs.asdict(conditions).items()}
    )


def _plain(value: object) -> object:
    return spread_document(value) if isinstance(value, Spread) else value


def spread_document(spread: Spread | None) -> dict[str, float] | None:
    """`median`, `p20` and `p80`."""
    return None if spread is None else {"median": spread.median, "p20": spread.p20, "p80": spread.p80}


def _published(conditions: Conditions | None, dtype: str) -> float | None:
    found = None if conditions is None else best(conditions.device_name, dtype)
    return None if found is None else found.peak_burst


def _matmul(result: MatmulResult, conditions: Conditions | None) -> Document:
    spec = result.spec
    return {
        "device": spec.device,
        "dtype": spec.dtype,
        "shape": [spec.m, spec.n, spec.k],
        "mode": spec.mode,
        "tflops": spread_document(result.tflops),
        "iterations": result.iterations,
        "seconds": result.seconds,
        "simulated": result.simulated,
        "batch": spec.batch,
        "transpose_a": spec.transpose_a,
        "transpose_b": spec.transpose_b,
        "flush_cache": spec.flush_cache,
        "blocks": result.blocks,
        "noise": result.noise,
        "parts_tflops": list(result.parts_tflops) or None,
        "samples_tflops": list(result.samples_tflops) or None,
        "drift": result.drift,
        "verified": result.verified,
        "datasheet_tflops": result.datasheet_tflops,
        "published_tflops": _published(conditions, spec.dtype),
    }


def _cell(result: SweepResult, cell: SweepCell, conditions: Conditions | None) -> Document:
    """A shape of a sweep as a matmul run."""
    return {
        "device": result.spec.device,
        "dtype": result.spec.dtype,
        "shape": [cell.m, cell.n, cell.k],
        "mode": "burst",
        "tflops": spread_document(cell.tflops),
        "iterations": cell.iterations,
        "seconds": cell.seconds,
        "simulated": result.simulated,
        "verified": cell.verified,
        "reason": cell.reason,
        "datasheet_tflops": result.datasheet_tflops,
        "published_tflops": _published(conditions, result.spec.dtype),
    }


def _copy(result: BandwidthResult, row: BandwidthRow) -> Document:
    """One pair, size and kind of copy."""
    return {
        "device": result.spec.device,
        "source": row.source,
        "destination": row.destination,
        "bytes": row.bytes,
        "pinned": row.pinned,
        "both_ways": row.both_ways,
        "gb_per_s": spread_document(row.gb_per_s),
        "copy_seconds": spread_document(row.seconds),
        "iterations": row.iterations,
        "seconds": row.measured_seconds,
        "verified": row.verified,
        "reason": row.reason,
        "simulated": row.simulated,
    }


def _scaling(result: ScalingResult) -> Document:
    spec = result.spec
    return {
        "device": spec.device,
        "devices": list(spec.devices),
        "dtype": spec.dtype,
        "shape": [spec.size] * 3,
        "iterations": spec.iterations,
        "parallel_seconds": result.parallel_seconds,
        "sequential_seconds": result.sequential_seconds,
        "speedup": result.speedup,
        "efficiency": result.efficiency,
        "walls": [{"device": wall.device, "seconds": wall.seconds} for wall in result.walls],
        "seconds": result.seconds,
        "simulated": result.simulated,
        "verified": result.verified,
    } | ({} if result.unreliable is None else {"unreliable": result.unreliable})


def _model(result: ModelResult) -> Document:
    spec = result.spec
    return {
        "device": spec.device,
        "target": spec.target,
        "inputs": spec.inputs or None,
        "batch": spec.batch,
        "train": spec.train,
        "optimizer": spec.optimizer if spec.train else None,
        "autocast": spec.autocast,
        "compiled": spec.compiled,
        "samples_per_s": spread_document(result.samples_per_s),
        "step_seconds": spread_document(result.step_seconds),
        "tflops": spread_document(result.tflops),
        "flop_per_step": result.flop_per_step,
        "peak_memory_bytes": result.peak_memory_bytes,
        "iterations": result.iterations,
        "seconds": result.seconds,
        "simulated": result.simulated,
    }
