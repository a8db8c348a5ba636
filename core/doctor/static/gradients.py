"""Rule `cut-from-autograd`: parameters that are only used where autograd does not look; and loops that keep the losses
of all their steps with their history. Any thread.

The source alone decides, and only about a module's own parameters: where a backward has run, `doctor.gradients` knows
more. It is read, never executed.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.static.model_context import MOST_LISTED, ModelContext, joined, listed
from devexplorer.core.isolation.source_location import SourceLocation, place_at
from devexplorer.core.models import ClassSource, Function, is_switch, is_uninitialised, reached_methods, tree_of

CUTS = ("data", "detach")


class StaticCut(NamedTuple):
    """A line behind which nothing has a history."""

    code: str
    """`torch.no_grad()`, `self.weight.data`."""
    place: SourceLocation
    block: bool = False
    """Whether it is a `no_grad` block or decorator rather than an expression."""


class Use(NamedTuple):
    """A place where a method reads `self.…`."""

    names: tuple[str, ...]
    """`("weight", "data")` of `self.weight.data`; empty for `self` alone."""
    called: bool
    within: StaticCut | None
    """The `no_grad` or `inference_mode` around it."""
    place: SourceLocation

    def code(self, depth: int) -> str:
        """As it is written, up to the name at `depth`, counted from 0."""
        names = self.names[: depth + 1]
        return f"self.{'.'.join(names)}{'()' if names[-1] == 'detach' else ''}"


def forward_of(kind: type) -> list[Use]:
    """What `forward` and the methods that it calls on its object read of it; those of the bases too."""
    return [use for reached in reached_methods(kind) for use in _Reader(*reached).read()]


class _Reader:
    """Through one method, knowing what is within `no_grad`."""

    def __init__(self, source: ClassSource, function: Function, first: str) -> None:
        self._source, self._function, self._first = source, function, first

    def read(self) -> Iterator[Use]:
        """Everything that it reads of its object, in the order of the source."""
        switch = next((decorator for decorator in self._function.decorator_list if is_switch(decorator)), None)
        yield from self._all(self._function.body, None if switch is None else self._cut(switch))

    def _all(self, nodes: Sequence[ast.AST], within: StaticCut | None) -> Iterator[Use]:
        for node in nodes:
            yield from self._node(node, within, False)

    def _node(self, node: ast.AST, within: StaticCut | None, called: bool) -> Iterator[Use]:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            switch = next((item.context_expr for item in node.items if is_switch(item.context_expr)), None)
            yield from self._all([item.context_expr for item in node.items if item.context_expr is not switch], within)
            yield from self._all(node.body, within if switch is None else self._cut(switch, node.lineno))
            return
        names, inner = _chain(node)
        if isinstance(inner, ast.Name) and inner.id == self._first:
            if not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
                yield Use(names, called, within, self._place(getattr(node, "lineno", 0)))
            return
        if isinstance(node, ast.Call):
            yield from self._node(node.func, within, True)
            yield from self._all([*node.args, *(keyword.value for keyword in node.keywords)], within)
            return
        yield from self._all(list(ast.iter_child_nodes(node)), within)

    def _cut(self, switch: ast.expr, line: int | None = None) -> StaticCut:
        return StaticCut(ast.unparse(switch), self._place(line or switch.lineno), block=True)

    def _place(self, line: int) -> SourceLocation:
        return SourceLocation(self._source.file, line, self._function.name, self._source.library)


def _chain(node: ast.AST) -> tuple[tuple[str, ...], ast.AST]:
    """`("weight", "detach", "T")` and `self` of `self.weight.detach().T`; calls of anything else end it."""
    names: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "detach"
            and not node.args
        ):
            node = node.func
        else:
            return tuple(reversed(names)), node


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
        parameters = {
            name: item for name, item in module.named_parameters() if item.requires_grad and not is_uninitialised(item)
        }
        if not parameters:
            continue
        kind = type(module)
        if kind not in read:
            read[kind] = forward_of(kind)
        for cut, names in _together(_own(read[kind], parameters)).items():
            left = [name for name in names if id(parameters[name]) not in reported]
            if left:
                reported.update(id(parameters[name]) for name in left)
                _add(context, path, cut, left)


def _together(cuts: Iterable[tuple[str, StaticCut]]) -> dict[StaticCut, list[str]]:
    """The parameters behind each line, with all that cuts there."""
    by_place: dict[object, list[tuple[str, StaticCut]]] = {}
    for name, cut in cuts:
        by_place.setdefault(cut.place, []).append((name, cut))
    return {
        some[0][1]._replace(code=listed([cut.code for _, cut in some])): list(dict.fromkeys(name for name, _ in some))
        for some in by_place.values()
    }


def _add(context: ModelContext, path: str, cut: StaticCut, names: list[str]) -> None:
    whose = listed([f"self.{name}" for name in names])
    them, itself = ("it gets", "itself") if len(names) == 1 else ("they get", "themselves")
    if not cut.block:
        own = len(names) <= MOST_LISTED  # the code names each of them
        if own:
            message = f"{cut.place.function} uses {cut.code}, values without their history: {them} no gradient."
        else:
            get = "gets" if len(names) == 1 else "get"
            message = f"{cut.code} in {cut.place.function} has no history: {whose} {get} no gradient."
        fix = (
            f"Use {f'{whose} {itself}' if own else 'the value itself'}; what should not learn is frozen with"
            " requires_grad_(False)."
        )
    else:
        message = (
            f"{cut.place.function} uses {whose} within {cut.code}, where nothing has a history: {them} no gradient."
        )
        fix = "Move that out of the block, or freeze what should not learn: requires_grad_(False)."
    context.collector.add("cut-from-autograd", message, fix, path=joined(path, names[0]), place=cut.place)


def _own(uses: Iterable[Use], parameters: _Trainable) -> Iterator[tuple[str, StaticCut]]:
    """Parameters that forward computes with, and in cut places only: `self.weight.data`, or within `no_grad`."""
    cuts: dict[str, list[StaticCut]] = {}
    free: set[str] = set()
    for use in uses:
        depth, name = _parameter(use.names, parameters)
        if name is None:
            free.update(_below(use.names, parameters))  # whole modules: only gradients can tell
            continue
        after = use.names[depth:]
        cut = after and after[0] in CUTS
        if not _computes(after[1:] if cut else after, use.called):
            continue
        if cut:
            cuts.setdefault(name, []).append(StaticCut(use.code(depth), use.place))
        elif use.within is not None:
            cuts.setdefault(name, []).append(use.within)
        else:
            free.add(name)
    for name, found in cuts.items():
        if name not in free:
            yield name, found[0]


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
