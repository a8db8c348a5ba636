"""Carries out `MakeOptimizer` and `MoveOptimizer`. Runs on the jobs thread."""

from __future__ import annotations

import math

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
from devexplorer.core.models import dtype_name, kind_of
from devexplorer.core.models import make_optimizer as new_optimizer
from devexplorer.core.parameters.records import MakeOptimizer
from devexplorer.core.records import Answer, Fact, MoveOptimizer, Offer
from devexplorer.core.workspace.changes import CommandResult, Refused
from devexplorer.core.workspace.optimizer_state import (
    follow,
    following_code,
    optimizer_variable,
    state_bytes,
    state_text,
    strays,
)
from devexplorer.core.workspace.workspace import Workspace


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


def move_optimizer(workspace: Workspace, command: MoveOptimizer, progress: ProgressMonitor) -> CommandResult:
    """Let the state follow its parameters, all of it or none."""
    optimizer = optimizer_of(workspace, command.target)
    found = strays(optimizer)
    if not found:
        words = "There is no state before the first step."
        if state_bytes(optimizer):
            words = f"The state is where its parameters are: {state_text(optimizer)}."
        code = following_code(command.target)
        return CommandResult(Answer(title="Nothing had to move", words=words, subject=command.target, code=code))
    before = state_text(optimizer)
    moved = follow(workspace, command.target, found, progress)
    words = (
        f"{count_text(len(found), 'tensor')} of its state, {bytes_text(moved)}, followed"
        f" {'its' if len(found) == 1 else 'their'} "
    )
    words += "parameters. Counts of steps stay on the CPU, where PyTorch reads them. "
    cast = next((stray for stray in found if stray.value.dtype != stray.dtype), None)
    if cast is not None:
        words += (
            f"They were cast from {dtype_name(cast.value.dtype)} to {dtype_name(cast.dtype)} as well, the dtype of the"
            " parameters. "
        )
    answer = Answer(
        title=f"The optimizer state of {command.target} followed its parameters",
        words=words.strip(),
        facts=(Fact("before", before), Fact("after", state_text(optimizer))),
        code=following_code(command.target),
        subject=command.target,
    )
    return CommandResult(answer, workspace.snapshots([command.target]))
