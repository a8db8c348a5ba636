"""Which package may import which: the contracts of pyproject.toml detect an upward import, and there are no cycles."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from pkgutil import resolve_name

import pytest
from project.source import source

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
    homes = {name: path.rpartition("/")[0] for path, name in source().modules.items()}
    folders: dict[str, set[str]] = {}
    for path, targets in source().run_time.items():
        folder = path.rpartition("/")[0]
        below = {homes[target] for target in targets if target in homes}
        folders.setdefault(folder, set()).update(below - {folder})
    tuple(TopologicalSorter(folders).static_order())  # raises CycleError with the cycle


def test_what_a_feature_has_is_imported_by_those_that_need_it() -> None:
    """By itself, by features that name it, by its exercises: so it can be taken out."""
    folders = {name: {f"core.{name}", f"gui.{name}"} for name in features()}
    for name, feature in features().items():
        pages = [feature.tab, feature.actions]
        if feature.benchmark:
            pages.append(resolve_name(f"devexplorer.{feature.benchmark}").page.removeprefix("devexplorer."))
        folders[name] |= {".".join(page.split(".")[:2]) for page in pages if page.startswith("gui.")}
    found = []
    for path, targets in source().run_time.items():
        module = source().modules[path]
        home = _owner(module, folders)
        for target in targets:
            to = _owner(target, folders)
            allowed = to in ("", home) or module == f"core.learn.exercises.{to}"
            if not allowed and (not home or to not in features()[home].needs):
                found.append((module, target))
    assert found == []


def _owner(module: str, folders: dict[str, set[str]]) -> str:
    """The feature that has it, or nothing."""
    own_folder = ".".join(module.split(".")[:2])
    return next((name for name, own in folders.items() if own_folder in own), "")
