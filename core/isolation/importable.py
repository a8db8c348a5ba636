"""From which folder, and under which name, a file of Python is imported as its author does: found out from the folders
around it and from its own imports. Any thread; reads the file, imports nothing."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

_ABOVE = 4
"""So many folders above a file can be the package that its absolute imports begin with."""
MOST_BYTES = 4 << 20


class Importable(NamedTuple):
    """How a file is imported."""

    home: str
    """The folder that has to be importable."""
    module: str = ""
    """`package.module`; empty for a file that is in no package."""
    siblings: bool = False
    """Whether it also imports files beside it, as a script in a package does."""


def importable(file: Path) -> Importable:
    """That of a file, which need not exist.

    A package is every folder up to which there is an `__init__.py`, and without one those that relative imports or the
    file's own `import package.…` lead to.
    """
    return _importable(file, _modified(file), _packages(file))


def _modified(file: Path) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except (OSError, ValueError):
        return 0


def _packages(file: Path) -> int:
    """How many folders around a file are packages, the innermost first."""
    depth = 0
    while depth < len(file.parents) - 1 and os.path.isfile(file.parents[depth] / "__init__.py"):
        depth += 1
    return depth


@lru_cache(maxsize=64)
def _importable(file: Path, modified: int, packages: int) -> Importable:
    imports = list(_imports(file))
    depth = max((level for level, _ in imports if level), default=0)
    for level, names in imports:
        if level == 0:
            depth = max(depth, _own_package(file, names))
    siblings = any(level == 0 and _is_beside(file, names) for level, names in imports)
    if depth or not siblings:  # else it is a script, which happens to lie in a package
        depth = min(max(depth, packages), len(file.parents) - 1)
    if depth == 0:
        return Importable(str(file.parent))
    home = file.parents[depth]
    parts = list(file.relative_to(home).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return Importable(str(home), ".".join(parts), siblings)


def _imports(file: Path) -> Iterator[tuple[int, Sequence[str]]]:
    """Level and parts of the name of each import of a file, what is imported from there included."""
    try:
        tree = ast.parse(file.read_bytes()) if os.stat(file).st_size <= MOST_BYTES else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.level, [*(node.module or "").split("."), alias.name]


def _own_package(file: Path, names: Sequence[str]) -> int:
    """How many folders above a file begin the package of an absolute import; 0: it is of another one."""
    for depth, folder in enumerate(file.parents[:_ABOVE], start=1):
        if folder.name == names[0] and len(names) > 1 and _is_module(folder / names[1]):
            return depth
    return 0


def _is_beside(file: Path, names: Sequence[str]) -> bool:
    """Whether an absolute import means a file beside this one, and nothing that is installed."""
    here = file.parent / names[0]
    if not (_is_module(here) or (len(names) > 1 and _is_module(here / names[1]))):
        return False
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry) != str(file.parent)]
    return names[0] not in sys.stdlib_module_names and PathFinder.find_spec(names[0], elsewhere) is None


def _is_module(path: Path) -> bool:
    return os.path.isfile(path.with_name(f"{path.name}.py")) or os.path.isfile(path / "__init__.py")
