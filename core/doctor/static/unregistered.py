"""Rules `unregistered-module`, `unregistered-parameter` and `unregistered-tensor`: what no move reaches. The main
thread."""

from __future__ import annotations

import ast
from collections.abc import Set

import torch
from torch import Tensor, nn

from devexplorer.core.base import bytes_text, count_text, shape_text
from devexplorer.core.doctor.code.fixes import TRAINED
from devexplorer.core.doctor.code.syntax import nodes
from devexplorer.core.doctor.static.aliases import Registry
from devexplorer.core.doctor.static.model_context import (
    AttributeRef,
    Hidden,
    bytes_of,
    holds,
    is_same_device,
    moves_itself,
    tensors_of,
)
from devexplorer.core.isolation.source_location import NOWHERE, SourceLocation
from devexplorer.core.models import Function, device_id, named_modules, own_attribute
from devexplorer.core.models.class_source import assigned_in, class_source, filled_at, last_name, methods

_MODES = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
"""What computes something else in training."""


def report_modules(ref: AttributeRef, registry: Registry, known: Set[int]) -> set[int]:
    """A finding where the attribute holds modules that matter; returns the ids of all their tensors.

    `known` are those of modules that another attribute holds: they have been reported.
    """
    tensors: dict[int, Tensor] = {}
    modules: list[Hidden] = []
    covered: set[int] = set()
    for item in ref.attribute.things:
        if not isinstance(item.thing, nn.Module) or id(item.thing) in covered:
            continue
        below = [module for _, module in named_modules(item.thing)]
        if any(module is ref.context.model for module in below[1:]):
            continue
        covered.update(map(id, below))
        inside: dict[int, Tensor] = {}
        for module in below:
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None and id(tensor) not in registry.tensor_ids:
                    inside[id(tensor)] = tensor
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
    holder, name, size = modules[0].holder, ref.attribute.name, bytes_of(tensors)
    contents, severity = "no parameters", None
    hidden = ".to(), parameters() and state_dict() of the model do not reach it"
    fix = _FIXES["module", _kind_of(holder)].format(name=name)
    if not tensors:
        severity, hidden = "warning", "`train()` and `eval()` do not reach what behaves differently in the two"
    elif parameters:
        contents = f"{count_text(len(parameters), 'parameter')}, {bytes_text(size)}"
    else:
        contents = f"{count_text(len(tensors), 'buffer')}, {bytes_text(size)}"
    if parameters and not any(parameter.requires_grad for parameter in parameters):
        if moves_itself(ref):
            return
        severity, hidden = "warning", f"{hidden}, perhaps on purpose"
        fix = (
            "Register it (its parameters are frozen already, so no optimizer changes them), or move it by hand wherever"
            " the model is moved."
        )
    what = f"{holds(holder)} {count_text(len(modules), 'module')} ({contents})"
    if holder == "attribute":
        what = f"is a {type(modules[0].thing).__name__} ({contents}) that was put into __dict__"
    ref.report("unregistered-module", f"{ref.label} {what}: {hidden}.", fix, severity=severity, bytes=size or None)


def report_parameters(ref: AttributeRef, things: list[Hidden]) -> None:
    """A finding about Parameters that lie in something else than the module's register."""
    holder, size = things[0].holder, bytes_of(tensors_of(things))
    what = f"{holds(holder)} {count_text(len(things), 'Parameter')} ({bytes_text(size)})"
    if holder == "attribute":
        what = "is a Parameter that was put into __dict__"
    message = f"{ref.label} {what}: .to(), parameters() and state_dict() of the model do not reach it."
    fix = _FIXES["parameter", _kind_of(holder)].format(name=ref.attribute.name)
    ref.report("unregistered-parameter", message, fix, bytes=size)


def _kind_of(holder: str) -> str:
    """The row of the table of fixes."""
    if holder in ("list", "tuple", "set"):
        return "list"
    return "function" if holder in ("hook", "class") else holder


_INNER = "Let the class of that object inherit from nn.Module and call super().__init__() first."
_OUTER = "Assign it to an attribute of the model as well, or make the function an nn.Module that holds it."
_BUFFER = 'Register it as a buffer in __init__: self.register_buffer("{name}", …).'
_BUFFERS = 'Register each as a buffer, self.register_buffer(f"{name}_{{key}}", …), and take them from there.'
_FIXES = {
    ("module", "attribute"): "Assign it as an attribute: self.{name} = ….",
    ("module", "list"): "Make it an nn.ModuleList, also within another container: self.{name} = nn.ModuleList(…).",
    ("module", "dict"): "Make it an nn.ModuleDict, whose keys have no dots: self.{name} = nn.ModuleDict(…).",
    ("module", "object"): _INNER,
    ("module", "function"): _OUTER,
    ("parameter", "attribute"): "Assign it as an attribute: self.{name} = nn.Parameter(…).",
    ("parameter", "list"): "Make it an nn.ParameterList: self.{name} = nn.ParameterList(…).",
    ("parameter", "dict"): "Make it an nn.ParameterDict: self.{name} = nn.ParameterDict(…).",
    ("parameter", "object"): _INNER,
    ("parameter", "function"): _OUTER,
    ("tensor", "attribute"): _BUFFER,
    ("tensor", "class"): _BUFFER,
    ("tensor", "list"): _BUFFERS,
    ("tensor", "dict"): _BUFFERS,
    ("tensor", "object"): (
        "Let the class of that object be an nn.Module and register its tensors as buffers, or make them in forward from"
        " buffers."
    ),
    ("tensor", "function"): "Register the tensor as a buffer of a module and let the function take it from there.",
    ("tensor", TRAINED): (
        "It wants a gradient, so make it a Parameter: self.{name} = nn.Parameter(…); its optimizer is made after the"
        " move."
    ),
}
"""What is not registered, and what holds it -> what would be right."""
_CONVERSIONS = frozenset({"to", "cuda", "type_as"})
_FACTS = frozenset({"shape", "dtype", "device", "size", "dim", "ndim", "numel"})


def report_tensors(ref: AttributeRef, things: list[Hidden], device: torch.device | None) -> None:
    """A finding about plain tensors; `device` is where the model has been moved, None where that failed or copied
    nothing."""
    tensors = tensors_of(things)
    holder, size, first = things[0].holder, bytes_of(tensors), tensors[0]
    name, severity, single = ref.attribute.name, None, len(tensors) == 1
    where = device_id(first.device)
    kind = "a tensor" if first.is_nested else f"a tensor of {shape_text(tuple(first.shape))}"
    what = f"{ref.label} {holds(holder)} {count_text(len(tensors), 'tensor')} ({bytes_text(size)})"
    if holder == "attribute":
        what = f"{ref.label} is a plain attribute ({kind})"
    elif holder == "class" and things[0].path == name:
        what = f"{ref.label} is an attribute of the class ({kind})"
    stay = "it stays" if single else "they stay"
    message = f"{what} that PyTorch does not know of: the model moves, and {stay} on {where}."
    if all(not tensor.is_nested and tensor.dim() == 0 and tensor.device.type == "cpu" for tensor in tensors):
        severity = "note"
        message = (
            f"{what} of no dimensions on the CPU: arithmetic takes such numbers on every device, but torch.cat,"
            " torch.stack and indexing do not; no state_dict has it."
        )
    elif holder == "attribute" and _copied_by_forward(ref):
        severity = "note"
        message = f"{what}: it stays on {where} when the model moves, and forward copies it to the device."
    elif holder == "attribute" and (method := _brought_along_by(ref)) is not None:
        severity = "note"
        message = (
            f"{what}: it stays on {where} when the model moves, until {method} brings it along itself; no state_dict"
            " has it."
        )
    elif device is not None and all(is_same_device(tensor.device, device) for tensor in tensors):
        severity = "warning"
        message = f"{what}, made on {where}: {stay} there when the model goes anywhere else."
    held = holder
    if holder == "attribute" and first.requires_grad and first.is_leaf:
        held = TRAINED
    fix = _FIXES["tensor", _kind_of(held) if held != "class" else held].format(name=name)
    if not name.isidentifier() and held in ("attribute", "class", TRAINED):
        fix = "Give it a name without a dot, as PyTorch demands of what it registers, and register it in __init__."
    ref.report(
        "unregistered-tensor",
        message,
        fix,
        place=None if holder == "attribute" else _put_at(ref, tensors, things[0].owner),
        severity=severity,
        bytes=size,
        holder=held,
    )


def _put_at(ref: AttributeRef, tensors: list[Tensor], owner: type | None) -> SourceLocation | None:
    """The line by which tensors got into what holds them, where the line that sets the attribute is another: where the
    class of a plain object or the function that registers a hook makes them, where the class fills a container that
    was made empty, or, of a single tensor, its own within a statement of several lines."""
    place, name = ref.place, ref.attribute.name
    if place is None:
        return None
    made, origin = NOWHERE, ref.context.origins.tensor(tensors[0])
    if origin is not None:
        made = origin.place
    if owner is not None and _is_within(made, owner):
        return made
    if ref.attribute.hook is not None:
        return made if (made.file, made.function) == (place.file, place.function) else None
    for target, (at, value) in assigned_in(type(ref.module)):
        if target != name or at[:2] != place[:2] or value is None:
            continue
        if _is_empty(value):
            filled = filled_at(type(ref.module), name)
            return next((one for one in filled if one[:2] == made[:2]), next(iter(filled), None))
        within = made.file == at.file and at.line < made.line <= (value.end_lineno or value.lineno)
        return made if within and len(tensors) == 1 else None
    return None


def _is_within(place: SourceLocation, kind: type) -> bool:
    """Whether a line is one of a class, or of its bases."""
    for base in type.mro(kind):
        source = class_source(base)
        if source is None or source.file != place.file:
            continue
        if source.tree.lineno <= place.line <= (source.tree.end_lineno or source.tree.lineno):
            return True
    return False


def _is_empty(value: ast.expr) -> bool:
    """`{}`, `[]`, `dict()`, `deque(maxlen=8)`, `defaultdict(list)`: a container with nothing in it yet."""
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]):
            return True
        case ast.Call(func=called, args=args, keywords=keywords):
            kind = last_name(called)
            if kind == "deque":  # its length may be given by name
                return not args
            return kind == "defaultdict" or (kind in ("dict", "list", "set", "OrderedDict") and not args + keywords)
    return False


def report_generators(ref: AttributeRef, device: torch.device) -> None:
    """A note on a random generator that belongs to another device than the model."""
    for item in ref.attribute.things:
        if isinstance(item.thing, torch.Generator) and item.thing.device.type != device.type:
            ref.report(
                "unregistered-tensor",
                f"{ref.label} {'is' if item.holder == 'attribute' else 'holds'} a torch.Generator of"
                f" {device_id(item.thing.device)}: it makes random numbers there only, and torch.randn(…, generator=…)"
                f" on {device_id(device)} refuses it.",
                "Draw the numbers where the generator is and copy them, or make a generator per device:"
                " torch.Generator(device=x.device).",
                severity="note",
                holder="generator",
            )
            return


def _brought_along_by(ref: AttributeRef) -> str | None:
    """The method that says `self.table = self.table.to(…)`, also with a condition."""
    name = ref.attribute.name
    for target, (place, value) in assigned_in(type(ref.module)):
        moves = any(_moves(call, name) for call in nodes(value, ast.Call))
        if target == name and place.function != "__init__" and moves:
            return place.function
    return None


def _moves(call: ast.Call, name: str) -> bool:
    if _casts(call) or not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr in _CONVERSIONS and own_attribute(call.func.value, "self") == name


def _casts(call: ast.Call) -> bool:
    """Whether all that a call is given is a dtype: `.to(x.dtype)`, `.to(torch.int8)`."""
    given = [last_name(item) for item in (*call.args, *(item.value for item in call.keywords))]
    return bool(given) and all(isinstance(getattr(torch, name, None), torch.dtype) or "dtype" in name for name in given)


def _copied_by_forward(ref: AttributeRef) -> bool:
    """Whether everything outside `__init__` that computes with the attribute says `.to(…)` to it first."""
    copied = False
    for _, function, first in methods(type(ref.module)):
        if function.name == "__init__":
            continue
        around = _around(function)
        for node in nodes(function, ast.Attribute):
            if isinstance(node.ctx, ast.Load) and own_attribute(node, first) == ref.attribute.name:
                names = _chain_after(node, around)
                if not _CONVERSIONS.isdisjoint(names):
                    copied = True
                elif _FACTS.isdisjoint(names[:1]):
                    return False
    return copied


def _around(function: Function) -> dict[int, ast.expr]:
    """`id()` of an expression -> the attribute or the call that is made of it."""
    around: dict[int, ast.expr] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            around[id(node.value)] = node
        elif isinstance(node, ast.Call):
            around[id(node.func)] = node
    return around


def _chain_after(node: ast.expr, around: dict[int, ast.expr]) -> list[str]:
    """`["detach", "to"]` of what `self.table` is in `self.table.detach().to(x.dtype).to(x.device)`: no casts."""
    names: list[str] = []
    outer = around.get(id(node))
    while outer is not None:
        call = around.get(id(outer))
        if isinstance(outer, ast.Attribute) and not (isinstance(call, ast.Call) and _casts(call)):
            names.append(outer.attr)
        outer = call
    return names
