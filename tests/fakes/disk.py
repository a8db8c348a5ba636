"""Disks that are full, and folders that belong to somebody else, for one process and one thread."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(after_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond that: writes fail as they do on a full disk (Python ignores the
    signal)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def somebody_else() -> Iterator[None]:
    """Files are opened as a user without rights: root may write everywhere, so it becomes somebody else for this thread
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
