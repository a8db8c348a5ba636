"""The Python of a Jupyter notebook: what its code cells import and define. Any thread; no torch.

A notebook also trains, downloads and prints. None of that is run: of each cell stay imports, classes, functions and
names that are set to values known without a call. Magics and shell lines are left out.
"""

from __future__ import annotations

import ast
import json
import linecache
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from devexplorer.core.base import BadInput

SUFFIX = ".ipynb"
MOST_BYTES = 256 << 20
"""Pictures in the output make notebooks long."""
DEFINITIONS = "imports, classes, functions and constants"
_MAGIC = re.compile(r"\s*[%!?]|[\s\w,]*=\s*[%!]|.*\w\?{1,2}\s*$")
_PYTHON_CELL = re.compile(r"\s*%%(time|capture)\b")
"""Magics of a whole cell below which there is Python."""
_HARMLESS = {
    "torch.device", "torch.cuda.is_available", "torch.cuda.device_count", "torch.backends.mps.is_available", "partial",
    "functools.partial", "namedtuple", "collections.namedtuple", "TypeVar", "Path", "pathlib.Path", "os.path.join",
    "abs", "bool", "dict", "float", "frozenset", "int", "len", "list", "max", "min", "range", "round", "set", "sorted",
    "str", "sum", "tuple", "zip",
}  # fmt: skip
"""Calls that a constant may be computed with."""


@dataclass
class Notebook:
    """What a notebook defines."""

    path: Path
    cells: list[tuple[int, str, ast.Module]] = field(default_factory=list)
    """Number among the code cells, text, and the statements that stay."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Names that are set by what is not run -> the cell."""
    broken: list[str] = field(default_factory=list)
    """Cells that are no Python: `cell 3 has a syntax error (line 2)`."""
    _harmless: set[str] = field(default_factory=lambda: set(_HARMLESS))

    @property
    def statements(self) -> list[ast.stmt]:
        """What stays of all cells."""
        return [statement for _, _, tree in self.cells for statement in tree.body]

    def code(self) -> Iterator[CodeType]:
        """Each cell, compiled under a name of its own, under which `linecache` has its lines."""
        for number, text, tree in self.cells:
            name = f"{self.path}, cell {number}"
            linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
            yield compile(tree, name, "exec", dont_inherit=True)

    def why_missing(self, name: str) -> str:
        """Which cell would have defined this name; empty where none is known to."""
        if name in self.left_out:
            return f"cell {self.left_out[name]} sets '{name}', and is not run: of a notebook only {DEFINITIONS} are"
        return self.broken[0] if self.broken else ""

    def take(self, number: int, source: str) -> None:
        """Add a cell."""
        text, tree = _parsed(source)
        if tree is None:
            self.broken.append(f"cell {number} has a syntax error{text}")
        else:
            self.cells.append((number, text, ast.Module(self._definitions(tree.body, number), [])))

    def _definitions(self, body: Sequence[ast.stmt], cell: int) -> list[ast.stmt]:
        """The statements that only define something, and need nothing that is left out."""
        result: list[ast.stmt] = []
        for node in body:
            kept = self._kept(node, cell)
            result += kept
            if kept == [node]:
                for name in _set_by(node):
                    self.left_out.pop(name, None)
            elif not isinstance(node, ast.If | ast.Try) or not kept:
                self.left_out |= dict.fromkeys(_set_by(node), cell)
        return result

    def _kept(self, node: ast.stmt, cell: int) -> list[ast.stmt]:
        """A statement, or what stays of it."""
        match node:
            case ast.Import() | ast.ImportFrom():
                return [node]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if not self._needs_more(node):
                if isinstance(node, ast.ClassDef) and _is_dataclass(node):
                    self._harmless.add(node.name)
                return [node]
            case ast.Assign(targets=targets, value=value) if all(map(_is_name, targets)) and self._is_plain(value):
                return [node]
            case ast.AnnAssign(target=ast.Name(), value=value) if value is None or self._is_plain(value):
                return [node]
            case ast.If(test=test) if self._is_plain(test):
                body, orelse = self._definitions(node.body, cell), self._definitions(node.orelse, cell)
                stays = ast.If(test, body or _nothing(node), orelse)
                return [ast.copy_location(stays, node)] if body or orelse else []
            case ast.Try(handlers=[_, *_]) if body := self._definitions(node.body, cell):
                handlers = [
                    ast.copy_location(
                        ast.ExceptHandler(one.type, one.name, self._definitions(one.body, cell) or _nothing(one)), one
                    )
                    for one in node.handlers
                ]
                rest = (self._definitions(node.orelse, cell), self._definitions(node.finalbody, cell))
                return [ast.copy_location(ast.Try(body, handlers, *rest), node)]
        return []

    def _is_plain(self, node: ast.expr) -> bool:
        """Whether a value is known without calling anything that could do more than compute it."""
        for part in (node, *_evaluated(node)):
            if isinstance(part, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr):
                return False
            if isinstance(part, ast.Call) and ast.unparse(part.func) not in self._harmless:
                return False
        return not self._needs_more(node)

    def _needs_more(self, node: ast.AST) -> bool:
        """Whether it takes a name that is left out."""
        names = {part.id for part in (node, *_evaluated(node)) if isinstance(part, ast.Name)}
        return not self.left_out.keys().isdisjoint(names - _set_by(node))


def read(path: Path) -> Notebook:
    """Take a notebook apart. Raises `BadInput` with one line; runs nothing."""
    notebook = Notebook(path)
    for number, source in enumerate(_sources(path), start=1):
        notebook.take(number, source)
    return notebook


def run(path: Path, space: dict[str, Any]) -> None:
    """Define everything in a namespace. Raises `BadInput`, and what the definitions raise."""
    for code in read(path).code():
        exec(code, space)


def _sources(path: Path) -> Iterator[str]:
    """The code cells."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadInput(f"{path.name} has more than {MOST_BYTES >> 20} MiB, which is too much for a notebook")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path.name} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        place = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise BadInput(f"{path.name} is damaged: a notebook is JSON, and this is not{place}") from error
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list):
        old = isinstance(document, dict) and "worksheets" in document
        hint = "it was saved by a Jupyter before 2015; save it again with a newer one" if old else "it has no cells"
        raise BadInput(f"{path.name} cannot be opened: {hint}")
    language = _at(document, "metadata", "language_info", "name") or _at(document, "metadata", "kernelspec", "language")
    if isinstance(language, str) and language.lower() not in ("python", "ipython", ""):
        raise BadInput(f"{path.name} is a notebook of {language}; its models have to be Python")
    for cell in cells:
        if _at(cell, "cell_type") == "code":
            source = _at(cell, "source")
            yield "".join(map(str, source)) if isinstance(source, list) else str(source or "")


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _parsed(text: str) -> tuple[str, ast.Module | None]:
    """A cell as plain Python, with its tree; without a tree: where it is wrong."""
    if text.lstrip().startswith("%%"):
        text = re.sub(r"^\s*%%.*", "", text) if _PYTHON_CELL.match(text) else ""
    plain = "\n".join(
        line[: len(line) - len(line.lstrip())] + "pass" if _MAGIC.match(line) else line for line in text.split("\n")
    )
    wrong = ""
    for candidate in (text, plain):  # first as it is: a line of an expression can begin with %
        try:
            return candidate, ast.parse(candidate)
        except SyntaxError as error:
            wrong = f" (line {error.lineno})" if error.lineno else ""
        except (ValueError, RecursionError, MemoryError):
            pass
    return wrong, None


def _nothing(node: ast.stmt | ast.ExceptHandler) -> list[ast.stmt]:
    return [ast.copy_location(ast.Pass(), node)]


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Tuple | ast.List) and all(map(_is_name, node.elts)))


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a node, without the bodies of functions, which run later."""
    later = node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) else ()
    for child in ast.iter_child_nodes(node):
        if child is not later and not (isinstance(later, list) and child in later):
            yield child
            yield from _evaluated(child)


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any(re.match(r"(dataclasses\.)?dataclass\b", ast.unparse(one)) for one in node.decorator_list)


def _set_by(node: ast.AST) -> set[str]:
    """Names that a statement sets at the top level, in loops and conditions too."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    found = {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
    if isinstance(node, ast.alias):
        found.add(node.asname or node.name.partition(".")[0])
    return found.union(*map(_set_by, ast.iter_child_nodes(node)))
