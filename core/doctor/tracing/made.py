"""Notes what a call has made, so that it can be said later where an operand comes from. The thread that is watched.

`torch.Tensor(3)`, `torch.FloatTensor` and `torch.from_numpy` are no calls that a mode sees; globals and variables of
closures were made before. For those the user's own line is read for the name that the operand has there; the source is
never executed.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from torch import Tensor, nn

from devexplorer.core.doctor.tracing.call import Call
from devexplorer.core.doctor.tracing.sources import Origin
from devexplorer.core.isolation.source_location import SourceLocation, kind_of, library_of, place_of
from devexplorer.core.models import expressions_at, last_name, tree_of

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
    written = [_made_by(node) for node in expressions_at(body, place.line)]
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


def _names(body: ast.AST, line: int) -> list[str]:
    return list(dict.fromkeys(node.id for node in expressions_at(body, line) if isinstance(node, ast.Name)))


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


MOST = 64
"""Results of one call that are noted."""
_PASSED_ON = ("computed", "factory", "attribute", "hidden", "input", "copy", "variable", "held")
"""Kinds of origins that are to blame for what is computed from them on the wrong device."""

_FOR_THE_HOST = ("_pack_padded_sequence", "_pad_packed_sequence")
"""What they return on the CPU is there on every device, wherever their arguments were made."""


def note_results(call: Call, result: Any) -> None:
    """Remember every new tensor among the results."""
    if isinstance(result, Tensor):
        _note(call, result)
    elif isinstance(result, (tuple, list)):
        for item in result[:MOST]:
            if isinstance(item, Tensor):
                _note(call, item)


def _note(call: Call, tensor: Tensor) -> None:
    given = call.operands
    if any(tensor is item for item in given):
        return
    sources, kind = call.run.sources, call.kind
    if kind.factory and not (kind.name == "normal" and given):  # with a tensor as its mean it draws where that is
        named = call.kwargs.get("device") is not None
        origin = Origin("factory", path=call.run.path, op=kind.description, place=call.where, named_device=named)
        made = _module_made(call)
        if made is not None:
            origin = replace(origin, op=made[0], place=made[1], of_module=True)
        sources.note(tensor, origin)
        return
    cast = _cast(call, tensor, given)
    if tensor.device == call.run.device or kind.name in _FOR_THE_HOST:
        sources.note(tensor, Origin("result", path=call.run.path, op=kind.description, cast=cast))
        return
    there = [item for item in given if item.device == tensor.device]
    if not there and given and kind.copies:
        sources.note(tensor, Origin("copy", path=call.run.path, op=kind.description, place=call.where, cast=cast))
        return
    known = sources.known(there[0]) or unseen(call, there[0]) if there else None
    if known is not None and known.kind in _PASSED_ON:
        others = (origin for origin in map(sources.known, there[1:]) if origin is not None)
        beside = known.beside.union(*(origin.operands for origin in others if origin.kind in _PASSED_ON))
        sources.note(tensor, replace(sources.placed(known, there[0]), derived=True, beside=beside, cast=cast))
        return
    sources.note(tensor, Origin("result", path=call.run.path, op=kind.description, place=call.where, cast=cast))


def _module_made(call: Call) -> tuple[str, SourceLocation | None] | None:
    """`nn.LayerNorm`, or the user's class, where it is a module's own constructor that makes the tensor, and the line
    that makes that module: of modules within each other the outermost, which is what can be moved."""
    frame: FrameType | None = call.frame
    outermost: FrameType | None = None
    while frame is not None and frame is not call.run.until:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), nn.Module):
            outermost = frame
        frame = frame.f_back
    if outermost is None:
        return None
    kind, until = type(outermost.f_locals["self"]), call.run.until
    name = f"nn.{kind.__name__}" if kind.__module__.startswith("torch.nn.") else kind.__name__
    return name, library_of(outermost.f_back, until) or place_of(outermost.f_back, until)


def _cast(call: Call, tensor: Tensor, given: list[Tensor]) -> bool:
    """Whether this dtype was asked for, here or where an operand was made."""
    dtype = tensor.dtype
    if not dtype.is_floating_point:
        return False
    if given and (call.kwargs.get("dtype") is not None or (call.kind.casts and dtype is not given[0].dtype)):
        return True
    for item in given:
        if item.dtype is dtype:
            known = call.run.sources.known(item)
            if known is not None and known.cast:
                return True
    return False
