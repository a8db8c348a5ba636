"""Says that folders of the cache are in use still: a process that runs for weeks loads modules of ours at any time, and
what was not used for a day may be removed. Any thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from devexplorer.core.environments.code_cache import BOOTSTRAP


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
