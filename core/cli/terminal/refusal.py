"""One line for what could not be run. Main thread; imports nothing, because every start of a command imports it."""

from __future__ import annotations

import sys


def refuse(message: str) -> int:
    """Say in one line what is wrong; returns the exit code of what could not be run."""
    print(f"devexplorer: {' '.join(message.split())}", file=sys.stderr)
    return 2
