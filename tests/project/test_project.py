"""Packaging rules: every package is installed, the constraints pin the tested versions, nothing installs a top-level
`core`."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import runpy
import tomllib
from pathlib import Path
from unittest import mock

import pytest

import devexplorer

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def modules() -> list[Path]:
    return [path for top in ("core", "gui", "resources") for path in (ROOT / top).rglob("*.py")]


def test_every_package_folder_is_installed() -> None:
    folders = {".".join(("devexplorer", *path.parent.relative_to(ROOT).parts)) for path in modules()}
    assert folders - {"devexplorer.core.public"} == set(installed()) - {"devexplorer"}


def test_every_top_level_folder_installs_below_one_name() -> None:
    assert not [name for name in installed() if name.partition(".")[0] != "devexplorer"]
    assert not (ROOT / "devexplorer").exists()


def test_what_is_installed_as_the_package_itself_has_nothing_beside_it() -> None:
    """`core/public` becomes `devexplorer`; a file beside would be `devexplorer.core.public.…` in a checkout only."""
    files = {path.name for path in (ROOT / "core" / "public").iterdir() if path.is_file()}
    assert files == {"__init__.py", "py.typed"}


def installed() -> list[str]:
    """The packages that setup.py names."""
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    return list(setup.call_args.kwargs["packages"])


def test_every_dependency_is_pinned_in_the_constraints_and_has_a_reason() -> None:
    pinned = {
        line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    needed = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["dev"]
    names = {re.split(r"[<>=!\[]", entry)[0].lower() for entry in needed}
    assert names <= pinned
    source = (ROOT / "pyproject.toml").read_text()
    for entry in PROJECT["project"]["dependencies"]:
        assert re.search(rf'"{re.escape(entry)}",\s+# \S', source), f"{entry} has no reason"


def test_the_release_of_pyside_that_aborts_is_excluded() -> None:
    assert any("PySide6-Essentials" in entry and "!=6.12.0" in entry for entry in PROJECT["project"]["dependencies"])


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_its_job(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "no docstring"


@pytest.mark.parametrize(
    "path", [p for p in modules() if "core" in p.parts], ids=lambda path: str(path.relative_to(ROOT))
)
def test_core_imports_no_qt_and_only_one_module_nvml(path: Path) -> None:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    assert not names & {"PySide6", "pyqtgraph", "core", "gui"}
    assert "pynvml" not in names or (path.parent.name == "nvml" and path.name == "library.py")


def test_no_path_is_asked_in_a_way_that_raises() -> None:
    """`Path.exists` and its kin raise for names above 255 bytes and for folders without permission, up to Python 3.13;
    `os.path.exists` says False."""
    asked = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("exists", "is_dir", "is_file")
        and ast.unparse(node.func.value) not in ("os.path", "item")  # item: of os.scandir
    ]
    assert not asked


def test_no_file_is_longer_than_it_should_be() -> None:
    long = {
        str(path.relative_to(ROOT)): lines for path in modules() if (lines := len(path.read_text().splitlines())) > 600
    }
    assert not long


def test_the_installed_version_is_this_one() -> None:
    try:
        installed = importlib.metadata.version("devexplorer")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not installed: the tests run from the links in .ci/types")
    assert installed == devexplorer.__version__
