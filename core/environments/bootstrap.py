"""Runs a module of ours in a Python where DevExplorer is not installed: `PYTHON -P bootstrap.py [--before=FOLDER]
[--after=FOLDER] MODULE ARGUMENTS…`, as `python -m MODULE` would. Main thread; the standard library only.

The package `devexplorer` is the one that this file lies in, also where another is installed or was imported by a
`.pth` file. `--before` holds packages that are there but too old, `--after` those that are missing: it comes last, so
nothing of that environment is shadowed by it.
"""

import importlib.util
import os
import sys


def main() -> None:
    """Bind the package, extend the path, run the module in `__main__`."""
    start = [os.path.abspath(__file__)]
    arguments = sys.argv[1:]
    while arguments and arguments[0].startswith("--"):
        start.append(arguments.pop(0))
    bind(start)
    _run(arguments)


def bind(start: "list[str]") -> None:
    """Extend the path, and make the package that the file `start[0]` lies in `devexplorer`; it keeps how to start the
    next process the same way."""
    for option in start[1:]:
        name, _, extension = option.partition("=")
        sys.path.insert(0 if name == "--before" else len(sys.path), extension)
    folder = os.path.dirname(os.path.dirname(os.path.dirname(start[0])))
    for name in [name for name in sys.modules if name.partition(".")[0] == "devexplorer"]:
        del sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        "devexplorer", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None  # noqa: PT018 - for the type checker
    package = importlib.util.module_from_spec(spec)
    package.__dict__["__start__"] = tuple(start)
    sys.modules["devexplorer"] = package
    spec.loader.exec_module(package)


def _run(arguments: "list[str]") -> None:
    """Run a module in `__main__`, without `__file__` and `__spec__`: processes that a user's code starts by
    `multiprocessing` would import the module by them, and have no DevExplorer."""
    name = arguments[0]
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name += ".__main__"
        spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise SystemExit("devexplorer: there is no module " + name)
    code = spec.loader.get_code(name)  # type: ignore[attr-defined]
    sys.argv = [str(spec.origin), *arguments[1:]]
    space = sys.modules["__main__"].__dict__
    for attribute in ("__file__", "__cached__"):
        space.pop(attribute, None)
    space.update(__package__=name.rpartition(".")[0], __spec__=None, __doc__=None)
    exec(code, space)


if __name__ == "__main__":
    main()
