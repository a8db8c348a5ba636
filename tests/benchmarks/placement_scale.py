"""The cost of a large model, from the engine's walk to the window's state: 10,101 modules with 50,000 tensors (100 ×
100 batch norms).

    python tests/benchmarks/placement_scale.py [--rounds 15] [--seconds 40]

Prints medians in ms, of wall time and of the thread's CPU time (without waiting for a core). Wanted: a snapshot below
200 ms in the engine, wherever the model is; and no step in the window's reader that keeps the interpreter's lock for
long (one frame is decoded at a time). Compared operations alternate. `--seconds`: approximate time for each of the
three parts; at least three rounds are run."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from functools import partial

import torch
from torch import nn
from turns import FEWEST, Times, load, nothing, take_turns

from devexplorer.core.commands.registry import dispatch
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.engine.engine import SnapshotDiffer
from devexplorer.core.engine.link import FRAME_HEAD, Joiner, decode_event, frame, pieces
from devexplorer.core.records import Event, Move, ObjectChanged, ObjectSnapshot, Remove
from devexplorer.core.session.state import State
from devexplorer.core.virtual.backend import install, swapping
from devexplorer.core.workspace.workspace import Workspace

LIMIT_MS = 200.0


def large(blocks: int = 100, layers: int = 100) -> nn.Module:
    """A model of many small parts: five tensors in each layer."""
    return nn.Sequential(*(nn.Sequential(*(nn.BatchNorm1d(4) for _ in range(layers))) for _ in range(blocks)))


def main(rounds: int, seconds: float) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    machine = install()
    machine.add(parse_virtual("2x Tesla T4"))
    device = machine.gpus[-1].id
    workspace = Workspace(DeviceRegistry([TorchBackend(), machine]))
    workspace.add("large", large())
    away = large()
    with swapping():
        away.to(device)
    workspace.add("away", away)
    told = SnapshotDiffer()
    whole = told.news(workspace.snapshot("large"), 0)
    assert isinstance(whole, ObjectChanged)
    print(f"{len(whole.snapshot.rows)} rows; {load()}")

    found = take_turns(
        {
            "snapshot": (nothing, lambda: workspace.snapshot("large")),
            "snapshot, virtual GPU": (nothing, lambda: workspace.snapshot("away")),
            "what devices hold": (nothing, lambda: workspace.publish("large")),
        },
        rounds,
        seconds,
    )
    for name, times in found.items():
        _print(name, times, LIMIT_MS if name.startswith("snapshot") else None)
    dispatch(workspace, Remove(names=("away",)))
    del away

    one_frame = frame(whole)[FRAME_HEAD:]
    payloads = [frame(piece)[FRAME_HEAD:] for piece in pieces(whole)]
    state = State()
    steps: list[Times] = []
    found = take_turns(
        {
            "decoded in one frame": (nothing, lambda: decode_event(one_frame)),
            "decoded in pieces": (nothing, lambda: steps.append(_arrive(payloads, state))),
        },
        rounds,
        seconds,
    )
    print(f"{len(one_frame)} bytes in {len(payloads)} frames")
    for name, times in found.items():
        _print(name, times)
    _print("the longest piece", Times([max(one.wall) for one in steps], [max(one.cpu) for one in steps]))

    _moves(workspace, told, state, device, rounds, seconds)
    print(load())


def _moves(workspace: Workspace, told: SnapshotDiffer, state: State, device: str, rounds: int, seconds: float) -> None:
    """One layer moves back and forth, with its changes; then the whole model."""
    layer, news_found, applied, everything = (Times([], []) for _ in range(4))

    def move(target: str, index: int) -> ObjectSnapshot:
        return dispatch(workspace, Move(targets=(target,), device="cpu" if index % 2 else device)).changed[0]

    started = time.perf_counter()
    for index in range(rounds):
        if index >= FEWEST and time.perf_counter() - started > seconds:
            break
        snapshot = layer.of(partial(move, "large:50.50", index))
        news = news_found.of(partial(told.news, snapshot, 0))
        payload = frame(news)[FRAME_HEAD:]
        applied.of(lambda of=payload: state.apply(decode_event(of)))
    assert state.objects["large"] == workspace.snapshot("large")
    for index in range(4):
        everything.of(partial(move, "large", index))
    print(f"the news of one layer: {0 if isinstance(news, ObjectChanged) else len(news.rows)} rows")
    _print("layer moved", layer)
    _print("its news found", news_found)
    _print("its news applied", applied)
    _print("model moved", everything)


def _arrive(payloads: Sequence[bytes], state: State) -> Times:
    """Times of each step of the window's reader, none of which may block for long; the last one applies the snapshot to
    the state."""
    joiner = Joiner()
    steps = Times([], [])
    arrived: Event | None = None
    for payload in payloads:
        wall, cpu = time.perf_counter(), time.thread_time()
        arrived = joiner.take(decode_event(payload))
        steps.cpu.append(time.thread_time() - cpu)
        steps.wall.append(time.perf_counter() - wall)
    assert arrived is not None
    state.apply(arrived)
    return steps


def _print(name: str, times: Times, limit_ms: float | None = None) -> None:
    wall, cpu = (1e3 * statistics.median(one) for one in times)
    lowest = 1e3 * min(times.wall)
    wanted = "" if limit_ms is None else f", wanted: {limit_ms:.0f}, {'reached' if wall <= limit_ms else 'not reached'}"
    print(f"{name:22} {wall:8.2f} ms wall (quickest {lowest:.2f}), {cpu:8.2f} ms cpu, {len(times.wall)} rounds{wanted}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=40.0)
    arguments = parser.parse_args()
    main(arguments.rounds, arguments.seconds)
