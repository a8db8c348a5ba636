"""Rule `cut-from-autograd`: parameters that are only used where autograd does not look; and loops that keep the losses
of all their steps with their history. Any thread.

The source alone decides, and only about a module's own parameters: where a backward has run, `doctor.gradients` knows
more. It is read, never executed.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from torch import Tensor

from devexplorer.core.doctor.code.syntax import nodes
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.static.model_context import ModelContext, joined, listed
from devexplorer.core.isolation.source_location import SourceLocation, place_at
from devexplorer.core.models import (
    ClassSource,
    Function,
    is_switch,
    is_uninitialised,
    last_name,
    reached_methods,
    tree_of,
)


class Use(NamedTuple):
    """A place where a method reads `self.…`."""

    names: tuple[str, ...]
    """`("weight", "data")` of `self.weight.data`; empty for `self` alone."""
    called: bool
    cut: bool
    """Whether it is within `no_grad` or `inference_mode`."""
    place: SourceLocation
    """Of what it is within, or else its own."""


Method = tuple[ClassSource, Function, str]


def forward_of(kind: type) -> list[Use]:
    """What `forward` and the methods that it calls on its object read of it; those of the bases too."""
    found: list[Use] = []
    for method in reached_methods(kind):
        within = None
        for decorator in filter(is_switch, method[1].decorator_list):
            within = _at(method, decorator)
        for statement in method[1].body:
            found += _uses(method, statement, within)
    return found


def _at(method: Method, node: ast.AST) -> SourceLocation:
    source, function, _ = method
    return SourceLocation(source.file, getattr(node, "lineno", 0), function.name, source.library)


def _uses(method: Method, node: ast.AST, within: SourceLocation | None, called: bool = False) -> Iterator[Use]:
    """Everything of its object that a method reads there, in the order of the source."""
    names, inner = _chain(node)
    if isinstance(inner, ast.Name) and inner.id == method[2]:
        if not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            yield Use(names, called, within is not None, within or _at(method, node))
        return
    inside = within
    if isinstance(node, (ast.With, ast.AsyncWith)) and any(is_switch(item.context_expr) for item in node.items):
        inside = _at(method, node)
    for child in ast.iter_child_nodes(node):
        called = isinstance(node, ast.Call) and child is node.func
        yield from _uses(method, child, within if isinstance(child, ast.withitem) else inside, called)


def _chain(node: ast.AST) -> tuple[tuple[str, ...], ast.AST]:
    """`("weight", "detach", "T")` and `self` of `self.weight.detach().T`; calls of anything else end it."""
    match node:
        case (
            ast.Attribute(value=value, attr=name)
            | ast.Call(func=ast.Attribute(value=value, attr="detach" as name), args=[])
        ):
            names, inner = _chain(value)
            return (*names, name), inner
    return (), node


_FACTS = (
    "shape",
    "dtype",
    "device",
    "size",
    "dim",
    "ndim",
    "numel",
    "requires_grad",
    "grad",
    "is_cuda",
    "nbytes",
    "element_size",
    "names",
)
_WHOLE = (
    "children",
    "named_children",
    "modules",
    "named_modules",
    "parameters",
    "named_parameters",
    "_modules",
    "_parameters",
)
"""Where a module speaks of all that it has."""
_Trainable = Mapping[str, Tensor]
"""Parameters of a module and those below it that require grad, by path from there."""


def report_cuts(context: ModelContext, ran: Collection[int] | None) -> None:
    """Findings about modules' own parameters that require grad and that forward computes with in cut places only.

    `ran`: the ids of the modules that took part, where that is known.
    """
    reported: set[int] = set()
    read: dict[type, list[Use]] = {}
    for path, module in context.modules:
        if ran is not None and id(module) not in ran:
            continue
        parameters: dict[str, Tensor] = {}
        for name, item in module.named_parameters():
            if item.requires_grad and not is_uninitialised(item) and id(item) not in reported:
                parameters[name] = item
        if not parameters:
            continue
        kind = type(module)
        if kind not in read:
            read[kind] = forward_of(kind)
        by_place: dict[SourceLocation, list[str]] = {}
        for name, place in _cut_off(read[kind], parameters).items():
            reported.add(id(parameters[name]))
            by_place.setdefault(place, []).append(name)
        for place, names in by_place.items():
            context.collector.add(
                "cut-from-autograd",
                f"{place.function} uses {listed([f'self.{name}' for name in names])} only where values have no history:"
                " no gradient arrives there.",
                "Use the value itself, without .data or .detach() and outside of no_grad; what should not learn is"
                " frozen with requires_grad_(False).",
                path=joined(path, names[0]),
                place=place,
            )


def _cut_off(uses: Iterable[Use], parameters: _Trainable) -> dict[str, SourceLocation]:
    """Parameters that forward computes with in cut places only, `self.weight.data` or within `no_grad`, and the first
    of these places."""
    cuts: dict[str, SourceLocation] = {}
    free: set[str] = set()
    for use in uses:
        depth, name = _parameter(use.names, parameters)
        if name is None:
            free.update(_below(use.names, parameters))  # whole modules: only gradients can tell
            continue
        after, cut = use.names[depth:], use.cut
        if after[:1] in (("data",), ("detach",)):
            after, cut = after[1:], True
        if not _computes(after, use.called):
            continue
        if cut:
            cuts.setdefault(name, use.place)
        else:
            free.add(name)
    for name in free:
        cuts.pop(name, None)
    return cuts


def _below(names: tuple[str, ...], parameters: _Trainable) -> list[str]:
    """Parameters of the module that these names lead to; all of them for `self` itself."""
    start = ".".join(names)
    everything = not names or names[0] in _WHOLE
    return [name for name in parameters if everything or name.startswith(f"{start}.")]


def _parameter(names: tuple[str, ...], parameters: _Trainable) -> tuple[int, str | None]:
    """How many of the names lead to a parameter, and which."""
    for depth in range(len(names), 0, -1):
        dotted = ".".join(names[:depth])
        if dotted in parameters:
            return depth, dotted
    return 0, None


def _computes(after: tuple[str, ...], called: bool) -> bool:
    """Whether what follows a parameter is arithmetic, and not a question about its shape or a change in place."""
    if not after:
        return True
    in_place = called and after[-1].endswith("_") and not after[-1].endswith("__")
    return after[0] not in _FACTS and not in_place


_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_OTHER_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_KEEPS_HISTORY = ("cpu", "to", "mean", "sum", "float", "double", "clone", "squeeze")
"""Methods of a loss whose result leads to the same graph."""
_LEAVES_HISTORY = ("item", "detach", "tolist", "numpy", "data")


def report_summed_losses(files: Iterable[str], collector: FindingCollector) -> None:
    """Report `total += loss` and `losses.append(loss)` where a loop of one of these files calls `loss.backward()`. What
    is set anew in the same loop holds a few graphs, not all."""
    for file in files:
        tree = tree_of(file)
        if tree is None:
            continue
        for loop in ast.walk(tree):
            if isinstance(loop, _LOOPS):
                for line, loss, statement in _summed(loop):
                    collector.add(
                        "growing-graph",
                        f"`{statement}` keeps the history of `{loss}`: the graphs of all steps stay in memory, which"
                        " grows with each step until the loop is over.",
                        f"Keep the value without its history: `{loss}.detach()`; or the number, `{loss}.item()`.",
                        path="",
                        place=place_at(file, line, ""),
                        severity="warning",
                    )


def _summed(loop: ast.stmt) -> Iterator[tuple[int, str, str]]:
    """Line, loss and text of each statement of this very loop that adds a loss to what outlives the step."""
    set_here: dict[str, list[ast.expr]] = {}
    losses: set[str] = set()
    for node in _within(loop, into_loops=True):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    set_here.setdefault(ast.unparse(target), []).append(value)
            case ast.Call(func=ast.Attribute(value=value, attr="backward"), args=args, keywords=keywords):
                if all(word.arg != "create_graph" for word in keywords):  # who asks for it wants the history
                    losses.update(map(_loss_of, (value, *args)))
    for loss in list(losses):
        if loss not in set_here or any(_cuts(value, loss) for value in set_here[loss]):
            losses.remove(loss)  # the same tensor in every step, or its history is left behind before it is kept
    for node in _within(loop, into_loops=False):
        kept, added = _added(node)
        found = None if added is None else _loss_in(added, losses)
        values = set_here.get(kept, [])
        is_set_anew = any(kept not in (ast.unparse(part) for part in ast.walk(value)) for value in values)
        if isinstance(node, ast.stmt) and found is not None and kept not in losses and not is_set_anew:
            yield node.lineno, found, ast.unparse(node)


def _loss_of(node: ast.expr) -> str:
    """`loss` of what backward is called on or with: `loss / 4`, `scaler.scale(loss)`."""
    while not isinstance(node, ast.Name | ast.Attribute):
        if isinstance(node, ast.BinOp):
            node = node.left
        elif isinstance(node, ast.Call) and node.args:
            node = node.args[0]
        else:
            return ""
    return ast.unparse(node)


def _within(loop: ast.stmt, *, into_loops: bool) -> Iterator[ast.AST]:
    """What a loop runs itself: not the functions defined there, nor what runs without autograd."""
    waiting = list(ast.iter_child_nodes(loop))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _OTHER_SCOPES) or (isinstance(node, _LOOPS) and not into_loops):
            continue
        if isinstance(node, ast.With) and any(is_switch(item.context_expr) for item in node.items):
            continue
        waiting += ast.iter_child_nodes(node)


def _added(node: ast.AST) -> tuple[str, ast.expr | None]:
    """What grows, and what is added to it: `total += loss`, `total = total + loss`, `losses.append(loss)`."""
    match node:
        case ast.AugAssign(target=target, op=ast.Add(), value=value):
            return ast.unparse(target), value
        case ast.Assign(targets=[target, *_], value=ast.BinOp(left=left, op=ast.Add(), right=value)):
            if ast.unparse(left) == ast.unparse(target):
                return ast.unparse(target), value
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr="append"), args=[value, *_])):
            return ast.unparse(target), value
    return "", None


def _loss_in(node: ast.expr, losses: set[str]) -> str | None:
    """The loss whose history the value of an expression has, as far as that is plain to see."""
    if ast.unparse(node) in losses:
        return ast.unparse(node)
    parts: list[ast.expr] = []
    match node:
        case ast.BinOp(left=left, right=right):
            parts = [left, right]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            pass
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _KEEPS_HISTORY:
            parts = [value]
    for part in parts:
        found = _loss_in(part, losses)
        if found is not None:
            return found
    return None


def _cuts(value: ast.expr, loss: str) -> bool:
    """Whether `loss = …` leaves the history of the loss itself behind: `loss = loss.item()`, `loss = float(loss)`."""
    leaves = False
    for part in nodes(value, ast.expr):
        leaves = leaves or last_name(part) in (*_LEAVES_HISTORY, "float")
    return leaves and any(ast.unparse(part) == loss for part in nodes(value, ast.expr))
