"""Rules `unregistered-module`, `unregistered-parameter` and `unregistered-tensor`: what no move reaches. The main
thread."""

from __future__ import annotations

import ast
from collections.abc import Set

import torch
from torch import Tensor, nn

from devexplorer.core.base import bytes_text, count_text, shape_text
from devexplorer.core.doctor.code.fixes import TRAINED
from devexplorer.core.doctor.static.aliases import Registry
from devexplorer.core.doctor.static.model_context import (
    CONTAINERS,
    AttributeRef,
    Hidden,
    bytes_of,
    holds,
    is_same_device,
    moves_itself,
)
from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models import (
    Function,
    assignments,
    device_id,
    functions_of,
    named_modules,
    own_attribute,
    self_name,
)
from devexplorer.core.models.class_source import class_source, filled_at, last_name

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
        dots = any("." in item.path.removeprefix(name) for item in ref.attribute.things)
        keys = "; its keys may have no dot" if dots else ""
        return f"Make it an nn.ModuleDict{within}: self.{name} = nn.ModuleDict(…){keys}."
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


_CONVERSIONS = frozenset({"to", "cuda", "type_as"})
_FACTS = frozenset({"shape", "dtype", "device", "size", "dim", "ndim", "numel"})


def report_tensors(ref: AttributeRef, things: list[Hidden], device: torch.device | None) -> None:
    """A finding about plain tensors; `device` is where the model has been moved, None where that failed or copied
    nothing."""
    tensors = [item.thing for item in things if isinstance(item.thing, Tensor)]
    holder, size = things[0].holder, bytes_of(tensors)
    name = ref.attribute.name
    where = device_id(tensors[0].device)
    there = device is not None and all(is_same_device(tensor.device, device) for tensor in tensors)
    scalars = all(not tensor.is_nested and tensor.dim() == 0 and tensor.device.type == "cpu" for tensor in tensors)
    severity = None
    if holder == "attribute":
        what = f"{ref.label} is a plain attribute ({_kind(tensors[0])})"
    elif holder == "class" and isinstance(ref.attribute.things[0].thing, Tensor) and things[0].path == name:
        what = f"{ref.label} is an attribute of the class ({_kind(tensors[0])})"
    else:
        what = f"{ref.label} {holds(holder)} {count_text(len(tensors), 'tensor')} ({bytes_text(size)})"
    single = len(tensors) == 1
    if scalars:
        severity = "note"
        message = (
            f"{what} of no dimensions on the CPU: arithmetic takes such numbers on every device, but torch.cat,"
            f" torch.stack and indexing do not, and the state_dict misses {'it' if single else 'them'}."
        )
    elif holder == "attribute" and _copied_by_forward(ref):
        severity = "note"
        message = f"{what}: it stays on {where} when the model moves, and forward copies it to the device."
    elif holder == "attribute" and (method := _brought_along_by(ref)) is not None:
        severity = "note"
        message = (
            f"{what}: it stays on {where} when the model moves, until {method} brings it along itself; the state_dict"
            " misses it."
        )
    elif there:
        severity = "warning"
        message = (
            f"{what} that {'was' if single else 'were'} put on {where} when {'it was' if single else 'they were'} made:"
            f" {'it stays' if single else 'they stay'} there when the model goes anywhere else."
        )
    else:
        message = (
            f"{what} that PyTorch does not know of: the model moves, and"
            f" {'it stays' if single else 'they stay'} on {where}."
        )
    trained = holder == "attribute" and tensors[0].requires_grad and tensors[0].is_leaf
    fix = _fix(name, TRAINED if trained else holder)
    ref.report(
        "unregistered-tensor",
        message,
        fix,
        place=None if holder == "attribute" else _put_at(ref, tensors, things[0].owner),
        severity=severity,
        bytes=size,
        holder=TRAINED if trained else holder,
    )


def _put_at(ref: AttributeRef, tensors: list[Tensor], owner: type | None) -> SourceLocation | None:
    """The line by which tensors got into what holds them, where the line that sets the attribute is another: where the
    class of a plain object or the function that registers a hook makes them, where the class fills a container that
    was made empty, or, of a single tensor, its own within a statement of several lines."""
    place, name = ref.place, ref.attribute.name
    made = ref.context.origins.tensor(tensors[0])
    if place is None:
        return None
    if made is not None and owner is not None and _is_within(made.place, owner):
        return made.place
    if ref.attribute.hook is not None:
        beside = made is not None and (made.place.file, made.place.function) == (place.file, place.function)
        return made.place if made is not None and beside else None
    for base in type.mro(type(ref.module)):
        source = class_source(base)
        for target, (at, value) in assignments(source) if source is not None else ():
            if target != name or (at.file, at.line) != (place.file, place.line) or value is None:
                continue
            if _is_empty(value):
                filled = filled_at(type(ref.module), name)
                here = [one for one in filled if made is not None and one[:2] == made.place[:2]]
                return next(iter(here or filled), None)
            if made is not None and len(tensors) == 1 and made.place.file == at.file:
                within = at.line < made.place.line <= (value.end_lineno or value.lineno)
                return made.place if within else None
    return None


def _is_within(place: SourceLocation, kind: type) -> bool:
    """Whether a line is one of a class, or of its bases."""
    sources = [class_source(base) for base in type.mro(kind)]
    return any(
        source is not None
        and source.file == place.file
        and source.tree.lineno <= place.line <= (source.tree.end_lineno or source.tree.lineno)
        for source in sources
    )


def _is_empty(value: ast.expr) -> bool:
    """`{}`, `[]`, `dict()`, `deque(maxlen=8)`, `defaultdict(list)`: a container with nothing in it yet."""
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    if not isinstance(value, ast.Call):
        return False
    kind = last_name(value.func)
    if kind == "deque":  # its length may be given by name
        return not value.args
    return kind == "defaultdict" or (
        kind in ("dict", "list", "set", "OrderedDict") and not (value.args or value.keywords)
    )


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


def _kind(tensor: Tensor) -> str:
    return "a tensor" if tensor.is_nested else f"a tensor of {shape_text(tuple(tensor.shape))}"


def _fix(name: str, holder: str) -> str:
    if not name.isidentifier() and holder in ("attribute", "class", TRAINED):
        return (
            f"Give it a name without a dot, as PyTorch demands of what it registers, and register it as a"
            f" {'Parameter' if holder == TRAINED else 'buffer'} in __init__."
        )
    if holder == TRAINED:
        return (
            f"It wants a gradient, so make it a Parameter: self.{name} = nn.Parameter(…); its optimizer is made after"
            " the move."
        )
    if holder in ("attribute", "class"):
        return f'Register it as a buffer in __init__: self.register_buffer("{name}", …).'
    if holder == "dict":
        return f'Register each as a buffer, self.register_buffer(f"{name}_{{key}}", …), and take them from there.'
    if holder in CONTAINERS:
        return f'Register each as a buffer, self.register_buffer(f"{name}_{{index}}", …), and take them from there.'
    if holder == "object":
        return (
            "Let the class of that object be an nn.Module and register its tensors as buffers, or make them in forward"
            " from buffers."
        )
    return "Register the tensor as a buffer of a module and let the function take it from there."


def _brought_along_by(ref: AttributeRef) -> str | None:
    """The method that says `self.table = self.table.to(…)`, also with a condition."""
    name = ref.attribute.name
    for base in type.mro(type(ref.module)):
        source = class_source(base)
        for target, (place, value) in assignments(source) if source is not None else ():
            if (
                target == name
                and place.function != "__init__"
                and value is not None
                and any(_moves(item, name) for item in ast.walk(value))
            ):
                return place.function
    return None


def _moves(node: ast.AST, name: str) -> bool:
    func = node.func if isinstance(node, ast.Call) and not _casts(node) else None
    return isinstance(func, ast.Attribute) and func.attr in _CONVERSIONS and own_attribute(func.value, "self") == name


def _casts(call: ast.Call) -> bool:
    """Whether all that a call is given is a dtype: `.to(x.dtype)`, `.to(torch.int8)`."""
    given = [last_name(item) for item in (*call.args, *(item.value for item in call.keywords))]
    return bool(given) and all(isinstance(getattr(torch, name, None), torch.dtype) or "dtype" in name for name in given)


def _copied_by_forward(ref: AttributeRef) -> bool:
    """Whether everything outside `__init__` that computes with the attribute says `.to(…)` to it first."""
    copies = others = 0
    name = ref.attribute.name
    for base in type.mro(type(ref.module)):
        source = class_source(base)
        for function_name, function in functions_of(source).items() if source is not None else ():
            first = self_name(function)
            if function_name == "__init__" or first is None:
                continue
            around = _around(function)
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Load)
                    and own_attribute(node, first) == name
                ):
                    names = _chain_after(node, around)
                    copied = not _CONVERSIONS.isdisjoint(names)
                    copies += copied
                    others += not copied and _FACTS.isdisjoint(names[:1])
    return copies > 0 and others == 0


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
