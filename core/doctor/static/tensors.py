"""Rule `unregistered-tensor`: tensors that no move reaches. The main thread."""

from __future__ import annotations

import ast

import torch
from torch import Tensor

from devexplorer.core.base.formats import bytes_text, count_text, shape_text
from devexplorer.core.doctor.static.attribute_refs import CONTAINERS, AttributeRef, holds
from devexplorer.core.doctor.static.hidden import Hidden
from devexplorer.core.doctor.static.model_context import bytes_of, is_same_device
from devexplorer.core.models.class_source import (
    Function,
    assignments,
    class_source,
    functions_of,
    own_attribute,
    self_name,
)
from devexplorer.core.models.walk import device_id

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
    fix = _fix(name, holder)
    ref.report("unregistered-tensor", message, fix, severity=severity, bytes=size, holder=holder)


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
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr in _CONVERSIONS and own_attribute(func.value, "self") == name


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
    """`["detach", "to"]` of what `self.table` is in `self.table.detach().to(x.device)`."""
    names: list[str] = []
    outer = around.get(id(node))
    while outer is not None:
        if isinstance(outer, ast.Attribute):
            names.append(outer.attr)
        outer = around.get(id(outer))
    return names
