"""Rule `parameter-not-leaf`: what a move or a product has made of a Parameter. The main thread."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import Tensor, nn

from devexplorer.core.doctor.static.hidden import Hidden
from devexplorer.core.doctor.static.model_context import AttributeRef, ModelContext, bytes_of, joined
from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models import assignments, last_name, leaves_below
from devexplorer.core.models.class_source import class_source


def made_from_parameters(tensor: Tensor) -> list[Tensor]:
    """Parameters from which a tensor was computed; empty for a leaf."""
    return [] if tensor.grad_fn is None else [leaf for leaf in leaves_below(tensor) if isinstance(leaf, nn.Parameter)]


def report_not_leaf(ref: AttributeRef, things: list[Hidden], source: str) -> None:
    """A finding about tensors that were computed from a Parameter when the model was built; `source`: its path, if it
    is registered."""
    first = things[0].thing
    assert isinstance(first, Tensor)
    made = ref.context.origins.tensor(first)
    size = bytes_of([item.thing for item in things if isinstance(item.thing, Tensor)])
    how = f"`{made.op.rpartition('.')[2]}`" if made is not None else "an operation"
    place = ref.place
    if made is not None and not made.place.library and (place is None or not place.library):
        place = made.place
    if not source:
        message = (
            f"{ref.label} is what {how} made of a Parameter: a plain tensor that is no leaf, so it is not registered,"
            " not moved, and gets no gradient."
        )
        moved = made is not None and made.op.rpartition(".")[2] in ("to", "cuda", "cpu", "xpu")
        fix = (
            "Leave the move to model.to(device), or make the Parameter last: nn.Parameter(x.to(device))."
            if moved
            else "Make the Parameter last, of values that are computed already: nn.Parameter(x * 0.02)."
        )
    else:
        message = (
            f"{ref.label} was computed from {source} when the model was built: it stays on its device with the values"
            " of that time, and its history can be used for one backward only."
        )
        fix = f"Compute it in forward from {source}."
    ref.report("parameter-not-leaf", message, fix, place=place, bytes=size)


def report_written_not_leaf(context: ModelContext, done: set[str]) -> None:
    """What the source says and a run on the CPU does not show: there `nn.Parameter(x).to(device)` gives the Parameter
    itself."""
    read: dict[type, list[tuple[str, SourceLocation, ast.expr]]] = {}
    for path, module in context.modules:
        for base in type.mro(type(module)):
            if base not in read:
                read[base] = list(_assigned_moved(base))
            for name, place, value in read[base]:
                full = joined(path, name)
                held = name in module._parameters or name in vars(module)
                if full in done or not held:
                    continue
                done.add(full)
                message = (
                    f"self.{name} is `{ast.unparse(value)}`: on another device than the CPU that is a plain tensor and"
                    " no Parameter, not registered, not moved, and without a gradient."
                )
                fix = "Leave the move to model.to(device), or make the Parameter last: nn.Parameter(x.to(device))."
                context.collector.add("parameter-not-leaf", message, fix, path=full, place=place)


def _assigned_moved(kind: type) -> Iterator[tuple[str, SourceLocation, ast.expr]]:
    source = class_source(kind)
    for name, (place, value) in assignments(source) if source is not None else ():
        if value is not None and _moves_parameter(value):
            yield name, place, value


_CONVERSIONS = ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "type", "type_as")


def _moves_parameter(value: ast.expr) -> bool:
    """`nn.Parameter(…).to(…)`, `.cuda()`, `.half()`, also with more calls in between."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    inner = value.func.value
    if value.func.attr in _CONVERSIONS:
        return _is_parameter(inner) or _moves_parameter(inner)
    return value.func.attr == "requires_grad_" and _moves_parameter(inner)


def _is_parameter(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    called = value.func
    if isinstance(called, ast.Attribute) and called.attr == "requires_grad_":
        return _is_parameter(called.value)
    return last_name(called) == "Parameter"
