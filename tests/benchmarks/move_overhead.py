"""What rollback costs: moving VGG-16-BN between the CPU and a virtual GPU, against plain `module.to`, interleaved in one run.

`python tests/benchmarks/move_overhead.py` prints one line; the median ratio is to be at most 1.10.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

from torch import nn

from devexplorer.core.devices.backend import Fleet
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.virtual.backend import install, swapping
from devexplorer.core.virtual.profiles import parse_virtual
from devexplorer.core.workspace import zoo
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.plan import Aim

ROUNDS = 15
LIMIT = 1.10


def main(rounds: int = ROUNDS) -> dict[str, float | int | bool | str]:
    """Seconds of a round trip both ways, and the median of the ratios of neighbouring rounds."""
    machine = install()
    machine.add(parse_virtual("Tesla T4"))
    device = machine.gpus[-1].id
    mover = Mover(Fleet([TorchBackend(), machine]))
    model = zoo.build("vgg16-bn")
    aim = Aim("vgg16-bn", "", model)

    def ours() -> None:
        for destination in (device, "cpu"):
            mover.move([aim], destination, None, lambda name, tensor: None)

    def plain() -> None:
        with swapping():
            for destination in (device, "cpu"):
                model.to(destination)

    ours_s: list[float] = []
    plain_s: list[float] = []
    for index in range(rounds + 2):
        pair = [(ours, ours_s), (plain, plain_s)]
        for work, times in pair if index % 2 else reversed(pair):  # neither always runs on the other's warm memory
            times.append(_seconds(work))
    del ours_s[:2], plain_s[:2]  # warm-up
    ratios = [a / b for a, b in zip(ours_s, plain_s, strict=True)]
    ratio = statistics.median(ratios)
    assert isinstance(model, nn.Module)
    return {
        "name": "move_overhead",
        "ratio": ratio,
        "limit": LIMIT,
        "ok": ratio <= LIMIT,
        "move_seconds": statistics.median(ours_s),
        "plain_seconds": statistics.median(plain_s),
        "rounds": rounds,
    }


def _seconds(work: Callable[[], None]) -> float:
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    figures = main()
    print(
        f"move of VGG-16-BN cpu ↔ vgpu: {figures['move_seconds']:.3f} s with rollback, {figures['plain_seconds']:.3f} s plain, "
        f"median ratio {figures['ratio']:.3f} (limit {figures['limit']:.2f}, {figures['rounds']} rounds)"
    )
