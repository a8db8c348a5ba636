"""Code of a model that asks on which device it is: which of its sides ran, on the device and on the CPU. The thread
that runs the model.

The source is read for conditions; while one of its files is run, Python tells which of their lines are.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import nn

from devexplorer.core.doctor.code.syntax import nodes
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.isolation.source_location import SourceLocation, kind_of
from devexplorer.core.models import file_of, last_name, named_modules, tree_of
from devexplorer.core.records import DeviceInfo

_IS = frozenset({"is_cuda", "is_cpu", "is_mps", "is_xpu"})
_ASKS = frozenset({"is_available", "device_count", "get_device", "get_device_capability", "is_bf16_supported"})
_KINDS = frozenset({"cpu", "cuda", "mps", "xpu"})


class Branch(NamedTuple):
    """A condition on the device."""

    place: SourceLocation
    text: str
    sides: tuple[tuple[int, int], ...]
    """First and last lines of what it chooses from; empty where that is on its own line."""

    def ran(self, lines: Lines) -> tuple[bool, ...]:
        """Of each side, whether a line of it did."""
        known = lines[self.place.file]
        return tuple(any(first <= line <= last for line in known) for first, last in self.sides)


Lines = dict[str, set[int]]
"""Lines that ran, by file."""


@contextmanager
def noted(lines: Lines) -> Iterator[None]:
    """Within, each line of these files is noted when it runs on this thread. A debugger does not see it."""

    def called(frame: FrameType, event: str, argument: Any) -> Any:
        known = lines.get(os.path.abspath(frame.f_code.co_filename))
        if known is None:
            return None

        def ran(frame: FrameType, event: str, argument: Any) -> Any:
            known.add(frame.f_lineno)
            return ran

        return ran

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)


class Branches:
    """Those of a model on a device; false where it has none."""

    def __init__(self, model: nn.Module, info: DeviceInfo) -> None:
        self._info = info
        self._branches = [] if info.id == "cpu" else _branches_of(model)
        self._here: Lines = {branch.place.file: set() for branch in self._branches}

    def __bool__(self) -> bool:
        return bool(self._branches)

    def noted(self) -> AbstractContextManager[None]:
        """Around the run on the device."""
        return noted(self._here) if self._branches else nullcontext()

    def compare(self, differs: Callable[[], bool], collector: FindingCollector) -> None:
        """Report which condition makes the results on the device others than those on the CPU, and those of which a
        side was run neither time. `differs` runs the same on the CPU and compares."""
        there: Lines = {file: set() for file in self._here}
        without = patch.object(torch.cuda, "is_available", lambda: False)
        with noted(there), without if self._info.simulated else nullcontext():
            others = differs()
        for branch in _deciding(self._branches, self._here, there) if others else ():
            collector.add(
                "differs-on-device",
                f"`{branch.text}` decides by the device, and the model returns something else on {self._info.id} than"
                " on the CPU.",
                "Compute the same on every device; what is there for speed has to give the same values.",
                path="",
                place=branch.place,
            )
        for branch in self._branches:
            asked = branch.place.line in self._here[branch.place.file]
            if asked and not all(map(any, zip(branch.ran(self._here), branch.ran(there), strict=True))):
                collector.add(
                    "differs-on-device",
                    f"Of what `{branch.text}` chooses from, not all was run: a part is for another device.",
                    "Check it on a machine with that device.",
                    path="",
                    place=branch.place,
                    severity="note",
                )


def _branches_of(model: nn.Module) -> list[Branch]:
    """Every condition on the device in the user's files that the classes of a model come from, or that those use."""
    files: dict[str, None] = {}
    for kind in {type(module): None for _, module in named_modules(model)}:
        file = file_of(kind)
        if file is None or kind_of(file) != "user" or kind.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        files[os.path.abspath(file)] = None
        for value in list(vars(sys.modules.get(kind.__module__, ModuleType(""))).values()):
            used = None
            if type(value) is FunctionType:
                used = value.__code__.co_filename
            elif type(value) is ModuleType:
                used = getattr(value, "__file__", None)
            if isinstance(used, str) and kind_of(used) == "user" and used.endswith(".py"):
                files[os.path.abspath(used)] = None
    return [branch for file in files for branch in _branches(file)]


def _branches(file: str) -> Iterator[Branch]:
    for node in nodes(tree_of(file), ast.stmt, ast.IfExp):
        sides: list[tuple[int, int]] = []
        match node:
            case ast.If(test=value, body=body, orelse=orelse) | ast.While(test=value, body=body, orelse=orelse):
                asks = _asks(value)
                for part in filter(None, (body, orelse)):
                    sides.append((part[0].lineno, part[-1].end_lineno or part[-1].lineno))
            case ast.IfExp(test=value):
                asks = _asks(value)
            case ast.Assign(value=value) | ast.Return(value=ast.expr() as value):
                asks = _chooses(value)
            case _:
                continue
        if asks:
            yield Branch(SourceLocation(file, node.lineno, ""), ast.unparse(value), tuple(sides))


def _deciding(branches: Sequence[Branch], here: Lines, there: Lines) -> list[Branch]:
    """Those whose sides ran otherwise in two runs; where there is none, those on one line that ran."""
    chosen = [branch for branch in branches if branch.ran(here) != branch.ran(there)]
    if chosen:
        return chosen
    ran = []
    for branch in branches:
        if not branch.sides and branch.place.line in here[branch.place.file] | there[branch.place.file]:
            ran.append(branch)
    return ran


def _asks(test: ast.expr) -> bool:
    for node in nodes(test, ast.expr):
        if last_name(node) in _IS | _ASKS:
            return True
        if isinstance(node, ast.Constant) and str(node.value).partition(":")[0] in _KINDS:
            return True
    return False


def _chooses(value: ast.expr) -> bool:
    """`x.is_cuda` that is kept, and a table that is asked for a device: `{"cpu": a, "cuda": b}[x.device.type]`."""
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Attribute) and ast.unparse(value.slice).endswith((".device", ".device.type"))
    return isinstance(value, (ast.Attribute, ast.Compare, ast.UnaryOp)) and _asks(value)
