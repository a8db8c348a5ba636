"""Why backward gave a parameter no gradient: reads the source of modules for what cuts them off from autograd. Runs on
the jobs thread.

The source is read, never executed. `.data` and `.detach()` give values without history, `torch.no_grad()` and
`torch.inference_mode()` let nothing have one: whatever is computed from there on does not depend on the parameters any
more, as far as autograd knows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from torch import nn

from devexplorer.core.models.class_source import SWITCHES, is_switch, own_attribute, reached_methods
from devexplorer.core.models.walk import is_uninitialised

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
    """The code there: `self.weight.data`, `torch.no_grad()`."""
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
    """Look through a model after a backward; `ran` are the `id()` of the modules that were run, `path` is its path in
    the whole model."""
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
    """Those that are about these very parameters; where there is none, whatever else cuts on the way."""
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
            yield from _in_class(place, module)


def _in_class(path: str, module: nn.Module) -> Iterator[Cut]:
    """What cuts in `forward` and in the methods that it calls on its object, each as the class itself has it."""
    kind, read = type(module), set[str]()
    for source, function, first in reached_methods(kind):
        if function.name in read:
            continue
        read.add(function.name)
        nodes = [node for node in ast.walk(function) if isinstance(node, ast.expr)]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            value = _cut_off(node)
            if value is not None:
                own = own_attribute(value, first)
                parameter = own if own in module._parameters else None
                yield Cut(path, kind.__name__, source.file, node.lineno, ast.unparse(node), parameter)


def _cut_off(node: ast.expr) -> ast.expr | None:
    """What is cut off by this expression, if anything: the value before `.data` and `.detach()`, or the switch
    itself."""
    if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Load):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("detach", "detach_"):
        return node.func.value
    return node.func if isinstance(node, ast.Call) and is_switch(node) else None


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
    """Why nothing at all could get a gradient, as the end of a sentence; empty where that is unknown."""
    if missing.cuts:
        return f": {_places(missing.cuts)}".rstrip(".")
    if missing.frozen and not missing.paths:
        return (
            f": {_some(missing.frozen)} {'is' if len(missing.frozen) == 1 else 'are'} frozen; unfreeze what should be"
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
                else f"{where} {takes} the values without their history: without that, gradients arrive."
            )
    return " ".join(said)
