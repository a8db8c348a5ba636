"""Opens regular files only: opening a FIFO blocks, and a device has no end. Any thread."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from devexplorer.core.base.errors import BadInput

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
