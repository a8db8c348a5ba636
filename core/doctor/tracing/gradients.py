"""Follows histories through a forward and its backward: why each parameter without a gradient has none, and what a
model keeps with its history from call to call. The thread that is watched."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._functorch import vmap
from torch.autograd.function import BackwardCFunction

from devexplorer.core.doctor.code.syntax import nodes
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.static.model_context import MOST_LISTED, hidden, inner, listed
from devexplorer.core.doctor.tracing.lineage import Exit, HistoryCut, Lineage, cut_message, exit_message
from devexplorer.core.isolation.source_location import NOWHERE, SourceLocation
from devexplorer.core.models import RegisteredIds, functions_of, is_uninitialised, named_modules
from devexplorer.core.models.class_source import changed_in, class_source, set_elsewhere
from devexplorer.core.records import NoGradient

# Which parameters backward can reach from a result, and which user Functions gave no gradient there. The calling
# thread.


class Refusal(NamedTuple):
    """A Function that returned None for an input that wants a gradient."""

    name: str
    place: SourceLocation
    reached: set[int]
    """`id()` of the leaves behind that input."""


class Graph:
    """The graph behind the roots of a backward; made before it runs, asked afterwards."""

    def __init__(self, roots: Iterable[Tensor]) -> None:
        self._nones: dict[type, list[Any]] = {}
        """Function -> nodes behind the inputs that it gave no gradient."""
        nodes = _below([root.grad_fn for root in roots if root.grad_fn is not None])
        self.reached = _leaves(nodes)
        """`id()` of every leaf that a gradient may get to."""
        self._handles = [self._watch(node) for node in nodes if isinstance(node, BackwardCFunction)]

    def _watch(self, node: Any) -> Any:
        kind: type = type(node)._forward_cls

        def ran(given: Sequence[Tensor | None], received: Sequence[Tensor | None]) -> None:
            if any(item is not None for item in received):
                for gradient, (below, _) in zip(given, node.next_functions, strict=False):
                    if gradient is None and below is not None:
                        self._nones.setdefault(kind, []).append(below)

        return node.register_hook(ran)

    @cached_property
    def refusals(self) -> list[Refusal]:
        """Those Functions, once backward is over."""
        found = []
        for kind, without in self._nones.items():
            place = _return_of(kind)
            if place is not None:
                found.append(Refusal(kind.__name__, place, _leaves(_below(without))))
        return found

    def close(self) -> None:
        """Let go of the graph."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._nones.clear()


def _below(waiting: Iterable[Any]) -> set[Any]:
    found: set[Any] = set()
    waiting = list(waiting)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [below for below, _ in node.next_functions if below is not None]
    return found


def _leaves(nodes: Iterable[Any]) -> set[int]:
    return {id(node.variable) for node in nodes if hasattr(node, "variable")}


def _return_of(kind: type) -> SourceLocation | None:
    """The line of `backward` that returns None for an input, or else its last `return`."""
    source = class_source(kind)
    function = None if source is None else functions_of(source).get("backward")
    if source is None or function is None:
        return None
    line = function.lineno
    for node in sorted(nodes(function, ast.Return), key=lambda node: node.lineno):
        line = node.lineno
        # `None` anywhere in what is returned; a bare `return` has no other value.
        if node.value is None or any(item.value is None for item in nodes(node.value, ast.Constant)):
            break
    return SourceLocation(source.file, line, "backward", source.library)


# Copies of trained modules that are meant to get no gradient: target networks, teachers, averages of weights. The
# calling thread.

_NAMES = re.compile(r"target|teacher|momentum|ema|shadow|average|reference|frozen|_k$", re.IGNORECASE)


def copies(model: nn.Module, without: Collection[int]) -> set[int]:
    """`id()` of those parameters among `without` (the ids of all without a gradient) that belong to a second copy of
    something trained.

    A copy has the class, the names and the shapes of another module that gets gradients, and its values, or a name that
    says so. Layers of a list are no copies of one another, whatever their values are.
    """
    by_kind: dict[type, list[tuple[str, nn.Module, list[bool]]]] = {}
    for path, module in named_modules(model):
        idle = [id(parameter) in without for parameter in module.parameters()]
        if idle and path and not path.rpartition(".")[2].isdigit():
            by_kind.setdefault(type(module), []).append((path, module, idle))
    found: set[int] = set()
    for modules in by_kind.values():
        trained = [module for _, module, idle in modules if not any(idle)]
        for path, module, idle in modules:
            by_name = _NAMES.search(path) is not None
            if all(idle) and any(_same(module, other, by_name=by_name) for other in trained):
                found.update(map(id, module.parameters()))
    return found


def _same(module: nn.Module, other: nn.Module, *, by_name: bool) -> bool:
    item, two = dict(module.named_parameters()), dict(other.named_parameters())
    if list(item) != list(two) or any(item[name].shape != two[name].shape for name in item):
        return False
    varied = False
    for name in item if not by_name else ():
        here, there = inner(item[name]).detach(), inner(two[name]).detach()
        if here.is_meta or there.is_meta or here.device != there.device or not torch.equal(here, there):
            return False
        varied = varied or bool((here != here.flatten()[:1]).any())
    return by_name or varied


_SILENT = ("frozen", "updated")
"""Reasons not worth reporting."""
_WITHOUT_LINE = {
    "unused": (
        "No operation of this forward uses {which}: no gradient arrives there.",
        "Use it in forward or remove it; DistributedDataParallel needs find_unused_parameters=True for it.",
    ),
    "output": (
        "What is computed from {which} is not part of what forward returns: no gradient arrives there.",
        "Return it or remove it; DistributedDataParallel needs find_unused_parameters=True for it.",
    ),
    "unknown": (
        "No gradient arrives at {which}, and no line was found that would explain it.",
        "Check the operations that use it for one that gives no derivative.",
    ),
}


class _Cause(NamedTuple):
    """What keeps gradients from a parameter."""

    reason: str
    """See `NoGradient.reason`."""
    place: SourceLocation | None = None
    subject: HistoryCut | Exit | None = None

    @property
    def key(self) -> tuple[str, object]:
        """What is one cause: a line, or a reason without one."""
        return self.reason, self.place if self.place is not None or self.subject is None else self.subject.description


def _enter(
    cause: _Cause, paths: list[str], line_of: Callable[[str], SourceLocation | None], collector: FindingCollector
) -> None:
    place, whole = cause.place, of_all(paths)
    if cause.subject is None and cause.reason not in _SILENT:
        place = (line_of(whole) if whole else None) or line_of(paths[0])
    at = place or NOWHERE
    code = "" if cause.subject is None else cause.subject.description
    collector.no_gradient.append(
        NoGradient(reason=cause.reason, parameters=tuple(paths), file=at.file, line=at.line, code=code)
    )
    if cause.reason in _SILENT:
        return
    if cause.subject is None:
        message, fix = _WITHOUT_LINE[cause.reason]
        collector.add("no-gradient", message.format(which=some(paths)), fix, path=whole, place=place)
        return
    them = "gets" if len(paths) == 1 else "get"
    if isinstance(cause.subject, HistoryCut):
        message, fix = cut_message(cause.subject, some(paths), them)
    else:
        message, fix = exit_message(cause.subject, some(paths), them)
    if cause.reason == "copy":
        fix = (
            "Freeze it with requires_grad_(False) if it is a target or a teacher; otherwise let it run with gradients."
        )
    severity = "error" if cause.reason == "cut" else "note"
    collector.add("cut-from-autograd", message, fix, path=whole, place=place, severity=severity)


def some(paths: Sequence[str]) -> str:
    """`encoder.weight`, `encoder.weight and encoder.bias`, `12 parameters of encoder (encoder.0.weight and 11
    more)`."""
    if len(paths) <= MOST_LISTED:
        return listed(paths)
    whole = of_all(paths)
    return f"{len(paths)} parameters{f' of {whole}' if whole else ''} ({paths[0]} and {len(paths) - 1} more)"


def of_all(paths: Sequence[str]) -> str:
    """The module that all of them are part of, empty for the model; of one parameter its own path."""
    if len(paths) == 1:
        return paths[0]
    common, *others = (path.split(".")[:-1] for path in paths)
    for names in others:
        while names[: len(common)] != common:
            common.pop()
    return ".".join(common)


def _of(subject: HistoryCut | Exit) -> _Cause:
    place = subject.place
    if isinstance(subject, HistoryCut):
        place = subject.library or place
    return _Cause("library" if place is not None and place.library else "cut", place, subject)


_BATCHED = ("_add_batch_dim", "_remove_batch_dim")


class Gradients(Lineage):
    """Of one run of one model; `OpTracer` tells it what happens."""

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor] = ()) -> None:
        """`inputs` are what its forward gets."""
        super().__init__(model, inputs)
        self._model = model
        self._graph: Graph | None = None

    @contextmanager
    def tracing(self, until: FrameType | None) -> Iterator[None]:
        """The run."""
        self.switches.until = until
        try:
            with self.switches.watching_inference(), self._through_vmap():
                yield
        finally:
            self.switches.until = None

    def _through_vmap(self) -> AbstractContextManager[Any]:
        """Within, what `vmap` makes of a tensor is known to be made of it: no call of torch's shows that."""

        def passing(function: Callable[..., Any]) -> Callable[..., Any]:
            def passed(tensor: Any, *rest: Any) -> Any:
                result = function(tensor, *rest)
                if isinstance(result, Tensor) and isinstance(tensor, Tensor):
                    with torch._C.DisableTorchFunction():
                        self.pass_on(result, tensor)
                return result

            return passed

        changed: dict[str, Any] = {name: passing(getattr(vmap, name)) for name in _BATCHED}
        changing: AbstractContextManager[Any] = patch.multiple(vmap, **changed)
        return changing

    def backward(self, roots: Sequence[Tensor]) -> None:
        """A backward from these is about to begin."""
        if self._graph is None:
            self._graph = Graph(roots)

    def explain(self, line_of: Callable[[str], SourceLocation | None], collector: FindingCollector) -> None:
        """Report every parameter without a gradient; before the optimizer's step, and once.

        `line_of` says which line set what is at a path of the model.
        """
        numbers = []
        for number, item in enumerate(self.parameters):
            if not is_uninitialised(item) and item.grad is None:
                numbers.append(number)
        meant: set[int] | None = None
        causes: dict[tuple[str, object], tuple[_Cause, list[str]]] = {}
        for number in numbers:
            cause = self._cause(number)
            taken = isinstance(cause.subject, HistoryCut) and cause.subject.kind in ("switch", "detach", "data")
            if cause.reason == "cut" and taken:
                if meant is None:
                    meant = copies(self._model, {id(self.parameters[number]) for number in numbers})
                if id(self.parameters[number]) in meant:
                    cause = cause._replace(reason="copy")
            causes.setdefault(cause.key, (cause, []))[1].append(self.paths[number])
        for cause, paths in causes.values():
            _enter(cause, paths, line_of, collector)

    def _cause(self, number: int) -> _Cause:
        bit, parameter = 1 << number, self.parameters[number]
        if self.frozen & bit:
            return _Cause("frozen")
        through = [cut for cut in self.cuts if cut.parameters & bit]
        for cut in through:
            if cut.kind == "freeze" and not parameter.requires_grad:
                return _of(cut)
        if self._graph is not None and id(parameter) in self._graph.reached:
            for refused in self._graph.refusals:
                if id(parameter) in refused.reached:
                    return _of(HistoryCut(-1, "refusal", f"{refused.name}.backward", refused.place))
            return _Cause("unknown")
        if self.written & bit:
            return _Cause("updated")
        arriving = [cut for cut in through if self.at_output >> cut.number & 1]
        if arriving:
            before = 0
            for cut in arriving:
                before |= cut.behind
            last = [cut for cut in arriving if not before >> cut.number & 1] or arriving
            return _of(min(last, key=lambda cut: (cut.library is not None, cut.kind == "step", cut.number)))
        left = [item for item in self.exits.values() if item.parameters & bit]
        if left:
            return _of(min(left, key=lambda item: item.decides))
        if self.lost:
            return _of(through[0]) if through else _Cause("unknown")
        return _Cause("output" if self.used & bit else "unused")

    def close(self) -> None:
        """Let go of the model and of the graph."""
        if self._graph is not None:
            self._graph.close()


CALLS = 9
"""Forwards in all of which it has to grow: a window of a few calls does not."""
Graphs = dict[tuple[str, str], set[Any]]
"""Path of a module and an attribute of it -> the nodes at the ends of the graphs that it holds."""


def growing(model: nn.Module, inputs: Sequence[Tensor], collector: FindingCollector, trained: bool) -> None:
    """Report what holds the graphs of earlier calls, after a forward with these inputs. Where that made no graphs, not
    `trained`, one more makes them, if anything is kept at all: it needs the memory of a training step."""

    def again() -> bool:
        try:
            with collector.ignoring():
                model(*inputs)
        except (Exception, SystemExit):  # it has been run before, so that another call is what it does not allow
            return False
        return True

    kept = [thing for *_, thing in _unregistered(model) if isinstance(thing, Tensor) and thing.is_floating_point()]
    if kept and not trained and not again():
        return
    before = _kept(model)
    left = set(before)
    for _ in range(CALLS):
        if not left or not again():
            return
        after = _kept(model)
        left = {key for key in left if _grew(before[key], after.get(key, set()))}
        before = after
    owners = dict(named_modules(model))
    for path, name in sorted(left):
        _report(path, name, owners[path], collector)


def _kept(model: nn.Module) -> Graphs:
    ends: Graphs = {}
    buffers = [(path, name, item) for path, module in named_modules(model) for name, item in module._buffers.items()]
    for path, name, thing in (*buffers, *_unregistered(model)):
        if isinstance(thing, Tensor) and thing.grad_fn is not None:
            ends.setdefault((path, name), set()).add(thing.grad_fn)
    return ends


def _unregistered(model: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """The path of the module, the attribute, and what it holds."""
    modules = named_modules(model)
    known = RegisteredIds(modules)
    for path, module in modules:
        yield from ((path, item.name, found.thing) for item in hidden(module, known) for found in item.things)


def _grew(before: set[Any], after: set[Any]) -> bool:
    """Whether more graphs are held than before, or a new one has an old one in it."""
    if len(after) > len(before):
        return True
    waiting = [node for node in after if node not in before]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node in before:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return False


def _report(path: str, name: str, owner: nn.Module, collector: FindingCollector) -> None:
    by_hand = set_elsewhere(type(owner), name)
    until = "runs out" if by_hand is None else f"runs out or `{by_hand}` is called"
    collector.add(
        "growing-graph",
        f"self.{name} keeps its history from call to call: the graphs of all calls before stay in memory, which grows"
        f" with each call until it {until}.",
        "Keep the value without its history: .detach() where it is kept.",
        path=path,
        place=changed_in(type(owner), name),
        severity=None if by_hand is None else "note",
    )
