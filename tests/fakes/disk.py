"""A full disk, folders without write permission (for one process and one thread), and what is left in a folder."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def full_disk(after_bytes: int) -> Iterator[None]:
    """Limits the size of files in this process: writes fail as on a full disk (Python ignores the signal)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def somebody_else() -> Iterator[None]:
    """Files are opened as an unprivileged user: root may write everywhere, so this thread switches to another user
    (Linux)."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None)
    libc.setfsuid(65534)
    try:
        yield
    finally:
        libc.setfsuid(0)


def files_in(folder: Path) -> list[Path]:
    """Every file below `folder`, which another thread may be emptying: `Path.rglob` raises then, up to Python 3.12."""
    return [Path(root) / name for root, _, names in os.walk(folder) for name in names]
