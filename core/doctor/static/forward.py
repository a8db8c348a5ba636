"""What the source of `forward`, and of the methods that it calls on its object, reads of the object. Read, never
executed. Any thread."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from devexplorer.core.isolation.source_location import SourceLocation
from devexplorer.core.models.class_source import ClassSource, Function, is_switch, reached_methods

CUTS = ("data", "detach")


class Cut(NamedTuple):
    """A line behind which nothing has a history."""

    code: str
    """`torch.no_grad()`, `self.weight.data`."""
    place: SourceLocation
    block: bool = False
    """Whether it is a `no_grad` block or decorator rather than an expression."""


class Use(NamedTuple):
    """A place where a method reads `self.…`."""

    names: tuple[str, ...]
    """`("weight", "data")` of `self.weight.data`; empty for `self` alone."""
    called: bool
    within: Cut | None
    """The `no_grad` or `inference_mode` around it."""
    place: SourceLocation

    def code(self, depth: int) -> str:
        """As it is written, up to the name at `depth`, counted from 0."""
        names = self.names[: depth + 1]
        return f"self.{'.'.join(names)}{'()' if names[-1] == 'detach' else ''}"


def forward_of(kind: type) -> list[Use]:
    """What `forward` and the methods that it calls on its object read of it; those of the bases too."""
    return [use for reached in reached_methods(kind) for use in _Reader(*reached).read()]


class _Reader:
    """Through one method, knowing what is within `no_grad`."""

    def __init__(self, source: ClassSource, function: Function, first: str) -> None:
        self._source, self._function, self._first = source, function, first

    def read(self) -> Iterator[Use]:
        """Everything that it reads of its object, in the order of the source."""
        switch = next((decorator for decorator in self._function.decorator_list if is_switch(decorator)), None)
        yield from self._all(self._function.body, None if switch is None else self._cut(switch))

    def _all(self, nodes: Sequence[ast.AST], within: Cut | None) -> Iterator[Use]:
        for node in nodes:
            yield from self._node(node, within, False)

    def _node(self, node: ast.AST, within: Cut | None, called: bool) -> Iterator[Use]:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            switch = next((item.context_expr for item in node.items if is_switch(item.context_expr)), None)
            yield from self._all([item.context_expr for item in node.items if item.context_expr is not switch], within)
            yield from self._all(node.body, within if switch is None else self._cut(switch, node.lineno))
            return
        names, inner = _chain(node)
        if isinstance(inner, ast.Name) and inner.id == self._first:
            if not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
                yield Use(names, called, within, self._place(getattr(node, "lineno", 0)))
            return
        if isinstance(node, ast.Call):
            yield from self._node(node.func, within, True)
            yield from self._all([*node.args, *(keyword.value for keyword in node.keywords)], within)
            return
        yield from self._all(list(ast.iter_child_nodes(node)), within)

    def _cut(self, switch: ast.expr, line: int | None = None) -> Cut:
        return Cut(ast.unparse(switch), self._place(line or switch.lineno), block=True)

    def _place(self, line: int) -> SourceLocation:
        return SourceLocation(self._source.file, line, self._function.name, self._source.library)


def _chain(node: ast.AST) -> tuple[tuple[str, ...], ast.AST]:
    """`("weight", "detach", "T")` and `self` of `self.weight.detach().T`; calls of anything else end it."""
    names: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "detach"
            and not node.args
        ):
            node = node.func
        else:
            return tuple(reversed(names)), node
