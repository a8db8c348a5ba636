"""Carries out `SetRequiresGrad`, `ClearGradients` and `SetTraining`. Runs on the jobs thread."""

from __future__ import annotations

from collections import Counter
from functools import partial

from torch import Tensor, nn

from devexplorer.core.base import BadInput, Findings, ProgressMonitor, bytes_by_device_text, count_text, list_text
from devexplorer.core.models import device_id, dtype_name, gradient_of, held_by, is_uninitialised, size_of
from devexplorer.core.parameters.records import ClearGradients, SetRequiresGrad, SetTraining
from devexplorer.core.records import Answer, Fact
from devexplorer.core.workspace.changes import CommandResult
from devexplorer.core.workspace.placement import Target
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
