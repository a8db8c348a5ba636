"""What the doctor adds to a forward: a ResNet-50 at batch 8, plain on the CPU and traced on a virtual GPU. All
alternate in one run.

    python tests/benchmarks/doctor_cost.py [--rounds 15] [--seconds 120] [--batch 8] [--model resnet50] [--threads N]

Prints medians of the wall and CPU time of each, and their ratio to the plain one. `virtual` is the same forward on a
virtual GPU without the doctor: the rest is the doctor's cost, including installing and removing its CUDA emulation and
tracer."""

from __future__ import annotations

import argparse
import statistics

import torch
from turns import load, nothing, ratio, take_turns

from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.hard_coded import HardCoded
from devexplorer.core.doctor.tracing.op_tracer import OpTracer
from devexplorer.core.models import samples
from devexplorer.core.virtual.backend import add_virtual_gpus, swapping
from devexplorer.core.virtual.cuda.emulation import CudaEmulation

DEVICE = "vgpu:0"
MOST = 3.0
"""The target: traced over plain, at most."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    add_virtual_gpus("2x Tesla T4")
    origins = Origins()
    plain, moved = samples.build(given.model).eval(), samples.build(given.model).eval()
    with swapping():
        moved.to(DEVICE)
    inputs = samples.find(given.model).sample(given.batch)
    there = [one.to(DEVICE) for one in inputs]
    books: list[FindingCollector] = []
    counts: list[int] = []

    def on_cpu() -> None:
        with torch.no_grad():
            plain(*inputs)

    def on_virtual() -> None:
        with torch.no_grad():
            moved(*there)

    def watched() -> None:
        collector = FindingCollector()
        with (
            CudaEmulation(2, HardCoded(collector, 2)),
            OpTracer(moved, DEVICE, collector, origins, there) as watching,
            torch.no_grad(),
        ):
            moved(*there)
        books.append(collector)
        counts.append(watching.operations)

    ways = {"plain": (nothing, on_cpu), "virtual": (nothing, on_virtual), "watched": (nothing, watched)}
    found = take_turns(ways, given.rounds, given.seconds)
    assert not any(collector.findings() for collector in books), "a sample model is clean"
    print(f"torch {torch.__version__}, {given.threads} threads, {given.model} at batch {given.batch}; {load()}")
    for name, times in found.items():
        wall, cpu = (1e3 * statistics.median(one) for one in (times.wall, times.cpu))
        print(f"{name:8} {wall:8.1f} ms wall, {cpu:8.1f} ms CPU, {ratio(times.wall, found['plain'].wall):.2f} of plain")
    reached = statistics.median(found["watched"].wall) / statistics.median(found["plain"].wall)
    print(
        f"watched over plain (medians): {reached:.2f}, at most {MOST:g} wanted; {counts[-1]} operations,"
        f" {len(found['plain'].wall)} rounds"
    )


if __name__ == "__main__":
    main()
