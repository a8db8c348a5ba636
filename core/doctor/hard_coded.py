"""The rule `hard-coded-device`: a device in the user's own line. The threads on which the model is built
and run."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import resolve_name
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.isolation.source_location import SourceLocation, kind_of, place_at
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
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file.startswith(_EMULATION) or code.co_name == "__torch_function__":
            frame = frame.f_back  # a mode that only passes on what it was asked
            continue
        if kind_of(file) != "skipped":
            return frame, between
        if file.startswith(_CORE):
            return None, between
        between = True
        frame = frame.f_back
    return None, between


def line_of(frame: FrameType | None) -> SourceLocation | None:
    """The line at which a frame is; None for no frame, and for torch's code."""
    return None if frame is None else place_at(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def running(frame: FrameType | None) -> bool:
    """Whether a frame runs within a module's forward (or in its backward) rather than while the model is made."""
    while frame is not None:
        code = frame.f_code
        if (
            code.co_name == "_call_impl" and code.co_filename.endswith(_MODULES)
        ) or code.co_name == "_engine_run_backward":
            return True
        frame = frame.f_back
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
        cards = f"{self._cards} cards, cuda:0 to cuda:{self._cards - 1}" if self._cards > 1 else "one card, cuda:0"
        self._collector.add(
            RULE,
            f"`{name}` is not there: this machine has {cards}.",
            "Take the device from a tensor at hand, as in `device=x.device`, or let the caller pass it.",
            place=line_of(at),
            severity="error",
        )

    def not_checked(self, what: str, why: str, frame: FrameType | None) -> None:
        """See `Observer`."""
        self._collector.not_checked(what, why, line_of(asking(frame)[0]))

    def _add(self, result: Written, frame: FrameType, between: bool) -> None:
        at_work = running(frame)
        place = line_of(frame)
        assert place is not None
        if (result.asks or result.default) and not at_work:
            return
        if between and self._collector.has(RULE, place):
            return  # one `.cuda()` of a module moves many parameters
        if result.asks:
            severity = "note"
        elif result.default or not (at_work or result.card):
            severity = "warning"
        else:
            severity = "error"
        message = _message(result, place, _where(frame), at_work)
        self._collector.add(RULE, message, _fix(result, at_work), place=place, severity=severity)


def _where(frame: FrameType | None) -> str:
    """The function that a line is in, in words: the one around it where it is in a comprehension or a lambda."""
    parts = (
        [part for part in frame.f_code.co_qualname.split(".") if not part.startswith("<")] if frame is not None else []
    )
    return f"in `{parts[-1]}`" if parts else "at the top of the file"


def _message(result: Written, place: SourceLocation, where: str, at_work: bool) -> str:
    what = f"`{result.text}`"
    if result.name:
        file = "" if os.path.abspath(result.file) == place.file else f" of {os.path.basename(result.file)}"
        what = f"`{result.name}`, which is {what} in line {result.line}{file},"
    cuda = "CUDA" if "cuda" in result.text else "such a device"
    if result.default:
        given = f"`{result.name}` is what `__init__` was given, by default `{result.text}` (line {result.line}),"
        return f"{given} and stays that when the model moves."
    card = "one fixed card" if result.card else "the current card"
    if result.asks:
        return f"{what} {where} asks for {cuda} first and then takes {card}, whatever card the rest of the model is on."
    without = f"a machine without {cuda}" if not result.card else "a machine that has no such card"
    if at_work:
        return f"{what} {where} fails on {without}, and puts this on {card} whatever card the rest of the model is on."
    return (
        f"{what} {where} fails on {without}, and puts this on {card} when the model is made, even if it is"
        " wanted elsewhere."
    )


def _fix(result: Written, at_work: bool) -> str:
    if not at_work:
        return (
            "Leave it out: the user of the model places it, with `model.to(device)`; or take the device as an argument."
        )
    instead = "`.to(x.device)`" if result.text.startswith(".cuda") else "`device=x.device`"
    return (
        f"Take the device from a tensor at hand, as in {instead}; what belongs to the model is a buffer, which"
        " `model.to(device)` moves."
    )


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
_DEPTH = 8


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
        self._depth = 0
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
        if name == "cuda" and not call.args and not any(keyword.arg == "device" for keyword in call.keywords):
            return Written(".cuda()", card=False)
        return None

    def value(self, node: ast.expr, use: ast.AST, *, numbers: bool = False) -> Written | None:
        """The device that an expression, used there, is written to be."""
        self._depth += 1
        try:
            return self._value(node, use, numbers) if self._depth <= _DEPTH else None
        finally:
            self._depth -= 1

    def _value(self, node: ast.expr, use: ast.AST, numbers: bool) -> Written | None:
        if isinstance(node, ast.Constant):
            return _constant(node, numbers)
        if isinstance(node, ast.Call):
            return self._made(node, use)
        if isinstance(node, ast.IfExp):
            result = self.value(node.body, use, numbers=numbers) or self.value(node.orelse, use, numbers=numbers)
            return replace(result, asks=True) if result is not None and _asks(node.test) else result
        if isinstance(node, ast.BoolOp):
            result = next(filter(None, (self.value(value, use, numbers=numbers) for value in node.values)), None)
            return replace(result, asks=True) if result is not None and _asks(node) else result
        if isinstance(node, ast.Name):
            return self._name(node.id, use, numbers)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, use, numbers)
        return None

    def _made(self, call: ast.Call, use: ast.AST) -> Written | None:
        """`torch.device(...)` with something written in it."""
        name = ast.unparse(call.func)
        if name not in ("torch.device", "device") or not (call.args or call.keywords):
            return None
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        result = self.value(values[0], use)
        if result is None:
            return None
        number = len(values) > 1 and isinstance(values[1], ast.Constant)
        return replace(result, text=ast.unparse(call) if not result.name else result.text, card=result.card or number)

    def _name(self, name: str, use: ast.AST, numbers: bool) -> Written | None:
        scope = self._source.scope(use)
        while scope is not None:
            if name in _arguments(scope):
                self.argument = self.argument or name
                return None
            result = self._assigned(_assignments(scope, name), use, numbers, name)
            if result is not None or _assigns(scope, name):
                return result
            scope = self._source.scope(scope)
        result = self._assigned(_assignments(self._source.tree, name), use, numbers, name)
        return result or self._imported(name, name)

    def _attribute(self, node: ast.Attribute, use: ast.AST, numbers: bool) -> Written | None:
        if _TENSOR_TYPE.fullmatch(text := ast.unparse(node)):
            return Written(text, card=False)
        if not isinstance(node.value, ast.Name):
            return None
        if node.value.id in ("self", "cls"):
            owner = self._source.owner(use)
            return None if owner is None else self._of_class(owner, node.attr, numbers)
        module = self._names.get(node.value.id)
        return self._constant_of(module, node.attr, text) if isinstance(module, ModuleType) else None

    def _of_class(self, owner: ast.ClassDef, name: str, numbers: bool) -> Written | None:
        for target, value in _pairs(_inside(owner, functions=True)):
            if not self._is_attribute(target, name):
                continue
            before, self.argument = self.argument, ""
            result = self.value(value, target, numbers=numbers)
            given, self.argument = self.argument, before
            if result is None and given:
                result = self._default(self._source.scope(target), given, numbers)
            if result is not None:
                return replace(self._through(result, value, target), name=f"self.{name}")
        return None

    def _is_attribute(self, target: ast.expr, name: str) -> bool:
        """Whether an assignment in a class is to `self.name`, or to `name` in the class itself."""
        if isinstance(target, ast.Attribute):
            return target.attr == name and isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")
        return isinstance(target, ast.Name) and target.id == name and self._source.scope(target) is None

    def _default(self, scope: Scope | None, name: str, numbers: bool) -> Written | None:
        if scope is None:
            return None
        for argument, default in _defaults(scope.args):
            if argument == name:
                result = _constant(default, numbers) if isinstance(default, ast.Constant) else None
                if result is not None:
                    return replace(result, default=True, file=self._source.file, line=default.lineno)
        return None

    def _assigned(self, values: list[ast.expr], use: ast.AST, numbers: bool, name: str) -> Written | None:
        for value in values:
            result = self.value(value, value, numbers=numbers)
            if result is not None:
                return replace(self._through(result, value, value), name=result.name or name)
        return None

    def _through(self, result: Written, value: ast.expr, target: ast.expr) -> Written:
        """The same as what came through an assignment."""
        return replace(
            result,
            file=result.file or self._source.file,
            line=result.line or value.lineno,
            asks=result.asks or asks_above(self._source, target),
        )

    def _imported(self, name: str, shown: str) -> Written | None:
        for node in self._source.tree.body:
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if (alias.asname or alias.name) == name and isinstance(node, ast.ImportFrom):
                    wanted = "." * node.level + (node.module or "")
                    try:
                        full = resolve_name(wanted, self._names.get("__package__") or None)
                    except ImportError:
                        return None
                    return self._constant_of(sys.modules.get(full), alias.name, shown)
        return None

    def _constant_of(self, module: ModuleType | None, name: str, shown: str) -> Written | None:
        file = getattr(module, "__file__", None)
        if module is None or not isinstance(file, str) or kind_of(file) == "skipped":
            return None
        source = source_of(file)
        if source is None:
            return None
        other = _Looking(source, vars(module))
        other._depth = self._depth
        return other._assigned(_assignments(source.tree, name), source.tree, False, shown)


def _constant(node: ast.Constant, numbers: bool) -> Written | None:
    value = node.value
    if isinstance(value, str) and (_DEVICE.fullmatch(value) or _TENSOR_TYPE.fullmatch(value)):
        return Written(f'"{value}"', card=":" in value)
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return Written(str(value), card=True)
    return None


def _arguments(scope: Scope) -> set[str]:
    a = scope.args
    plain = {argument.arg for argument in (*a.posonlyargs, *a.args, *a.kwonlyargs)}
    return plain | {argument.arg for argument in (a.vararg, a.kwarg) if argument is not None}


def _defaults(a: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    plain = [*a.posonlyargs, *a.args]
    yield from (
        (argument.arg, default)
        for argument, default in zip(plain[len(plain) - len(a.defaults) :], a.defaults, strict=True)
    )
    yield from (
        (argument.arg, default)
        for argument, default in zip(a.kwonlyargs, a.kw_defaults, strict=True)
        if default is not None
    )


def _inside(node: ast.AST, *, functions: bool) -> Iterator[ast.AST]:
    """What is within a node, without what is within the functions (and classes) there unless they are wanted."""
    for child in ast.iter_child_nodes(node):
        yield child
        if functions or not isinstance(child, Scope | ast.ClassDef):
            yield from _inside(child, functions=functions)


def _pairs(nodes: Iterator[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield node.target, node.value


def _assignments(scope: ast.AST, name: str) -> list[ast.expr]:
    pairs = _pairs(_inside(scope, functions=False))
    return [value for target, value in pairs if isinstance(target, ast.Name) and target.id == name]


def _assigns(scope: ast.AST, name: str) -> bool:
    """Whether a name gets a value there in any way, so that it is the function's own."""
    nodes = _inside(scope, functions=False)
    return any(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) for node in nodes)
