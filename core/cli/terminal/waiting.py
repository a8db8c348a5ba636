"""The progress of work in another process: one line on standard error. Main thread; no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TextIO

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, printable
from devexplorer.core.cli.terminal.interrupt import Raising

_CLEAR = "\r\x1b[K"
_COLUMNS = 80
"""Of a terminal that does not say how wide it is."""


@contextmanager
def waiting(*, ends: bool = True) -> Iterator[ProgressMonitor]:
    """A monitor that writes the line on a terminal and does nothing elsewhere. Afterwards the line is gone. `ends`:
    Ctrl-C also ends the process."""
    stream = sys.stderr
    with Raising() if ends else nullcontext():
        if stream is None or not stream.isatty():
            yield NO_PROGRESS
        else:
            yield from _told(stream)


def _told(stream: TextIO) -> Iterator[ProgressMonitor]:

    def say(done: float, text: str, part: str = "", /) -> None:
        stream.write(f"{_CLEAR}{f'{100 * done:3.0f} %  {printable(text)}'[: _cells(stream)]}")
        stream.flush()

    try:
        yield ProgressMonitor(report=say)
    finally:
        stream.write(_CLEAR)
        stream.flush()


def _cells(stream: TextIO) -> int:
    """Of a line that the terminal does not fold: a folded one could not be written over."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns = 0
    return (columns or _COLUMNS) - 1
