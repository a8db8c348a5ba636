"""What all static rules look at: the model, what its modules hold without having registered it, and where each
attribute comes from. Reads only. The main thread.

No user code is called on the way: no property, no `__getattr__`, no `__eq__`, no overridden iteration; only
what lies in `__dict__`, in `__slots__`, in a container's own memory and in the cells of functions is looked at.
"""

from __future__ import annotations

import ast
import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, Dataset

from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.code.syntax import nodes
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.isolation.source_location import SourceLocation, kind_of, place_at
from devexplorer.core.models import (
    CONTAINER_ITEMS,
    RegisteredIds,
    assigned,
    file_of,
    is_uninitialised,
    named_modules,
    size_of,
)
from devexplorer.core.models.class_source import methods
from devexplorer.core.models.walk import computed_by_torch
from devexplorer.core.virtual.operators.tensor import VirtualTensor

_ITEMS: dict[Any, str] = {list: "list", tuple: "tuple", deque: "list", set: "set", frozenset: "set"}
"""Kinds of containers of items, and what they are called."""
DEPTH = 6
"""How deep containers, functions and plain objects within each other are searched."""
MOST = 100_000
"""Things that one attribute may hold before the search gives up."""
HOOKS = {
    "_forward_hooks": "forward hook",
    "_forward_pre_hooks": "forward pre-hook",
    "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
}
Thing = Tensor | nn.Module | Optimizer | torch.Generator


class Hidden(NamedTuple):
    """One thing that an attribute leads to."""

    path: str
    """As Python would write it after the module: `heads[0]`, `rescale, closed over as scale`."""
    thing: Thing
    holder: str
    """What holds it: `attribute`, `list`, `tuple`, `dict`, `set`, `function`, `object`, `hook`, `class`."""
    owner: type | None = None
    """The class of the innermost plain object on the way to it."""


class Attribute(NamedTuple):
    """All that one attribute of one module hides."""

    name: str
    things: tuple[Hidden, ...]
    hook: int | None = None
    """The key of a hook, where it is one."""
    complete: bool = True
    """Whether everything in it was looked at."""


def hidden(module: nn.Module, known: RegisteredIds) -> Iterator[Attribute]:
    """Every attribute, hook and class attribute of a module that holds something PyTorch does not know below the
    model."""
    held = object.__getattribute__(module, "__dict__")
    computed = computed_by_torch(module)
    for name, value in list(held.items()):
        if name in _OWN or name in computed or type(value) in _PLAIN:
            continue
        yield from _found(name, _Search(known), value, None)
    for register, label in HOOKS.items():
        for key, hook in list(dict.items(held.get(register) or {})):
            yield from _found(label, _Search(known, "hook"), hook, key)
    for base in type.mro(type(module)):
        if base.__module__.partition(".")[0] not in ("torch", "builtins", "typing"):
            for name, value in list(vars(base).items()):
                if isinstance_quietly(value, (Tensor, nn.Module, list, tuple, dict, set)) and name not in held:
                    yield from _found(name, _Search(known, "class"), value, None)


def isinstance_quietly(value: Any, kinds: type | tuple[type, ...]) -> bool:
    """`isinstance` by the real type: a user-defined `__class__` is not asked."""
    return issubclass(type(value), kinds)


def _found(name: str, search: _Search, value: Any, hook: int | None) -> Iterator[Attribute]:
    search.look(name, value, "attribute", 0)
    if search.things or not search.complete:
        yield Attribute(name, tuple(search.things), hook, search.complete)


class _Search:
    """Through one attribute."""

    def __init__(self, known: RegisteredIds, holder: str = "") -> None:
        self.things: list[Hidden] = []
        self.complete = True
        self._known = known
        self._holder = holder
        self._owner: type | None = None
        self._seen: set[int] = set()

    def look(self, path: str, value: Any, holder: str, depth: int) -> None:
        """Look at a value and what it holds; `holder` is what holds it."""
        if type(value) in _PLAIN or id(value) in self._seen:
            return
        if len(self._seen) > MOST:
            self.complete = False
            return
        self._seen.add(id(value))
        if isinstance_quietly(value, (Tensor, nn.Module, Optimizer, torch.Generator)):
            if id(value) not in self._known:
                self.things.append(Hidden(path, value, self._holder or holder, self._owner))
        elif depth < DEPTH:
            self._within(path, value, None if holder == "attribute" else holder, depth + 1)

    def _within(self, path: str, value: Any, inherited: str | None, depth: int) -> None:
        held: list[tuple[str, Any]] = []
        word, owner = "function", self._owner
        kind = next((kind for kind in _ITEMS if isinstance_quietly(value, kind)), None)
        if kind is not None:
            word = _ITEMS[kind]
            self.complete &= kind.__len__(value) <= CONTAINER_ITEMS
            for index, item in enumerate(islice(kind.__iter__(value), CONTAINER_ITEMS)):
                held.append((path if word == "set" else f"{path}[{index}]", item))
        elif isinstance_quietly(value, dict):
            word = "dict"
            self.complete &= dict.__len__(value) <= CONTAINER_ITEMS
            for key, item in list(dict.items(value))[:CONTAINER_ITEMS]:
                shown = repr(key) if type(key) in (str, int) else "…"
                held += [(f"{path}[{shown}]", item), (f"a key of {path}", key)]
        elif type(value) is types.FunctionType:
            held = _held_by_function(path, value)
        elif type(value) is types.MethodType:
            held = [(f"{path}.__self__", value.__self__), (path, value.__func__)]
        elif isinstance_quietly(value, functools.partial):
            held = [(f"{path}.args", value.args), (f"{path}.keywords", value.keywords), (path, value.func)]
        elif isinstance_quietly(value, LRScheduler):
            word, held = "object", [(f"{path}.optimizer", vars(value).get("optimizer"))]
        elif _is_searched(type(value)):
            word, owner = "object", type(value)
            held = [(f"{path}.{name}", item) for name, item in _held(value)]
        outer, self._owner = self._owner, owner
        for label, item in held:
            self.look(label, item, inherited or word, depth)
        self._owner = outer


def _held_by_function(path: str, function: types.FunctionType) -> list[tuple[str, Any]]:
    """What a function closes over, and its defaults."""
    file = function.__code__.co_filename
    if kind_of(file) == "skipped" and not file.startswith("<"):
        return []
    held: list[tuple[str, Any]] = [
        (f"defaults of {path}", function.__defaults__),
        (f"keyword defaults of {path}", function.__kwdefaults__),
    ]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with suppress(ValueError):  # not filled yet
            held.append((f"{name} in {path}", cell.cell_contents))
    return held


def _is_searched(kind: type) -> bool:
    """Plain objects of user classes, and torch's distributions, which hold tensors; data sets belong on the
    CPU."""
    if issubclass(kind, (type, types.ModuleType, Dataset, DataLoader)):
        return False
    if kind is types.SimpleNamespace or kind.__module__.startswith("torch.distributions."):
        return True
    if kind.__module__.partition(".")[0] in ("torch", "builtins"):
        return False
    file = file_of(kind)
    return file is not None and kind_of(file) == "user"


def _held(value: Any) -> Iterator[tuple[str, Any]]:
    """What lies in an object's `__dict__` and `__slots__`."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        held = {}
    if type(held) is dict:
        yield from list(held.items())[:CONTAINER_ITEMS]
    for base in type.mro(type(value)):
        for name, slot in vars(base).items():
            if type(slot) is types.MemberDescriptorType:
                try:
                    yield name, slot.__get__(value)
                except AttributeError:  # an empty slot
                    continue


_OWN = frozenset(vars(nn.Module())) | {
    "_flat_weights",  # an RNN's second list of its parameters, which it renews when it moves
    "_flat_weight_refs",
    "_hf_hook",
    "_old_forward",
    "_compiled_call_impl",
    "_example_input_array",  # of Lightning, which moves it when it uses it
}
"""Attributes that every module has, and those of torch and accelerate that look after themselves."""
_PLAIN = frozenset(
    {int, float, complex, bool, str, bytes, bytearray, type(None), torch.device, torch.dtype, torch.Size}
)


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
        held = list(enumerate(owners))[::-1]  # the innermost first
        found = None
        if len(owners) == len(names):
            found = self.origins.attribute(owners[-1], names[-1])
        for index, owner in held:  # `self.layer.weight = …` in the class of what holds the layer
            dotted = ".".join(names[index:])
            found = found or assigned(type(owner), dotted) or assigned(type(owner), f"{dotted}.data")
        for index, owner in held:
            found = found or self.origins.attribute(owner, names[index])
        return found


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


def tensors_of(things: Iterable[Hidden]) -> list[Tensor]:
    """The tensors among what is hidden."""
    return [item.thing for item in things if isinstance(item.thing, Tensor)]


def inner(tensor: Tensor) -> Tensor:
    """The tensor of the CPU within a virtual one."""
    return tensor._inner if isinstance(tensor, VirtualTensor) else tensor


def is_same_device(device: torch.device, other: torch.device) -> bool:
    """Whether both mean one device; `vgpu` is `vgpu:0`."""
    return device.type == other.type and (device.index or 0) == (other.index or 0)


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
        if self.attribute.hook is None:
            return f"self.{self.attribute.name}"
        return f"the {self.attribute.name} of {self.path or 'the model'}"

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

    def report(self, rule: str, message: str, fix: str, *, place: SourceLocation | None = None, **fields: Any) -> None:
        """Add a finding about it, at its own line unless another one is given."""
        self.context.collector.add(rule, message, fix, path=self.full, place=place or self.place, **fields)


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


_HOLDS = {
    "list": "is a plain list with",
    "tuple": "is a plain tuple with",
    "dict": "is a plain dict with",
    "set": "is a plain set with",
    "function": "is a function that holds",
    "object": "is an object that is no nn.Module and holds",
    "class": "is an attribute of the class and holds",
}


def holds(holder: str) -> str:
    """`is a plain list with`, for what is held in that holder."""
    return _HOLDS.get(holder, "holds")


def moves_itself(ref: AttributeRef) -> bool:
    """Whether the class has its own method for moves that names this attribute."""
    for _, function, _ in methods(type(ref.module)):
        if function.name in _MOVES and any(node.attr == ref.attribute.name for node in nodes(function, ast.Attribute)):
            return True
    return False
