"""What observing adds to a step, with the hooks switched within one process: fresh processes differ by far more.

    python tests/benchmarks/observe_cost.py [--rounds 60] [--seconds 120]

A short step (a small MLP on one thread, with a DataLoader and `.item()`) and a long one alternate between torch as it
is, hooks that are in place while nothing is observed, a run that is observed, and one at which somebody looks, in
another process that reads what comes. The long one waits 50 ms in its forward: of computing so long the noise alone is
more than what is looked for. Prints the median time of a step, and what is added: CPU time of the thread that is
observed, and where somebody looks, which takes a thread of its own, the time that passes. The limits are 20 µs for a
short step, 0.2 % for a long one, and 1 % where somebody looks at it."""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import time
from collections.abc import Callable
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
    given = parser.parse_args()
    torch.set_num_threads(1)
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
        "torch as it is": (lambda: switch.put(False, False), block),
        "hooks, idle": (lambda: switch.put(True, False), block),
        "observed": (lambda: switch.put(True, True), block),
        LOOKED_AT: (lambda: switch.put(True, True, True), block),
    }
    times = take_turns(ways, given.rounds, given.seconds)
    cpu, wall = times["torch as it is"].cpu, times["torch as it is"].wall
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


if __name__ == "__main__":
    main()
