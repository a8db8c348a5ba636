"""Carries out `Tie` and `Untie`: two names for one Parameter, and back. Runs on the jobs thread."""

from __future__ import annotations

import torch
from torch import nn

from devexplorer.core.base import BadInput, ProgressMonitor, bytes_text, expression, quoted, shape_text
from devexplorer.core.models import device_id, dtype_name, held_by, is_uninitialised
from devexplorer.core.parameters.optimizers import offer_again
from devexplorer.core.parameters.records import Tie, Untie
from devexplorer.core.records import Answer, Fact, Offer
from devexplorer.core.workspace.changes import CommandResult
from devexplorer.core.workspace.parts import renew_flat_weights
from devexplorer.core.workspace.placement import Target
from devexplorer.core.workspace.plan import check_sizes
from devexplorer.core.workspace.workspace import Workspace


def tie(workspace: Workspace, command: Tie, progress: ProgressMonitor) -> CommandResult:
    """Let the second name hold the very Parameter of the first."""
    first, second = _parameter(workspace, command.first), _parameter(workspace, command.second)
    _refuse_pair(first, second)
    lost, model = second.tensor, _model(workspace, second)
    _exchange(workspace, second, first.tensor, f"the tying of {command.second} to {command.first}")
    gone = not any(parameter is lost for parameter in model.parameters())
    words = (
        f"{second.path} and {first.path} are two names of one Parameter now: it counts once, changing one changes both,"
        f" gradients of both uses add up in it, and it stays one when it moves. The values of {first.path} are kept"
    )
    words += f", those of {second.path} were removed, freeing {bytes_text(lost.nbytes)}." if gone else "."
    more, offers = _optimizer_words(workspace, second.name, first.thing, lost if gone else None)
    facts = (Fact("shape", shape_text(tuple(lost.shape))), Fact("one Parameter, on", device_id(lost.device)))
    code = f"setattr({_holder(second)}, {quoted(second.key)}, {first.code()})"
    title = f"{second.path} is tied to {first.path}"
    answer = Answer(title=title, words=words + more, facts=facts, code=code, subject=first.name, offers=offers)
    return CommandResult(answer, workspace.snapshots([first.name]))


def untie(workspace: Workspace, command: Untie, progress: ProgressMonitor) -> CommandResult:
    """Give a name a separate Parameter, with the same values."""
    target = _parameter(workspace, command.target)
    if not target.also:
        raise BadInput(f"'{command.target}' is not tied: it is the only name of its Parameter")
    with_it = _names_of_its_module(workspace, target)
    left = [path for path in target.also if path not in with_it]
    if not left:
        other = with_it[0].rpartition(".")[0]
        raise BadInput(
            f"'{target.path}' cannot be untied from '{with_it[0]}': '{target.holder}' and '{other}' are two names of"
            " one module, which holds it once; build the model with two modules"
        )
    old = target.tensor
    check_sizes([old.nbytes], device_id(old.device), workspace.registry, "a separate Parameter")
    with torch.no_grad():
        own = nn.Parameter(old.detach().clone(), requires_grad=old.requires_grad)
    _exchange(workspace, target, own, f"the untying of {command.target}")
    has, its = ("have", "their") if with_it else ("has", "its")
    words = (
        f"{' and '.join((target.path, *with_it))} {has} a Parameter of {its} own now, with the values shared with"
        f" {' and '.join(left)}: {bytes_text(own.nbytes)} more on {device_id(own.device)}. From now on they change"
        " independently; the new one has no gradient."
    )
    more, offers = _optimizer_words(workspace, target.name, own, None)
    values = f"{target.code()}.detach().clone(), requires_grad={old.requires_grad}"
    code = f"import torch\n\nsetattr({_holder(target)}, {quoted(target.key)}, torch.nn.Parameter({values}))"
    answer = Answer(title=f"{target.path} is untied", words=words + more, code=code, subject=target.name, offers=offers)
    return CommandResult(answer, workspace.snapshots([target.name]))


def _parameter(workspace: Workspace, title: str) -> Target:
    target = workspace.find(title)
    if not target.path:
        raise BadInput(f"'{title}' is a tensor of the workspace; parameters of a model are tied: write model:path")
    if target.is_buffer or not isinstance(target.thing, nn.Parameter):
        raise BadInput(f"'{title}' is a buffer; only parameters can be tied")
    if is_uninitialised(target.thing):
        raise BadInput(
            f"'{title}' has no shape before the first forward, so it cannot be tied; run the model once first"
        )
    return target


def _names_of_its_module(workspace: Workspace, target: Target) -> tuple[str, ...]:
    """Other paths that lead to the same module: what one of them holds, the others hold."""
    model = _model(workspace, target)
    holder = model.get_submodule(target.holder)
    apart = (path.rpartition(".") for path in target.also)
    return tuple(
        f"{place}{dot}{key}" for place, dot, key in apart if key == target.key and model.get_submodule(place) is holder
    )


def _refuse_pair(first: Target, second: Target) -> None:
    if first.name != second.name:
        raise BadInput(
            f"'{first.title}' and '{second.title}' belong to two models; only parameters of one model can be tied"
        )
    a, b = first.tensor, second.tensor
    if a is b:
        raise BadInput(f"'{first.path}' and '{second.path}' are one Parameter already")
    findings = []
    if a.shape != b.shape:
        findings.append(
            f"'{first.path}' is {shape_text(tuple(a.shape))} and '{second.path}' is {shape_text(tuple(b.shape))};"
            " one Parameter has one shape"
        )
    if a.dtype != b.dtype:
        findings.append(
            f"'{first.path}' is {dtype_name(a.dtype)} and '{second.path}' is {dtype_name(b.dtype)}; cast one of"
            " them first"
        )
    if a.device != b.device:
        findings.append(
            f"'{first.path}' is on {device_id(a.device)} and '{second.path}' on {device_id(b.device)}; a"
            " Parameter is on one device: move one of them first"
        )
    if findings:
        raise BadInput(*findings)


def _exchange(workspace: Workspace, target: Target, new: object, title: str) -> None:
    """Put another Parameter under a name; Undo puts the old one back."""
    model = _model(workspace, target)
    with workspace.changing(title, target.name):
        setattr(model.get_submodule(target.holder), target.key, new)
        renew_flat_weights(model.modules())


def _model(workspace: Workspace, target: Target) -> nn.Module:
    return workspace.target(target.name).module


def _holder(target: Target) -> str:
    return expression(f"{target.name}:{target.holder}" if target.holder else target.name)


def _optimizer_words(
    workspace: Workspace, name: str, now: object, lost: object | None
) -> tuple[str, tuple[Offer, ...]]:
    """What it means to the optimizer of the model, if it has one."""
    optimizer = workspace.extras(name).optimizer
    if optimizer is None:
        return "", ()
    held = {id(parameter) for parameter in held_by(optimizer)}
    words = ""
    if lost is not None and id(lost) in held:
        words = (
            " The optimizer still holds the Parameter that is no longer in the model, with its state, and updates it"
            " to no effect."
        )
    if id(now) not in held:
        words += " The optimizer does not hold the new Parameter and will not update it."
    return (f"{words} Make a new one.", (offer_again(name, optimizer),)) if words else ("", ())
