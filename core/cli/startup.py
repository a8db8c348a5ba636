"""What every start of the program has before anything else: Ctrl-C is quiet from the first line on (exit code 130), a
refusal is one line on standard error, and the first reading comes sooner. Main thread; imports next to nothing.

A program that a script starts in the background
inherits SIGINT as ignored, and so would never hear of Ctrl-C or `kill -INT`: the commands here listen all the same.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the signal's number."""


def end_quietly() -> None:
    """From now on Ctrl-C ends the process at once, as is right wherever nothing has to be put in order.

    An exception may come out of the middle of an import: as a traceback, or, while torch is imported, as an abort.
    """
    _set(_end)


class Raising:
    """Use as a context where something has to be put in order: Ctrl-C raises `KeyboardInterrupt`. No torch is imported
    in it."""

    def __enter__(self) -> None:
        self._before = _set(signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _set(self._before)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def _set(handler: Any) -> Any:
    try:
        return signal.signal(signal.SIGINT, handler)
    except ValueError:  # signals are the main thread's, and a test may run a command on another one
        return None


def say(message: str) -> None:
    """A line beside what the command prints, without codes for the terminal: a message can be that of any code."""
    if sys.stderr is not None:  # None: the shell closed it
        line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(message.split()))
        print(f"devexplorer: {line}", file=sys.stderr, flush=True)


def refuse(message: str) -> int:
    """Say in one line what is wrong; returns the exit code of what could not be run."""
    say(message)
    return 2


def quick_start() -> None:
    """Import msgspec without typing_extensions, which it takes what it needs from where there is one, and else from
    typing.

    typing_extensions, with the inspect, ast and tokenize that it brings, takes an eighth of the time of `watch --count
    1`, and its typing of numpy is slower; Python 3.11's has all that msgspec asks it for. A later import still gets it.
    Whatever imports msgspec comes after this.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    # what Python has for a module that must not be imported
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]
