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
Edits = Edit | list[Edit] | None
"""One or several; none: the fix needs a decision."""


class FaultSite(NamedTuple):
    """The line at fault, with what is around it."""

    text: Text
    tree: ast.Module
    statement: ast.stmt
    function: Function
    finding: Finding
    holder: str
    """What holds the tensors of the finding: `attribute` where they are the attribute itself."""

    @property
    def first(self) -> str:
        """What the method calls its object."""
        return self_name(self.function) or ""

    @property
    def making(self) -> bool:
        """Whether it is where a module is made."""
        return self.function.name == "__init__"


class Text:
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


def blamed(finding: Finding, holder: str) -> FaultSite | None:
    """The statement at the line of a finding; None where the file cannot be read, or there is no function."""
    try:
        with open(finding.file, encoding="utf-8", newline="") as file:
            source = file.read()
        if (
            source.startswith("\ufeff") or "\r" in source.replace("\r\n", "") or "\f" in source
        ):  # lines would be counted otherwise
            return None
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    function: Function | None = None
    statement: ast.stmt | None = None
    for node in ast.walk(tree):  # outer ones first
        if not isinstance(node, ast.stmt) or not node.lineno <= finding.line <= (node.end_lineno or node.lineno):
            continue
        if isinstance(node, Function):
            function = node
        elif not isinstance(node, ast.ClassDef):
            statement = node
    if statement is None or function is None:
        return None
    return FaultSite(Text(source), tree, statement, function, finding, holder)
