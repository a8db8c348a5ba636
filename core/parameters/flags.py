"""Carries out what changes Parameters but not their values: `SetRequiresGrad`, `ClearGradients`, `SetTraining`, and
`Tie` and `Untie`: two names for one Parameter, and back. Runs on the jobs thread."""

from __future__ import annotations

from collections import Counter
from functools import partial

import torch
from torch import Tensor, nn

from devexplorer.core.base import (
    BadInput,
    Findings,
    ProgressMonitor,
    bytes_by_device_text,
    bytes_text,
    count_text,
    expression,
    list_text,
    quoted,
    shape_text,
)
from devexplorer.core.models import device_id, dtype_name, gradient_of, held_by, is_uninitialised, size_of
from devexplorer.core.parameters.records import ClearGradients, SetRequiresGrad, SetTraining, Tie, Untie
from devexplorer.core.parameters.training import offer_again
from devexplorer.core.records import Answer, Fact, Offer
from devexplorer.core.workspace.changes import CommandResult
from devexplorer.core.workspace.parts import renew_flat_weights
from devexplorer.core.workspace.placement import Target
from devexplorer.core.workspace.plan import check_sizes
from devexplorer.core.workspace.workspace import Workspace

_Resolved = list[tuple[Target, list[Tensor]]]
"""Targets, and the tensors whose flag each means."""


# --- freeze and unfreeze


def set_requires_grad(workspace: Workspace, command: SetRequiresGrad, progress: ProgressMonitor) -> CommandResult:
    """Freeze or unfreeze parameters, everything below modules, or tensors; all or none."""
    findings = Findings()
    checked = [
        findings.checked(partial(_resolved, workspace, title, command.on)) for title in dict.fromkeys(command.targets)
    ]
    if not checked:
        findings.add("nothing is selected; choose parameters, modules or tensors")
    findings.demand_none()
    resolved: _Resolved = [item for item in checked if item is not None]
    titles = [target.title for target, _ in resolved]
    names = tuple(dict.fromkeys(target.name for target, _ in resolved))
    left = sum(_has_gradient(tensor) for _, tensors in resolved for tensor in tensors)
    changed = 0
    for name in names:
        differ = {
            id(tensor): tensor
            for target, tensors in resolved
            for tensor in tensors
            if target.name == name and tensor.requires_grad != command.on
        }
        if differ:
            verb = "unfreezing" if command.on else "freezing"
            with workspace.changing(f"the {verb} of {_listed(titles)}", name):
                for tensor in differ.values():
                    tensor.requires_grad = command.on
        changed += len(differ)
    answer = Answer(
        title=_title(titles, command.on),
        words=_frozen_words(workspace, resolved, changed, left, command.on),
        code="\n".join(_flag_code(target, tensors, command.on) for target, tensors in resolved),
        subject=names[0] if len(names) == 1 else None,
    )
    return CommandResult(answer, workspace.snapshots(names))


def _resolved(workspace: Workspace, title: str, on: bool) -> tuple[Target, list[Tensor]]:
    target = workspace.find(title)
    return target, _flagged(target, on)


def _flag_code(target: Target, tensors: list[Tensor], on: bool) -> str:
    """What sets the flag; parameters without a shape have the attribute, and no method for it, and whole numbers cannot
    have it."""
    if on and isinstance(target.thing, nn.Module) and len(tensors) < len(list(target.thing.parameters())):
        return (
            f"for _p in {target.code()}.parameters():\n    _p.requires_grad = _p.is_floating_point() or _p.is_complex()"
        )
    if not any(map(is_uninitialised, tensors)):
        return f"{target.code()}.requires_grad_({on})"
    if isinstance(target.thing, Tensor):
        return f"{target.code()}.requires_grad = {on}"
    return f"for _p in {target.code()}.parameters():\n    _p.requires_grad = {on}"


def _title(titles: list[str], on: bool) -> str:
    single = len(set(titles)) == 1
    if on:
        return f"{_listed(titles)} {'requires' if single else 'require'} grad"
    return f"{_listed(titles)} {'is' if single else 'are'} frozen"


def _flagged(target: Target, on: bool) -> list[Tensor]:
    """The tensors of one target; `BadInput` where the flag cannot be set."""
    thing = target.thing
    if isinstance(thing, nn.Module):
        below = list(thing.parameters())
        if not below:
            raise BadInput(f"'{target.title}' has no parameters, so there is nothing to freeze or unfreeze")
        return [parameter for parameter in below if parameter.is_floating_point() or parameter.is_complex()]
    if target.is_buffer:
        raise BadInput(
            f"'{target.title}' is a buffer: it belongs to the model, but is not learnt; only parameters are frozen or"
            " unfrozen"
        )
    if not is_uninitialised(thing) and not thing.is_leaf:
        origin = f" ({thing.grad_fn.name()})" if thing.grad_fn is not None else ""
        raise BadInput(
            f"'{target.title}' is not a leaf: it is the result of an operation{origin} on something that requires a"
            " gradient, and only leaves have the flag; detach() gives a leaf with the same values"
        )
    if on and not (thing.is_floating_point() or thing.is_complex()):
        raise BadInput(
            f"'{target.title}' is {dtype_name(thing.dtype)}; only floating-point tensors can require a gradient"
        )
    if on and thing.is_inference():
        raise BadInput(
            f"'{target.title}' was made in inference mode and can never require a gradient; clone() gives one that can"
        )
    return [thing]


def _has_gradient(tensor: Tensor) -> bool:
    return not is_uninitialised(tensor) and gradient_of(tensor) is not None


def _frozen_words(workspace: Workspace, resolved: _Resolved, changed: int, left: int, on: bool) -> str:
    total = sum(len(tensors) for _, tensors in resolved)
    if not changed:
        return f"{'It was' if total == 1 else f'All {total} were'} already like that; nothing changed."
    if on:
        words = f"{count_text(changed, 'tensor')} will get gradients from the next backward."
    else:
        words = (
            f"{count_text(changed, 'tensor')} no longer {'gets' if changed == 1 else 'get'} gradients: backward skips"
            f" that work, and {'it is' if changed == 1 else 'they are'} not trained."
        )
        if left:
            them = "it" if left == 1 else "them"
            verb = "is" if left == 1 else "are"
            words += (
                f" {count_text(left, 'gradient')} of an earlier backward {verb} still there, and a step would use"
                f" {them}: clear {them}."
            )
    for name in dict.fromkeys(target.name for target, _ in resolved):
        optimizer = workspace.extras(name).optimizer
        if optimizer is None:
            continue
        known = {id(parameter) for parameter in held_by(optimizer)}
        unknown = sum(
            id(tensor) not in known for target, tensors in resolved if target.name == name for tensor in tensors
        )
        if on and unknown:
            words += f" The optimizer of {name} was made without {unknown} of them: create a new one."
        elif not on:
            words += f" The optimizer of {name} still holds them and skips them, as they have no gradient."
    return words


# --- gradients


def clear_gradients(workspace: Workspace, command: ClearGradients, progress: ProgressMonitor) -> CommandResult:
    """Set gradients to None and free their memory."""
    target = workspace.find(command.target)
    alone = isinstance(target.thing, Tensor)
    if target.is_buffer:
        raise BadInput(f"'{command.target}' is a buffer; buffers have no gradients")
    holders = [tensor for _, tensor in target.parameters() if _has_gradient(tensor)]
    if not holders:
        raise BadInput(f"there is no gradient {'in' if alone else 'below'} '{command.target}'; a backward makes some")
    freed = Counter[str]()
    for tensor in holders:
        gradient = gradient_of(tensor)
        assert gradient is not None
        freed[device_id(gradient.device)] += size_of(gradient)
        del gradient
    count = len(holders)
    title = f"the clearing of the gradients of {command.target}"
    within = target.holder if alone else target.path
    with workspace.changing(title, target.name, gradients=True, within=within):
        for tensor in holders:
            tensor.grad = None
    per_device = bytes_by_device_text(freed)
    words = f"{count_text(count, 'gradient')} {'is' if count == 1 else 'are'} now None, freeing {per_device}."
    words += " The next backward starts from zero."
    call = f"{target.code()}.grad = None" if alone else f"{target.code()}.zero_grad(set_to_none=True)"
    answer = Answer(
        title=f"{command.target} no longer has {'a gradient' if alone else 'gradients'}",
        words=words,
        facts=(Fact("freed", per_device),),
        code=call,
        subject=target.name,
    )
    return CommandResult(answer, workspace.snapshots([target.name]))


# --- training and evaluation


def set_training(workspace: Workspace, command: SetTraining, progress: ProgressMonitor) -> CommandResult:
    """`train()` or `eval()` of a model or a part of it."""
    target = workspace.target(command.target)
    modules = list(target.module.modules())
    mode = "training" if command.on else "evaluation"
    differ = sum(module.training != command.on for module in modules)
    if differ:
        with workspace.changing(f"putting {command.target} into {mode} mode", target.name):
            target.module.train(command.on)
    dropout = sum(isinstance(module, nn.modules.dropout._DropoutNd) for module in modules)
    norms = sum(isinstance(module, nn.modules.batchnorm._NormBase) for module in modules)
    answer = Answer(
        title=f"{command.target} is in {mode} mode",
        words=_mode_words(command.on, differ, dropout, norms),
        code=f"{target.code()}.{'train' if command.on else 'eval'}()",
        subject=target.name,
    )
    return CommandResult(answer, workspace.snapshots([target.name]) if differ else ())


def _mode_words(on: bool, differ: int, dropout: int, norms: int) -> str:
    if not differ:
        return "It already was; nothing changed."
    said = []
    if dropout:
        s = "s" if dropout == 1 else ""
        said.append(
            f"{count_text(dropout, 'dropout layer')}"
            f" {f'drop{s} values at random' if on else f'let{s} values pass unchanged'}"
        )
    if norms:
        s = "s" if norms == 1 else ""
        with_what = "with each batch, to keep running statistics of it" if on else "with the running statistics"
        said.append(f"{count_text(norms, 'normalisation layer')} work{s} {with_what}")
    words = f"{' and '.join(said)}." if said else "No layer in it depends on the mode."
    return f"{words} It does not affect gradients; use freezing or torch.no_grad() for those."


def _listed(titles: list[str]) -> str:
    titles = list(dict.fromkeys(titles))
    return list_text(titles) if len(titles) <= 3 else f"{len(titles)} things"


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
