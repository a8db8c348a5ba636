"""Where an observed script listens, and what it says first to whoever connects: apart from `records`, so that a script
starts without what only those need who look. Any thread."""

from __future__ import annotations

import os
import re

from devexplorer.core.records.base import Record

PROTOCOL = 1
SCRIPT_SOCKET = re.compile(r"script-(\d+)\.sock")
"""Its name. Hosts listen in the same folder, and are ended by `devexplorer host stop`; scripts are not."""


class Greeting(Record):
    """The first record that a script sends to whoever connects."""

    pid: int
    name: str
    """Its file, or `-m MODULE`."""
    folder: str
    """Where it was started."""
    since_unix_s: float
    torch: str
    rank: int | None = None
    ranks: int | None = None
    job: str = ""
    """The same for all ranks of one job; empty: it is none of a job."""
    devices: tuple[str, ...] = ()
    """Virtual GPUs in place of CUDA."""
    protocol: int = PROTOCOL
    devexplorer: str = ""


def socket_of(folder: str, pid: int) -> str:
    """Where the script of that process listens."""
    return os.path.join(folder, f"script-{pid}.sock")
