"""Finds what a model keeps with its history from call to call: the graphs of all calls before stay in memory with it.
The thread that runs the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.static.hidden import hidden
from devexplorer.core.models import RegisteredIds, named_modules
from devexplorer.core.models.class_source import changed_in, set_elsewhere

CALLS = 9
"""Forwards in all of which it has to grow: a window of a few calls does not."""
Graphs = dict[tuple[str, str], set[Any]]
"""Path of a module and an attribute of it -> the nodes at the ends of the graphs that it holds."""


class _KeptTensor(NamedTuple):
    ends: Graphs
    owners: dict[str, nn.Module]


def growing(model: nn.Module, inputs: Sequence[Tensor], collector: FindingCollector, trained: bool) -> None:
    """Report what holds the graphs of earlier calls, after a forward with these inputs. Where that made no graphs, not
    `trained`, one more makes them, if anything is kept at all: it needs the memory of a training step."""
    kept = [thing for *_, thing in _unregistered(model) if isinstance(thing, Tensor)]
    if not trained and any(thing.dtype.is_floating_point for thing in kept):
        try:
            with collector.ignoring():
                model(*inputs)
        except (Exception, SystemExit):  # the run itself went through
            return
    before = _kept(model)
    left = set(before.ends)
    for _ in range(CALLS):
        if not left:
            return
        try:
            with collector.ignoring():
                model(*inputs)
        except (Exception, SystemExit):  # it has been run before, so that another call is what it does not allow
            return
        after = _kept(model)
        left = {key for key in left if _grew(before.ends[key], after.ends.get(key, set()))}
        before = after
    for path, name in sorted(left):
        _report(path, name, before.owners[path], collector)


def _kept(model: nn.Module) -> _KeptTensor:
    ends: Graphs = {}
    modules = named_modules(model)
    buffers = [(path, name, item) for path, module in modules for name, item in module._buffers.items()]
    for path, name, thing in (*buffers, *_unregistered(model)):
        if isinstance(thing, Tensor) and thing.grad_fn is not None:
            ends.setdefault((path, name), set()).add(thing.grad_fn)
    return _KeptTensor(ends, dict(modules))


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
