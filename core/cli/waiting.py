"""What a person sees who waits for a process of its own: one line on standard error that says how far it is. Main thread; no torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from devexplorer.core.cli.output import printable
from devexplorer.core.watch import NOBODY, Watch

_CLEAR = "\r\x1b[K"
_CELLS = 78
"""Of a line that no terminal folds: a folded one could not be written over."""


@contextmanager
def waiting() -> Iterator[Watch]:
    """Who watches: the line on a terminal, nobody elsewhere. The line is gone afterwards."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield NOBODY
        return

    def say(done: float, text: str) -> None:
        stream.write(f"{_CLEAR}{f'{100 * done:3.0f} %  {printable(text)}'[:_CELLS]}")
        stream.flush()

    try:
        yield Watch(progress=say)
    finally:
        stream.write(_CLEAR)
        stream.flush()
