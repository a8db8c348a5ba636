"""Finds in the source the very call that a frame is at. Any thread; no torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import FrameType

from devexplorer.core.models import Stamp, stamp_of, tree_of

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Source:
    """A file's syntax tree: its calls by where they end, which is at a parenthesis that is theirs alone, and each
    node's parent."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        self.file = file
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self._calls: dict[tuple[int, int], ast.Call] = {}
        self._withs: dict[tuple[int, int], ast.With | ast.AsyncWith] = {}
        self._items: dict[tuple[int, int], ast.With | ast.AsyncWith] = {}
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            if isinstance(node, ast.Call):
                self._calls[node.end_lineno or 0, node.end_col_offset or 0] = node
            elif isinstance(node, ast.With | ast.AsyncWith):
                self._withs[node.lineno, node.col_offset] = node
                for item in node.items:
                    self._items[item.context_expr.lineno, item.context_expr.col_offset] = node

    def at(self, frame: FrameType) -> ast.Call | ast.With | ast.AsyncWith | None:
        """The call, or the `with` that is being entered, that the frame is carrying out now."""
        line, end_line, column, end_column = next(
            islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4
        )
        if line is None or end_line is None or column is None or end_column is None:
            return None
        # Python 3.11 says of a `with` that is entered the whole statement, newer ones which of its items.
        whole = self._withs.get((line, column))
        return whole or self._calls.get((end_line, end_column)) or self._items.get((line, column))

    def above(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """The node and its parent, the parent and its parent, and so on out to the module."""
        while (parent := self.parents.get(node)) is not None:
            yield node, parent
            node = parent

    def scope(self, node: ast.AST) -> Scope | None:
        """The innermost function around a node; None: it is at the module's (or a class's) level."""
        return next((parent for _, parent in self.above(node) if isinstance(parent, Scope)), None)

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class around a node."""
        return next((parent for _, parent in self.above(node) if isinstance(parent, ast.ClassDef)), None)


def source_of(file: str) -> Source | None:
    """A file's tree as it is now; None where it cannot be read."""
    return _source(file, stamp_of(file))


@lru_cache(maxsize=64)
def _source(file: str, stamp: Stamp) -> Source | None:
    tree = tree_of(file)
    return None if tree is None else Source(file, tree)
