"""Takes back what code of others changes for the whole process while it makes a model, and has what would be compiled
run as it is written. Jobs thread, or the main thread of a command or of the process that examines a model.

What matters to other code is named, so that the user learns of it; random generators, streams and filters are restored
silently.

What was compiled before stays compiled.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.jit._script import RecursiveScriptModule

from devexplorer.core.isolation.source_location import SourceLocation, caller_location
from devexplorer.core.models.loading import LeftInstead


@dataclass(frozen=True, slots=True)
class _Setting:
    """One thing that is global to the process or the thread."""

    words: str
    get: Callable[[], Any]
    put: Callable[[Any], object]
    code: str = ""
    """Python that puts it back, with {} for the value; empty: a script need not."""


def default_device() -> torch.device:
    """`torch.get_default_device()`, also after `torch.set_default_device(None)`, which torch 2.4 cannot read back."""
    try:
        return torch.get_default_device()
    except AttributeError:
        return torch.device("cpu")


def _put_device(before: torch.device) -> None:
    torch.set_default_device(None if before == torch.device("cpu") else before)
    if before == torch.device("cpu"):
        vars(torch._GLOBAL_DEVICE_CONTEXT).pop("device_context", None)  # others can read it back then


def _put_environment(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


_SETTINGS = (
    _Setting("the default dtype", torch.get_default_dtype, torch.set_default_dtype, "torch.set_default_dtype({})"),
    _Setting("the default device", lambda: default_device(), _put_device, 'torch.set_default_device("{}")'),
    _Setting("gradient mode", torch.is_grad_enabled, torch.set_grad_enabled, "torch.set_grad_enabled({})"),
    _Setting("the number of CPU threads", torch.get_num_threads, torch.set_num_threads, "torch.set_num_threads({})"),
    _Setting(
        "deterministic algorithms",
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
        "torch.use_deterministic_algorithms({})",
    ),
    _Setting(
        "the precision of float32 products",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        'torch.set_float32_matmul_precision("{}")',
    ),
    _Setting("the current folder", os.getcwd, os.chdir),
    _Setting("environment variables", lambda: dict(os.environ), _put_environment),
    _Setting("sys.path", lambda: list(sys.path), lambda previous: sys.path.__setitem__(slice(None), previous)),
    _Setting("sys.argv", lambda: list(sys.argv), lambda previous: sys.argv.__setitem__(slice(None), previous)),
)


@dataclass(slots=True)
class Changes:
    """What was changed and has been taken back."""

    words: list[str] = field(default_factory=list)
    """`the default dtype (torch.float64 instead of torch.float32)`"""
    code: list[str] = field(default_factory=list)
    """What a script has to say after the same code, to have it as it was."""
    random: bool = False
    """Python's generator was drawn from, or set."""
    numpy: bool = False
    """NumPy's was."""


@contextmanager
def settings_kept(changes: Changes | None = None) -> Iterator[None]:
    """Put every setting of the process back to what it was, whatever happens within; what was changed is noted in
    `changes`."""
    before = [setting.get() for setting in _SETTINGS]
    noted = Changes() if changes is None else changes
    try:
        yield
    finally:
        for setting, previous in zip(_SETTINGS, before, strict=True):
            _take_back(setting, previous, noted)


@contextmanager
def kept(seed: int) -> Iterator[Changes]:
    """Seed every generator, and put everything back afterwards, whatever happens; the object is filled at the end.

    Within, `os._exit` raises `LeftInstead` in this process (its children may use it); `SystemExit` and the like are the
    caller's.
    """
    changes = Changes()
    python, numpy = random.getstate(), np.random.get_state()
    streams = sys.stdin, sys.stdout, sys.stderr
    with settings_kept(changes), warnings.catch_warnings(), torch.random.fork_rng(devices=[]), staying(), _alone():
        try:
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed every accelerator too
            random.seed(seed)
            np.random.seed(seed % 2**32)
            seeded = random.getstate(), _numbers(np.random.get_state())
            yield changes
            changes.random, changes.numpy = random.getstate() != seeded[0], _numbers(np.random.get_state()) != seeded[1]
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            sys.stdin, sys.stdout, sys.stderr = streams


def _take_back(setting: _Setting, previous: Any, changes: Changes) -> None:
    try:
        now = setting.get()
        if now == previous:
            return
        setting.put(previous)
    except OSError:  # the current folder was removed, or the one before is gone
        setting.put(previous)
        now = None
    instead = (
        f" ({now} instead of {previous})"
        if isinstance(previous, (bool, int, str, torch.dtype, torch.device)) and now is not None
        else ""
    )
    changes.words.append(f"{setting.words}{instead}")
    if setting.code:
        changes.code.append(setting.code.format(previous))


def _numbers(state: Any) -> tuple[Any, ...]:
    """NumPy's state as something that can be compared."""
    return tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in state)


@contextmanager
def staying() -> Iterator[None]:
    """`os._exit` in this process raises instead; code that keeps a reference gets the real one back afterwards."""
    real, process, active = os._exit, os.getpid(), True

    def leave(status: int) -> NoReturn:
        if active and os.getpid() == process:
            raise LeftInstead(f"it called os._exit({status}), which would have ended this process")
        real(status)

    os._exit = leave
    try:
        yield
    finally:
        active = False
        os._exit = real


@contextmanager
def _alone() -> Iterator[None]:
    """Children that the code forks here are ended and reaped; those of multiprocessing are looked after by
    it."""
    real, children = getattr(os, "fork", None), list[int]()
    if real is None:
        yield
        return

    def fork() -> int:
        child: int = real()
        if child and not str(sys._getframe(1).f_globals.get("__name__")).startswith("multiprocessing"):
            children.append(child)
        return child

    os.fork = fork
    try:
        yield
    finally:
        os.fork = real
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            except OSError:  # the code has waited for it itself
                pass


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
