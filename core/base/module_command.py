"""How a process of ours starts another one. Any thread."""

from __future__ import annotations

import sys
from collections.abc import Mapping

USERS_PATH = "DEVEXPLORER_PYTHONPATH"
"""Where PYTHONPATH as the user has it is handed on, past a process of ours in a Python that it was not meant for."""

FIRST_PYTHON = "DEVEXPLORER_FIRST_PYTHON"
"""Which Python a command was called in, handed on to the one that it runs in: that one may have no Qt."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours in a process like this one."""
    return [*module_prefix(), module, *arguments]


def module_prefix() -> list[str]:
    """What stands in front of the module's name: the same Python and, where this is not an installation, the same
    `core/environments/bootstrap.py`."""
    return [sys.executable, "-P", *vars(sys.modules["devexplorer"]).get("__start__", ("-m",))]


def without_cards(environ: Mapping[str, str]) -> dict[str, str]:
    """The same variables with CUDA's and ROCm's cards hidden, for a process with virtual GPUs."""
    return {**environ, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
