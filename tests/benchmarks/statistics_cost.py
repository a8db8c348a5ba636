"""The cost of the statistics of a large tensor, against one `torch.sum` over it. Both alternate in one run.

    python tests/benchmarks/statistics_cost.py [--mib 1024] [--rounds 15] [--seconds 120] [--threads N] [--dtype
    float32]

Prints medians of the ratio of each pair. `default` is what the application does with a large tensor: one pass for the
exact mean and the number of NaN and Inf, the rest from a sample. `exact` computes everything from every element;
`moments` is that without the histogram. `pass alone` is a sum cut in the same pieces. No round begins after
`--seconds`; at least three are run."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from turns import FEWEST, load

from devexplorer.core.base import NO_PROGRESS
from devexplorer.core.parameters.describing import SUM_ELEMENTS, figures, whole_moments
from devexplorer.core.workspace.parts import pieces

BINS = 64


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    dtype = getattr(torch, given.dtype)
    x = torch.empty(given.mib * 2**20 // dtype.itemsize, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    for piece in x.split(1 << 24):
        piece.normal_(generator=generator)
    ways: dict[str, Callable[[], object]] = {
        "pass alone": lambda: [piece.sum() for piece in pieces(x, SUM_ELEMENTS)],
        "default": lambda: figures(x, BINS, exact=False, progress=NO_PROGRESS),
        "moments": lambda: whole_moments(x, NO_PROGRESS),
        "exact": lambda: figures(x, BINS, exact=True, progress=NO_PROGRESS),
    }
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    bare: list[float] = []
    started = time.perf_counter()
    for round_ in range(given.rounds + 1):
        if round_ > FEWEST and time.perf_counter() - started > given.seconds:
            break
        for name, work in ways.items():
            if name == "exact" and round_ > FEWEST:
                continue
            before, took, after = seconds(x.sum), seconds(work), seconds(x.sum)
            if round_:  # the first round warms up
                ratios[name].append(2 * took / (before + after))
                bare += [before, after]
    print(f"torch {torch.__version__}, {given.threads} threads, {given.mib} MiB of {given.dtype}; {load()}")
    gb_per_s = x.nbytes / statistics.median(bare) / 1e9
    print(f"torch.sum: median {statistics.median(bare) * 1e3:.1f} ms, {gb_per_s:.1f} GB/s")
    for name, found in ratios.items():
        found.sort()
        middle = statistics.median(found)
        print(f"{name:>10}: {middle:.2f} x the sum ({found[0]:.2f} to {found[-1]:.2f}, {len(found)} rounds)")


if __name__ == "__main__":
    main()
