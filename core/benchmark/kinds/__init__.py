"""The registry of benchmarks: one line a kind. Any thread; no torch until a run is checked or made."""

from __future__ import annotations

from typing import Any, Union

from devexplorer.core.benchmark.figures import Figure
from devexplorer.core.benchmark.kinds.allreduce import AllReduceKind
from devexplorer.core.benchmark.kinds.bandwidth import BandwidthKind
from devexplorer.core.benchmark.kinds.calibrate import CalibrateKind
from devexplorer.core.benchmark.kinds.kind import BenchmarkKind
from devexplorer.core.benchmark.kinds.matmul import MatmulKind
from devexplorer.core.benchmark.kinds.model import ModelKind
from devexplorer.core.benchmark.kinds.scaling import ScalingKind
from devexplorer.core.benchmark.kinds.sweep import SweepKind
from devexplorer.core.records import BenchResult, BenchSpec

KINDS: dict[str, BenchmarkKind[Any, Any]] = {
    kind.name: kind
    for kind in (
        MatmulKind(),
        SweepKind(),
        BandwidthKind(),
        ScalingKind(),
        ModelKind(),
        AllReduceKind(),
        CalibrateKind(),
    )
}
"""Every kind by its name, in the order in which they are offered."""


def kind_of(record: BenchSpec | BenchResult) -> BenchmarkKind[Any, Any]:
    """The kind of a specification or a result."""
    return KINDS[kind_name(record)]


def kind_name(record: BenchSpec | BenchResult) -> str:
    """`matmul`, `sweep`, …"""
    return str(type(record).__struct_config__.tag)


def result_type() -> Any:
    """The union of all results, to read one that has its tag."""
    return Union[tuple(kind.result for kind in KINDS.values())]  # noqa: UP007  # made while the program runs


def devices_of(spec: BenchSpec) -> tuple[str, ...]:
    """Every device that the run keeps busy, each once."""
    return kind_of(spec).devices(spec)


def figures(result: BenchResult) -> tuple[Figure, ...]:
    """Everything that the run measured, in its order; what has a reason instead of a figure is left out."""
    return kind_of(result).figures(result)


def dtype(spec: BenchSpec) -> str | None:
    """The dtype of the run; None where it has none (copies) or keeps that of the model."""
    return kind_of(spec).dtype(spec)


def title(spec: BenchSpec) -> str:
    """What was measured, in a few words: `matmul 4096×4096×4096 bfloat16 burst`."""
    return kind_of(spec).caption(spec)
