"""Says that folders of the cache are in use still: a process that runs for weeks loads modules of ours at any time, and
what was not used for a day may be removed. Any thread."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from devexplorer.core.base import module_prefix
from devexplorer.core.environments.code_cache import BOOTSTRAP

NOTE_USE_S = 3600.0


def keep_in_use() -> None:
    """Note it every hour, on a thread, as long as this process runs, if it runs with such folders."""
    command = module_prefix()
    if "-m" not in command:
        threading.Thread(target=_keep, args=(command,), name="in-use", daemon=True).start()


def _keep(command: Sequence[str]) -> None:
    while True:
        note_use(command)
        time.sleep(NOTE_USE_S)


def note_use(command: Sequence[str]) -> None:
    """Of what this command (as `prepare` and `module_command` return it) runs with."""
    for word in command:
        option, equals, folder = word.partition("=")
        if option in ("--before", "--after") and equals:
            _touch(Path(folder))
        elif word.endswith(f"/{BOOTSTRAP}"):
            _touch(Path(word.removesuffix(f"/{BOOTSTRAP}")))


def _touch(folder: Path) -> None:
    with suppress(OSError):  # removed all the same, or a home that is read-only
        os.utime(folder)
