"""Carries out `MakeOptimizer`, `MoveOptimizer` and `TrainStep`: zero_grad, forward, backward of the output's sum, step.
Runs on the jobs thread."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import (
    OPTIMIZERS,
    BadInput,
    DevExplorerError,
    MoveFailed,
    ProgressMonitor,
    bytes_by_device_text,
    bytes_text,
    count_text,
    first_line,
    seconds_text,
    suggestion,
    variable,
)
from devexplorer.core.models import (
    device_id,
    dtype_name,
    held_by,
    is_uninitialised,
    kind_of,
    parameters_and_buffers,
    size_of,
    total,
)
from devexplorer.core.models import make_optimizer as new_optimizer
from devexplorer.core.parameters.describing import value_text
from devexplorer.core.parameters.records import MakeOptimizer, TrainStep
from devexplorer.core.records import Answer, Fact, MoveOptimizer, Offer
from devexplorer.core.workspace import runs
from devexplorer.core.workspace.changes import CommandResult, Refused
from devexplorer.core.workspace.optimizer_state import (
    follow,
    following_code,
    optimizer_variable,
    state_bytes,
    state_text,
    strays,
)
from devexplorer.core.workspace.placement import Target
from devexplorer.core.workspace.runs import Ran, before_inputs, given_names, inputs_of, reached, run_model
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


MOST_NAMED = 5


class _Changed(NamedTuple):
    path: str
    norm: float
    """Euclidean norm of the change."""
    of: float
    """Norm of the values before."""


def train_step(workspace: Workspace, command: TrainStep, progress: ProgressMonitor) -> CommandResult:
    """One step of a model's optimizer; when it fails, model, gradients and optimizer are as before."""
    optimizer = optimizer_of(workspace, command.target)
    target = workspace.target(command.target)
    model = target.module
    _refuse_strays(command.target, optimizer)
    given = given_names(command.input)
    inputs = inputs_of(workspace, target, given)
    leaves = before_inputs(workspace, given, inputs)
    before = None
    if workspace.history.fits(_needed_bytes(model, optimizer)):
        before = workspace.image(command.target, values=True, gradients=True)
    if before is not None:
        before.take_optimizer()
        workspace.changed(f"the training step of {command.target}", before, *leaves)
    old = {} if before is None else {id(parameter): values for parameter, values in before.values}
    optimizer.zero_grad(set_to_none=True)
    losses: list[float] = []
    try:
        with _noting(model, losses):
            ran, _ = run_model(workspace, target, inputs, given, progress, backward=True)
        _step(command.target, optimizer)
    finally:
        if before is None:
            workspace.history.cannot_undo()
        workspace.publish(command.target, *reached(leaves))
    changed = _changes(model, old)
    answer = _answer(workspace, target, optimizer, ran, losses, changed, measured=before is not None)
    touched = dict.fromkeys((command.target, *reached(leaves)))
    effects = ["a step of the optimizer", "gradients of a backward pass"]
    if ran.changed_buffers:
        effects.append("running statistics changed by a forward pass")
    return CommandResult(answer, workspace.snapshots(touched), side_effects=tuple(effects))


def _needed_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """What Undo would keep of a step."""
    held = [tensor for tensor in parameters_and_buffers(model) if not is_uninitialised(tensor)]
    gradients = sum(size_of(tensor.grad) for tensor in held if tensor.is_leaf and tensor.grad is not None)
    return sum(map(size_of, held)) + gradients + sum(state_bytes(optimizer).values())


def _refuse_strays(name: str, optimizer: torch.optim.Optimizer) -> None:
    found = strays(optimizer)
    if not found:
        return
    stray = found[0]
    if stray.value.device != stray.parameter.device:
        what = (
            f"the optimizer's state is on {device_id(stray.value.device)} and its parameter on"
            f" {device_id(stray.parameter.device)}"
        )
        why = "a move of the model does not move it, and PyTorch computes on one device at a time"
    else:
        what = (
            f"the optimizer's state is {dtype_name(stray.value.dtype)} and its parameter"
            f" {dtype_name(stray.parameter.dtype)}"
        )
        why = "a cast of the model does not cast it"
    raise Refused(
        f"{what} ({stray.key}, {count_text(len(found), 'tensor')} of the state in all); {why}",
        offers=(Offer("Let the optimizer state follow", MoveOptimizer(target=name)),),
    )


@contextmanager
def _noting(model: nn.Module, losses: list[float]) -> Iterator[None]:
    """Note the sum of the model's output, which is the loss."""

    def note(module: nn.Module, args: Any, output: Any) -> None:
        loss = total(output)
        if loss is not None:
            losses.append(float(loss.detach()))

    handle = model.register_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()


def _step(name: str, optimizer: torch.optim.Optimizer) -> None:
    try:
        optimizer.step()
    except DevExplorerError:
        raise
    except Exception as error:
        raise MoveFailed(f"the optimizer's step failed: {first_line(error)}; {name} is as it was before") from error


def _changes(model: nn.Module, old: dict[int, Tensor]) -> list[_Changed]:
    """How far each parameter went, largest change first."""
    changes = []
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            previous = old.get(id(parameter))
            if previous is None or previous.shape != parameter.shape:
                continue
            moved = float(torch.linalg.vector_norm((parameter.detach().to("cpu") - previous).to(torch.float32)))
            if moved:
                changes.append(_Changed(path, moved, float(torch.linalg.vector_norm(previous.to(torch.float32)))))
    return sorted(changes, key=lambda change: -change.norm)


def _answer(
    workspace: Workspace,
    target: Target,
    optimizer: torch.optim.Optimizer,
    ran: Ran,
    losses: list[float],
    changed: list[_Changed],
    *,
    measured: bool,
) -> Answer:
    name, model, extras = target.name, target.module, workspace.extras(target.name)
    words = f"zero_grad, forward, backward, step: forward and backward took {seconds_text(ran.seconds, ran.simulated)}."
    if losses:
        words += f" The sum of the output was {value_text(losses[-1])}; the step reduces it."
    if changed:
        most = changed[0]
        words += (
            f" {count_text(len(changed), 'parameter')} changed, most of all {most.path}, by a norm of"
            f" {value_text(most.norm)}"
        )
        words += f" (its values have {value_text(most.of)})." if most.of else "."
    elif measured:
        words += (
            " No parameter changed: there was no gradient in what the optimizer holds, or the step was too small for"
            " the dtype."
        )
    else:
        words += " The values before were too large to be kept, so how much changed was not measured."
    size = sum(state_bytes(optimizer).values())
    if size:
        words += f" {extras.optimizer_text} keeps {bytes_text(size)} of state: {state_text(optimizer)}."
    words += _mismatch(model, optimizer)
    facts = [Fact("state", state_text(optimizer))]
    if losses:
        facts.append(Fact("loss before the step", value_text(losses[-1])))
    facts += [Fact(f"change of {item.path}", f"norm {value_text(item.norm)}") for item in changed[:MOST_NAMED]]
    if len(changed) > MOST_NAMED:
        facts.append(Fact("others changed", f"{len(changed) - MOST_NAMED:,}"))
    steps = optimizer_variable(name)
    code = f"{steps}.zero_grad()\n{runs.backward(ran, extras.source)}\n{steps}.step()"
    offers = (offer_again(name, optimizer),) if _unknown(model, optimizer) else ()
    return Answer(title=f"{name} made a step", words=words, facts=tuple(facts), code=code, subject=name, offers=offers)


def _unknown(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    held = {id(parameter) for parameter in held_by(optimizer)}
    return sum(id(parameter) not in held for parameter in model.parameters() if parameter.requires_grad)


def _mismatch(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """What became of the model since its optimizer was made."""
    words = ""
    frozen = sum(not parameter.requires_grad for parameter in held_by(optimizer))
    if frozen:
        words += (
            f" {count_text(frozen, 'parameter')} of the optimizer {'is' if frozen == 1 else 'are'} frozen now and"
            " did not change."
        )
    inside = {id(parameter) for parameter in model.parameters()}
    lost = sum(id(parameter) not in inside for parameter in held_by(optimizer))
    if lost:
        words += f" It still holds {count_text(lost, 'Parameter')} that the model no longer has."
    unknown = _unknown(model, optimizer)
    if unknown:
        words += (
            f" {count_text(unknown, 'parameter')} that require a gradient are not in it and did not change: it was made"
            " before."
        )
    return words
