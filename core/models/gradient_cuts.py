"""Why backward gave a parameter no gradient: reads the source of modules for what cuts them off from autograd. Runs on
the jobs thread.

The source is read, never executed. `.data` and `.detach()` give values without history, `torch.no_grad()` and
`torch.inference_mode()` let nothing have one: whatever is computed from there on does not depend on the parameters any
more, as far as autograd knows.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from torch import nn

from devexplorer.core.models.walk import is_uninitialised

SWITCHES = ("no_grad", "inference_mode")
MOST_NAMED = 3
"""Places that are named; one line for each."""


class Cut(NamedTuple):
    """A place in a module's source where autograd loses track."""

    path: str
    """Of the module in its model; empty: the model itself."""
    kind: str
    """Its class."""
    file: str
    line: int
    code: str
    """What stands there: `self.weight.data`, `torch.no_grad()`."""
    parameter: str | None
    """The module's own parameter that it is about; None: something else, or everything within."""

    @property
    def switch(self) -> bool:
        """Whether it is about everything that is computed within."""
        return any(f"{switch}(" in self.code for switch in SWITCHES)


class WithoutGradient(NamedTuple):
    """What backward did not reach, and why as far as the source says."""

    paths: tuple[str, ...]
    """Parameters that require grad, whose module ran, and that have no gradient."""
    idle: tuple[str, ...] = ()
    """Parameters that require grad and whose module did not run at all."""
    frozen: tuple[str, ...] = ()
    """Parameters that do not require grad."""
    cuts: tuple[Cut, ...] = ()


NOTHING_MISSING = WithoutGradient(())


def without_gradient(model: nn.Module, ran: set[int], *, path: str = "") -> WithoutGradient:
    """Look through a model after a backward; `ran` are the `id()` of the modules that were run, `path` is where it
    stands in its model."""
    paths, idle, frozen = [], [], []
    for place, module in model.named_modules(prefix=path):
        for name, parameter in module.named_parameters(recurse=False):
            full = f"{place}.{name}" if place else name
            if is_uninitialised(parameter) or parameter.grad is not None:
                continue
            if not parameter.requires_grad:
                frozen.append(full)
            elif id(module) in ran:
                paths.append(full)
            else:
                idle.append(full)
    cuts = _named(list(_cuts(model, ran, path)), paths) if paths else ()
    return WithoutGradient(tuple(paths), tuple(idle), tuple(frozen), cuts)


def _named(cuts: Sequence[Cut], paths: Sequence[str]) -> tuple[Cut, ...]:
    """Those that are about these very parameters; where there is none, whatever else stands on the way."""
    exact = [
        cut
        for cut in cuts
        if cut.parameter is not None and (f"{cut.path}.{cut.parameter}" if cut.path else cut.parameter) in paths
    ]
    seen: dict[tuple[str, int, str], Cut] = {}
    for cut in exact or [cut for cut in cuts if cut.parameter is None]:
        seen.setdefault((cut.file, cut.line, cut.code), cut)
    return tuple(seen.values())[:MOST_NAMED]


def _cuts(model: nn.Module, ran: set[int], path: str) -> Iterator[Cut]:
    for place, module in model.named_modules(prefix=path):
        if id(module) in ran and not type(module).__module__.startswith("torch."):
            own = {name for name, _ in module.named_parameters(recurse=False)}
            for file, line, code, parameter in _in_class(type(module), own):
                yield Cut(place, type(module).__name__, file, line, code, parameter)


def _in_class(kind: type, parameters: set[str]) -> Iterator[tuple[str, int, str, str | None]]:
    """What stands in `forward` and in the methods that it calls on `self`."""
    waiting, known = ["forward"], {"forward"}
    while waiting:
        method = inspect.getattr_static(kind, waiting.pop(), None)
        read = _source(method)
        if read is None:
            continue
        file, first, tree = read
        nodes = sorted(ast.walk(tree), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
        for node in nodes:
            called = _called_on_self(node)
            if called is not None and called not in known:
                known.add(called)
                waiting.append(called)
            value = _cut_off(node)
            if isinstance(node, ast.expr) and value is not None:
                own = isinstance(value, ast.Attribute) and _is_self(value.value) and value.attr in parameters
                yield (
                    file,
                    first + node.lineno - 1,
                    ast.unparse(node),
                    value.attr if own and isinstance(value, ast.Attribute) else None,
                )


def _called_on_self(node: ast.AST) -> str | None:
    """`name` of a call `self.name(...)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_self(node.func.value):
        return node.func.attr
    return None


def _source(method: Any) -> tuple[str, int, ast.AST] | None:
    """File, first line and syntax tree of a function; None for what has no source (built in, compiled, typed in)."""
    function = inspect.unwrap(method) if callable(method) else None
    try:
        if function is None:
            return None
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or "?"
        return file, first, ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None


def _cut_off(node: ast.AST) -> ast.expr | None:
    """What is cut off by this expression, if anything: the value before `.data` and `.detach()`, or the switch
    itself."""
    if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Load):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("detach", "detach_"):
            return node.func.value
        if node.func.attr in SWITCHES:
            return node.func
    return None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def missing_words(missing: WithoutGradient) -> str:
    """What backward did not reach and why, as sentences that follow others; empty when nothing is missing."""
    words = ""
    if missing.paths:
        single = len(missing.paths) == 1
        words += (
            f" {_some(missing.paths)} took part and got no gradient: for autograd the output does not depend on"
            f" {'it' if single else 'them'}."
        )
        words += f" {_places(missing.cuts)}" if missing.cuts else ""
    if missing.idle:
        words += (
            f" {_some(missing.idle)} did not take part: {'its' if len(missing.idle) == 1 else 'their'} module did not"
            " run."
        )
    if missing.frozen:
        words += (
            f" {_some(missing.frozen)} {'is' if len(missing.frozen) == 1 else 'are'} frozen (requires_grad is False)."
        )
    return words


def no_backward(missing: WithoutGradient) -> str:
    """Why nothing at all could get a gradient, as the end of a sentence; empty where nobody knows."""
    if missing.cuts:
        return f": {_places(missing.cuts)}".rstrip(".")
    if missing.frozen and not missing.paths:
        return (
            f": {_some(missing.frozen)} {'is' if len(missing.frozen) == 1 else 'are'} frozen; unfreeze what shall be"
            " trained"
        )
    if missing.idle and not missing.paths:
        return f": {_some(missing.idle)} belong to modules that did not run"
    if not missing.paths:
        return ": it has no parameters, and its input does not require a gradient either"
    return ""


def _some(paths: Sequence[str]) -> str:
    """All of a few, or the first and how many there are."""
    if len(paths) <= MOST_NAMED:
        return " and ".join(paths)
    return f"{paths[0]} and {len(paths) - 1} other parameters"


def _places(cuts: Sequence[Cut]) -> str:
    """The places and what they do, each kind of reason once."""
    said = []
    for switch in (False, True):
        some = [cut for cut in cuts if cut.switch == switch]
        if some:
            where = " and ".join(
                f"{cut.code} (line {cut.line} of {PurePath(cut.file).name}, {cut.kind})" for cut in some
            )
            gives = "let" if len(some) > 1 else "lets"
            takes = "give" if len(some) > 1 else "gives"
            said.append(
                f"{where} {gives} nothing that is computed there have a history."
                if switch
                else f"{where} {takes} the values without their history: leave that away, and gradients arrive."
            )
    return " ".join(said)
