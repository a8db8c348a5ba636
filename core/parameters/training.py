"""Carries out `TrainStep`: zero_grad, forward, backward of the output's sum, step. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import (
    DevExplorerError,
    MoveFailed,
    ProgressMonitor,
    bytes_text,
    count_text,
    first_line,
    seconds_text,
)
from devexplorer.core.models import (
    device_id,
    dtype_name,
    held_by,
    is_uninitialised,
    parameters_and_buffers,
    size_of,
    total,
)
from devexplorer.core.parameters.optimizers import offer_again, optimizer_of
from devexplorer.core.parameters.records import TrainStep
from devexplorer.core.parameters.rows_text import value_text
from devexplorer.core.records import Answer, Fact, MoveOptimizer, Offer
from devexplorer.core.workspace import runs
from devexplorer.core.workspace.changes import CommandResult, Refused
from devexplorer.core.workspace.optimizer_state import optimizer_variable, state_bytes, state_text, strays
from devexplorer.core.workspace.placement import Target
from devexplorer.core.workspace.runs import Ran, before_inputs, given_names, inputs_of, reached, run_model
from devexplorer.core.workspace.workspace import Workspace

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
