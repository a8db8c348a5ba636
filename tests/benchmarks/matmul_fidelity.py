"""Is the TFLOP/s that we report that of a bare loop? Ours and a bare timed loop of `torch.mm(out=)`, blocks interleaved, one thread.

    python tests/benchmarks/matmul_fidelity.py [--blocks 40]

For each size the ratio of the medians over the blocks; wanted: 0.97 to 1.03.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from devexplorer.core.benchmark.matmul import MatmulRun
from devexplorer.core.benchmark.timing import CpuTimer
from devexplorer.core.records.benchmark import MatmulSpec

SIZES = (512, 1024, 2048, 4096)
BLOCK_SECONDS = 0.05
LONGEST_SECONDS = 25.0
"""Per size and side; a block of 4096³ takes about a second on two cores."""


def bare_block(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, iterations: int) -> float:
    """Seconds per iteration of a loop with nothing in it."""
    start = time.perf_counter()
    for _ in range(iterations):
        torch.mm(a, b, out=out)
    return (time.perf_counter() - start) / iterations


def compare(size: int, blocks: int) -> tuple[float, float, int]:
    """Median TFLOP/s of ours and of the bare loop, and how many blocks each had."""
    run = MatmulRun(MatmulSpec(device="cpu", m=size, n=size, k=size, seconds=None, block_seconds=BLOCK_SECONDS), 1, CpuTimer())
    run.prepare()
    a, b = torch.rand(size, size), torch.rand(size, size)
    out = torch.empty(size, size)
    each = bare_block(a, b, out, 1)
    ours, bare = [], []
    end = time.monotonic() + 2 * LONGEST_SECONDS
    while len(ours) < blocks and (time.monotonic() < end or len(ours) < 5):
        point = run.step()
        assert point is not None
        ours.append(point.tflops)
        each = bare_block(a, b, out, max(1, int(BLOCK_SECONDS / each)))
        bare.append(2 * size**3 / each / 1e12)
    result = run.result(stopped=True)
    assert result is not None
    return result.tflops.median, statistics.median(bare), len(ours)


def main() -> dict[str, float]:
    """Ratios by size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=40)
    arguments = parser.parse_args()
    ratios = {}
    for size in SIZES:
        ours, bare, blocks = compare(size, arguments.blocks)
        ratios[str(size)] = ours / bare
        print(f"{size}: ours {ours:.4f} TFLOP/s, bare loop {bare:.4f}, ratio {ours / bare:.3f} ({blocks} blocks each)")
    return ratios


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    main()
