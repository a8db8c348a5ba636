"""A small file of the system that is read again and again: kept open, because opening takes longer than reading. Any
thread; no torch."""

from __future__ import annotations

import os
from pathlib import Path


class KeptFile:
    """`start()` is the file's beginning as it is now; nothing where there is no such file."""

    def __init__(self, path: Path) -> None:
        self._number = -1
        try:
            self._number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            pass  # not Linux

    def start(self, most: int = 256) -> bytes:
        """The first `most` bytes."""
        try:
            return os.pread(self._number, most, 0) if self._number >= 0 else b""
        except OSError:
            return b""

    def __del__(self) -> None:
        if self._number >= 0:
            os.close(self._number)
