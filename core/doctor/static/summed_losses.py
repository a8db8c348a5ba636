"""Finds loops that keep the losses of all their steps with their history, next to the model or in its classes. Any
thread; the source is read, nothing runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.isolation.source_location import place_at
from devexplorer.core.models import tree_of
from devexplorer.core.models.class_source import is_switch

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
        if isinstance(node, ast.Assign):
            for target in node.targets:
                set_here.setdefault(ast.unparse(target), []).append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            if any(word.arg == "create_graph" for word in node.keywords):
                continue  # who asks for it wants the history
            losses |= {_loss_of(part) for part in (node.func.value, *node.args)}
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
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return ast.unparse(node.target), node.value
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
        target = ast.unparse(node.targets[0])
        if ast.unparse(node.value.left) == target:
            return target, node.value.right
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append" and call.args:
        return ast.unparse(call.func.value), call.args[0]
    return "", None


def _loss_in(node: ast.expr, losses: set[str]) -> str | None:
    """The loss whose history the value of an expression has, as far as that is plain to see."""
    if ast.unparse(node) in losses:
        return ast.unparse(node)
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.List | ast.Tuple):
        parts = node.elts
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS_HISTORY:
        parts = [node.func.value]
    for part in parts:
        found = _loss_in(part, losses)
        if found is not None:
            return found
    return None


def _cuts(value: ast.expr, loss: str) -> bool:
    """Whether `loss = …` leaves the history of the loss itself behind: `loss = loss.item()`, `loss = float(loss)`."""
    parts = list(ast.walk(value))
    leaves = any(
        (isinstance(part, ast.Attribute) and part.attr in _LEAVES_HISTORY)
        or (isinstance(part, ast.Name) and part.id == "float")
        for part in parts
    )
    return leaves and any(ast.unparse(part) == loss for part in parts)
