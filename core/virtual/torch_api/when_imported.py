"""Calls a function when a module is imported, at once where it is there: parts of torch take a second to import. Any
thread."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, function: Callable[[ModuleType], None]) -> None:
    """Call `function` with the module once its own code has run."""
    module = sys.modules.get(name)
    if module is not None:
        function(module)
    else:
        sys.meta_path.insert(0, _Waiting(name, function))


class _Waiting(MetaPathFinder):
    """Finds the one module as the others would, with a loader that calls the function afterwards."""

    def __init__(self, name: str, function: Callable[[ModuleType], None]) -> None:
        self._name, self._function = name, function

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """None for every module but the one, and for that one when it is asked for again."""
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Calling(spec.loader, self._function)
        return spec


class _Calling(Loader):
    def __init__(self, loader: Loader, function: Callable[[ModuleType], None]) -> None:
        self._loader, self._function = loader, function

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the loader does, and then the function."""
        self._loader.exec_module(module)
        self._function(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
