"""What the rules about the source ask: every file of the product is parsed once in a test process, and only the answers
are kept, because all the trees together take 300 MB."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from project import counts

TOPS = ("core", "gui", "resources")
INNER = re.compile(r"^(from|import) devexplorer\.(core|gui)", re.MULTILINE)
RAISES = ("exists", "is_dir", "is_file")
"""Methods of `Path` that raise."""


@dataclass(slots=True)
class Source:
    """Answers about all files; paths are relative to the repository."""

    modules: dict[str, str] = field(default_factory=dict)
    """Path -> `core.session.state`; of a package without `__init__`."""
    run_time: dict[str, set[str]] = field(default_factory=dict)
    """Path -> what it imports from below `devexplorer` at run time, `core.base` and `core.base.errors` and names of
    such modules alike."""
    packages: set[tuple[str, str]] = field(default_factory=set)
    """Path, and the first part of the name of what it imports, for types too."""
    inner: list[tuple[str, str]] = field(default_factory=list)
    """Path, and a text in it that imports from a module of ours."""
    asked: list[str] = field(default_factory=list)
    """Path and line of what asks a path in a way that raises."""
    nested: list[str] = field(default_factory=list)
    """Path and line of a conditional expression that has another in it."""
    classes: dict[str, list[str]] = field(default_factory=dict)
    """Module of `core` and `gui` -> the classes at its top."""


@cache
def source() -> Source:
    """Of this checkout."""
    found = Source()
    for module in counts.each(*TOPS):
        path = str(module.path.relative_to(counts.ROOT))
        found.modules[path] = module.name.removeprefix(f"{counts.PACKAGE}.")
        found.run_time[path] = set().union(*map(_below, statements(module.tree, types=False)))
        for statement in statements(module.tree, types=True):
            found.packages |= {(path, name.partition(".")[0]) for name in _names(statement)}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant):
                if isinstance(node.value, str) and INNER.search(node.value):
                    found.inner.append((path, node.value))
            elif isinstance(node, ast.Call) and _raises(node):
                found.asked.append(f"{path}:{node.lineno}")
            elif isinstance(node, ast.IfExp) and counts.is_nested(node):
                found.nested.append(f"{path}:{node.lineno}")
        if Path(path).parts[0] in counts.PRODUCT:
            found.classes[module.name] = counts.classes(module)
    return found


def statements(tree: ast.AST, *, types: bool) -> Iterator[ast.stmt]:
    """All statements, inside of others too; without `types` those under TYPE_CHECKING are left out."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inside = getattr(node, part, ())
            if isinstance(inside, list):  # that of a lambda or of a conditional expression is none
                pending.extend(inside)


def _below(statement: ast.stmt) -> set[str]:
    if not isinstance(statement, ast.ImportFrom) or not (statement.module or "").startswith(f"{counts.PACKAGE}."):
        return set()
    base = str(statement.module).removeprefix(f"{counts.PACKAGE}.")
    return {base, *(f"{base}.{alias.name}" for alias in statement.names)}


def _names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and statement.module:
        return [statement.module]
    return []


def _raises(call: ast.Call) -> bool:
    """`Path.exists` and its kin; `item` is one of os.scandir, whose methods do not raise."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in RAISES:
        return False
    return ast.unparse(call.func.value) not in ("os.path", "item")
