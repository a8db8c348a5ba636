"""Counts how large the program is, how it is written and how it is divided: one table, a line a folder.

    python tests/project/counts.py [--names]

Tokens are those of Python without comments and line ends; conditional expressions and comprehensions are counted in
1,000 lines. The kernel is what is left without the features of core/features.py. `one user` are modules that only one
other module imports, `here` those of them whose user is in the same folder; what a package offers
(`from devexplorer.core.records import Move`) counts for the module that has it. `same name` are names of classes, at
the top of a module, that another module has, too. `--names` prints them."""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from project.without import parts

from devexplorer.core.features import FEATURES

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("core", "gui")
PACKAGE = "devexplorer"
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Module(NamedTuple):
    """One file."""

    path: Path
    name: str
    """`devexplorer.core.session.state`; of a package without `__init__`."""
    text: str
    tree: ast.Module
    folder: str
    """`core/session`, also of what is further down; `core` for what is in it itself."""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


class Size(NamedTuple):
    """Sums over modules."""

    modules: int
    lines: int
    tokens: int
    conditionals: int
    comprehensions: int
    nested: int


def each(*tops: str, root: Path = ROOT) -> Iterator[Module]:
    """The Python files below these folders, one at a time."""
    for path in sorted(path for top in tops for path in (root / top).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join((PACKAGE, *(part for part in parts if part != "__init__")))
        text = path.read_text(encoding="utf-8")
        yield Module(path, name, text, ast.parse(text), "/".join(parts[:-1][:2]))


def read(*tops: str, root: Path = ROOT) -> list[Module]:
    """All of them."""
    return list(each(*tops, root=root))


def tokens(text: str) -> int:
    """Those of code."""
    return sum(token.type not in NO_CODE for token in tokenize.generate_tokens(io.StringIO(text).readline))


def is_nested(expression: ast.IfExp) -> bool:
    """Whether a conditional expression has another in it."""
    return sum(isinstance(part, ast.IfExp) for part in ast.walk(expression)) > 1


def classes(module: Module) -> list[str]:
    """Those at its top."""
    return [node.name for node in module.tree.body if isinstance(node, ast.ClassDef)]


def size(module: Module) -> Size:
    """Of one."""
    nodes = list(ast.walk(module.tree))
    return Size(
        modules=1,
        lines=module.text.count("\n"),
        tokens=tokens(module.text),
        conditionals=sum(isinstance(node, ast.IfExp) for node in nodes),
        comprehensions=sum(isinstance(node, COMPREHENSIONS) for node in nodes),
        nested=sum(isinstance(node, ast.IfExp) and is_nested(node) for node in nodes),
    )


def total(sizes: Iterable[Size]) -> Size:
    """Of all of them together."""
    return Size(*map(sum, zip(*sizes, strict=True)))


def users(modules: Iterable[Module]) -> dict[str, set[str]]:
    """Module -> the modules that import it; packages and imports for types alone are left out."""
    known = {module.name: module for module in modules}
    offered = {
        (package.name, name): source
        for package in known.values()
        if package.is_package
        for source, name in _imported(package, known)
    }
    found: dict[str, set[str]] = {name: set() for name, module in known.items() if not module.is_package}
    for module in known.values():
        for source, name in _imported(module, known):
            used = offered.get((source, name), source)
            if used in found and used != module.name and not module.is_package:
                found[used].add(module.name)
    return found


def _imported(module: Module, known: dict[str, Module]) -> Iterator[tuple[str, str]]:
    """Each module that this one imports at run time, with the name that it takes from there."""
    for_types: set[ast.AST] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                for_types.update(ast.walk(statement))
    for node in ast.walk(module.tree):
        if node in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield (below, "") if below in known else (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in known:
                    yield alias.name, ""


def same_names(by_module: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Class -> the modules that have one of that name, where there is more than one."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, names in by_module.items():
        for name in names:
            found[name].append(module)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="print modules with one user, and names of classes")
    names = parser.parse_args().names
    product, tests = read(*PRODUCT), read("tests")
    by_name = {module.name: module for module in product}
    single = {name: min(by) for name, by in users(product).items() if len(by) == 1}
    repeated = same_names({module.name: classes(module) for module in product})
    folders: defaultdict[str, list[Module]] = defaultdict(list)
    for module in product:
        folders[module.folder].append(module)
    sizes = {id(module): size(module) for module in (*product, *tests)}
    groups = {"product": product, "tests": tests}
    gone = [ROOT / folder for name in FEATURES for folder in parts(name).folders]
    groups["kernel"] = [module for module in product if not any(module.path.is_relative_to(folder) for folder in gone)]
    for top in PRODUCT:
        groups[top] = [module for module in product if module.path.is_relative_to(ROOT / top)]
    rows = [(name, members, total(sizes[id(module)] for module in members)) for name, members in groups.items()]
    below = [
        (name, members, total(sizes[id(module)] for module in members))
        for name, members in folders.items()
        if name not in PRODUCT
    ]
    rows += sorted(below, key=lambda row: -row[2].tokens)
    titles = ("modules", "lines", "tokens", "conditional", "nested", "comprehensions", "one user", "here", "same name")
    print(f"{'':18}", *titles, sep="  ")
    for name, members, together in rows:
        alone = [module for module in members if module.name in single]
        here = [module for module in alone if module.path.parent == by_name[single[module.name]].path.parent]
        own = {module.name for module in members}
        shared = [one for one, places in repeated.items() if own.intersection(places)]
        values = (
            f"{together.modules:,}",
            f"{together.lines:,}",
            f"{together.tokens:,}",
            f"{1000 * together.conditionals / max(together.lines, 1):.0f}",
            f"{together.nested}",
            f"{1000 * together.comprehensions / max(together.lines, 1):.0f}",
            f"{len(alone)}",
            f"{len(here)}",
            f"{len(shared)}",
        )
        print(f"{name:18}", *(f"{value:>{len(title)}}" for value, title in zip(values, titles, strict=True)), sep="  ")
    if names:
        for name, user in single.items():
            print(f"{name} is imported by {user} alone")
        for one, places in repeated.items():
            print(f"class {one}: {', '.join(places)}")


if __name__ == "__main__":
    main()
