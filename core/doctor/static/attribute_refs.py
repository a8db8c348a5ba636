"""Attributes of a model that hide something from PyTorch, and how to speak of them. The main thread."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch import nn

from devexplorer.core.doctor.code.reading import assigned, class_source, functions_of
from devexplorer.core.doctor.static.hidden import HOOKS, Attribute, hidden
from devexplorer.core.doctor.static.model_context import ModelContext, joined
from devexplorer.core.isolation.source_location import SourceLocation, place_at
from devexplorer.core.models.walk import RegisteredIds

CONTAINERS = ("list", "tuple", "dict", "set")
_MOVES = ("_apply", "to", "cuda")
"""Methods by which a class may move more than is registered."""


class AttributeRef(NamedTuple):
    """An attribute of a registered module, with what it hides."""

    path: str
    """Of the module."""
    module: nn.Module
    attribute: Attribute

    @property
    def full(self) -> str:
        """`blocks.0.scale`; the module's path for a hook."""
        return self.path if self.attribute.hook is not None else joined(self.path, self.attribute.name)

    @property
    def label(self) -> str:
        """`self.scale`, or `the forward hook of blocks.0`."""
        if self.attribute.hook is not None:
            return f"the {self.attribute.name} of {self.path or 'the model'}"
        return f"self.{self.attribute.name}"


class _Known(RegisteredIds):
    """Registered modules and parameters. Not buffers: a second name of one is another tensor after a move."""

    def __init__(self, modules: Sequence[tuple[str, nn.Module]]) -> None:
        self._found: set[int] = set()
        for _, module in modules:
            self._found.add(id(module))
            self._found.update(map(id, module._parameters.values()))

    def __contains__(self, identity: object) -> bool:
        return identity in self._found


def attribute_refs(context: ModelContext) -> Iterator[AttributeRef]:
    """Every attribute of the model that hides something; one of a class only once."""
    modules = context.modules
    known = _Known(modules)
    classes: set[tuple[int, ...]] = set()
    for path, module in modules:
        for attribute in hidden(module, known):
            if attribute.things and all(item.holder == "class" for item in attribute.things):
                key = tuple(id(item.thing) for item in attribute.things)
                if key in classes:
                    continue
                classes.add(key)
            yield AttributeRef(path, module, attribute)


def place_of(context: ModelContext, ref: AttributeRef) -> SourceLocation | None:
    """The line that set the attribute, or that registered the hook."""
    if ref.attribute.hook is not None:
        noted = context.origins.hook(ref.attribute.hook)
        return noted or _of_hook(ref)
    if ref.attribute.things and all(item.holder == "class" for item in ref.attribute.things):
        return assigned(type(ref.module), ref.attribute.name)
    return context.origins.attribute(ref.module, ref.attribute.name) or (context.place(ref.path) if ref.path else None)


def _of_hook(ref: AttributeRef) -> SourceLocation | None:
    for register in HOOKS:
        code = getattr(vars(ref.module)[register].get(ref.attribute.hook), "__code__", None)
        if code is not None:
            return place_at(code.co_filename, code.co_firstlineno, code.co_name)
    return None


def holds(holder: str) -> str:
    """`is a plain list with`, for what is held in that holder."""
    if holder in CONTAINERS:
        return f"is a plain {holder} with"
    return {
        "function": "is a function that holds",
        "object": "is an object that is no nn.Module and holds",
        "hook": "holds",
        "class": "is an attribute of the class and holds",
    }.get(holder, "holds")


def moves_itself(ref: AttributeRef) -> bool:
    """Whether the class has a method of its own for moves that speaks of this attribute."""
    for base in type.mro(type(ref.module)):
        source = class_source(base)
        for name, function in functions_of(source).items() if source is not None else ():
            if name in _MOVES and any(
                isinstance(node, ast.Attribute) and node.attr == ref.attribute.name for node in ast.walk(function)
            ):
                return True
    return False
