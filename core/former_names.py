"""Modules by the names that scripts and files of version 0.1 know them by. Any thread; imports nothing until one is
asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importlib.abc brings tempfile, shutil and random, 5 ms of every start

FORMER = {
    "devexplorer.core.workspace.zoo": "devexplorer.core.models.samples",
    **{
        # the classes in files of whole modules
        f"devexplorer.core.workspace.zoo.{family}": f"devexplorer.core.models.samples.{family}"
        for family in ("blocks", "custom", "sequence", "vision")
    },
    "devexplorer.core.workspace.run": "devexplorer.core.models.run",
    "devexplorer.core.workspace.models": "devexplorer.core.models",
    "devexplorer.core.workspace.models.inputs": "devexplorer.core.models.inputs",
    "devexplorer.core.models.handover": "devexplorer.core.files.own_models",
    "devexplorer.core.commands.opened": "devexplorer.core.files.workspace_commands",
    "devexplorer.core.records.planner": "devexplorer.core.planner.records",
}


class _Finder(Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in FORMER else None

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module in its place that has this one's content now."""
        sys.modules[module.__name__] = import_module(FORMER[module.__name__])


def install() -> None:
    """Let the import system find them, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
