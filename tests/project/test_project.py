"""Packaging rules: every package is installed, the constraints pin the tested versions, nothing installs a top-level
`core`."""

from __future__ import annotations

import importlib.metadata
import re
import runpy
import tomllib
from pathlib import Path
from unittest import mock

import pytest
from project import counts, mutants, without
from project.source import source

import devexplorer
from devexplorer.core.features import FEATURES

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


def test_python_that_users_see_imports_from_the_package_itself() -> None:
    """What the window shows to be copied may not rely on modules that can move."""
    assert not source().inner
    assert [name for name in devexplorer.__all__ if getattr(devexplorer, name) is None] == []


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


def test_core_imports_no_qt_and_only_one_module_nvml() -> None:
    imported = source().packages
    core = {(path, name) for path, name in imported if path.startswith("core/")}
    assert not [use for use in core if use[1] in ("PySide6", "pyqtgraph", "core", "gui")]
    assert {path for path, name in imported if name == "pynvml"} <= {"core/devices/nvml/library.py"}


def test_no_path_is_asked_in_a_way_that_raises() -> None:
    """`Path.exists` and its kin raise for names above 255 bytes and for folders without permission, up to Python 3.13;
    `os.path.exists` says False."""
    assert not source().asked


def test_no_file_is_longer_than_it_should_be() -> None:
    long = {
        str(path.relative_to(ROOT)): lines for path in modules() if (lines := len(path.read_text().splitlines())) > 600
    }
    assert not long


def test_a_class_name_stands_once() -> None:
    assert counts.same_names(source().classes) == {}


def test_no_conditional_expression_has_another_in_it() -> None:
    assert not source().nested, "an `if` can be read, and `elif` has a line of its own"


def test_who_uses_a_module_is_counted_through_its_package_too(tmp_path: Path) -> None:
    for name, text in {
        "core/door/__init__.py": "from devexplorer.core.door.inside import Move",
        "core/door/inside.py": "class Move: ...",
        "core/door/beside.py": "class Move: ...",
        "core/user.py": "from devexplorer.core.door import Move, beside",
        "core/types.py": "if TYPE_CHECKING:\n    from devexplorer.core.door import Move",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    read = counts.read("core", root=tmp_path)
    by = counts.users(read)
    assert by["devexplorer.core.door.inside"] == by["devexplorer.core.door.beside"] == {"devexplorer.core.user"}
    classes = {module.name: counts.classes(module) for module in read}
    assert counts.same_names(classes) == {"Move": ["devexplorer.core.door.beside", "devexplorer.core.door.inside"]}
    assert counts.tokens("x = 1  # one\n") == 3


FAULTS = """
import logging

class Card:
    '''At most 3.'''

    most: Literal[3] = 4

    def __repr__(self):
        return f"{1 + 1}"

    def room(self, used):
        logging.info("used %s", used + 1)
        self.used = used
        if used < self.most:
            return self.most - used
        return None
"""


def test_faults_are_made_where_they_can_matter() -> None:
    made = [(one.kind, one.before, one.after) for one in mutants.mutants_of("card.py", FAULTS)]
    assert made == [
        ("constant", "4", "(4 + 1)"),
        ("statement", "self.used = used", "pass"),
        ("condition", "used < self.most", "(not (used < self.most))"),
        ("comparison", "used < self.most", "used <= self.most"),
        ("return", "return self.most - used", "return None"),
        ("arithmetic", "self.most - used", "(self.most + used)"),
    ]
    data = FAULTS.encode()
    assert all(data[one.start : one.end].decode() == one.before for one in mutants.mutants_of("card.py", FAULTS))


def test_the_installed_version_is_this_one() -> None:
    try:
        installed = importlib.metadata.version("devexplorer")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not installed: the tests run from the links in .ci/types")
    assert installed == devexplorer.__version__


def test_taking_a_feature_out_takes_what_needs_it_and_its_names_along(tmp_path: Path) -> None:
    gone = without.parts("split")
    assert gone.names == ("split", "planner", "observe")
    assert {"core/split", "gui/split", "core/planner", "gui/fit", "core/learn/exercises/split.py"} <= set(gone.folders)
    without.copy(tmp_path, types=False)
    without.take_out(tmp_path, gone)
    assert [folder for folder in gone.folders if (tmp_path / folder).exists()] == []
    left = {**runpy.run_path(str(tmp_path / "core/features.py"))}["FEATURES"]
    assert set(FEATURES) - set(left) == {"split", "planner", "observe"}
    public = (tmp_path / "core/public/__init__.py").read_text()
    assert "FitSpec" not in public
    assert "assert_placement_clean" in public
