"""Syntax trees of files, for everything that reads source: each file is parsed once, those of libraries are long. Any
thread; no torch.

The source is read, never executed.
"""

from __future__ import annotations

import ast
import linecache
import os
from functools import lru_cache

Stamp = tuple[int, int]


def tree_of(file: str) -> ast.Module | None:
    """The tree of a file as it is now; None where it cannot be read or is no Python."""
    return _parsed(file, stamp_of(file))


def stamp_of(file: str) -> Stamp:
    """Another one when the file has changed: for the keys of caches."""
    try:
        status = os.stat(file)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=64)
def _parsed(file: str, stamp: Stamp) -> ast.Module | None:
    linecache.checkcache(file)
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None
