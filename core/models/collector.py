"""Keeps Python's cyclic garbage collector out of work that makes many objects which all live on. Any thread.

A snapshot or a move makes some objects per tensor. Of their mere number the collector would conclude that there is
something to find, and each of its full passes looks at everything that torch has imported: 0.2 s.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Let the collector rest, for a block or (as a decorator) for a function; where it was stopped before, it
    stays stopped."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
