"""Within, what `torch.compile` or TorchScript would compile runs as it is written. The main thread of the process that
examines a model.

What was compiled before stays compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.jit._script import RecursiveScriptModule

from devexplorer.core.isolation.source_location import SourceLocation, caller_location

Note = Callable[[str, SourceLocation | None], None]
"""Gets `torch.compile` or `torch.jit.script`, and the line that asked for it."""


@contextmanager
def as_written(note: Note) -> Iterator[None]:
    """Let compilers give back what they are given; `note` hears of each module when it is given, of each function when
    it is called."""

    def compile(model: Any = None, **options: Any) -> Any:
        place = caller_location(2)
        if model is None:
            return lambda given: _plain(given, "torch.compile", place, note)
        return _plain(model, "torch.compile", place, note)

    def replacing(what: str, argument: str) -> Callable[..., Any]:
        def give_back(*given: Any, **options: Any) -> Any:
            return _plain(given[0] if given else options[argument], what, caller_location(2), note)

        return give_back

    class Scripted(nn.Module):
        """In place of `torch.jit.ScriptModule`, for classes that derive from it."""

        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            note("torch.jit.ScriptModule", caller_location(2))

    plain: dict[str, Any] = {
        "script": replacing("torch.jit.script", "obj"),
        "trace": replacing("torch.jit.trace", "func"),
        "trace_module": replacing("torch.jit.trace", "mod"),
        "script_method": lambda function: function,
        "ScriptModule": Scripted,
    }
    for name in ("freeze", "optimize_for_inference"):
        plain[name] = functools.partial(_finished, getattr(torch.jit, name))
    with ExitStack() as patched:
        patched.enter_context(patch.object(torch, "compile", compile))
        for name, value in plain.items():
            patched.enter_context(patch.object(torch.jit, name, value))
        yield


def _plain(code: Any, what: str, place: SourceLocation | None, note: Note) -> Any:
    """The same module or class, or a function that notes that it is called."""
    if isinstance(code, nn.Module):
        if not isinstance(code, RecursiveScriptModule):
            note(what, place)
        return code
    if isinstance(code, type) or not callable(code):
        return code

    @functools.wraps(code)
    def called(*given: Any, **named: Any) -> Any:
        note(what, place)
        return code(*given, **named)

    return called


def _finished(real: Callable[..., Any], mod: Any, *args: Any, **options: Any) -> Any:
    return real(mod, *args, **options) if isinstance(mod, RecursiveScriptModule) else mod
