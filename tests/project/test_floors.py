"""Which package may import which: the contracts of pyproject.toml detect an upward import, and there are no cycles."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from pkgutil import resolve_name

import pytest

from devexplorer.core.feature import features

ROOT = Path(__file__).parents[2]


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run the import contracts on a folder that holds `devexplorer`."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
        "--no-cache",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(
        [*command, "--config", str(ROOT / "pyproject.toml")],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core/base/errors.py", "from devexplorer.core.engine import engine"),
        ("gui/widgets/panel.py", "from devexplorer.gui.shell import layouts"),
        ("core/virtual/device/memory.py", "from devexplorer.core.virtual.operators import tensor"),
    ],
)
def test_an_import_that_goes_up_breaks_a_contract(module: str, line: str, tmp_path: Path) -> None:
    package = tmp_path / "devexplorer"
    for folder in ("core", "gui", "resources"):
        shutil.copytree(ROOT / folder, package / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "core" / "public" / "__init__.py", package)
    with (package / module).open("a") as file:
        file.write(f"\n{line}\n")
    result = lint(tmp_path)
    assert result.returncode == 1
    assert "floors" in result.stdout
    assert f"devexplorer.{module.removesuffix('.py').replace('/', '.')} -> {line.split()[1]}" in " ".join(
        result.stdout.split()
    )


def test_no_packages_import_each_other_in_a_circle() -> None:
    """Every folder is a package, including subfolders; imports for the type checker only do not count."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for top in ("core", "gui")
        for path in (ROOT / top).rglob("*.py")
    }
    modules = {name.removesuffix(".__init__"): path for name, path in files.items()}
    folders: dict[str, set[str]] = {}
    for name, path in modules.items():
        folder = ".".join(path.parent.relative_to(ROOT).parts)
        below = {f".{target}".removeprefix(".") for target in imported(path) if target in modules}
        homes = {".".join(modules[target].parent.relative_to(ROOT).parts) for target in below}
        folders.setdefault(folder, set()).update(homes - {folder})
        assert name
    tuple(TopologicalSorter(folders).static_order())  # raises CycleError with the cycle


def imported(path: Path) -> set[str]:
    """The modules that a file imports at run time, by their names below `devexplorer`."""
    found = set()
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("devexplorer."):
            base = node.module.removeprefix("devexplorer.")
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        pending.extend(ast.iter_child_nodes(node))
    return found


def test_what_a_feature_has_is_imported_by_those_that_need_it() -> None:
    """By itself, by features that name it, by its exercises: so it can be taken out."""
    folders = {name: {f"core.{name}", f"gui.{name}"} for name in features()}
    for name, feature in features().items():
        pages = [feature.tab, feature.actions]
        if feature.benchmark:
            pages.append(resolve_name(f"devexplorer.{feature.benchmark}").page.removeprefix("devexplorer."))
        folders[name] |= {".".join(page.split(".")[:2]) for page in pages if page.startswith("gui.")}
    found = []
    for top in ("core", "gui"):
        for path in (ROOT / top).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            home = next((name for name, own in folders.items() if ".".join(module.split(".")[:2]) in own), "")
            for target in imported(path):
                to = next((name for name, own in folders.items() if ".".join(target.split(".")[:2]) in own), "")
                allowed = to in ("", home) or module == f"core.learn.exercises.{to}"
                if not allowed and (not home or to not in features()[home].needs):
                    found.append((module, target))
    assert found == []
