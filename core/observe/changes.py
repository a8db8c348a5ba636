"""Moves of a script's models that a window asks for, where the script allows them: asked for on `observe-answer`,
carried out by the observed thread between two steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.observe.observer import Observation
from devexplorer.core.records import Answer, Move
from devexplorer.core.workspace import Workspace
from devexplorer.core.workspace.optimizer_state import strays


def mover(
    command: Move, models: Mapping[str, nn.Module], registry: DeviceRegistry, observation: Observation
) -> Callable[[], Answer]:
    """What carries it out, to be called between two steps by the thread that is observed. Raises `BadInput` where it
    cannot be done."""
    if command.copy:
        raise BadInput("a running script keeps no copies; its models can only be moved")
    names = {target.partition(":")[0] for target in command.targets}
    if gone := names - models.keys():
        raise BadInput(f"the script has no model '{min(gone)}' any more")
    chosen = {name: models[name] for name in names}
    for name, model in chosen.items():
        _check(name, model)
    return lambda: _moved(command, chosen, registry, observation)


def _check(name: str, model: nn.Module) -> None:
    """Those that share their parameters with other processes would be torn apart."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise BadInput(
            f"{name} belongs to several ranks; DistributedDataParallel sends gradients from where it was made"
        )
    if any(hasattr(parameter, "device_mesh") for parameter in model.parameters()):
        raise BadInput(f"{name} stays where it is: it is sharded over several ranks")


def _moved(
    command: Move, models: Mapping[str, nn.Module], registry: DeviceRegistry, observation: Observation
) -> Answer:
    """As in a workspace, with the state of optimizers. Everything is where it was if any of it fails."""
    workspace = Workspace(registry)
    for name, model in models.items():
        workspace.add(name, model)
    answer = dispatch(workspace, msgspec.structs.replace(command, optimizer=False)).answer
    try:
        state = [
            (optimizer.state[stray.parameter], stray.key, stray.value.to(stray.parameter.device, stray.dtype))
            for optimizer in observation.optimizers()
            for stray in strays(optimizer)
        ]
    except Exception:
        workspace.history.undo()
        raise
    for values, key, value in state:
        values[key] = value
    observation.weigh()
    words = "The script goes on with it; what it makes itself, its inputs, say, stays where the script puts it."
    if state:
        words = f"The state of its optimizer followed. {words}"
    return msgspec.structs.replace(answer, words=f"{answer.words} {words}".lstrip(), offers=())
