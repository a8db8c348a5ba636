"""The calling thread's Python stack, which a recording allocator stores with each block. Any thread; no torch.

A stack is kept as torch's own snapshots have it: innermost first, one `(file, line, function)` per frame. Left out is
what says nothing about the caller's code: the virtual device itself, torch's dispatch and the `__call__` of modules
(layers and optimizers stay), and what starts the engine's jobs.
"""

from __future__ import annotations

import sys

Frame = tuple[str, int, str]
Stack = tuple[Frame, ...]

MOST_FRAMES = 64
"""Deeper stacks lose their outermost frames."""

_SKIPPED = ("devexplorer.core.virtual", "torch", "importlib", "contextlib")
_KEPT = ("torch.nn", "torch.optim")
_SKIPPED_AFTER_ALL = ("torch.nn.modules.module",)
_OUTSIDE = ("devexplorer.core.commands", "devexplorer.core.engine", "threading")
"""From here on outwards nothing is of interest."""


def current_stack() -> Stack:
    """The stack of the calling thread, trimmed as the module's docstring says."""
    result: list[Frame] = []
    frame = sys._getframe(1)
    while frame is not None and len(result) < MOST_FRAMES:
        module = frame.f_globals.get("__name__") or ""
        if _within(module, _OUTSIDE):
            break
        if not _within(module, _SKIPPED) or (_within(module, _KEPT) and not _within(module, _SKIPPED_AFTER_ALL)):
            result.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back  # type: ignore[assignment]  # None at the end, which ends the loop
    return tuple(result)


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
