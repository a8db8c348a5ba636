"""Carries out `MakeOptimizer`; what an optimizer holds. Runs on the jobs thread."""

from __future__ import annotations

import math
from collections import Counter

import torch

from devexplorer.core.base import (
    OPTIMIZERS,
    BadInput,
    ProgressMonitor,
    bytes_by_device_text,
    bytes_text,
    count_text,
    suggestion,
    variable,
)
from devexplorer.core.models import device_id, kind_of, state_tensors
from devexplorer.core.models import make_optimizer as new_optimizer
from devexplorer.core.records import Answer, Fact, MakeOptimizer, Offer
from devexplorer.core.workspace.command_result import CommandResult, Refused
from devexplorer.core.workspace.workspace import Workspace


def optimizer_variable(name: str) -> str:
    """The Python variable of a model's optimizer; names of objects never begin with an underscore, so it is free."""
    return f"_optimizer_{variable(name)}"


def state_bytes(optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Bytes of the state by device."""
    totals = Counter[str]()
    for _, _, value in state_tensors(optimizer):
        totals[device_id(value.device)] += value.nbytes
    return dict(sorted(totals.items()))


def state_text(optimizer: torch.optim.Optimizer) -> str:
    """`2.4 MiB on vgpu:0, 32 B on cpu`."""
    return bytes_by_device_text(state_bytes(optimizer)) or "none yet"


def optimizer_of(workspace: Workspace, title: str) -> torch.optim.Optimizer:
    """The optimizer of a model; `Refused`, with a way out, where it has none."""
    name = workspace.model(title).name
    optimizer = workspace.extras(name).optimizer
    if optimizer is None:
        raise Refused(
            f"'{name}' has no optimizer; make one first",
            offers=(Offer("Make an Adam optimizer", MakeOptimizer(target=name)),),
        )
    return optimizer


def offer_again(name: str, optimizer: torch.optim.Optimizer) -> Offer:
    """Makes the optimizer of a model again, over the parameters that it has now."""
    learning_rate = float(optimizer.param_groups[0]["lr"])
    again = MakeOptimizer(target=name, kind=kind_of(optimizer), learning_rate=learning_rate)
    return Offer("Make the optimizer again", again)


def make_optimizer(workspace: Workspace, command: MakeOptimizer, progress: ProgressMonitor) -> CommandResult:
    """Give a model an optimizer over what requires grad, or take it away."""
    target = workspace.model(command.target)
    model = target.module
    extras = workspace.extras(command.target)
    if command.kind == "none":
        return _removed(workspace, command)
    if command.kind not in OPTIMIZERS:
        raise BadInput(f"there is no optimizer '{command.kind}'; {suggestion(command.kind, [*OPTIMIZERS, 'none'])}")
    if not math.isfinite(command.learning_rate) or command.learning_rate <= 0:
        raise BadInput(
            f"a learning rate of {command.learning_rate:g} is not possible; take a number above 0, such as 0.001"
        )
    target.refuse_waiting("no optimizer can be made for it")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise BadInput(
            f"no parameter of '{command.target}' requires a gradient, so there is nothing to optimise; unfreeze some"
            " first"
        )
    kind = OPTIMIZERS[command.kind]
    had = extras.optimizer_text
    momentum = "".join(f", {key} {value:g}" for key, value in kind.options.items())
    with workspace.changing(f"the optimizer of {command.target}", command.target):
        extras.optimizer = new_optimizer(command.kind, parameters, lr=command.learning_rate)
        extras.optimizer_text = f"{kind.class_name}, lr {command.learning_rate:g}{momentum}"
    frozen = sum(not parameter.requires_grad for parameter in model.parameters())
    size = sum(parameter.nbytes for parameter in parameters)
    words = f"It changes {count_text(len(parameters), 'parameter')}, {bytes_text(size)}, in place."
    if frozen:
        words += f" {count_text(frozen, 'frozen parameter')} are left out."
    words += (
        f" It keeps {count_text(kind.state_per_value, 'value')} for each parameter value, where the parameter"
        f" is: {bytes_text(kind.state_per_value * size)} are allocated at the first step."
        if kind.state_per_value
        else " It keeps no state."
    )
    if had:
        words += f" It replaces {had}, whose state was discarded."
    given = "".join(f", {key}={value!r}" for key, value in kind.options.items())
    chosen = f"[_p for _p in {variable(command.target)}.parameters() if _p.requires_grad]"
    code = (
        f"{optimizer_variable(command.target)} = torch.optim.{kind.class_name}({chosen},"
        f" lr={command.learning_rate!r}{given})"
    )
    answer = Answer(
        title=f"{command.target} has an optimizer: {extras.optimizer_text}",
        words=words,
        facts=(Fact("state", state_text(extras.optimizer)), Fact("parameters", f"{len(parameters):,}")),
        code=f"import torch\n\n{code}",
        subject=command.target,
    )
    return CommandResult(answer, workspace.snapshots([command.target]))


def _removed(workspace: Workspace, command: MakeOptimizer) -> CommandResult:
    extras = workspace.extras(command.target)
    if extras.optimizer is None:
        raise BadInput(f"'{command.target}' has no optimizer that could be removed")
    state = state_bytes(extras.optimizer)
    with workspace.changing(f"the removal of the optimizer of {command.target}", command.target) as before:
        extras.optimizer = extras.optimizer_text = None
    words = (
        f"Its state ({bytes_by_device_text(state)}) was released; the parameters are unchanged."
        if state
        else "It had no state yet."
    )
    if before is not None:
        words += " The state is kept so that Undo can restore it."
    answer = Answer(
        title=f"{command.target} no longer has an optimizer",
        words=words,
        code=f"del {optimizer_variable(command.target)}",
        subject=command.target,
    )
    return CommandResult(answer, workspace.snapshots([command.target]))
