"""Where the tests of the workspace run: the CPU alone, two virtual GPUs, or real CUDA devices."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from fakes.cuda import FakeLibcuda

from devexplorer.core.base import DevExplorerError
from devexplorer.core.commands.refusals import refusal
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.cuda_driver import CudaDriver
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.feature import named
from devexplorer.core.records import AddVirtual, Answer, Command, ObjectSnapshot
from devexplorer.core.virtual.backend import install
from devexplorer.core.workspace.changes import CommandResult
from devexplorer.core.workspace.workspace import Workspace


@dataclass
class Place:
    """A workspace on some machine. `second` is None if there is only the CPU."""

    kind: str
    registry: DeviceRegistry
    workspace: Workspace
    first: str
    second: str | None

    def do(self, command: Command) -> CommandResult:
        """Run a command that must succeed."""
        return dispatch(self.workspace, command)

    def answer(self, command: Command) -> Answer:
        """The answer that the user reads, including failures."""
        try:
            return dispatch(self.workspace, command).answer
        except DevExplorerError as error:
            return refusal(error, command)

    def snapshot(self, name: str) -> ObjectSnapshot:
        return self.workspace.snapshot(name)

    def held(self, device: str) -> int:
        """Bytes of named objects on a device."""
        return self.workspace.held_bytes_by_device().get(device, 0)

    def allocated(self, device: str) -> int:
        """Bytes allocated by the device's allocator, without what cuBLAS keeps after its first product."""
        if self.kind == "cuda":
            torch._C._cuda_clearCublasWorkspaces()  # type: ignore[attr-defined]
        sample = self.registry.backend(device).allocator_sample(device, 0.0)
        return 0 if sample is None else sample.allocated_bytes  # None: nothing has used the card yet

    def offers_virtual_gpus(self, command: Command) -> bool:
        """Whether the answer explains what is missing and offers two virtual GPUs."""
        before = [self.workspace.snapshot(name) for name in self.workspace.names]
        answer = self.answer(command)
        unchanged = before == [self.workspace.snapshot(name) for name in self.workspace.names]
        offered = any(offer.command == AddVirtual(spec="2x Tesla T4") for offer in answer.offers)
        return answer.failed and unchanged and offered and "there is no device" in answer.words.lower()


@contextmanager
def place_of(kind: str, spec: str = "2x Tesla T4") -> Iterator[Place]:
    """A new workspace; virtual GPUs are removed afterwards. All but `cuda` are machines without a card, whatever this
    one has."""
    explain = next(iter(named("explains")), None)
    driver = None if kind == "cuda" else CudaDriver(FakeLibcuda())
    registry = DeviceRegistry([TorchBackend(driver=driver)])
    if kind == "cpu":
        yield Place(kind, registry, Workspace(registry, explain=explain), "cpu", None)
        return
    if kind == "cuda":
        gc.collect()  # what the test before has left there
        yield Place(
            kind,
            registry,
            Workspace(registry, explain=explain),
            "cuda:0",
            "cuda:1" if torch.cuda.device_count() > 1 else "cpu",
        )
        return
    machine = install()
    machine.reset()
    machine.add(parse_virtual(spec))
    registry.add(machine)
    try:
        yield Place(kind, registry, Workspace(registry, explain=explain), "vgpu:0", "vgpu:1")
    finally:
        machine.reset()
