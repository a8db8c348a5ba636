"""What a large model costs, from the engine's walk to the window's state: 10,101 modules with 50,000 tensors (100 × 100 batch norms).

`python tests/benchmarks/placement_scale.py` prints one line per figure. Wanted: a snapshot below 200 ms in the engine; and no step in the
window's reader that keeps the interpreter's lock for long (one frame is decoded at a time).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from devexplorer.core.devices.backend import Fleet
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.engine.link import FRAME_HEAD, Joiner, decode_event, frame, pieces
from devexplorer.core.engine.told import Told
from devexplorer.core.records.messages import Event, Move, ObjectChanged
from devexplorer.core.state import State
from devexplorer.core.virtual.backend import install
from devexplorer.core.virtual.profiles import parse_virtual
from devexplorer.core.workspace.carry_out import carry_out
from devexplorer.core.workspace.workspace import Workspace

Clock = Callable[[], float]
LIMIT_MS = 200.0
ROUNDS = 15


def large(blocks: int = 100, layers: int = 100) -> nn.Module:
    """A model of many small parts: five tensors in each layer."""
    return nn.Sequential(*(nn.Sequential(*(nn.BatchNorm1d(4) for _ in range(layers))) for _ in range(blocks)))


def main(rounds: int = ROUNDS, clock: Clock = time.perf_counter) -> dict[str, float | int | bool | str]:
    """Milliseconds, medians; `..._low`: the quickest round, `..._cpu`: the thread's own time, without waits for a core that others have."""
    torch.set_num_threads(1)
    machine = install()
    machine.add(parse_virtual("2x Tesla T4"))
    device = machine.gpus[-1].id
    workspace = Workspace(Fleet([TorchBackend(), machine]))
    model = large()
    workspace.add("large", model)

    snapshots = _times(lambda: workspace.snapshot("large"), rounds, clock)
    alone = _times(lambda: workspace.snapshot("large"), rounds, time.thread_time)
    held = _times(lambda: workspace.publish("large"), rounds, clock)
    told = Told()
    whole = told.news(workspace.snapshot("large"), 0)
    assert isinstance(whole, ObjectChanged)
    one_frame = frame(whole)[FRAME_HEAD:]
    in_one = _times(lambda: decode_event(one_frame), rounds, clock)
    payloads = [frame(piece)[FRAME_HEAD:] for piece in pieces(whole)]
    slices: list[list[float]] = []
    state = State()
    for _ in range(rounds):
        slices.append(_arrive(payloads, state, clock))

    layer: list[float] = []
    deltas: list[float] = []
    applied: list[float] = []
    rows = 0
    for index in range(rounds):
        started = clock()
        outcome = carry_out(workspace, Move(targets=("large:50.50",), device="cpu" if index % 2 else device))
        layer.append(clock() - started)
        started = clock()
        news = told.news(outcome.changed[0], 0)
        deltas.append(clock() - started)
        payload = frame(news)[FRAME_HEAD:]
        started = clock()
        state.apply(decode_event(payload))
        applied.append(clock() - started)
        rows = 0 if isinstance(news, ObjectChanged) else len(news.rows)
    assert state.objects["large"] == workspace.snapshot("large")
    everything: list[float] = []
    for index in range(4):
        started = clock()
        carry_out(workspace, Move(targets=("large",), device="cpu" if index % 2 else device))
        everything.append(clock() - started)
    median = statistics.median(snapshots)
    return {
        "name": "placement_scale",
        "rows": len(whole.snapshot.rows),
        "snapshot_ms": 1e3 * median,
        "snapshot_low_ms": 1e3 * min(snapshots),
        "snapshot_cpu_ms": 1e3 * statistics.median(alone),
        "limit_ms": LIMIT_MS,
        "ok": 1e3 * median <= LIMIT_MS,
        "held_ms": 1e3 * statistics.median(held),
        "frame_bytes": len(one_frame),
        "decode_in_one_ms": 1e3 * statistics.median(in_one),
        "frames": len(payloads),
        "longest_slice_ms": 1e3 * statistics.median([max(one) for one in slices]),
        "all_slices_ms": 1e3 * statistics.median([sum(one) for one in slices]),
        "move_of_a_layer_ms": 1e3 * statistics.median(layer),
        "delta_rows": rows,
        "delta_ms": 1e3 * statistics.median(deltas),
        "delta_applied_ms": 1e3 * statistics.median(applied),
        "move_of_everything_s": statistics.median(everything),
    }


def _arrive(payloads: Sequence[bytes], state: State, clock: Clock) -> list[float]:
    """Seconds of each step of the window's reader, of which none can be interrupted for long; the last one hands the whole to the state."""
    joiner = Joiner()
    steps: list[float] = []
    arrived: Event | None = None
    for payload in payloads:
        started = clock()
        arrived = joiner.take(decode_event(payload))
        steps.append(clock() - started)
    assert arrived is not None
    state.apply(arrived)
    return steps


def _times(work: Callable[[], object], rounds: int, clock: Clock) -> list[float]:
    work()
    times: list[float] = []
    for _ in range(rounds):
        started = clock()
        work()
        times.append(clock() - started)
    return times


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cpu", action="store_true", help="the thread's CPU time instead of the wall's: for a machine that is not quiet")
    arguments = parser.parse_args()
    figures = main(arguments.rounds, time.thread_time if arguments.cpu else time.perf_counter)
    for key, value in figures.items():
        print(f"{key:22} {value:.2f}" if isinstance(value, float) else f"{key:22} {value}")
