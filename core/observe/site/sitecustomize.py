"""Imported by Python before an observed script (`core.observe.launch` puts this folder first on the path): leaves the
path and the variables as they were, and begins when the script has imported torch. Main thread; the standard library
only until then."""

import gc
import importlib.machinery
import importlib.util
import json
import os
import sys
from types import ModuleType
from typing import Any

VARIABLE = "DEVEXPLORER_RUN"
HERE = os.path.dirname(os.path.abspath(__file__))


def _restore(settings: "dict[str, Any]") -> None:
    """Take us out of the path. Processes that the script starts are not observed, except where the ranks of a job or
    the virtual GPUs are there."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    if settings["job"] or settings["virtual"]:
        return
    del os.environ[VARIABLE]
    if settings["python_path"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = settings["python_path"]


def _next_sitecustomize() -> None:
    """Run the one in front of which we stand."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class _TorchFinder:
    """Finds torch as it would be found without it, and begins once torch is imported. Code that only asks where torch
    is, as many packages do first, finds the same."""

    def __init__(self, settings: "dict[str, Any]") -> None:
        self._settings = settings

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return self._with_beginning(spec)
        return None

    def _with_beginning(self, spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec:
        loader: Any = spec.loader
        if loader is None or "exec_module" in vars(loader):
            return spec
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            del loader.exec_module  # the class has it again
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _prepare(self._settings)
            execute(module)
            collects = gc.isenabled()
            gc.disable()  # torch leaves so many objects that a collection during our imports takes twice their time
            try:
                _begin(self._settings)
            finally:
                if collects:
                    gc.enable()

        loader.exec_module = executed
        return spec


def _prepare(settings: "dict[str, Any]") -> None:
    """Make devexplorer importable where it is not installed."""
    if settings["start"]:
        path = settings["start"][0]
        spec = importlib.util.spec_from_file_location("_devexplorer_bootstrap", path)
        assert spec is not None and spec.loader is not None  # noqa: PT018 - for the type checker
        bootstrap = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bootstrap)
        bootstrap.bind(settings["start"])


def _begin(settings: "dict[str, Any]") -> None:
    try:
        from devexplorer.core.observe.inside import begin
    except ImportError as error:
        print(f"devexplorer: the script is not observed: {error}", file=sys.stderr)
        return
    begin(settings)


def _start() -> None:
    text = os.environ.get(VARIABLE)
    settings = None if text is None else json.loads(text)
    if settings is not None:
        _restore(settings)
    _next_sitecustomize()
    if settings is not None:
        sys.meta_path.insert(0, _TorchFinder(settings))


if __name__ == "sitecustomize":
    _start()
