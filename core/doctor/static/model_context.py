"""What all static rules look at: the model, the attributes that hide something from PyTorch, and where each comes from.
The main thread."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.static.hidden import HOOKS, Attribute, hidden
from devexplorer.core.isolation.source_location import SourceLocation, place_at
from devexplorer.core.models import RegisteredIds, assigned, functions_of, is_uninitialised, named_modules, size_of
from devexplorer.core.models.class_source import class_source


class ModelContext:
    """A model under examination."""

    def __init__(self, model: nn.Module, origins: Origins, collector: FindingCollector) -> None:
        self.model, self.origins, self.collector = model, origins, collector

    @property
    def modules(self) -> list[tuple[str, nn.Module]]:
        """Every registered module with its path, as it is now."""
        return named_modules(self.model)

    def place(self, path: str) -> SourceLocation | None:
        """The line that set what is at a path of the model, or else what holds it."""
        names = path.split(".")
        owners: list[nn.Module] = [self.model]
        for name in names[:-1]:
            child = owners[-1]._modules.get(name)
            if child is None:
                break
            owners.append(child)
        if len(owners) == len(names):
            found = self.origins.attribute(owners[-1], names[-1])
            if found is not None:
                return found
        for index in range(len(owners) - 1, -1, -1):  # `self.layer.weight = …` in the class of what holds the layer
            dotted = ".".join(names[index:])
            found = assigned(type(owners[index]), dotted) or assigned(type(owners[index]), f"{dotted}.data")
            if found is not None:
                return found
        for index in range(len(owners) - 1, -1, -1):
            found = self.origins.attribute(owners[index], names[index])
            if found is not None:
                return found
        return None


def joined(path: str, name: str) -> str:
    """`blocks.0` and `scale` → `blocks.0.scale`."""
    return f"{path}.{name}" if path else name


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """Bytes of the values of all of them; lazy ones have none yet."""
    return sum(size_of(tensor) for tensor in tensors if not is_uninitialised(tensor) and not tensor.is_nested)


MOST_LISTED = 3
"""Names in a sentence before the others are counted."""


def listed(names: Sequence[str], most: int = MOST_LISTED) -> str:
    """`a, b and c`, or `a, b and 4 others`."""
    names = list(dict.fromkeys(names))
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} others"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def is_same_device(device: torch.device, other: torch.device) -> bool:
    """Whether both mean one device; `vgpu` is `vgpu:0`."""
    return device.type == other.type and (device.index or 0) == (other.index or 0)


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
    """Whether the class has its own method for moves that names this attribute."""
    for base in type.mro(type(ref.module)):
        source = class_source(base)
        for name, function in functions_of(source).items() if source is not None else ():
            if name in _MOVES and any(
                isinstance(node, ast.Attribute) and node.attr == ref.attribute.name for node in ast.walk(function)
            ):
                return True
    return False
