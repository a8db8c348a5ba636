"""What `OpenModel.source` means, from which folder and under which name its file is imported, and what will run when it
is opened. Pure functions that read files and import nothing, no torch: the window asks here before it sends one.

`package.module:factory`, `path/to/file.py:factory`, `path/to/notebook.ipynb:factory`, `torchvision:NAME`,
`transformers:TYPE`, `transformers:path/config.json`, each with options behind a question mark:
`transformers:gpt2?n_layer=2`. A value is a Python literal (`2`, `0.1`, `[1, 2]`, `True`), or `@config.yaml`: what that
file holds; anything else is text. `text_config.num_hidden_layers=2` is an option within an option.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from devexplorer.core.base import BadInput, list_text
from devexplorer.core.isolation import config_file, notebook

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


CODE_SUFFIXES = (".py", notebook.SUFFIX)
"""Files whose code can make a model."""
LIBRARIES = ("torchvision", "transformers")
FORMS = (
    "package.module:factory, path/to/file.py:factory, torchvision:resnet50, transformers:gpt2 or"
    " transformers:path/to/config.json, with options as in transformers:gpt2?n_layer=2"
)
_WORDS = {"true": True, "false": False, "none": None}
_CALL = re.compile(r"[^\W\d][\w.]*\(")
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class Source:
    """One source, taken apart."""

    text: str
    """As it was given."""
    kind: str
    """`module`, `file`, `torchvision` or `transformers`."""
    place: str
    """The module, the file, the model's name in the library, or the configuration."""
    factory: str = ""
    """The class or function that makes the model; empty for libraries."""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def own_code(self) -> bool:
        """Whether opening it runs code that the user named, rather than a model of an installed library."""
        return self.kind in ("module", "file")

    @property
    def is_notebook(self) -> bool:
        """Whether the file is a notebook, of which only definitions are run."""
        return self.kind == "file" and self.place.endswith(notebook.SUFFIX)

    @property
    def stem(self) -> str:
        """A name for the object: `net`, `resnet50`, `gpt2`."""
        if self.own_code:
            word = self.factory.rpartition(".")[2]
        elif self.place.endswith(".json"):
            path = Path(self.place)
            word = path.stem if path.stem != "config" else path.absolute().parent.name
        else:
            word = self.place
        word = re.sub(r"[^\w \-.]", "-", word).strip("-_ .")[:40].lower()
        return word if word and word[0].isalpha() else "model"

    @property
    def place_name(self) -> str:
        """Where its code is, in short: `net.py`, `package.module`."""
        return os.path.basename(self.place) if self.kind == "file" else self.place

    def file(self, folder: str = "") -> Path:
        """The file of a `file` source or of a configuration; relative ones are in the folder."""
        return Path(os.path.abspath(Path(folder or os.curdir) / Path(self.place).expanduser()))

    def home(self, folder: str = "") -> str:
        """The folder that is importable: of a module the one that was named, or `src` in it; that of a file, or the one
        that its package is in."""
        if self.kind == "file":
            return self.importable(folder).home
        here = os.path.abspath(folder or os.curdir)
        top, src = self.place.partition(".")[0], os.path.join(here, "src")
        in_src = os.path.isdir(src) and not _holds(here, top) and _holds(src, top)
        return src if in_src else here

    def importable(self, folder: str = "") -> Importable:
        """How the file of a `file` source is imported."""
        file = self.file(folder)
        return Importable(str(file.parent)) if self.is_notebook else importable(file)

    def config_folders(self, folder: str = "") -> list[Path]:
        """Where its configuration files are: beside the code, in the folders of its package, where it is imported from,
        and the current folder."""
        home, file = self.home(folder), None
        if self.kind == "file":
            file = self.file(folder)
        elif (spec := located(self.place, home)) is not None and spec.origin:
            file = Path(spec.origin)
        around = [] if file is None else folders_around(file, home)
        return [*around, Path(home), Path(os.path.abspath(folder or os.curdir)), Path(os.path.abspath(os.curdir))]

    def arguments(self, folder: str = "") -> dict[str, Any]:
        """The options as the class or function is given them, configuration files read. Raises `BadInput`."""
        if not self.config_files:
            return self.options
        return config_file.filled(self.options, self.config_folders(folder))

    @property
    def config_files(self) -> list[config_file.ConfigFile]:
        """Those among its options."""
        return list(config_file.config_files(self.options))


def folders_around(file: Path, home: str) -> list[Path]:
    """The folder of a file and those above it, up to the one that it is imported from."""
    above = [folder for folder in file.parents if folder.is_relative_to(home)]
    return above or [file.parent]


def _holds(folder: str, top: str) -> bool:
    return os.path.isdir(os.path.join(folder, top)) or os.path.isfile(os.path.join(folder, f"{top}.py"))


@dataclass(frozen=True, slots=True)
class WhatRuns:
    """What opening a source runs."""

    words: str
    """One or two sentences, to be shown before anything runs."""
    own_code: bool
    """True: code that the user named runs, so ask first. False: an installed library builds one of its models."""
    folder: str = ""
    """The folder that the code is in, absolute: what an answer can be remembered for; empty without code of the
    user's."""
    file: str = ""
    """The file that is imported, where it is known without importing anything."""


def parse(text: str) -> Source:
    """Take a source apart. Raises `BadInput` with what is wrong; looks at no file and imports nothing."""
    text = text.strip()
    target, question, options = text.partition("?")
    if ":" not in target:
        raise BadInput(f"'{text}' names no model; write {FORMS}")
    found = _options(options, text) if question else {}
    library, _, name = target.partition(":")
    if library in LIBRARIES:
        for file in config_file.config_files(found):
            raise BadInput(f"'{file}' in '{text}': only a class or function of yours takes a configuration file")
        if not name.strip():
            raise BadInput(f"'{text}' names no model of {library}; write {FORMS}")
        return Source(text, library, name.strip(), options=found)
    place, _, factory = target.rpartition(":")
    if not place or not factory:
        raise BadInput(f"'{text}' is no package.module:factory; write {FORMS}")
    if not _DOTTED.fullmatch(factory):
        raise BadInput(f"'{factory}' in '{text}' cannot be the name of a class or function")
    if place.endswith(CODE_SUFFIXES):
        return Source(text, "file", place, factory, found)
    if not _DOTTED.fullmatch(place):
        raise BadInput(
            f"'{place}' in '{text}' is neither a module (package.module) nor a Python file (path/to/file.py)"
        )
    return Source(text, "module", place, factory, found)


def describe(source: Source | str, folder: str = "", machine: str = "this machine") -> WhatRuns:
    """What would run on a machine, in words, found out without importing anything. Raises `BadInput` for what is no
    source."""
    if isinstance(source, str):
        source = parse(source)
    if not source.own_code:
        what = f"the configuration {source.file(folder)}" if source.place.endswith(".json") else source.place
        return WhatRuns(
            f"{source.kind}, which is installed, builds {what} with random weights. No code of yours runs and nothing"
            " is downloaded.",
            False,
        )
    home = source.home(folder)
    if source.kind == "file":
        file = str(source.file(folder))
        where, home = f"The file {file}", os.path.dirname(file)
    else:
        spec = located(source.place, home)
        file = spec.origin if spec is not None and spec.origin is not None else ""
        where = f"The module {source.place} ({file or f'not found from {home}'})"
        home = os.path.dirname(file) or home
    what = (
        f"Of the notebook {file} the {notebook.DEFINITIONS} are run" if source.is_notebook else f"{where} is imported"
    )
    files = f" with {list_text([file.name for file in source.config_files])}" if source.config_files else ""
    words = (
        f"{what}, with everything that it imports, and {source.factory}() is called{files}: first in a trial"
        " process that is ended when it takes too long, then in the engine. The code can do whatever you can do on"
        f" {machine}."
    )
    return WhatRuns(words, True, home, file)


def located(module: str, folder: str) -> ModuleSpec | None:
    """Where `import module` would find it with this folder first; imports nothing, the packages around it neither."""
    path: list[str] | None = [folder, *sys.path]
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for index in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: index + 1]), path)
        if spec is None:
            return None
        path = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if path is None and index + 1 < len(parts):
            return None
    return spec


def file_of(target: str, folder: str = "") -> Path | None:
    """The file that is meant by a target that names no class or function: `net.py`, `package.module`. None where there
    is no such file, and for a single word that only an installed package has: it may be a sample model mistyped."""
    place, home = target.partition("?")[0].strip(), os.path.abspath(folder or os.curdir)
    if place.endswith(CODE_SUFFIXES):
        file = Source(target, "file", place).file(folder)
    elif _DOTTED.fullmatch(place):
        spec = located(place, Source(target, "module", place).home(folder))
        if spec is None or not spec.origin:
            return None
        file = Path(spec.origin)
        if "." not in place and not file.is_relative_to(home):
            return None
    else:
        return None
    return file if os.path.isfile(file) else None


def literal(text: str) -> Any:
    """`2` -> 2, `true` -> True, `gelu` -> "gelu"."""
    word = text.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return word


def _options(text: str, source: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in filter(None, text.split("&")):
        key, equals, value = item.partition("=")
        *outer, name = key.strip().split(".")
        if not equals or not all(part.isidentifier() for part in (*outer, name)):
            raise BadInput(f"'{item}' in '{source}' is not an option; write options as key=value")
        if _CALL.match(value.strip()):
            raise BadInput(
                f"'{item.strip()}' is a call, and options are plain values: write a function without arguments that"
                " returns the model, and choose that"
            )
        inner = found
        for part in outer:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise BadInput(f"'{key.strip()}' in '{source}' already has a value; name it once")
        if name in inner:
            raise BadInput(f"'{key.strip()}' appears twice in '{source}'; name it once")
        file = config_file.config_file(value.strip())
        inner[name] = literal(value) if file is None else file
    return found
