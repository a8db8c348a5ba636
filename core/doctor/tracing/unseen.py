"""Where an operand comes from that no watched call has made: the user's own line is read for the name it has there. Any
thread.

`torch.Tensor(3)`, `torch.FloatTensor` and `torch.from_numpy` are no calls that a mode sees; globals and variables of
closures were made before. The source is read, never executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any

from torch import Tensor

from devexplorer.core.doctor.tracing.call import Call
from devexplorer.core.doctor.tracing.sources import Origin
from devexplorer.core.isolation.source_location import SourceLocation, kind_of
from devexplorer.core.models.class_source import last_name, tree_of

_TYPED = ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "Bool", "BFloat16")
UNSEEN = frozenset({"from_numpy", "frombuffer", "Tensor", *(f"{kind}Tensor" for kind in _TYPED)})
"""Functions of `torch` that make a tensor on the CPU and that are not seen."""


def unseen(call: Call, tensor: Tensor) -> Origin | None:
    """What the user's line says about an operand of the call; None where it says nothing."""
    place, frame = call.place, call.users_frame
    if frame is None or place is None:
        return None
    body = _body(frame.f_code)
    if body is None:
        return None
    for name in _names(body, place.line):
        if frame.f_locals.get(name) is tensor:
            made = _made(body, name, place)
            if made is not None:
                return Origin("factory", path=call.run.path, op=made[0], place=made[1])
            if name not in frame.f_code.co_varnames:
                return _variable(call, name, tensor)
        elif frame.f_globals.get(name) is tensor:
            return _variable(call, name, tensor)
    written = [_made_by(node) for node in _at(body, place.line)]
    op = next((op for op in written if op is not None), None)
    return None if op is None else Origin("factory", path=call.run.path, op=op, place=place)


def _variable(call: Call, name: str, tensor: Tensor) -> Origin:
    known = call.run.sources.of(tensor)
    return Origin("variable", path=name, op=known.op, place=known.place)


@lru_cache(maxsize=256)
def _body(code: CodeType) -> ast.AST | None:
    """The syntax tree of the innermost function that has this code, its lines as in the file."""
    tree = None if kind_of(code.co_filename) == "skipped" else tree_of(code.co_filename)
    if tree is None:
        return None
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        and min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))]) == code.co_firstlineno
    ]
    return inside[-1] if inside else None


def _at(body: ast.AST, line: int) -> Iterator[ast.AST]:
    """Nodes of the expressions on that line."""
    for node in ast.walk(body):
        first = getattr(node, "lineno", 0)
        if isinstance(node, ast.expr) and first <= line <= (node.end_lineno or first):
            yield node


def _names(body: ast.AST, line: int) -> list[str]:
    return list(dict.fromkeys(node.id for node in _at(body, line) if isinstance(node, ast.Name)))


def _made(body: ast.AST, name: str, before: SourceLocation) -> tuple[str, SourceLocation] | None:
    """The last assignment to the name above the line, where it is one of those that are not seen."""
    found: tuple[str, SourceLocation] | None = None
    for node in ast.walk(body):
        if (
            isinstance(node, ast.Assign)
            and node.lineno < before.line
            and any(isinstance(item, ast.Name) and item.id == name for item in node.targets)
        ):
            op = next((op for op in map(_made_by, ast.walk(node.value)) if op is not None), None)
            if op is not None and (found is None or node.lineno > found[1].line):
                found = op, before._replace(line=node.lineno)
    return found


def _made_by(node: Any) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    name = last_name(node.func)
    return f"torch.{name}" if name in UNSEEN else None
