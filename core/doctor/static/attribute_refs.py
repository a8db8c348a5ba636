"""Attributes of a model that hide something from PyTorch, and how to speak of them. The main thread."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from torch import nn

from devexplorer.core.doctor.static.hidden import HOOKS, Attribute, hidden
from devexplorer.core.doctor.static.model_context import ModelContext, joined
from devexplorer.core.isolation.source_location import SourceLocation, place_at
from devexplorer.core.models.class_source import assigned, class_source, functions_of
from devexplorer.core.models.walk import RegisteredIds

CONTAINERS = ("list", "tuple", "dict", "set")
_MOVES = ("_apply", "to", "cuda")
"""Methods by which a class may move more than is registered."""


class AttributeRef(NamedTuple):
    """An attribute of a registered module, with what it hides."""

    context: ModelContext
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

    @property
    def of_class(self) -> bool:
        """Whether it is an attribute of the class."""
        return bool(self.attribute.things) and all(item.holder == "class" for item in self.attribute.things)

    @property
    def place(self) -> SourceLocation | None:
        """The line that set the attribute, or that registered the hook."""
        origins = self.context.origins
        if self.attribute.hook is not None:
            return origins.hook(self.attribute.hook) or _of_hook(self)
        if self.of_class:
            return assigned(type(self.module), self.attribute.name)
        noted = origins.attribute(self.module, self.attribute.name)
        return noted or (self.context.place(self.path) if self.path else None)

    def report(
        self,
        rule: str,
        message: str,
        fix: str,
        *,
        place: SourceLocation | None = None,
        severity: str | None = None,
        bytes: int | None = None,
        holder: str = "attribute",
    ) -> None:
        """Add a finding about it, at its own line unless another one is given."""
        self.context.collector.add(
            rule,
            message,
            fix,
            path=self.full,
            place=place or self.place,
            severity=severity,
            bytes=bytes,
            holder=holder,
        )


def attribute_refs(context: ModelContext) -> Iterator[AttributeRef]:
    """Every attribute of the model that hides something; one of a class only once."""
    modules = context.modules
    known = RegisteredIds(modules, buffers=False)  # a second name of a buffer is another tensor after a move
    classes: set[tuple[int, ...]] = set()
    for path, module in modules:
        for attribute in hidden(module, known):
            ref = AttributeRef(context, path, module, attribute)
            if ref.of_class:
                key = tuple(id(item.thing) for item in attribute.things)
                if key in classes:
                    continue
                classes.add(key)
            yield ref


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
