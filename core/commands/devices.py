"""Carries out the commands about the devices themselves: more virtual GPUs, the CPU's threads. Jobs thread."""

from __future__ import annotations

import json

from devexplorer.core.base import ProgressMonitor, count_text, sentence
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.records import AddVirtual, Answer, Fact, SetThreads
from devexplorer.core.virtual import backend
from devexplorer.core.workspace import CommandResult, Workspace


def add_gpus(registry: DeviceRegistry, spec: str) -> list[str]:
    """Add virtual GPUs to those that there are; returns the ids of the visible ones. Raises `Unavailable` beside usable
    CUDA cards."""
    names = backend.add_virtual_gpus(spec, registry.visible_devices)
    registry.add(backend.install())
    return names


def add_virtual(workspace: Workspace, command: AddVirtual, progress: ProgressMonitor) -> CommandResult:
    """Add virtual GPUs; raises `BadInput` for a profile that does not exist, `Unavailable` where this process
    cannot have any."""
    names = add_gpus(workspace.registry, command.spec)
    return CommandResult(_added(workspace.registry, command.spec, names), devices_changed=True)


def set_threads(workspace: Workspace, command: SetThreads, progress: ProgressMonitor) -> CommandResult:
    """Set how many CPU threads one operation uses; raises `BadInput` for a number that is not possible."""
    cpu = workspace.registry.backend("cpu")
    assert isinstance(cpu, TorchBackend)
    before = cpu.threads
    cpu.set_threads(command.threads)
    threads = count_text(command.threads, "thread")
    if command.threads == before:
        words = f"An operation on the CPU uses {threads}, as before."
    else:
        words = f"An operation on the CPU now uses {threads} instead of {before}."
    words += " The device cpu is all cores and all memory at once; there is no cpu:1."
    title = f"{command.threads} CPU {'thread' if command.threads == 1 else 'threads'}"
    code = f"import torch\n\ntorch.set_num_threads({command.threads})"
    return CommandResult(Answer(title=title, words=words, code=code), devices_changed=True)


def _added(registry: DeviceRegistry, spec: str, names: list[str]) -> Answer:
    visible = "" if registry.visible_devices is None else f", visible={json.dumps(registry.visible_devices)}"
    added = f"add_virtual_gpus({json.dumps(spec, ensure_ascii=False)}{visible})"
    code = f"from devexplorer import add_virtual_gpus\n\n{added}"
    hidden = [info for info in registry.infos() if info.simulated and not info.usable]
    facts = [Fact(name, f"{registry.info(name).name}, simulated") for name in names]
    facts += [Fact(info.id, f"{info.name}, simulated, hidden") for info in hidden]
    if not names:
        title = "The GPUs were added, but the engine does not see them"
        words = f"{sentence(hidden[-1].reason or '')} Choose the visible devices again to use them."
    else:
        joins = "and" if len(names) == 2 else "to"
        title = f"{names[0]} {'is' if len(names) == 1 else f'{joins} {names[-1]} are'} here"
        words = (
            "Values are real: the CPU computes them. Memory is counted as CUDA's caching allocator would count it. Time"
            " is modelled from the datasheet, on a simulated clock. Everything about these devices is marked simulated."
        )
    return Answer(title=title, words=words, facts=tuple(facts), code=code)
