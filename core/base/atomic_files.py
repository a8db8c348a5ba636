"""Atomic file replacement: written to a temporary file, then renamed. Any thread; no torch, no Qt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary file next to `path`, which replaces it after an fsync.

    On failure the temporary file is removed, `path` is unchanged, and the exception passes through.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(OSError):  # the folder no longer exists
            temporary.unlink(missing_ok=True)
