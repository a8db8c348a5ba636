"""Moves of a script's models that a window asks for, where the script allows them: asked for on `observe-answer`,
carried out by the observed thread between two steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec
from torch import nn
from torch.optim import Optimizer

from devexplorer.core.base import BadInput, first_line
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.observe.observer import Observation
from devexplorer.core.records import Answer, Move
from devexplorer.core.workspace import Workspace
from devexplorer.core.workspace.optimizer_state import strays

STEP_S = 30.0
"""A move waits at most so long for the end of a step."""
LOOK_S = 0.1


def move_between_steps(
    observation: Observation,
    command: Move,
    models: Mapping[str, nn.Module],
    registry: DeviceRegistry,
    stopped: threading.Event,
) -> Answer:
    """Have it carried out once a step has ended, and wait for that. Raises `BadInput` where nothing was moved."""
    if command.copy:
        raise BadInput("a running script keeps no copies; its models can only be moved")
    names = {target.partition(":")[0] for target in command.targets}
    if gone := names - models.keys():
        raise BadInput(f"the script has no model '{min(gone)}' any more")
    chosen = {name: models[name] for name in names}
    for name, model in chosen.items():
        _check(name, model)
    done = threading.Event()
    found: list[Answer | BadInput] = []

    def carry_out() -> None:
        try:
            found.append(_moved(command, chosen, registry, observation.optimizers()))
        except Exception as error:
            found.append(BadInput(first_line(error)))
        done.set()

    observation.changes.append(carry_out)
    due = time.monotonic() + STEP_S
    while not done.wait(LOOK_S):
        if stopped.is_set() or time.monotonic() > due:
            with suppress(ValueError):  # it has just begun: its end is near
                observation.changes.remove(carry_out)
                raise BadInput(f"no step of the script has ended within {STEP_S:g} s; nothing has changed")
    answer = found[0]
    if isinstance(answer, BadInput):
        raise answer
    return answer


def _check(name: str, model: nn.Module) -> None:
    """Those that share their parameters with other processes would be torn apart."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise BadInput(
            f"{name} belongs to several ranks; DistributedDataParallel sends gradients from where it was made"
        )
    if any(hasattr(parameter, "device_mesh") for parameter in model.parameters()):
        raise BadInput(f"{name} stays where it is: it is sharded over several ranks")


def _moved(
    command: Move, models: Mapping[str, nn.Module], registry: DeviceRegistry, optimizers: Iterable[Optimizer]
) -> Answer:
    """As in a workspace, with the state of optimizers. Everything is where it was if any of it fails."""
    workspace = Workspace(registry)
    for name, model in models.items():
        workspace.add(name, model)
    answer = dispatch(workspace, msgspec.structs.replace(command, optimizer=False)).answer
    try:
        state = [
            (optimizer.state[stray.parameter], stray.key, stray.value.to(stray.parameter.device, stray.dtype))
            for optimizer in optimizers
            for stray in strays(optimizer)
        ]
    except Exception:
        workspace.history.undo()
        raise
    for values, key, value in state:
        values[key] = value
    words = "The script goes on with it; what it makes itself, its inputs, say, stays where the script puts it."
    if state:
        words = f"The state of its optimizer followed. {words}"
    return msgspec.structs.replace(answer, words=f"{answer.words} {words}".lstrip(), offers=())
