"""The cost of rollback: moves against plain `module.to`, alternating in one run.

    python tests/benchmarks/move_overhead.py [--rounds 15] [--seconds 60]

One line for VGG-16-BN between the CPU and a virtual GPU (the median ratio is to be at most 1.10), and some for a model
of 10,000 small parameters: there, back, a lossless cast, and the cast back, which keeps the originals and computes the
error. `--seconds`: how long either of the two may take, about."""

from __future__ import annotations

import argparse
import gc
import statistics

from torch import nn
from turns import Times, Work, load, ratio, take_turns

from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.models import samples
from devexplorer.core.virtual.backend import install, swapping
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.placement import Target

LIMIT = 1.10
PLAIN = ", plain"
"""Suffix of the names for `module.to`."""


class Ground:
    """A model, the CPU, and a virtual GPU; moves of both kinds between these."""

    def __init__(self, model: nn.Module) -> None:
        machine = install()
        machine.add(parse_virtual("Tesla T4"))
        self.device = machine.gpus[-1].id
        self.model = model
        self._mover = Mover(DeviceRegistry([TorchBackend(), machine]))

    def ours(self, *steps: tuple[str, str | None]) -> Work:
        """Moves to a device, in a dtype."""

        def work() -> None:
            for device, dtype in steps:
                self._mover.move([Target("model", "", self.model)], device, dtype, lambda name, tensor: None)

        return work

    def plain(self, *devices: str) -> Work:
        """The same with `module.to`."""

        def work() -> None:
            with swapping():
                for device in devices:
                    self.model.to(device)

        return work


def vgg(rounds: int, seconds: float) -> dict[str, Times]:
    """A round trip of VGG-16-BN."""
    model = samples.build("vgg16-bn")
    assert isinstance(model, nn.Module)
    ground = Ground(model)
    ours, plain = ground.ours((ground.device, None), ("cpu", None)), ground.plain(ground.device, "cpu")
    return take_turns({"VGG-16-BN": (gc.collect, ours), "VGG-16-BN" + PLAIN: (gc.collect, plain)}, rounds, seconds)


def small_parameters(rounds: int, seconds: float) -> dict[str, Times]:
    """The operations on 10,000 parameters of 16 or 4 elements."""
    ground = Ground(nn.Sequential(*(nn.Linear(4, 4) for _ in range(5000))))
    model, gpu = ground.model, ground.device
    there, back = ground.plain(gpu), ground.plain("cpu")

    def after(*steps: Work) -> Work:
        def prepare() -> None:
            for step in (back, *steps, gc.collect):
                step()

        return prepare

    cases: dict[str, tuple[Work, Work, Work]] = {
        "CPU to vgpu": (after(model.float), ground.ours((gpu, None)), there),
        "vgpu to CPU": (after(model.float, there), ground.ours(("cpu", None)), back),
        "float32 to float64": (after(model.float), ground.ours(("cpu", "float64")), model.double),
        "float64 to float32": (after(model.double), ground.ours(("cpu", "float32")), model.float),
    }
    ways: dict[str, tuple[Work, Work]] = {}
    for name, (prepare, ours, plain) in cases.items():
        ways[name] = (prepare, ours)
        ways[name + PLAIN] = (prepare, plain)
    found = take_turns(ways, rounds, seconds)
    for kind in ("", PLAIN):
        trip = [found[name + kind] for name in ("CPU to vgpu", "vgpu to CPU")]
        found["there and back" + kind] = Times(
            *([a + b for a, b in zip(*of_both, strict=True)] for of_both in zip(*trip, strict=True))
        )
    return found


def told(found: dict[str, Times]) -> None:
    """Print medians and ratios, of wall time and of the thread's CPU time."""
    for name, ours in found.items():
        if name.endswith(PLAIN):
            continue
        plain = found[name + PLAIN]
        for clock, a, b in (("wall", ours.wall, plain.wall), ("cpu", ours.cpu, plain.cpu)):
            medians = f"{1e3 * statistics.median(a):7.1f} ms with rollback, {1e3 * statistics.median(b):7.1f} ms plain"
            print(f"{name:20} {clock:4} {medians}, median ratio {ratio(a, b):.3f} of {len(a)} rounds")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    print(f"{load()}; VGG-16-BN goes there and back, wanted: at most {LIMIT:.2f} of the wall time")
    told(vgg(given.rounds, given.seconds))
    print("10,000 parameters of 16 or 4 elements, wanted: at most 1.00")
    told(small_parameters(given.rounds, given.seconds))
    print(load())


if __name__ == "__main__":
    main()
