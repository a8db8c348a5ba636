"""What rollback costs: moves against plain `module.to`, interleaved in one run.

`python tests/benchmarks/move_overhead.py` prints a line each for VGG-16-BN between the CPU and a virtual GPU (the median ratio is to be at
most 1.10), and for a model of 10,000 small parameters: there, back, a cast that loses nothing, and the cast back, for which the originals
are kept and what was lost is counted.
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

    ours_s, plain_s = _interleaved(ours, plain, lambda: None, rounds)
    ratio = statistics.median(a / b for a, b in zip(ours_s, plain_s, strict=True))
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


def small_parameters(rounds: int = 5) -> dict[str, tuple[float, float, float]]:
    """What is done to 10,000 parameters of 16 or 4 elements -> seconds of a move, of `module.to`, median ratio of neighbouring rounds."""
    machine = install()
    machine.add(parse_virtual("Tesla T4"))
    device = machine.gpus[-1].id
    mover = Mover(Fleet([TorchBackend(), machine]))
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5000)))
    aim = Aim("small", "", model)

    def there() -> None:
        with swapping():
            model.to(device)

    def back() -> None:
        with swapping():
            model.to("cpu")

    def moved(destination: str, dtype: str | None) -> Callable[[], None]:
        def work() -> None:
            mover.move([aim], destination, dtype, lambda name, tensor: None)

        return work

    cases: dict[str, tuple[Callable[[], object], Callable[[], object], Callable[[], object]]] = {
        "cpu to vgpu": (moved(device, None), there, back),
        "vgpu to cpu": (moved("cpu", None), back, there),
        "float32 to float64": (moved("cpu", "float64"), model.double, model.float),
        "float64 to float32": (moved("cpu", "float32"), model.float, model.double),
    }
    found: dict[str, tuple[float, float, float]] = {}
    for name, (ours, plain, before) in cases.items():
        ours_s, plain_s = _interleaved(ours, plain, before, rounds)
        ratio = statistics.median(a / b for a, b in zip(ours_s, plain_s, strict=True))
        found[name] = (statistics.median(ours_s), statistics.median(plain_s), ratio)
        back()
        model.float()
    return found


def _interleaved(
    ours: Callable[[], object], plain: Callable[[], object], before: Callable[[], object], rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds of both, each after `before`, which is not timed."""
    ours_s: list[float] = []
    plain_s: list[float] = []
    for index in range(rounds + 2):
        pair = [(ours, ours_s), (plain, plain_s)]
        for work, times in pair if index % 2 else reversed(pair):  # neither always runs on the other's warm memory
            before()
            times.append(_seconds(work))
    return ours_s[2:], plain_s[2:]  # without warm-up


def _seconds(work: Callable[[], object]) -> float:
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
    for what, (move_s, plain_s, small) in small_parameters().items():
        print(
            f"10,000 small parameters, {what}: {1e3 * move_s:.0f} ms with rollback, {1e3 * plain_s:.0f} ms plain, median ratio {small:.2f}"
        )
