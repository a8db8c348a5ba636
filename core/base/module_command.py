"""How a process of ours starts another one. Any thread."""

from __future__ import annotations

import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours in a process like this one: the same Python and, where this is not an
    installation, by the same `core/environments/bootstrap.py`."""
    start = vars(sys.modules["devexplorer"]).get("__start__", ("-m",))
    return [sys.executable, "-P", *start, module, *arguments]
