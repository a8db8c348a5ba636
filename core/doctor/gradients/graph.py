"""Which parameters backward can reach from a result, and which user Functions gave no gradient there. The
calling thread."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.autograd.function import BackwardCFunction

from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models import functions_of
from devexplorer.core.models.class_source import class_source


class Refusal(NamedTuple):
    """A Function that returned None for an input that wants a gradient."""

    name: str
    place: SourceLocation | None
    reached: frozenset[int]
    """`id()` of the leaves behind that input."""


class Graph:
    """The graph behind the roots of a backward; made before it runs, asked afterwards."""

    def __init__(self, roots: Iterable[Tensor]) -> None:
        self._nones: dict[type, list[Any]] = {}
        """Function -> nodes behind the inputs that it gave no gradient."""
        nodes = _below([root.grad_fn for root in roots if root.grad_fn is not None])
        self.reached = _leaves(nodes)
        """`id()` of every leaf that a gradient may get to."""
        self._handles = [self._watch(node) for node in nodes if isinstance(node, BackwardCFunction)]

    def _watch(self, node: Any) -> Any:
        kind: type = type(node)._forward_cls

        def ran(given: Sequence[Tensor | None], received: Sequence[Tensor | None]) -> None:
            if all(item is None for item in received):
                return
            for gradient, (below, _) in zip(given, node.next_functions, strict=False):
                if gradient is None and below is not None:
                    self._nones.setdefault(kind, []).append(below)

        return node.register_hook(ran)

    def refusals(self) -> list[Refusal]:
        """Those Functions, once backward is over."""
        return [
            Refusal(kind.__name__, _return_of(kind), frozenset(_leaves(_below(nodes))))
            for kind, nodes in self._nones.items()
        ]

    def close(self) -> None:
        """Let go of the graph."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._nones.clear()


def _below(waiting: list[Any]) -> set[Any]:
    found: set[Any] = set()
    waiting = list(waiting)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [below for below, _ in node.next_functions if below is not None]
    return found


def _leaves(nodes: Iterable[Any]) -> set[int]:
    return {id(leaf) for node in nodes if (leaf := getattr(node, "variable", None)) is not None}


def _return_of(kind: type) -> SourceLocation | None:
    """The line of `backward` that returns None for an input, or else its last `return`."""
    source = class_source(kind)
    function = None if source is None else functions_of(source).get("backward")
    if source is None or function is None:
        return None
    returns = sorted(
        (node for node in ast.walk(function) if isinstance(node, ast.Return)), key=lambda node: node.lineno
    )
    # `None` anywhere in what is returned; a bare `return` has no other value.
    with_none = [
        node
        for node in returns
        if node.value is None
        or any(isinstance(item, ast.Constant) and item.value is None for item in ast.walk(node.value))
    ]
    lines = [node.lineno for node in (with_none or returns[-1:])]
    return SourceLocation(source.file, lines[0] if lines else function.lineno, "backward", source.library)
