"""A deep copy of a model whose functions belong to the copy. Any thread.

`copy.deepcopy` takes a function for atomic: a lambda over submodules (`self.f = lambda x: m.proj(x)`), a wrapped
forward or a hook still calls the modules of the original, in the copy too. Here every function whose closure or
defaults lead to modules or tensors is made again over their copies.
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from torch import Tensor, nn

from devexplorer.core.models.walk import parameters_and_buffers

DEPTH = 8
"""How deep containers, functions and objects within each other are followed."""
_ATOMS = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type, types.ModuleType, types.BuiltinFunctionType}
)


def deep_copy(model: nn.Module, memo: dict[int, Any] | None = None) -> Any:
    """What `copy.deepcopy(model, memo)` gives, with its functions over the copies. Raises what that raises."""
    memo = {} if memo is None else memo
    made = copy.deepcopy(model, memo)
    _Copying(memo).within(made, 0)
    return made


def clone_model(model: nn.Module, make: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of the model with other tensors in place of its tensors: what is tied stays tied, and no value is
    copied."""
    memo: dict[int, Any] = {}
    for tensor in parameters_and_buffers(model):
        if id(tensor) not in memo:
            made = make(tensor)
            memo[id(tensor)] = nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made
    second: nn.Module = deep_copy(model, memo)
    return second


class _Copying:
    """One copy, after `deepcopy` has made it: puts other functions into it."""

    def __init__(self, memo: dict[int, Any]) -> None:
        self._memo = memo
        self._counted = 0
        self._fresh: set[int] = set()
        self._functions: dict[int, tuple[Any, Any]] = {}
        self._cells: dict[int, tuple[Any, Any]] = {}
        self._seen: set[int] = set()

    def _is_fresh(self, thing: Any) -> bool:
        """Whether the copying made it, so that it may be changed."""
        if len(self._memo) != self._counted:
            self._fresh.update(id(value) for value in islice(self._memo.values(), self._counted, None))
            self._counted = len(self._memo)
        return id(thing) in self._fresh

    def within(self, thing: Any, depth: int) -> Any:
        """What replaces this thing in the copy; a container or object is changed itself."""
        if type(thing) in _ATOMS or isinstance(thing, Tensor) or depth > DEPTH:
            return thing
        if isinstance(thing, types.FunctionType):
            return self._function(thing, depth)
        if type(thing) is tuple:
            items = tuple(self.within(item, depth + 1) for item in thing)
            return items if any(new is not old for new, old in zip(items, thing, strict=True)) else thing
        if isinstance(thing, types.MethodType):
            function = self.within(thing.__func__, depth)
            return thing if function is thing.__func__ else types.MethodType(function, thing.__self__)
        if type(thing) is weakref.ref:
            target = self._memo.get(id(thing()))
            return thing if target is None else weakref.ref(target)
        if id(thing) in self._seen or not self._is_fresh(thing):
            return thing
        self._seen.add(id(thing))
        if type(thing) is functools.partial:
            partial: Any = thing
            function, given, named, own = partial.__reduce__()[2]
            named = {key: self.within(item, depth + 1) for key, item in named.items()}
            partial.__setstate__((self.within(function, depth + 1), self.within(given, depth), named, own))
        self._change(thing, 0 if isinstance(thing, nn.Module) else depth)
        return thing

    def _change(self, thing: Any, depth: int) -> None:
        if isinstance(thing, dict):
            for key, value in list(dict.items(thing)):
                new = self.within(value, depth + 1)
                if new is not value:
                    dict.__setitem__(thing, key, new)
        elif isinstance(thing, (list, deque)):
            for index, value in enumerate(thing):
                new = self.within(value, depth + 1)
                if new is not value:
                    thing[index] = new
        held = getattr(thing, "__dict__", None)
        if type(held) is dict:
            for key, value in list(held.items()):
                # the registers of a module are fresh with it, whatever made them
                new = value if type(value) in _ATOMS else self.within(value, depth + 1)
                if new is not value:
                    held[key] = new

    # --- functions

    def _function(self, function: types.FunctionType, depth: int) -> types.FunctionType:
        """The function over copies of what it closes over; itself where nothing there is a model's."""
        known = self._functions.get(id(function))
        if known is not None:
            made: types.FunctionType = known[1]
            return made
        if not self._leads_to_model(function, DEPTH - depth):
            self._functions[id(function)] = function, function
            return function
        cells = tuple(self._cell(cell) for cell in function.__closure__ or ())
        made = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, cells or None
        )
        made.__qualname__, made.__kwdefaults__ = function.__qualname__, function.__kwdefaults__
        made.__dict__.update(function.__dict__)
        self._functions[id(function)] = function, made  # before what it closes over, which may be itself
        for old, new in zip(function.__closure__ or (), cells, strict=True):
            if new is not old and not _is_filled(new) and _is_filled(old):
                new.cell_contents = self._copied(old.cell_contents, depth + 1)
        if function.__defaults__:
            made.__defaults__ = tuple(self._copied(item, depth + 1) for item in function.__defaults__)
        if function.__kwdefaults__:
            made.__kwdefaults__ = {key: self._copied(item, depth + 1) for key, item in function.__kwdefaults__.items()}
        return made

    def _cell(self, cell: types.CellType) -> types.CellType:
        """One cell for all functions that share it."""
        known = self._cells.get(id(cell))
        if known is None:
            known = self._cells[id(cell)] = cell, types.CellType()
        return known[1]

    def _copied(self, value: Any, depth: int) -> Any:
        """The copy's counterpart of something that a function of the original holds; itself where that cannot be
        copied."""
        if not self._leads_to_model(value, DEPTH - depth):
            return value
        if isinstance(value, types.FunctionType):
            return self._function(value, depth)
        try:
            made = copy.deepcopy(value, self._memo)
        except Exception:  # a tensor with a history, a lock: it stays shared, as `deepcopy` leaves it
            return value
        return self.within(made, depth)

    def _leads_to_model(self, thing: Any, depth: int) -> bool:
        """Whether a thing of the original is, or holds, a module, a tensor, or something else that was copied."""
        seen: set[int] = set()
        level = [thing]
        while level and depth >= 0:
            following: list[Any] = []
            for item in level:
                if (
                    type(item) in _ATOMS or id(item) in seen or self._is_fresh(item)
                ):  # some classes make new functions in a copy
                    continue
                if id(item) in self._memo or isinstance(item, (Tensor, nn.Module)):
                    return True
                seen.add(id(item))
                following += _held(item)
            level, depth = following, depth - 1
        return False


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # not filled yet
        return False
    return True


def _held(thing: Any) -> list[Any]:
    """What a function, container or object holds."""
    if isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell)]
        return [*cells, *(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
    if isinstance(thing, types.MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if type(thing) is weakref.ref:
        return [thing()]
    if isinstance(thing, dict):
        return [*dict.values(thing)]
    if isinstance(thing, (list, tuple, set, frozenset, deque)):
        return [*thing]
    held = getattr(thing, "__dict__", None)
    return [*held.values()] if type(held) is dict else []
