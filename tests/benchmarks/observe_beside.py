"""An unchanged training script by itself, under `devexplorer run`, and under TraceML, in turns.

    python tests/benchmarks/observe_beside.py [--rounds 10] [--traceml /path/to/traceml]

Each round starts the same script once in every way, every other round backwards. The script prints the median of its
steps; the whole process is timed as well. Prints medians, and ratios to the bare script: of a short step (0.2 ms) and
of one of about 50 ms. Fresh processes differ by up to 40 % in the time of a short step: `observe_cost.py` measures that
within one process."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOOP = """import statistics, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
width, steps = int(sys.argv[1]), int(sys.argv[2])
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(32 * steps, width)), batch_size=32)
took, began = [], time.perf_counter()
for (x,) in loader:
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    took.append(time.perf_counter() - began)
    began = time.perf_counter()
print("STEP", statistics.median(took[len(took) // 4 :]), flush=True)
"""
SCRIPTS = {"short steps": ("64", "2500"), "long steps": ("2048", "30")}
"""Width of the model and number of steps: ten rounds of three ways take five minutes, mostly starts of TraceML."""
DEVEXPLORER = [sys.executable, "-m", "devexplorer.core.cli", "run"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--traceml", help="the program of an environment that has it, with the same torch")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "loop.py"
        script.write_text(LOOP)
        for name, words in SCRIPTS.items():
            ways = {
                "bare": [sys.executable, str(script), *words],
                "devexplorer run": [*DEVEXPLORER, str(script), *words],
            }
            if arguments.traceml:
                ways["traceml run"] = [arguments.traceml, "run", str(script), "--args", *words]
            print(f"{name}, {arguments.rounds} rounds")
            report(measure(ways, arguments.rounds, folder))


def measure(ways: dict[str, list[str]], rounds: int, folder: str) -> dict[str, list[tuple[float, float]]]:
    """Seconds of a step, and of the process, in each round."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            began = time.perf_counter()
            done = subprocess.run(
                ways[name], cwd=folder, capture_output=True, text=True, check=True, env=dict(os.environ)
            )
            seconds = time.perf_counter() - began
            step = next(line for line in done.stdout.splitlines() if line.startswith("STEP"))
            found[name].append((float(step.split()[1]), seconds))
    return found


def report(found: dict[str, list[tuple[float, float]]]) -> None:
    """Print medians and ratios."""
    bare = [statistics.median(values) for values in zip(*found["bare"], strict=True)]
    for name, rounds in found.items():
        step, seconds = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(
            f"  {name:16} a step {step * 1e3:8.3f} ms ({step / bare[0]:.3f} of bare)"
            f"   the process {seconds:6.2f} s ({seconds - bare[1]:+.2f} s)"
        )


if __name__ == "__main__":
    main()
