"""Do the TFLOP/s that we report match a bare loop and torch's own timer? CPU, float32 and bfloat16, six sizes.

    python tests/benchmarks/matmul_fidelity.py [--quick] [--blocks 20] [--reruns 3]

Four ways to time the same `torch.mm(a, b, out=out)` on the same tensors alternate, block by block, on one thread: our
live mode, our burst mode, `torch.utils.benchmark.Timer` with as many threads as torch has, and a bare loop. Wanted:
medians within 3 % of each other. Then the same again, for the spread of reruns, and the overhead of the harness at
64×64×64, in ns per iteration against the bare loop.

Other processes slow two threads on two cores down by whole factors. Therefore each comparison waits for an idle second,
and is repeated while `--patience` seconds are left if they used more than 2 % of the machine. The one with the least
load counts; its line shows the load."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import psutil
import torch
from torch.utils.benchmark import Timer

from devexplorer.core.benchmark.matmul import MatmulRun, MeasuredProduct, operands, product
from devexplorer.core.benchmark.timing import CpuTimer
from devexplorer.core.history.compare import range_over_median
from devexplorer.core.records import MatmulSpec

SIZES = (128, 256, 512, 1024, 2048, 4096)
DTYPES = ("float32", "bfloat16")
BLOCK_SECONDS = 0.05
SMALL = 64
WAYS = ("live", "burst", "Timer", "bare")

QUIET = 0.02

Way = Callable[[], float]
"""Times one block; returns seconds per iteration."""


def bare_block(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, iterations: int) -> float:
    """An empty loop."""
    start = time.perf_counter()
    for _ in range(iterations):
        torch.mm(a, b, out=out)
    return (time.perf_counter() - start) / iterations


def ours(spec: MatmulSpec, made: MeasuredProduct) -> Way:
    """One block of our run; the figure is the point that the window would show."""
    run = MatmulRun(spec, 1, CpuTimer(), make=lambda _: made)
    run.prepare()

    def block() -> float:
        point = run.step()
        assert point is not None
        assert point.tflops is not None
        return spec.flop / point.tflops / 1e12

    return block


def ways(size: int, dtype: str) -> dict[str, Way]:
    """The four methods to time the same product on the same tensors."""
    a, b = operands(size, size, size, dtype, "cpu")
    operation, out = product(a, b, dtype)
    made = MeasuredProduct(operation, lambda: True)
    spec = MatmulSpec(device="cpu", dtype=dtype, m=size, n=size, k=size, seconds=None, block_seconds=BLOCK_SECONDS)
    names = {"a": a, "b": b, "out": out, "torch": torch}
    theirs = Timer("torch.mm(a, b, out=out)", globals=names, num_threads=torch.get_num_threads())
    bare_block(a, b, out, 1)
    iterations = max(1, int(BLOCK_SECONDS / bare_block(a, b, out, 3)))
    return {
        "live": ours(spec, made),
        "burst": ours(
            MatmulSpec(**{name: getattr(spec, name) for name in spec.__struct_fields__} | {"mode": "burst"}), made
        ),
        "Timer": lambda: theirs.timeit(iterations).mean,
        "bare": lambda: bare_block(a, b, out, iterations),
    }


def take_turns(given: dict[str, Way], blocks: int, most_seconds: float) -> dict[str, list[float]]:
    """Seconds per iteration of each block by method; each round starts with another method."""
    found: dict[str, list[float]] = {name: [] for name in given}
    order, end = list(given), time.monotonic() + most_seconds
    for done in range(blocks):
        if done >= 5 and time.monotonic() > end:
            break
        for name in order:
            found[name].append(given[name]())
        order = order[1:] + order[:1]
    return found


def busy_seconds() -> float:
    """Total seconds that all cores spent on other processes."""
    times, own = psutil.cpu_times(), os.times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0)) - own.user - own.system


def others_beside(work: Callable[[], object]) -> float:
    """The share of the machine that other processes use while `work` runs."""
    busy, start = busy_seconds(), time.monotonic()
    work()
    return max((busy_seconds() - busy) / (time.monotonic() - start) / (psutil.cpu_count() or 1), 0.0)


def quietly(measure: Callable[[], dict[str, list[float]]], patience: float) -> tuple[dict[str, list[float]], float]:
    """The measurement with the least load, and the share of the machine that other processes used."""
    end = time.monotonic() + patience
    tried: list[tuple[float, dict[str, list[float]]]] = []
    while not tried or (tried[0][0] > QUIET and time.monotonic() < end):
        while time.monotonic() < end and others_beside(lambda: time.sleep(1.0)) > QUIET:
            pass
        found: list[dict[str, list[float]]] = []
        others = others_beside(lambda: found.append(measure()))  # noqa: B023 - called at once
        tried = sorted([*tried, (others, found[0])], key=lambda attempt: attempt[0])[:1]
    return tried[0][1], tried[0][0]


def compare(size: int, dtype: str, blocks: int, most_seconds: float, patience: float) -> tuple[dict[str, float], float]:
    """Median TFLOP/s of each method, and the load of other processes."""
    found, others = quietly(lambda: take_turns(ways(size, dtype), blocks, most_seconds), patience)
    return {name: 2 * size**3 / statistics.median(seconds) / 1e12 for name, seconds in found.items()}, others


def overhead(blocks: int, patience: float) -> str:
    """The overhead of our iteration over the bare loop's, round by round, at 64×64×64."""
    found, _ = quietly(lambda: take_turns(ways(SMALL, "float32"), blocks, 60.0), patience)
    bare = statistics.median(found["bare"])
    parts = []
    for name in WAYS[:3]:
        more = sorted((mine - theirs) * 1e9 for mine, theirs in zip(found[name], found["bare"], strict=True))
        low, _, high = statistics.quantiles(more, n=4)
        parts.append(f"{name} {statistics.median(more):+.0f} ns (middle half {low:+.0f} to {high:+.0f})")
    return f"{SMALL}×{SMALL}×{SMALL} float32, bare loop {bare * 1e9:.0f} ns an iteration: {', '.join(parts)}"


def main() -> dict[str, float]:
    """Ratios of our medians to the others', over all reruns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=20, help="of each way, size and rerun")
    parser.add_argument("--reruns", type=int, default=3)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait at most for a quiet comparison")
    parser.add_argument("--quick", action="store_true", help="a few blocks, once, as quiet as it happens to be")
    arguments = parser.parse_args()
    blocks, reruns, most_seconds, patience = (arguments.blocks, arguments.reruns, 10.0, arguments.patience)
    if arguments.quick:
        blocks, reruns, most_seconds, patience = 6, 1, 3.0, 0.0
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.2f}", flush=True)
    ratios: dict[str, float] = {}
    for dtype in DTYPES:
        for size in SIZES:
            compared = [compare(size, dtype, blocks, most_seconds, patience) for _ in range(reruns)]
            again = [figures for figures, _ in compared]
            median = {name: statistics.median(one[name] for one in again) for name in WAYS}
            within = {
                f"{mine}/{other}": median[mine] / median[other]
                for mine in ("live", "burst")
                for other in ("Timer", "bare")
            }
            ratios |= {f"{dtype} {size} {pair}": ratio for pair, ratio in within.items()}
            spreads = {name: range_over_median([one[name] for one in again]) for name in ("live", "bare")}
            far = ", ".join(f"{name} {100 * share:.1f} %" for name, share in spreads.items() if share is not None)
            print(
                f"{dtype} {size}: live {median['live']:.4f} TFLOP/s, burst {median['burst']:.4f}, Timer"
                f" {median['Timer']:.4f}, bare {median['bare']:.4f};"
                f" {', '.join(f'{pair} {ratio:.3f}' for pair, ratio in within.items())}"
                + (f"; {reruns} runs lie apart by: {far}" if far else "")
                + f"; others used up to {100 * max(others for _, others in compared):.0f} % of the machine",
                flush=True,
            )
    print(overhead(40 if arguments.quick else 200, patience))
    worst = max(ratios, key=lambda name: abs(ratios[name] - 1))
    print(f"farthest from 1: {worst} {ratios[worst]:.3f}; load {os.getloadavg()[0]:.2f} at the end")
    return ratios


if __name__ == "__main__":
    main()
