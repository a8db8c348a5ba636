"""What observing adds to a step, with the hooks switched within one process: fresh processes differ by far more.

    python tests/benchmarks/observe_cost.py [--rounds 60] [--seconds 120]
    python tests/benchmarks/observe_cost.py --instructions        # with valgrind, on a busy machine, too

A short step (a small MLP on one thread, with a DataLoader and `.item()`) and a long one alternate between torch as it
is, hooks that are in place while nothing is observed, a run that is observed, and one at which somebody looks, in
another process that reads what comes. The long one waits 50 ms in its forward: of computing so long the noise alone is
more than what is looked for. Prints the median time of a step, and what is added: CPU time of the thread that is
observed, and where somebody looks, which takes a thread of its own, the time that passes. The limits are 20 µs for a
short step, 0.2 % for a long one, and 1 % where somebody looks at it.

Time depends on the machine: hooks are code that torch's own drives out of the caches, and on a machine with slow ones
they take three times what they do in a loop. `--instructions` counts what the processor executes in a short step with
callgrind, in a process for each way; marks are summed up in it, and the look at memory once a second is left out."""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, autograd, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset, dataloader
from turns import take_turns

from devexplorer.core.observe import hooks
from devexplorer.core.observe.looker import Looker
from devexplorer.core.observe.observer import Observation
from devexplorer.core.observe.records import ObserveSettings

SHORT_LIMIT_S, LONG_LIMIT, LOOK_LIMIT, LONG_S = 20e-6, 0.002, 0.01, 0.05
WARM_STEPS, COUNTED_STEPS = 100, 800
"""Marks are summed up once in the second."""
SETTLED_S = 0.5
"""After so long a look is in its usual course."""
PLACES = (
    (nn.Module, "__call__"),
    (nn.Module, "_apply"),
    (DataLoader, "__iter__"),
    (dataloader._BaseDataLoaderIter, "__next__"),
    (autograd, "backward"),
    (autograd, "grad"),
    (GradScaler, "step"),
    *((Tensor, name) for name in ("to", "cuda", "cpu", *hooks.READS)),
)
"""What is replaced, collectives apart."""
LOOKED_AT = "somebody looks"
WAYS = BARE, IDLE, OBSERVED = "torch as it is", "hooks, idle", "observed"


class Switch:
    """torch as it is, with idle hooks, or observed."""

    def __init__(self) -> None:
        self._bare = {place: getattr(*place) for place in PLACES}
        hooks.install()
        self._hooked = {place: getattr(*place) for place in PLACES}
        self._global = [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
        self._registered = [dict(each) for each in self._global]
        self.run = Observation(ObserveSettings(places=False))
        self._looker: Looker | None = None
        self._reader: subprocess.Popen[bytes] | None = None

    def put(self, hooked: bool, observed: bool, looks: bool = False) -> None:
        """Switch; not timed."""
        if self._looker is not None and self._reader is not None:
            self._looker.end()
            self._reader.wait()
            self._looker = None
        hooks.watch.end()
        for (owner, name), value in (self._hooked if hooked else self._bare).items():
            setattr(owner, name, value)
        for each, registered in zip(self._global, self._registered, strict=True):
            each.clear()
            each.update(registered if hooked else {})
        if observed:
            hooks.watch.begin(self.run)
            hooks.watch.mark(0)
        if looks:
            ours, theirs = socket.socketpair()
            self._reader = subprocess.Popen(["cat"], stdin=theirs, stdout=subprocess.DEVNULL)
            theirs.close()
            self._looker = Looker(ours, self.run)
            self._looker.start()
            time.sleep(SETTLED_S)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--counted", choices=WAYS, help="what valgrind is to count")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.instructions:
        _compare_instructions()
        return
    if given.counted:
        _run_counted(given.counted)
        return
    switch = Switch()
    for name, waits, steps in (("short step", 0.0, 200), ("long step", LONG_S, 10)):
        _measured(name, switch, _block(waits, steps), steps, waits, given)
    switch.put(False, False)


class Waits(nn.Module):
    """Takes a while, as a card does, and no CPU time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs, later."""
        time.sleep(self.seconds)
        return inputs


def _block(waits: float, steps: int) -> Callable[[], None]:
    width, batch, depth = 32, 16, 2
    layers: list[nn.Module] = [Waits(waits)] if waits else []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = DataLoader(TensorDataset(torch.randn(batch * steps, width), torch.zeros(batch * steps).long()), batch)

    def block() -> None:
        device = torch.device("cpu")
        for inputs, labels in data:
            optimizer.zero_grad()
            loss = criterion(model(inputs.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            loss.item()

    return block


def _measured(name: str, switch: Switch, block: Callable[[], None], steps: int, waits: float, given: Any) -> None:
    ways = {
        BARE: (lambda: switch.put(False, False), block),
        IDLE: (lambda: switch.put(True, False), block),
        OBSERVED: (lambda: switch.put(True, True), block),
        LOOKED_AT: (lambda: switch.put(True, True, True), block),
    }
    times = take_turns(ways, given.rounds, given.seconds)
    cpu, wall = times[BARE].cpu, times[BARE].wall
    cpu_ms, wall_ms = (1e3 * statistics.median(each) / steps for each in (cpu, wall))
    print(f"{name}: {cpu_ms:.3f} ms of CPU time, {wall_ms:.3f} ms")
    for way, found in times.items():
        taken, base = (found.wall, wall) if way == LOOKED_AT else (found.cpu, cpu)
        added = [(there - bare) / steps for there, bare in zip(taken, base, strict=True)]
        least = 1e6 * (min(taken) - min(base)) / steps
        more = 1e6 * statistics.median(added)
        share = 1e-4 * more * steps / statistics.median(wall)
        print(f"  {way:16}{more:+8.1f} µs ({least:+.1f} between the quickest), {share:+.2f} %")
    print(
        f"  limits          {1e6 * SHORT_LIMIT_S:+8.1f} µs for a short step, {100 * LONG_LIMIT:+.2f} % for a long, "
        f"{100 * LOOK_LIMIT:+.2f} % where somebody looks at it"
    )


def _compare_instructions() -> None:
    """Each way in a process of its own: switching hooks takes away what Python has learnt about a class."""
    counted: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS:
            valgrind = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={folder}/out"]
            subprocess.run(
                [*valgrind, sys.executable, "-W", "ignore", __file__, "--counted", way],
                check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "0"},
            )  # fmt: skip
            total = re.search(r"^totals: (\d+)", Path(folder, "out.1").read_text(), re.MULTILINE)
            assert total is not None
            counted[way] = int(total[1]) / COUNTED_STEPS
    for way, instructions in counted.items():
        added = instructions - counted[BARE]
        print(
            f"  {way:16}{instructions:12,.0f} instructions a step{added:+10,.0f}, {100 * added / counted[BARE]:+.2f} %"
        )


def _run_counted(way: str) -> None:
    """A process that callgrind looks at."""
    run = Observation(ObserveSettings(places=False))
    if way != BARE:
        hooks.install()
    if way == OBSERVED:
        hooks.watch.begin(run)
    _block(0.0, WARM_STEPS)()
    run.memory.due_ns = sys.maxsize
    block = _block(0.0, COUNTED_STEPS)
    torch._C._valgrind_toggle()
    block()
    torch._C._valgrind_toggle_and_dump_stats()


if __name__ == "__main__":
    main()
