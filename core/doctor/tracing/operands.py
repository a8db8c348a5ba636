"""The tensors among the arguments of a call, nested ones too, and the same arguments with other tensors. Pure; any
thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

DEPTH, ITEMS = 4, 1000
"""How deep, and how far, lists of operands are searched."""


def tensors(values: Any, depth: int = 0) -> Iterator[Tensor]:
    """Every tensor in nested lists, tuples and dicts."""
    if isinstance(values, Tensor):
        yield values
    elif depth < DEPTH and isinstance(values, (list, tuple)):
        for value in values[:ITEMS]:
            yield from tensors(value, depth + 1)
    elif depth < DEPTH and type(values) is dict:
        for value in list(values.values())[:ITEMS]:
            yield from tensors(value, depth + 1)


def operands(args: Any, kwargs: Any) -> list[Tensor]:
    """Those of a call, each once, in their order."""
    return list({id(tensor): tensor for tensor in tensors((args, kwargs))}.values())


def exchanged(values: Any, change: Callable[[Tensor], Tensor], depth: int = 0) -> Any:
    """The same nest with every tensor as `change` gives it; what is not a plain list, tuple or dict is passed on as it
    is."""
    if isinstance(values, Tensor):
        return change(values)
    if depth < DEPTH and type(values) in (list, tuple):
        return type(values)(exchanged(value, change, depth + 1) for value in values)
    if depth < DEPTH and type(values) is dict:
        return {key: exchanged(value, change, depth + 1) for key, value in values.items()}
    if depth < DEPTH and isinstance(values, tuple) and hasattr(values, "_make"):
        return values._make(exchanged(value, change, depth + 1) for value in values)
    return values
