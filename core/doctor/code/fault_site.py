"""The statement at fault for a finding, with its source: what a fix is made of. Pure but for reading the
file."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from devexplorer.core.models import Function, self_name
from devexplorer.core.records import Finding

Edit = tuple[ast.expr | ast.stmt, str]
"""A piece of the source, and its replacement."""
Edits = list[Edit]
"""Pieces none of which is within another."""


class FaultSite(NamedTuple):
    """The line at fault, with what is around it."""

    text: SourceText
    tree: ast.Module
    statement: ast.stmt
    function: Function
    owner: ast.ClassDef | None
    """The class that the function is in."""
    finding: Finding
    holder: str
    """What holds the tensors of the finding: `attribute` where they are the attribute itself."""

    @property
    def first(self) -> str:
        """What the method calls its object; empty where it is no method."""
        method = self.owner is not None and self.function in self.owner.body
        return (self_name(self.function) or "") if method else ""

    @property
    def arguments(self) -> list[ast.arg]:
        """Those of the function without the object."""
        given = self.function.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        return every[1:] if self.first else every

    @property
    def making(self) -> bool:
        """Whether it is where a module is made."""
        return self.function.name == "__init__"


class SourceText:
    """The source as bytes, because columns of the syntax tree count those."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._bytes = source.encode()
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def of(self, node: ast.expr | ast.stmt) -> str:
        """The source of a node."""
        begin, end = self._span(node)
        return self._bytes[begin:end].decode()

    def with_edits(self, edits: Sequence[Edit]) -> str:
        """The whole source with something else there; none of the pieces is within another."""
        new = self._bytes
        for (begin, end), text in sorted(((self._span(node), text) for node, text in edits), reverse=True):
            new = new[:begin] + text.encode() + new[end:]
        return new.decode()

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)


def blamed(finding: Finding, holder: str) -> list[FaultSite]:
    """The statements at the line of a finding, several where semicolons part them; none where the file cannot be read,
    or there is no function."""
    try:
        with open(finding.file, encoding="utf-8", newline="") as file:
            source = file.read()
        if (
            source.startswith("\ufeff") or "\r" in source.replace("\r\n", "") or "\f" in source
        ):  # lines would be counted otherwise
            return []
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    text, sites = SourceText(source), list[FaultSite]()
    waiting: list[tuple[ast.AST, Function | None, ast.ClassDef | None]] = [(tree, None, None)]
    while waiting:
        node, function, owner = waiting.pop()
        inner = [item for item in ast.iter_child_nodes(node) if _covers(item, finding.line)]
        statements = [item for item in inner if isinstance(item, ast.stmt | ast.ExceptHandler | ast.match_case)]
        if isinstance(node, Function):
            function = node
        elif isinstance(node, ast.ClassDef):
            owner = node
        elif isinstance(node, ast.stmt) and not statements and function is not None:
            sites.append(FaultSite(text, tree, node, function, owner, finding, holder))
        waiting.extend((item, function, owner) for item in reversed(statements))
    return sites


def _covers(node: ast.AST, line: int) -> bool:
    """Whether a node is on a line; `case` has no place of its own, and what is in it has."""
    if isinstance(node, ast.match_case):
        return any(_covers(item, line) for item in node.body)
    return isinstance(node, ast.stmt | ast.ExceptHandler) and node.lineno <= line <= (node.end_lineno or node.lineno)
