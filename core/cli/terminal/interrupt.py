"""Ctrl-C from the first line of the program on: quiet, exit code 130. Main thread.

Imports next to nothing, because it is what the program imports first. A program that a script starts in the background
inherits SIGINT as ignored, and so would never hear of Ctrl-C or `kill -INT`: the commands here listen all the same.
"""

from __future__ import annotations

import os
import signal
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
