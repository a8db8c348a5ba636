"""The planner's cost and accuracy: a model of Llama-70B's shape without its memory, and peaks against a virtual GPU's
count.

    python tests/benchmarks/planner.py [--quick]

First `fit` for that model, each in a process of its own from the start of its interpreter on: wanted are less than 30 s
and less than 2 GiB of memory (the most that was resident). Then the peak of two training steps, predicted without
values, against what the allocator of a virtual GPU counted in the same steps with values, for five sample models: the
target is no difference."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from devexplorer.core.base import bytes_text, count_text
from devexplorer.core.planner.records import FitSpec

LLAMA = (
    "transformers:llama?hidden_size=8192&num_hidden_layers=80&num_attention_heads=64&num_key_value_heads=8&intermediate_size=28672"
    "&vocab_size=32000"
)
MOST_SECONDS, MOST_BYTES = 30.0, 2 << 30
ANSWER = """
import resource, sys, time
import msgspec
from devexplorer.core.planner.worker.ask import plan_in_this_process
from devexplorer.core.planner.records import FitSpec
*_, report = plan_in_this_process(msgspec.json.decode(sys.argv[1], type=FitSpec), lambda done, text: None)
(fit,) = report.fits
resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(report.parameters, fit.bytes.total, int(fit.fits), len(report.helps), resident, round(time.process_time()))
"""
REQUESTS = {
    "inference, 16 tokens": FitSpec(source=LLAMA, gpus=("NVIDIA H200",)),
    "inference, 2048 tokens": FitSpec(source=LLAMA, gpus=("NVIDIA H200",), inputs="1x2048:int64"),
    "training, 2048 tokens": FitSpec(source=LLAMA, gpus=("NVIDIA H200",), inputs="1x2048:int64", train=True),
    "the same on 16 cards": FitSpec(
        source=LLAMA, gpus=("16x NVIDIA H200",), inputs="1x2048:int64", train=True, search=False
    ),
}
ZOO = {
    "mlp": ("", 8),
    "lenet": ("", 16),
    "resnet18": ("1x3x64x64", 4),
    "transformer": ("", 4),
    "lstm": ("1x8:int64", 3),
}
"""Model -> inputs (empty: its own) and batch: small, since the CPU computes them."""


def llama(requests: dict[str, FitSpec]) -> None:
    """Ask and print what it took."""
    for title, request in requests.items():
        began = time.monotonic()
        command = [sys.executable, "-W", "ignore", "-c", ANSWER, msgspec.json.encode(request).decode()]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"}
        )
        seconds = time.monotonic() - began
        if done.returncode != 0:
            print(f"{title:24} failed: {done.stderr.strip().splitlines()[-1]}")
            raise SystemExit(1)
        parameters, total, fits, helps, resident, processor = map(int, done.stdout.split())
        answer = (
            f"{parameters / 1e9:.1f} billion parameters, {bytes_text(total)}, {'fits' if fits else 'does not fit'},"
            f" {helps} helps"
        )
        kept = seconds < MOST_SECONDS and 1024 * resident < MOST_BYTES
        cost = f"{seconds:5.1f} s ({processor} s of CPU), {bytes_text(1024 * resident)} resident"
        print(f"{title:24} {cost}{'' if kept else ' (TOO MUCH)'}: {answer}")


def peaks() -> None:
    """Predict and count."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from fakes.planning import ONE, counted

    from devexplorer.core.planner.run import StepConfig, run_step
    from devexplorer.core.planner.subject import subject_of

    for name, (inputs, batch) in ZOO.items():
        for optimizer in ("sgd", "adamw"):
            way = StepConfig(train=True, optimizer=optimizer)
            predicted = run_step(subject_of(name, "", inputs), way, batch, ONE)[0].without_end.peak
            ran = counted(name, way, batch, inputs)
            apart = count_text(abs(predicted - ran), "byte")
            print(f"{name:12} {optimizer:6} predicted {predicted:13,} B, counted {ran:13,} B, apart {apart}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the first of the large models only")
    given = parser.parse_args()
    print(f"a model of Llama-70B's shape; wanted: less than {MOST_SECONDS:.0f} s and {bytes_text(MOST_BYTES)}")
    llama(dict(list(REQUESTS.items())[:1]) if given.quick else REQUESTS)
    print("peak of two training steps; wanted: 0 bytes apart")
    peaks()


if __name__ == "__main__":
    main()
