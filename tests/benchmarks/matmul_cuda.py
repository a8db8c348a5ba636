"""Does our burst match triton's `do_bench` for the same shape in the same run? On a CUDA device, in alternating blocks.

    python tests/benchmarks/matmul_cuda.py [--device cuda:0] [--rounds 5]

Wanted: at least the same. Needs a GPU, CUDA torch and triton.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading

import torch

from devexplorer.core.benchmark.kind import kind_of
from devexplorer.core.benchmark.matmul import operands, product
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.engine.benchmarks import make_runner
from devexplorer.core.records import MatmulResult, MatmulSpec

SIZES = (1024, 4096, 8192)
DTYPES = ("float16", "bfloat16")
SECONDS = 0.5


def ours(spec: MatmulSpec, registry: DeviceRegistry) -> float:
    """Median TFLOP/s of one run."""
    run = make_runner(kind_of(spec).check(spec, registry), 1, registry, threading.Event())
    run.prepare()
    while run.step() is not None:
        pass
    result = run.result(stopped=False)
    assert isinstance(result, MatmulResult)
    return result.tflops.median


def main() -> int:
    """Print a line per size and dtype."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no CUDA device here")
        return 1
    from triton.testing import do_bench

    registry = DeviceRegistry([TorchBackend()])
    for dtype in DTYPES:
        for size in SIZES:
            burst = MatmulSpec(
                device=arguments.device, dtype=dtype, m=size, n=size, k=size, mode="burst", seconds=SECONDS
            )
            a, b = operands(size, size, size, dtype, arguments.device)
            operation, _ = product(a, b, dtype)
            mine, theirs = [], []
            for _ in range(arguments.rounds):
                mine.append(ours(burst, registry))
                with torch.cuda.device(arguments.device):
                    theirs.append(
                        burst.flop / do_bench(operation, warmup=200, rep=1e3 * SECONDS, return_mode="median") / 1e9
                    )
            one, other = statistics.median(mine), statistics.median(theirs)
            print(f"{dtype} {size}: burst {one:.1f} TFLOP/s, do_bench {other:.1f}, ratio {one / other:.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
