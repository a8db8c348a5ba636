"""The rule `hard-coded-device`: a device in the user's own line. The threads on which the model is built
and run."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import resolve_name
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from devexplorer.core.base import count_text
from devexplorer.core.doctor.code.syntax import nodes
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.isolation.source_location import SourceLocation, frames, kind_of, place_at
from devexplorer.core.models import Stamp, last_name, stamp_of, tree_of
from devexplorer.core.virtual.cuda import emulation
from devexplorer.core.virtual.cuda.emulation import Observer

RULE = "hard-coded-device"
_EMULATION = str(Path(emulation.__file__).parent) + os.sep
_CORE = str(Path(__file__).parents[1]) + os.sep
_MODULES = os.path.join("torch", "nn", "modules", "module.py")
_UNKNOWN = object()


def asking(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """The line of a model (or of a library in it) that asks torch for something, and whether torch's own code is in
    between.

    None where it is the doctor itself that asks.
    """
    between = False
    for outer in frames(frame):
        file = outer.f_code.co_filename
        if file.startswith(_EMULATION) or outer.f_code.co_name == "__torch_function__":
            continue  # a mode that only passes on what it was asked
        if kind_of(file) != "skipped":
            return outer, between
        if file.startswith(_CORE):
            break
        between = True
    return None, between


def line_of(frame: FrameType | None) -> SourceLocation | None:
    """The line at which a frame is; None for no frame, and for torch's code."""
    return None if frame is None else place_at(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def running(frame: FrameType | None) -> bool:
    """Whether a frame runs within a module's forward (or in its backward) rather than while the model is made."""
    for outer in frames(frame):
        name = outer.f_code.co_name
        if name == "_engine_run_backward":
            return True
        if name == "_call_impl" and outer.f_code.co_filename.endswith(_MODULES):
            return True
    return False


class HardCoded(Observer):
    """Looks at each call that names a device, and remembers what the code there says."""

    def __init__(self, collector: FindingCollector, cards: int) -> None:
        self._collector = collector
        self._cards = cards
        self._known: dict[tuple[CodeType, int], Written | Argument | None] = {}

    def seen(self, frame: FrameType | None, argument: str | None = None) -> None:
        """See `Observer`."""
        at, between = asking(frame)
        otherwise: tuple[Written, FrameType, bool] | None = None
        while at is not None:
            key = (at.f_code, at.f_lasti)
            result = self._known.get(key, _UNKNOWN)
            if result is _UNKNOWN:
                result = self._known[key] = written_at(at, argument)
            if isinstance(result, Written):
                self._add(result, at, between)
                return
            if isinstance(result, Argument):
                argument = result.name
                if result.otherwise is not None and otherwise is None:
                    otherwise = result.otherwise, at, between
            elif kind_of(at.f_code.co_filename) != "library":
                break
            while at is not None and at.f_code.co_name in ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>"):
                at = at.f_back
            at, between = asking(at.f_back) if at is not None else (None, True)
        if otherwise is not None:
            self._add(*otherwise)

    def missing(self, name: str, frame: FrameType | None) -> None:
        """See `Observer`."""
        at, _ = asking(frame)
        if at is None:
            return
        self._collector.add(
            RULE,
            f"`{name}` is not there: this machine has {count_text(self._cards, 'card')}, from cuda:0 on.",
            "Take the device from a tensor at hand, as in `device=x.device`, or let the caller pass it.",
            place=line_of(at),
            severity="error",
        )

    def not_checked(self, what: str, why: str, frame: FrameType | None) -> None:
        """See `Observer`."""
        self._collector.not_checked(what, why, line_of(asking(frame)[0]))

    def _add(self, result: Written, frame: FrameType, between: bool) -> None:
        at_work, place = running(frame), line_of(frame)
        if place is None or ((result.asks or result.default) and not at_work):
            return
        if between and self._collector.has(RULE, place):
            return  # one `.cuda()` of a module moves many parameters
        severity = "warning"
        if result.asks:
            severity = "note"
        elif not result.default and (at_work or result.card):
            severity = "error"
        parts = [part for part in frame.f_code.co_qualname.split(".") if not part.startswith("<")]
        where = f"in `{parts[-1]}`" if parts else "at the top of the file"  # the function around a comprehension
        message = _message(result, place, where, at_work)
        fix = (
            "Leave it out: the user of the model places it, with `model.to(device)`; or take the device as an argument."
        )
        if at_work:
            instead = "`.to(x.device)`" if result.text.startswith(".cuda") else "`device=x.device`"
            fix = (
                f"Take the device from a tensor at hand, as in {instead}; what belongs to the model is a buffer, which"
                " `model.to(device)` moves."
            )
        self._collector.add(RULE, message, fix, place=place, severity=severity)


def _message(result: Written, place: SourceLocation, where: str, at_work: bool) -> str:
    if result.default:
        given = f"`{result.name}` is what `__init__` was given, by default `{result.text}` (line {result.line}),"
        return f"{given} and stays that when the model moves."
    what = f"`{result.text}`"
    if result.name:
        file = "" if os.path.abspath(result.file) == place.file else f" of {os.path.basename(result.file)}"
        what = f"`{result.name}`, which is {what} in line {result.line}{file},"
    cuda = "CUDA" if "cuda" in result.text else "such a device"
    card, without = "the current card", f"a machine without {cuda}"
    if result.card:
        card, without = "one fixed card", "a machine that has no such card"
    if result.asks:
        return f"{what} {where} asks for {cuda} first and then takes {card}, whatever card the rest of the model is on."
    rest = "whatever card the rest of the model is on" if at_work else "wherever the model is wanted"
    return f"{what} {where} fails on {without}, and puts this on {card}, {rest}."


# Whether a device is written into the code of a call, or comes from elsewhere: the very call that a frame is at is
# found in the source.

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class SyntaxSource:
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


def source_of(file: str) -> SyntaxSource | None:
    """A file's tree as it is now; None where it cannot be read."""
    return _source(file, stamp_of(file))


@lru_cache(maxsize=64)
def _source(file: str, stamp: Stamp) -> SyntaxSource | None:
    tree = tree_of(file)
    return None if tree is None else SyntaxSource(file, tree)


_DEVICE = re.compile(r"(cuda|vgpu|xpu|mps)(:\d+)?$")
_TENSOR_TYPE = re.compile(r"(torch\.)?cuda\.\w+Tensor$")
_ASKS = frozenset({"is_available", "device_count", "is_cuda", "current_accelerator", "is_initialized"})
_NAMED = ("device", "map_location", "output_device")
"""Keywords that take a device."""
_PLACING = frozenset({"cuda", "to", "type", "device", "set_device"})
"""Functions whose first argument can be a device, or the number of a card."""


@dataclass(frozen=True, slots=True)
class Written:
    """A device that is written in the code."""

    text: str
    """As it is written: `.cuda()`, `"cuda:0"`."""
    card: bool
    """Whether the number of a card is written, too."""
    asks: bool = False
    """Whether the code asks first if there is such a device."""
    name: str = ""
    """The variable or attribute through which it came."""
    file: str = ""
    line: int = 0
    """Where that got it."""
    default: bool = False
    """Whether it is only the default of an argument."""


@dataclass(frozen=True, slots=True)
class Argument:
    """The device is an argument of the function itself: who called it knows more."""

    name: str
    otherwise: Written | None = None
    """What the function takes when it is not given (`device or "cuda"`)."""


def written_at(frame: FrameType, argument: str | None = None) -> Written | Argument | None:
    """The device that is written in the call at which a frame is, or in what it got it from; None: in neither.

    `argument` is the keyword that is looked for first.
    """
    source = source_of(frame.f_code.co_filename)
    at = source.at(frame) if source is not None else None
    if source is None or at is None:
        return None
    looking = _Looking(source, frame.f_globals)
    if isinstance(at, ast.Call):
        result = looking.call(at, argument)
    else:
        result = next(filter(None, (looking.value(item.context_expr, at) for item in at.items)), None)
    if result is not None and not result.asks and asks_above(source, at):
        result = replace(result, asks=True)
    return Argument(looking.argument, result) if looking.argument else result


def asks_above(source: SyntaxSource, node: ast.AST) -> bool:
    """Whether a node is under a condition that asks if there is such a device."""
    for inner, outer in source.above(node):
        if isinstance(outer, Scope):
            return False
        if isinstance(outer, ast.If | ast.IfExp) and inner is not outer.test and _asks(outer.test):
            return True
    return False


def _asks(test: ast.expr) -> bool:
    return any(isinstance(node, ast.expr) and last_name(node) in _ASKS for node in ast.walk(test))


class _Looking:
    """Looks in one file."""

    def __init__(self, source: SyntaxSource, names: dict[str, Any]) -> None:
        self._source = source
        self._names = names
        self._seen: set[tuple[ast.expr, bool]] = set()
        """Expressions that were looked at: names may lead round in circles."""
        self.argument = ""
        """The argument of the function that a device came from, if it did."""

    def call(self, call: ast.Call, argument: str | None = None) -> Written | None:
        """The device in a call."""
        made = self._made(call, call)  # since Python 3.13 `with torch.device("cuda")` is at this call
        if made is not None:
            return made
        name = last_name(call.func)
        if _TENSOR_TYPE.fullmatch(text := ast.unparse(call.func)):
            return Written(text, card=False)
        for keyword in sorted(call.keywords, key=lambda keyword: keyword.arg != argument):
            if keyword.arg is None or keyword.arg not in (*_NAMED, argument):
                continue
            result = self.value(keyword.value, call, numbers=True)
            if result is not None:
                plain = not result.name and not result.asks
                return replace(result, text=f"{keyword.arg}={result.text}") if plain else result
        for position, value in enumerate(call.args):
            takes = position == 0 and name in _PLACING
            before = self.argument
            result = self.value(value, call, numbers=takes and name != "type")
            if not takes:
                self.argument = before  # whatever that argument is, it need not be a device
            if result is not None:
                return replace(result, text=f".cuda({result.text})") if name == "cuda" and not result.name else result
        if name == "cuda" and not call.args and all(keyword.arg != "device" for keyword in call.keywords):
            return Written(".cuda()", card=False)
        return None

    def value(self, node: ast.expr, use: ast.AST, *, numbers: bool = False) -> Written | None:
        """The device that an expression, used there, is written to be."""
        if (node, numbers) in self._seen:
            return None
        self._seen.add((node, numbers))
        parts: list[ast.expr] = []
        match node:
            case ast.Constant():
                return _constant(node, numbers)
            case ast.Call():
                return self._made(node, use)
            case ast.Name(id=name):
                return self._name(name, use, numbers)
            case ast.Attribute():
                return self._attribute(node, use, numbers)
            case ast.IfExp(body=body, orelse=orelse):
                parts = [body, orelse]
            case ast.BoolOp(values=parts):
                pass
        for part in parts:
            result = self.value(part, use, numbers=numbers)
            if result is not None:
                return replace(result, asks=result.asks or _asks(node))
        return None

    def _made(self, call: ast.Call, use: ast.AST) -> Written | None:
        """`torch.device(...)` with something written in it."""
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        if ast.unparse(call.func) not in ("torch.device", "device") or not values:
            return None
        result = self.value(values[0], use)
        if result is None:
            return None
        if not result.name:
            result = replace(result, text=ast.unparse(call))
        number = len(values) > 1 and isinstance(values[1], ast.Constant)
        return replace(result, card=result.card or number)

    def _name(self, name: str, use: ast.AST, numbers: bool) -> Written | None:
        scope = self._source.scope(use)
        while scope is not None:
            if name in {argument.arg for argument in nodes(scope.args, ast.arg)}:
                self.argument = self.argument or name
                return None
            result = self._assigned(scope, name, numbers, name)
            if result is not None or _assigns(scope, name):
                return result
            scope = self._source.scope(scope)
        return self._assigned(self._source.tree, name, numbers, name) or self._imported(name)

    def _attribute(self, node: ast.Attribute, use: ast.AST, numbers: bool) -> Written | None:
        if _TENSOR_TYPE.fullmatch(text := ast.unparse(node)):
            return Written(text, card=False)
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                owner = self._source.owner(use)
                return None if owner is None else self._of_class(owner, name, numbers)
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return self._constant_of(self._names.get(module), name, text)
        return None

    def _of_class(self, owner: ast.ClassDef, name: str, numbers: bool) -> Written | None:
        for target, value in _pairs(ast.walk(owner)):
            match target:
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=known):
                    pass
                case ast.Name(id=known) if self._source.scope(target) is None:
                    pass
                case _:
                    continue
            if known != name:
                continue
            before, self.argument = self.argument, ""
            result = self.value(value, target, numbers=numbers)
            given, self.argument = self.argument, before
            if result is None and given:
                result = self._default(self._source.scope(target), given, numbers)
            if result is not None:
                return replace(self._through(result, value, target), name=f"self.{name}")
        return None

    def _default(self, scope: Scope | None, name: str, numbers: bool) -> Written | None:
        if scope is None:
            return None
        plain = [*scope.args.posonlyargs, *scope.args.args]
        # defaults belong to the last of the arguments
        pairs: list[tuple[ast.arg, ast.expr | None]] = [*zip(plain[::-1], scope.args.defaults[::-1], strict=False)]
        pairs += zip(scope.args.kwonlyargs, scope.args.kw_defaults, strict=True)
        for argument, default in pairs:
            if argument.arg == name and isinstance(default, ast.Constant):
                result = _constant(default, numbers)
                if result is not None:
                    return replace(result, default=True, file=self._source.file, line=default.lineno)
        return None

    def _assigned(self, scope: ast.AST, name: str, numbers: bool, shown: str) -> Written | None:
        for target, value in _pairs(_inside(scope)):
            if isinstance(target, ast.Name) and target.id == name:
                result = self.value(value, value, numbers=numbers)
                if result is not None:
                    return replace(self._through(result, value, value), name=result.name or shown)
        return None

    def _through(self, result: Written, value: ast.expr, target: ast.expr) -> Written:
        """The same as what came through an assignment."""
        return replace(
            result,
            file=result.file or self._source.file,
            line=result.line or value.lineno,
            asks=result.asks or asks_above(self._source, target),
        )

    def _imported(self, name: str) -> Written | None:
        for node in self._source.tree.body:
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if (alias.asname or alias.name) == name and isinstance(node, ast.ImportFrom):
                    wanted = "." * node.level + (node.module or "")
                    try:
                        full = resolve_name(wanted, self._names.get("__package__") or None)
                    except ImportError:
                        return None
                    return self._constant_of(sys.modules.get(full), alias.name, name)
        return None

    def _constant_of(self, module: object, name: str, shown: str) -> Written | None:
        file = getattr(module, "__file__", None)
        if not isinstance(module, ModuleType) or not isinstance(file, str) or kind_of(file) == "skipped":
            return None
        source = source_of(file)
        if source is None:
            return None
        other = _Looking(source, vars(module))
        other._seen = self._seen
        return other._assigned(source.tree, name, False, shown)


def _constant(node: ast.Constant, numbers: bool) -> Written | None:
    value = node.value
    if isinstance(value, str) and (_DEVICE.fullmatch(value) or _TENSOR_TYPE.fullmatch(value)):
        return Written(f'"{value}"', card=":" in value)
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return Written(str(value), card=True)
    return None


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """What is within a node, without what is within the functions and classes there."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Scope | ast.ClassDef):
            yield from _inside(child)


def _pairs(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets, and what they are set to."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield target, node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield node.target, node.value


def _assigns(scope: ast.AST, name: str) -> bool:
    """Whether a name gets a value there in any way, so that it is the function's own."""
    for node in _inside(scope):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
    return False
