"""Carries out `SetRequiresGrad`, `ClearGradients` and `SetTraining`. Runs on the jobs thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.findings import Findings
from devexplorer.core.base.formats import bytes_by_device_text, count_text
from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.models.casts import dtype_name
from devexplorer.core.models.walk import device_id, gradient_of, is_uninitialised
from devexplorer.core.records.laboratory import ClearGradients, SetRequiresGrad, SetTraining
from devexplorer.core.records.messages import Answer, Fact
from devexplorer.core.workspace.command_result import CommandResult
from devexplorer.core.workspace.parameters.changes import Flags, Gradients
from devexplorer.core.workspace.parameters.targets import Target, parameters_below, resolve, resolve_module

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace

_Found = list[tuple[Target, list[Tensor]]]


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
    found: _Found = [item for item in checked if item is not None]
    verb = "unfreezing" if command.on else "freezing"
    names = tuple(dict.fromkeys(target.name for target, _ in found))
    changed = 0
    left = sum(_has_gradient(tensor) for _, tensors in found for tensor in tensors)
    for name in names:
        were: list[tuple[Tensor | None, bool]] = []
        seen: set[int] = set()
        for target, tensors in found:
            for tensor in tensors:
                if target.name == name and id(tensor) not in seen and tensor.requires_grad != command.on:
                    seen.add(id(tensor))
                    were.append(
                        (None if isinstance(target.thing, Tensor) and not target.path else tensor, tensor.requires_grad)
                    )
        if not were:
            continue
        workspace.changed(f"the {verb} of {_listed([t.title for t, _ in found])}", Flags(name, were), command=command)
        for held, _ in were:
            (workspace.tensor_named(name) if held is None else held).requires_grad = command.on
        changed += len(were)
    answer = Answer(
        title=_title([target.title for target, _ in found], command.on),
        words=_frozen_words(workspace, found, changed, left, command.on),
        code="\n".join(_flag_code(target, tensors, command.on) for target, tensors in found),
        subject=names[0] if len(names) == 1 else None,
    )
    return CommandResult(answer, tuple(workspace.snapshot(name) for name in names))


def _resolved(workspace: Workspace, title: str, on: bool) -> tuple[Target, list[Tensor]]:
    target = resolve(workspace, title)
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
        below = [parameter for _, parameter in parameters_below(target)]
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


def _frozen_words(workspace: Workspace, found: _Found, changed: int, left: int, on: bool) -> str:
    total = sum(len(tensors) for _, tensors in found)
    if not changed:
        return f"{'It was' if total == 1 else f'All {total} were'} like that already; nothing changed."
    if on:
        words = f"{count_text(changed, 'tensor')} will get gradients from the next backward."
    else:
        words = (
            f"{count_text(changed, 'tensor')} no longer get gradients: backward skips that work, and they are not"
            " trained."
        )
        if left:
            them = "it" if left == 1 else "them"
            verb = "is" if left == 1 else "are"
            words += (
                f" {count_text(left, 'gradient')} of an earlier backward {verb} there still, and a step would use"
                f" {them}: clear {them}."
            )
    for name in dict.fromkeys(target.name for target, _ in found):
        optimizer = workspace.extras(name).optimizer
        if optimizer is None:
            continue
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        unknown = sum(id(tensor) not in known for target, tensors in found if target.name == name for tensor in tensors)
        if on and unknown:
            words += (
                f" The optimizer of {name} was made without {unknown} of them and will not change them: make a new one."
            )
        elif not on:
            words += f" The optimizer of {name} holds them still and passes them over, as they have no gradient."
    return words


# --- gradients


def clear_gradients(workspace: Workspace, command: ClearGradients, progress: ProgressMonitor) -> CommandResult:
    """Set gradients to None and free their memory."""
    target = resolve(workspace, command.target)
    alone = isinstance(target.thing, Tensor)
    if target.is_buffer:
        raise BadInput(f"'{command.target}' is a buffer; buffers have no gradients")
    below = [tensor for _, tensor in parameters_below(target)]
    holders = [
        (tensor, g) for tensor in below if not is_uninitialised(tensor) and (g := gradient_of(tensor)) is not None
    ]
    if not holders:
        raise BadInput(f"there is no gradient {'in' if alone else 'below'} '{command.target}'; a backward makes some")
    freed: dict[str, int] = {}
    for _, gradient in holders:
        device = device_id(gradient.device)
        freed[device] = freed.get(device, 0) + gradient.numel() * gradient.element_size()
    undoable = workspace.history.fits(sum(freed.values())) and all(g.layout is torch.strided for _, g in holders)
    if undoable:
        itself = alone and not target.path
        kept = Gradients(target.name, [(None if itself else tensor, gradient) for tensor, gradient in holders])
        workspace.changed(f"the clearing of the gradients of {command.target}", kept, command=command)
    count = len(holders)
    for tensor, _ in holders:
        tensor.grad = None
    del holders
    workspace.publish(target.name)
    if not undoable:
        workspace.history.cannot_undo()
    per_device = bytes_by_device_text(freed)
    words = f"{count_text(count, 'gradient')} {'is' if count == 1 else 'are'} None now, {per_device} free again."
    words += " The next backward starts from zero."
    call = f"{target.code()}.grad = None" if alone else f"{target.code()}.zero_grad(set_to_none=True)"
    answer = Answer(
        title=f"{command.target} has no {'gradient' if alone else 'gradients'} any more",
        words=words,
        facts=(Fact("freed", per_device),),
        code=call,
        subject=target.name,
    )
    return CommandResult(answer, (workspace.snapshot(target.name),))


# --- training and evaluation


def set_training(workspace: Workspace, command: SetTraining, progress: ProgressMonitor) -> CommandResult:
    """`train()` or `eval()` of a model or a part of it."""
    target = resolve_module(workspace, command.target)
    assert isinstance(target.thing, nn.Module)
    modules = list(target.thing.modules())
    differ = sum(module.training != command.on for module in modules)
    before = workspace.before(target.name)
    if before is not None and differ:
        mode = "training" if command.on else "evaluation"
        workspace.changed(f"putting {command.target} into {mode} mode", before, command=command)
    target.thing.train(command.on)
    dropout = sum(isinstance(module, nn.modules.dropout._DropoutNd) for module in modules)
    norms = sum(isinstance(module, nn.modules.batchnorm._NormBase) for module in modules)
    verb = f"{target.code()}.{'train' if command.on else 'eval'}()"
    answer = Answer(
        title=f"{command.target} is in {'training' if command.on else 'evaluation'} mode",
        words=_mode_words(command.on, differ, dropout, norms),
        code=verb,
        subject=target.name,
    )
    return CommandResult(answer, (workspace.snapshot(target.name),) if differ else ())


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
    return " and ".join(titles) if len(titles) <= 3 else f"{len(titles)} things"
