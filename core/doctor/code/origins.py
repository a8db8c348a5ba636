"""Which line made what: attributes of modules, hooks, and tensors, noted while a model is built. The thread that builds
it.

`nn.Module`'s own methods are replaced for the duration, and a `TorchFunctionMode` sees every call that makes a tensor.
Modules are kept by weak reference. Tensors must not be (`swap_tensors` refuses those): they are held, so that no other
tensor can get the same `id()`, those without another reference only for a little while, the others until `close`.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from devexplorer.core.isolation.source_location import (
    SourceLocation,
    caller_location,
    frames,
    kind_of,
    library_of,
)
from devexplorer.core.models import ORDINARY, assigned, file_of

HOOKS = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
)
_NAMED = ("__setattr__", "register_buffer", "register_parameter", "register_module", "add_module")
FEWEST, MOST_BYTES = 64, 64 * 1024 * 1024
"""Tensors, and bytes of new ones, that may be held before those without another reference are dropped."""
_ONLY_HERE = 2
"""What `getrefcount` says of a tensor that only the table holds: the table's reference and the argument."""
_GETTERS = {"data"}
"""Attributes of a tensor that make a tensor; others give what is there."""


class MadeTensor(NamedTuple):
    """How a tensor came to be."""

    op: str
    """`torch.randn`, `Tensor.to`, `Tensor.data`."""
    place: SourceLocation


class Origins:
    """What was noted; empty where a model was built before, so that only its source can be read."""

    def __init__(self) -> None:
        self._attributes: dict[int, tuple[weakref.ref[nn.Module], dict[str, SourceLocation]]] = {}
        self._hooks: dict[int, SourceLocation] = {}
        self._data: dict[int, tuple[Tensor, SourceLocation]] = {}
        self._made: dict[int, tuple[Tensor, MadeTensor]] = {}
        self._most, self._bytes = FEWEST, 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note what happens in this block."""
        replaced: dict[str, Callable[..., Any]] = {}
        for name in (*_NAMED, *HOOKS):
            note = self._note_hook if name in HOOKS else self._note_attribute
            replaced[name] = self._noting(getattr(nn.Module, name), note)
        before = {name: nn.Module.__dict__[name] for name in replaced}
        try:
            for name, method in replaced.items():
                setattr(nn.Module, name, method)
            with _OriginMode(self):
                yield
        finally:
            for name, method in replaced.items():
                if nn.Module.__dict__.get(name) is method:  # what the user's code has put there since stays
                    setattr(nn.Module, name, before[name])
            self._let_go()

    def attribute(self, module: nn.Module, name: str) -> SourceLocation | None:
        """The line that set an attribute, buffer, parameter or child: as it was noted, or as the source of the class
        says."""
        held = self._attributes.get(id(module))
        noted = held[1].get(name) if held is not None and held[0]() is module else None
        return noted or assigned(type(module), name)

    def hook(self, identity: int) -> SourceLocation | None:
        """The line that registered a hook, by the key under which the module holds it."""
        return self._hooks.get(identity)

    def tensor(self, tensor: Tensor) -> MadeTensor | None:
        """What made a tensor, where a call of torch's did while it was noted."""
        known = self._made.get(id(tensor))
        return None if known is None else known[1]

    def data_set(self, tensor: Tensor) -> SourceLocation | None:
        """The line that gave a tensor other memory: `tensor.data = …`."""
        known = self._data.get(id(tensor))
        return None if known is None else known[1]

    def close(self) -> None:
        """Let go of every tensor."""
        self._made.clear()
        self._data.clear()

    def note(self, function: Any, arguments: tuple[Any, ...], given: dict[str, Any], result: Any) -> None:
        """A call of torch's has given this."""
        name = _operation(function)
        if name is None:
            return
        if name == "Tensor.data = …":
            place = library_of(sys._getframe(2)) or caller_location(2)
            if place is not None:
                self._data[id(arguments[0])] = (arguments[0], place)
            return
        new = []
        for item in result if type(result) in (tuple, list) else (result,):
            if isinstance(item, Tensor) and all(item is not one for one in (*arguments, *given.values())):
                new.append(item)
        place = caller_location(2) if new else None
        if place is None:
            return
        for tensor in new:
            self._made.pop(id(tensor), None)  # so that the table is in the order in which they were made
            self._made[id(tensor)] = (tensor, MadeTensor(name, place))
            self._bytes += tensor.nbytes if type(tensor) in ORDINARY and tensor.layout is torch.strided else 0
        if len(self._made) > self._most or self._bytes > MOST_BYTES:
            self._let_go()

    def _noting(self, method: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        """The method; after it, `note` gets the line of the call, the module, the first argument and the result."""

        @functools.wraps(method)
        def noting(module: nn.Module, *arguments: Any, **given: Any) -> Any:
            result = method(module, *arguments, **given)
            place = _of_library(module, sys._getframe(1)) or caller_location(2)
            if place is not None:
                note(place, module, arguments[0] if arguments else given.get("name"), result)
            return result

        return noting

    def _note_attribute(self, place: SourceLocation, module: nn.Module, key: Any, result: Any) -> None:
        if isinstance(key, str):
            held = self._attributes.get(id(module))
            if held is None or held[0]() is not module:
                held = self._attributes[id(module)] = (weakref.ref(module), {})
            held[1][key] = place

    def _note_hook(self, place: SourceLocation, module: nn.Module, key: Any, handle: Any) -> None:
        self._hooks[handle.id] = place

    def _let_go(self) -> None:
        """Drop the tensors without another reference, the latest first: what was made of others holds them."""
        for key in reversed(list(self._made)):
            if sys.getrefcount(self._made[key][0]) <= _ONLY_HERE:
                del self._made[key]
        self._most, self._bytes = max(FEWEST, 2 * len(self._made)), 0


def _of_library(module: nn.Module, frame: FrameType | None) -> SourceLocation | None:
    """The line of a library that changes a module, where the module is of a class of the library's, or the library's
    constructor is at work; None: the user's line decides about it."""
    place, file = library_of(frame), file_of(type(module))
    if place is None or (file is not None and kind_of(file) == "library"):
        return place
    for outer in frames(frame):
        kind = kind_of(outer.f_code.co_filename)
        if kind == "user":
            return None
        if kind == "library" and outer.f_code.co_name == "__init__":
            return place
    return None


class _OriginMode(TorchFunctionMode):
    def __init__(self, origins: Origins) -> None:
        super().__init__()
        self._origins = origins

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._origins.note(func, args, kwargs or {}, result)
        return result


def _operation(function: Any) -> str | None:
    """`torch.randn` or `Tensor.to`; None for what makes no tensor."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        return None
    if name in ("__get__", "__set__"):
        attribute = getattr(getattr(function, "__self__", None), "__name__", "")
        if attribute not in _GETTERS:
            return None
        return f"Tensor.{attribute}" if name == "__get__" else f"Tensor.{attribute} = …"
    module = getattr(function, "__module__", None) or "Tensor"
    return f"{module.replace('torch._C._', 'torch.')}.{name}"
