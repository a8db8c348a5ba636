"""Who has switched gradients off, and at which line: `no_grad`, `inference_mode`, `set_grad_enabled(False)`. The thread
that is watched."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.autograd.grad_mode import inference_mode

from devexplorer.core.isolation.source_location import SourceLocation, kind_of, place_of
from devexplorer.core.models import is_switch, tree_of

_DECORATED = torch.utils._contextlib.__file__


class Switched(NamedTuple):
    """Gradients are off since this line."""

    description: str
    place: SourceLocation | None
    library: SourceLocation | None


class Switches:
    """Knows the switch that is in force, from the calls of torch that are traced (`switch`); `inference_mode` makes
    none that is seen."""

    def __init__(self) -> None:
        self.until: FrameType | None = None
        """The frame that watches: what is further out is none of the model's."""
        self._off: Switched | None = None
        self._inference: list[Switched] = []

    @property
    def off(self) -> Switched | None:
        """None where they are on; autograd itself does that within a Function's forward."""
        return self._inference[-1] if self._inference else self._off

    def switch(self, on: bool, frame: FrameType) -> None:
        """Gradients are about to be switched."""
        if on:
            self._off = None
        elif torch.is_grad_enabled():
            self._off = _found(frame, self.until)

    def watching_inference(self) -> AbstractContextManager[Any]:
        """Within, `inference_mode` tells where it was entered."""
        before_enter: Callable[..., Any] = inference_mode.__enter__
        before_exit: Callable[..., Any] = inference_mode.__exit__

        def enter(switch: inference_mode) -> None:
            self._inference += [_found(sys._getframe(1), self.until, "torch.inference_mode()")] if switch.mode else []
            before_enter(switch)

        def leave(switch: inference_mode, *raised: Any) -> None:
            if switch.mode and self._inference:
                self._inference.pop()
            before_exit(switch, *raised)

        return patch.multiple(inference_mode, __enter__=enter, __exit__=leave)


def inside(frame: FrameType | None, until: FrameType | None) -> SourceLocation | None:
    """The line of an installed package, where that does it and not the user line that calls it."""
    while frame is not None and frame is not until:
        kind = kind_of(frame.f_code.co_filename)
        if kind != "skipped":
            code = frame.f_code
            return (
                SourceLocation(code.co_filename, frame.f_lineno, code.co_name, library=True)
                if kind == "library"
                else None
            )
        frame = frame.f_back
    return None


def _found(frame: FrameType, until: FrameType | None, description: str = "") -> Switched:
    decorated = _decorator(frame)
    return decorated or Switched(description or _words_of(frame), place_of(frame, until), inside(frame, until))


def _words_of(frame: FrameType | None) -> str:
    """What the switch is called: its methods are the first frames."""
    while frame is not None and frame.f_code.co_filename == torch.autograd.grad_mode.__file__:
        if type(frame.f_locals.get("self")) is torch.no_grad:
            return "torch.no_grad()"
        frame = frame.f_back
    return "torch.set_grad_enabled(False)"


def _decorator(frame: FrameType | None) -> Switched | None:
    """The line of `@torch.no_grad()` where the switch is one over a whole function."""
    while frame is not None and frame.f_code.co_filename != _DECORATED:
        if kind_of(frame.f_code.co_filename) != "skipped":
            return None
        frame = frame.f_back
    function = None if frame is None else frame.f_locals.get("func")
    code = getattr(function, "__code__", None)
    if code is None or frame is None:
        return None
    kind, line, description = kind_of(code.co_filename), code.co_firstlineno, "a decorator that switches gradients off"
    tree = None if kind == "skipped" else tree_of(code.co_filename)
    for node in ast.walk(tree) if tree is not None else ():
        decorators = getattr(node, "decorator_list", [])
        if decorators and decorators[0].lineno == code.co_firstlineno:
            named = next((item for item in decorators if is_switch(item)), None)
            if named is not None:
                line, description = named.lineno, f"@{ast.unparse(named)}"
    if kind == "skipped":
        return None
    place = SourceLocation(code.co_filename, line, code.co_name, kind == "library")
    return Switched(description, place, place if kind == "library" else None)
