"""Nodes of syntax trees by their kind. Any thread."""

from __future__ import annotations

import ast
from typing import TypeVar

from devexplorer.core.models import expressions_at

Node = TypeVar("Node", bound=ast.AST)


def nodes(tree: ast.AST | None, *kinds: type[Node]) -> list[Node]:
    """Those of some kinds in a tree; none where there is no tree."""
    if tree is None:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def calls_at(tree: ast.AST | None, line: int) -> list[ast.Call]:
    """The calls of a tree that are on a line."""
    if tree is None:
        return []
    return [node for node in expressions_at(tree, line) if isinstance(node, ast.Call)]
