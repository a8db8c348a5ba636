"""The hosts that the user's ssh configuration names. Functions on small files, any thread.

What their names mean is ssh's own business: it reads the same files.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from devexplorer.core.base import BadInput

LARGEST = 1 << 20
"""Bytes of a file; a larger one is no configuration."""
MOST_FILES = 256
LONGEST = 1024
"""Characters of a name."""
LIMIT_S = 5.0
"""For ssh to read its configuration."""
PATTERN = frozenset("*?!")


def checked(host: str) -> str:
    """A host as ssh takes it: a name, an address, `user@name`, `ssh://user@name:22`. Raises `BadInput` for what ssh
    would take for an option, and for what no host can be."""
    host = host.strip()
    if not host:
        raise BadInput("name the host as ssh takes it, for example gpu1 or user@gpu1")
    if not _is_host(host):
        raise BadInput("a host neither begins with a minus nor has blanks or control characters in it")
    return host


def _is_host(name: str) -> bool:
    return 0 < len(name) <= LONGEST and name.isprintable() and " " not in name and not name.startswith("-")


def configured(file: Path | None = None) -> tuple[str, ...]:
    """The names in `~/.ssh/config` and what it includes, in their order; patterns are left out."""
    file = Path("~/.ssh/config").expanduser() if file is None else file
    return tuple(dict.fromkeys(_names(file, file.parent, set())))


def _names(file: Path, home: Path, seen: set[Path]) -> Iterator[str]:
    if file in seen or len(seen) >= MOST_FILES:  # files can include each other
        return
    seen.add(file)
    for keyword, values in _lines(file):
        if keyword == "host":
            yield from (name for name in values if not PATTERN & set(name) and _is_host(name))
            continue
        for value in values:
            for path in sorted(glob.glob(str(home / os.path.expanduser(value)))):
                yield from _names(Path(path), home, seen)


def _lines(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Keyword and values of each line; what cannot be read says nothing."""
    try:
        if not os.path.isfile(file) or file.stat().st_size > LARGEST:
            return
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        found = re.match(r"\s*(host|include)(?:\s*=\s*|\s+)(.*)", line, re.IGNORECASE)
        if found is not None:
            try:
                yield found[1].lower(), shlex.split(found[2], comments=True)
            except ValueError:  # a quotation mark that is not closed
                continue


@cache
def address(host: str, program: str = "ssh") -> str:
    """`HostName` of the user's configuration for this host, which ssh only reads for it; empty: it does not say."""
    try:
        said = subprocess.run(
            [program, "-G", "--", checked(host)], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = (line.partition(" ") for line in said.stdout.decode(errors="replace").splitlines())
    return next((value.strip() for name, _, value in lines if name == "hostname"), "")
