"""Takes a feature out of a copy of the program, and says whether the rest holds.

    python tests/project/without.py NAME [NAME …] [--quick | --whole]      features of core/features.py; `all`: each

A copy of what git knows loses the folders of the feature (in core, gui and tests), its line in core/features.py, its
names in core/public, its exercises, its scenarios, and other tests that import it; and likewise of every feature that
needs it. Nothing else is edited. Then import contracts, the import of every module, types and the import of every test
that is left have to hold; with `--quick` not the last two, which take longest (.ci/run does that for all features);
with `--whole` also `devices`, `place`, `bench matmul`, the tour, and those tests. Exit code 1 where something does not.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from pkgutil import resolve_name

from devexplorer.core.feature import features

ROOT = Path(__file__).resolve().parents[2]
FAR = ("benchmarks", "doctor_models", "gpu", "pictures", "project", "soak", "standin", "virtual_features")
"""Folders of tests that are about the whole program."""


@dataclass(frozen=True)
class Parts:
    """What a feature consists of."""

    names: tuple[str, ...]
    """It, and the features that need it."""
    folders: tuple[str, ...]


def parts(name: str) -> Parts:
    """Those of the feature of this name."""
    names = [name]
    for other in names:
        names += [one for one, feature in features().items() if other in feature.needs and one not in names]
    folders = []
    for one in names:
        feature = features()[one]
        folders += [f"{top}/{one}" for top in ("core", "gui", "tests/core", "tests/gui", "tests/scenarios")]
        folders.append(f"core/learn/exercises/{one}.py")
        pages = [feature.tab, feature.actions]
        if feature.benchmark:
            pages.append(resolve_name(f"devexplorer.{feature.benchmark}").page.removeprefix("devexplorer."))
        for page in pages:
            if page.startswith("gui."):
                folder = page.split(".")[1]
                folders += [f"gui/{folder}", f"tests/gui/{folder}"]
    return Parts(tuple(names), tuple(dict.fromkeys(folders)))


def copy(folder: Path, types: bool = True) -> None:
    """The program as git knows it, with what is not committed yet, and what Python has compiled of it. `types`: also
    what the type checker remembers."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            if name.startswith(("core/", "gui/")) and name.endswith(".py"):
                compiled = Path(cache_from_source(str(source)))
                if compiled.is_file():  # it counts as long as the source is of the same time and size
                    kept = Path(cache_from_source(str(target)))
                    kept.parent.mkdir(exist_ok=True)
                    shutil.copy2(compiled, kept)
    if types and (ROOT / ".mypy_cache").is_dir():  # minutes less
        shutil.copytree(ROOT / ".mypy_cache", folder / ".mypy_cache")


def take_out(folder: Path, gone: Parts) -> None:
    """Delete the parts from the copy."""
    for name in gone.folders:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    packages = [name.replace("/", ".") for name in gone.folders if name.startswith(("core/", "gui/"))]
    imports = re.compile(rf"^ *(from|import) devexplorer\.({'|'.join(map(re.escape, packages))})\b", re.MULTILINE)
    for test in (folder / "tests").rglob("test_*.py"):
        if imports.search(test.read_text()):
            test.unlink()
    lines = folder / "core/features.py"
    text = lines.read_text()
    for name in gone.names:
        text, number = re.subn(rf'^    "{name}",\n', "", text, flags=re.MULTILINE)
        assert number == 1, f"{name} has no line of its own in core/features.py"
    lines.write_text(text)
    public = folder / "core/public/__init__.py"
    text = public.read_text()
    for name in gone.names:
        for export in re.findall(rf'^    "(\w+)": "{name}\.', text, flags=re.MULTILINE):
            text = re.sub(rf'^    "{export}"[,:].*\n', "", text, flags=re.MULTILINE)
        text = re.sub(rf"^    from devexplorer\.core\.{name}\..*\n", "", text, flags=re.MULTILINE)
    public.write_text(text)


ONLY_THE_COPY = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if not getattr(one, "__module__", "").startswith("__editable__")]
"""
"""Runs when any Python of the copy starts: what is installed for development would still find what is gone."""
IMPORT_ALL = """
import importlib
from importlib.util import cache_from_source
from pathlib import Path
from pkgutil import resolve_name
for path in sorted([*Path("core").rglob("*.py"), *Path("gui").rglob("*.py")]):
    name = ".".join(("devexplorer", *path.with_suffix("").parts)).removesuffix(".__init__")
    if not name.endswith("__main__") and ".cluster." not in name:
        importlib.import_module(name)
"""


def checks(how: str) -> list[tuple[str, list[str]]]:
    """What is run in the copy: its name, and the command."""
    found = [("contracts", ["lint-imports", "--no-cache"]), ("imports", [sys.executable, "-c", IMPORT_ALL])]
    kernel = [*sorted(f"--ignore=tests/{name}" for name in FAR), "-p", "no:cacheprovider", "-q"]
    if how != "quick":
        found.append(("types", [sys.executable, "-m", "mypy", "-p", "devexplorer"]))
        found.append(("imports of tests", [sys.executable, "-m", "pytest", *kernel, "--collect-only", "tests"]))
    if how == "whole":
        line = [sys.executable, "-m", "devexplorer.core.cli"]
        found += [
            ("devices", [*line, "devices", "--json"]),
            ("place", [*line, "place", "mlp", "--device", "vgpu:0", "--virtual", "Tesla T4"]),
            ("bench", [*line, "bench", "matmul", "--device", "cpu", "--size", "256", "--seconds", "1"]),
            ("tour", [sys.executable, "-m", "devexplorer.gui.shell.main", "tour", "--virtual", "2x Tesla T4"]),
            ("tests", [sys.executable, "-m", "pytest", *kernel, "-n", "auto", "tests"]),
        ]
    return found


def try_without(name: str, how: str) -> bool:
    """Whether everything holds without the feature."""
    gone = parts(name)
    with tempfile.TemporaryDirectory(prefix="without-") as made:
        folder = Path(made)
        copy(folder, types=how != "quick")
        take_out(folder, gone)
        (folder / ".ci/types/sitecustomize.py").write_text(ONLY_THE_COPY)
        environment = {
            **os.environ,
            "PYTHONPATH": str(folder / ".ci/types"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "QT_QPA_PLATFORM": "offscreen",
        }
        well = True
        for check, command in checks(how):
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                well = False
                lines = (done.stdout + done.stderr).rstrip().splitlines()
                print(f"without {name}: {check} failed", *lines[-25:], sep="\n  ")
    also = f" (and {', '.join(gone.names[1:])}, which need it)" if len(gone.names) > 1 else ""
    print(f"without {name}{also}: {'holds' if well else 'DOES NOT HOLD'}", flush=True)
    return well


def main() -> int:
    """0: all that was asked for can be taken out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=[*features(), "all"], metavar="NAME")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", dest="how", action="store_const", const="quick", help="contracts and imports alone")
    how.add_argument(
        "--whole", dest="how", action="store_const", const="whole", help="commands, tour and tests as well"
    )
    arguments = parser.parse_args()
    names = list(features()) if "all" in arguments.names else arguments.names
    held = [try_without(name, arguments.how or "") for name in names]
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
