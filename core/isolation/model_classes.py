"""Which classes and functions of a Python file or a notebook make models, found in its syntax tree: nothing is imported
or run. Any thread; reads the file, and those beside it that it imports from.

A class counts whose bases lead to `torch.nn`, through other classes of the file and of files beside it; of installed
packages only the names of bases are known.
"""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from devexplorer.core.base import BadInput
from devexplorer.core.isolation import notebook
from devexplorer.core.isolation.config_file import probable
from devexplorer.core.isolation.model_source import (
    CODE_SUFFIXES,
    Source,
    file_of,
    folders_around,
    importable,
    located,
)

MOST_BYTES = 4 << 20
_NO_LAYERS = ("Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer")
_DEPTH = 6
"""Of files that import from each other."""
MOST_WAYS = 12
_MAPPINGS = ("", "dict", "mapping", "mutablemapping", "any", "object")
"""Annotations of arguments that may be given a plain mapping; empty: none, or one that is not a name."""
_ABOVE = 4
"""So many folders above a file can be the one that its absolute imports begin in."""


class Candidate(NamedTuple):
    """Something in a file that makes a model when it is called."""

    name: str
    is_class: bool
    needs: tuple[str, ...]
    """Arguments without a default."""
    guesses: tuple[str, ...] = ()
    """Options that probably give some of them: `cfg=@config.yaml`, of a configuration file beside the code."""


def candidates(file: Path) -> tuple[Candidate, ...]:
    """The classes of a file that are models, then the functions that return one; each in the order of the file. Empty
    for a file that cannot be read or is no Python."""
    here = _Module.read(file, 0)
    if here is None:
        return ()
    classes = [
        here.candidate(name, True, here.needs(node)) for name, node in here.classes.items() if here.makes_model(node)
    ]
    functions = [
        here.candidate(name, False, here.required(node.args))
        for name, node in here.functions.items()
        if not name.startswith("_") and here.returns_model(node)
    ]
    imported = here.offered() if file.name == "__init__.py" else ()
    return (*classes, *functions, *imported)


def without_name(target: str, folder: str = "") -> str | None:
    """What there is to choose from where a file or a module is named without a class or function, in one sentence; None
    where the target is neither."""
    file, place = file_of(target, folder), target.partition("?")[0].strip()
    if file is None:
        return f"there is no file '{place}'" if place.endswith(CODE_SUFFIXES) else None
    if not os.access(file, os.R_OK):
        return f"you may not read the file '{place}'"
    found = candidates(file)
    if not found:
        return f"'{place}' names no model, and no class or function in it clearly makes one; write {place}:NAME"
    ways = [_way(f"{place}:{item.name}", item) for item in found]
    rest = f" or one of {len(ways) - MOST_WAYS} more" if len(ways) > MOST_WAYS else ""
    return f"'{place}' names no model; write {' or '.join(ways[:MOST_WAYS])}{rest}"


def _way(source: str, item: Candidate) -> str:
    """With options in quotes: a shell takes `?` and `&` for something else."""
    guessed = {guess.partition("=")[0]: guess for guess in item.guesses}
    options = [guessed.get(name, f"{name}=…") for name in item.needs]
    return f"'{source}?{'&'.join(options)}'" if options else source


def beside(file: Path) -> tuple[str, ...]:
    """The modules that a file imports from its own folder, or from a package that it is in: it does not run without
    them. Empty for a file that cannot be read."""
    found: dict[str, None] = {}
    for node in (part for statement in _body(file) or () for part in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom) and node.level:
            found |= dict.fromkeys([node.module.partition(".")[0]] if node.module else [one.name for one in node.names])
        elif isinstance(node, ast.Import | ast.ImportFrom):
            full = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
            tops = (name.partition(".")[0] for name in full)
            found |= dict.fromkeys(top for top in tops if _is_beside(file, top))
    return tuple(found)


def _is_beside(file: Path, top: str) -> bool:
    """Whether `import top` leads to a file beside this one, or to a package that it is in."""
    folder = file.parent / top
    return (
        os.path.isfile(file.parent / f"{top}.py")
        or (os.path.isdir(folder) and any(folder.glob("*.py")))
        or any(above.name == top and os.path.isfile(above / "__init__.py") for above in file.parents[:_ABOVE])
    )


def meant(source: Source, folder: str) -> tuple[str, ...]:
    """What could have been meant by a class or function that its file does not have, the nearest first; empty where the
    file has it, or is not known."""
    if source.kind == "file":
        file = source.file(folder)
    else:
        spec = located(source.place, source.home(folder))
        if spec is None or not spec.origin:
            return ()
        file = Path(spec.origin)
    here = _Module.read(file, 0)
    wanted = source.factory.partition(".")[0]
    if here is None or wanted in here.names():
        return ()
    known = [item.name for item in candidates(file)]
    folded = {name.lower(): name for name in known[::-1]}
    near = difflib.get_close_matches(wanted.lower(), list(folded), n=3, cutoff=0.6)
    return tuple(folded[name] for name in near) or (tuple(known) if len(known) <= 2 else ())


def _dotted(node: ast.expr | None) -> str:
    """`nn.Module`; of `Base[int]` and `"Base"` the name as well; empty for anything else."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute() if left := _dotted(node.value):
            return f"{left}.{node.attr}"
        case ast.Subscript():
            return _dotted(node.value)
        case ast.Constant(value=str() as text):
            return text
        case _:
            return ""


@dataclass(slots=True)
class _Module:
    """One file: what its top level defines and imports."""

    file: Path
    depth: int
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    """Local name -> what it means: `nn` -> `torch.nn`, `Block` -> `.layers.Block`."""
    stars: list[str] = field(default_factory=list)
    """Modules of which everything is imported."""
    others: set[str] = field(default_factory=set)
    """Further names that are assigned."""
    _beside: dict[str, _Module | None] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path, depth: int) -> _Module | None:
        """Parse a file; None where that cannot be."""
        body = _body(file) if depth <= _DEPTH else None
        if body is None:
            return None
        made = cls(file, depth)
        for node in _statements(body):
            made._take(node)
        return made

    def _take(self, node: ast.stmt) -> None:
        match node:
            case ast.ClassDef():
                self.classes[node.name] = node
            case ast.FunctionDef():
                self.functions[node.name] = node
            case ast.Import():
                for item in node.names:
                    top = item.name.partition(".")[0]
                    self.imports[item.asname or top] = item.name if item.asname else top
            case ast.ImportFrom():
                home = "." * node.level + (node.module or "")
                for item in node.names:
                    if item.name == "*":
                        self.stars.append(home)
                    else:
                        dot = "" if home.endswith(".") else "."
                        self.imports[item.asname or item.name] = f"{home}{dot}{item.name}"
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.others |= {part.id for one in targets for part in ast.walk(one) if isinstance(part, ast.Name)}

    def names(self) -> set[str]:
        """Every name that is known to be there."""
        return {*self.classes, *self.functions, *self.imports, *self.others}

    def offered(self) -> Iterator[Candidate]:
        """Of a package: models and functions that return one, which it imports from its modules."""
        for name, full in self.imports.items():
            module, original = self._origin(full)
            if module is None or name.startswith("_"):
                continue
            if original in module.classes and module.makes_model(module.classes[original]):
                yield module.candidate(name, True, module.needs(module.classes[original]))
            elif original in module.functions and module.returns_model(module.functions[original]):
                yield module.candidate(name, False, module.required(module.functions[original].args))

    def candidate(self, name: str, is_class: bool, needs: Sequence[ast.arg]) -> Candidate:
        """What has these arguments without a default."""
        folders = folders_around(self.file, importable(self.file).home) if needs else []
        guesses = []
        for item in needs:
            is_mapping = _dotted(item.annotation).rpartition(".")[2].lower() in _MAPPINGS
            if is_mapping and (file := probable(item.arg, folders)) is not None:
                guesses.append(f"{item.arg}={file}")
        return Candidate(name, is_class, tuple(item.arg for item in needs), tuple(guesses))

    # --- what is a model

    def makes_model(self, node: ast.ClassDef, seen: frozenset[str] = frozenset()) -> bool:
        """Whether the bases of a class lead to `torch.nn`."""
        if node.name in seen:
            return False
        return any(self.is_model(_dotted(base), seen | {node.name}) for base in node.bases)

    def is_model(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether this name, as the file has it, is a class of models."""
        if name in self.classes:
            return self.makes_model(self.classes[name], seen)
        first, _, rest = name.partition(".")
        if not first:
            return False
        if first not in self.imports:
            return any(self._is_foreign(f"{home}.{name}", seen) for home in self.stars)
        return self._is_foreign(f"{self.imports[first]}{'.' if rest else ''}{rest}", seen)

    def _is_foreign(self, full: str, seen: frozenset[str]) -> bool:
        home, dot, name = full.rpartition(".")
        home += "" if home.strip(".") else dot
        if home == "torch.nn" or home.startswith("torch.nn.modules"):
            return name[:1].isupper() and name not in _NO_LAYERS
        if (module := self._module(home)) is not None:
            return module.is_model(name, seen)
        return name.endswith(("Module", "PreTrainedModel"))

    def _origin(self, full: str) -> tuple[_Module | None, str]:
        """The module beside this one that an imported name is from, and its name there."""
        home, dot, name = full.rpartition(".")
        return self._module(home + ("" if home.strip(".") else dot)), name

    def _module(self, home: str) -> _Module | None:
        """The file of an imported module, where it is beside this one."""
        if home not in self._beside:
            level = len(home) - len(home.lstrip("."))
            above = self.file.parents[level - 1 : level] if level else self.file.parents[:_ABOVE]
            inside = "/".join(filter(None, home.split(".")))
            places = [folder / name for folder in above for name in (f"{inside}.py", f"{inside}/__init__.py") if inside]
            if not inside:
                places = [folder / "__init__.py" for folder in above]
            self._beside[home] = next(
                (module for place in places if (module := _Module.read(place, self.depth + 1)) is not None), None
            )
        return self._beside[home]

    def needs(self, node: ast.ClassDef, seen: frozenset[str] = frozenset()) -> Sequence[ast.arg]:
        """Arguments without a default of the constructor, which can be that of a base."""
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                return self.required(item.args, 1)
        for base in map(_dotted, node.bases):
            if base in self.classes and base not in seen:
                return self.needs(self.classes[base], seen | {node.name})
        return ()

    def required(self, arguments: ast.arguments, skip: int = 0) -> Sequence[ast.arg]:
        """Arguments that have to be given: without a default, and no configuration that makes itself."""
        plain = [*arguments.posonlyargs, *arguments.args]
        without = plain[skip : len(plain) - len(arguments.defaults)]
        named = [item for item, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value is None]
        return [item for item in (*without, *named) if not self._is_configuration(_dotted(item.annotation))]

    def _is_configuration(self, name: str) -> bool:
        """Whether this name, as the file has it, is a dataclass whose fields all have defaults."""
        if name in self.classes:
            node = self.classes[name]
            marks = (mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list)
            if not any(_dotted(mark).endswith("dataclass") for mark in marks):
                return False
            return all(item.value is not None for item in node.body if isinstance(item, ast.AnnAssign))
        first, dot, rest = name.partition(".")
        if first not in self.imports:
            return False
        module, original = self._origin(f"{self.imports[first]}{dot}{rest}")
        return module is not None and module._is_configuration(original)

    def returns_model(self, node: ast.FunctionDef) -> bool:
        """Whether a function says so, or returns what a class of models was called for."""
        if node.returns is not None and self.is_model(_dotted(node.returns)):
            return True
        made: set[str] = set()
        for item in _within(node):
            if isinstance(item, ast.Assign) and self._is_made(item.value, made):
                made |= {target.id for target in item.targets if isinstance(target, ast.Name)}
        return any(isinstance(item, ast.Return) and self._is_made(item.value, made) for item in _within(node))

    def _is_made(self, value: ast.expr | None, made: set[str]) -> bool:
        if isinstance(value, ast.Call):
            return self.is_model(_dotted(value.func)) or (
                isinstance(value.func, ast.Attribute) and self._is_made(value.func.value, made)  # Net().to(device)
            )
        return isinstance(value, ast.Name) and value.id in made


def _body(file: Path) -> Sequence[ast.stmt] | None:
    """The statements of a file or notebook; None where it cannot be parsed."""
    try:
        if not os.path.isfile(file):
            return None
        if file.suffix == notebook.SUFFIX:
            return notebook.read(file).statements
        return ast.parse(file.read_bytes()).body if file.stat().st_size <= MOST_BYTES else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError, BadInput):
        return None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of the top level, also below `if` and `try`."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for name in ("body", "orelse", "handlers", "finalbody"):
                for part in getattr(node, name, ()):
                    yield from _statements(part.body if isinstance(part, ast.ExceptHandler) else [part])


def _within(node: ast.FunctionDef) -> Iterator[ast.AST]:
    """The statements of a function, in order, without those of functions in it."""
    waiting: list[ast.AST] = [*node.body]
    while waiting:
        item = waiting.pop(0)
        yield item
        if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting = [*ast.iter_child_nodes(item), *waiting]
