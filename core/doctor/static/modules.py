"""Rules `unregistered-module` and `unregistered-parameter`. The main thread."""

from __future__ import annotations

from collections.abc import Set

from torch import Tensor, nn

from devexplorer.core.base.formats import bytes_text, count_text
from devexplorer.core.doctor.static.attribute_refs import CONTAINERS, AttributeRef, holds, moves_itself
from devexplorer.core.doctor.static.hidden import Hidden
from devexplorer.core.doctor.static.model_context import bytes_of
from devexplorer.core.doctor.static.registry import Registry
from devexplorer.core.models.walk import named_modules

_MODES = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
"""What computes something else in training."""


def report_modules(ref: AttributeRef, registry: Registry, known: Set[int]) -> set[int]:
    """A finding where the attribute holds modules that matter; returns the ids of all their tensors.

    `known` are those of modules that another attribute holds: they have been reported.
    """
    found = [item for item in ref.attribute.things if isinstance(item.thing, nn.Module)]
    if not found:
        return set()
    tensors: dict[int, Tensor] = {}
    modules: list[Hidden] = []
    covered: set[int] = set()
    for item in found:
        assert isinstance(item.thing, nn.Module)
        below = [module for _, module in named_modules(item.thing)]
        if id(item.thing) in covered or any(
            id(module) in registry.module_ids for module in below[1:] if module is ref.context.model
        ):
            continue
        covered.update(map(id, below))
        inside = {
            id(tensor): tensor
            for module in below
            for register in (module._parameters, module._buffers)
            for tensor in register.values()
            if tensor is not None and id(tensor) not in registry.tensor_ids
        }
        if inside and inside.keys() <= known:
            continue
        if inside or any(isinstance(module, _MODES) and id(module) not in registry.module_ids for module in below):
            modules.append(item)
            tensors.update(inside)
    if modules:
        _add_modules(ref, modules, list(tensors.values()))
    return set(tensors)


def _add_modules(ref: AttributeRef, modules: list[Hidden], tensors: list[Tensor]) -> None:
    parameters = [tensor for tensor in tensors if isinstance(tensor, nn.Parameter)]
    count = count_text(len(modules), "module")
    size = bytes_of(tensors)
    counted = count_text(len(parameters), "parameter") if parameters else count_text(len(tensors), "buffer")
    contents = f"{counted}, {bytes_text(size)}" if tensors else "no parameters"
    holder = modules[0].holder
    frozen = bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
    them, they, do, are = ("it", "it", "does", "is") if len(modules) == 1 else ("them", "they", "do", "are")
    lost = f", {are} not trained and not saved" if parameters else f" and {are} not saved"
    severity, known_to = None, f"PyTorch does not know of {them}: {they} {do} not move with the model{lost}"
    if not tensors:
        severity, known_to = "warning", "`train()` and `eval()` do not reach what behaves differently in the two"
    elif frozen:
        severity = "warning"
        known_to = (
            "that hides it from parameters() and state_dict(), perhaps on purpose, and from .to(): it stays where it"
            " was made"
        )
    if frozen and moves_itself(ref):
        return
    if holder == "attribute":
        kind = type(modules[0].thing).__name__
        message = (
            f"{ref.label} is a {kind} ({contents}) that was put into __dict__ past nn.Module.__setattr__; {known_to}."
        )
    else:
        message = f"{ref.label} {holds(holder)} {count} ({contents}), and {known_to}."
    fix = _module_fix(ref, holder, frozen)
    ref.report("unregistered-module", message, fix, severity=severity, bytes=size or None)


def _module_fix(ref: AttributeRef, holder: str, frozen: bool) -> str:
    name = ref.attribute.name
    if frozen:
        return (
            "Register it (its parameters are frozen already, so no optimizer changes them), or move it by hand wherever"
            " the model is moved."
        )
    nested = any(item.path.count("[") > 1 for item in ref.attribute.things if isinstance(item.thing, nn.Module))
    within = ", and nn.ModuleList or nn.ModuleDict for nested containers" if nested else ""
    if holder == "dict":
        return f"Make it an nn.ModuleDict{within}: self.{name} = nn.ModuleDict(…)."
    if holder in CONTAINERS:
        return f"Make it an nn.ModuleList{within}: self.{name} = nn.ModuleList(…)."
    if holder == "attribute":
        return f"Assign it as an attribute: self.{name} = …."
    if holder == "object":
        return "Let the class of that object inherit from nn.Module and call super().__init__() first."
    return "Assign the module to an attribute of the model as well, or make the function an nn.Module that holds it."


def report_parameters(ref: AttributeRef, things: list[Hidden]) -> None:
    """A finding about Parameters that lie in something else than the module's register."""
    tensors = [item.thing for item in things if isinstance(item.thing, Tensor)]
    holder, size = things[0].holder, bytes_of(tensors)
    count = count_text(len(things), "Parameter")
    lost = f"{'it is' if len(things) == 1 else 'they are'} not trained, not saved and not moved"
    if holder == "attribute":
        message = f"{ref.label} is a Parameter that was put into __dict__ past nn.Module.__setattr__: {lost}."
    else:
        message = f"{ref.label} {holds(holder)} {count} ({bytes_text(size)}) that PyTorch does not know of: {lost}."
    name = ref.attribute.name
    fix = {
        "dict": f"Make it an nn.ParameterDict: self.{name} = nn.ParameterDict(…).",
        "attribute": f"Assign it as an attribute: self.{name} = nn.Parameter(…).",
    }.get(
        holder,
        f"Make it an nn.ParameterList: self.{name} = nn.ParameterList(…)."
        if holder in CONTAINERS
        else "Assign each to an attribute of the model as well.",
    )
    ref.report("unregistered-parameter", message, fix, bytes=size)
