"""Files that are replaced whole or not at all, and regular files only: opening a FIFO blocks, and a device has no end.
Any thread; no torch, no Qt."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from devexplorer.core.base.errors import BadInput


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


OTHER_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO (a named pipe)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; raises `BadInput` if it is not a regular file, and `OSError`."""
    other = OTHER_KINDS.get(
        stat.S_IFMT(os.stat(path).st_mode)
    )  # looked at first: opening a FIFO waits for whoever writes into it
    if other is not None:
        raise BadInput(f"{path} is {other}, not a file")
    return path.open("rb")
