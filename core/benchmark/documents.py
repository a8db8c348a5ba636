"""Benchmark results as the JSON documents of the command line and the clipboard. No torch, no thread."""

from __future__ import annotations

from devexplorer.core.records.benchmark import BenchResult


def run_document(result: BenchResult) -> dict[str, object]:
    """One entry of `"runs"`. Keys may join; none changes its meaning."""
    spec = result.spec
    return {
        "device": spec.device,
        "dtype": spec.dtype,
        "shape": [spec.m, spec.n, spec.k],
        "mode": spec.mode,
        "tflops": {"median": result.tflops.median, "p20": result.tflops.p20, "p80": result.tflops.p80},
        "iterations": result.iterations,
        "seconds": result.seconds,
        "simulated": result.simulated,
        "blocks": result.blocks,
        "stopped": result.stopped,
        "verified": result.verified,
        "threads": result.threads,
        "datasheet_tflops": result.datasheet_tflops,
        "torch": result.torch_version,
    }
