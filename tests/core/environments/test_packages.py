"""What an environment lacks: which packages, where they come from, and where they go."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Cancelled, ProgressMonitor, Unavailable
from devexplorer.core.environments import code_cache, environment, packages
from devexplorer.core.environments.environment import Probe

ROOT = Path(__file__).parents[3]
COMPLETE = dict.fromkeys(packages.NEEDED, "99")
PROBE = Probe(
    version="3.12.4",
    implementation="cpython",
    platform="linux-x86_64",
    libc="glibc 2.31",
    torch="2.6.0",
    packages=COMPLETE,
)


def without(*names: str, **others: str) -> Probe:
    kept = {name: version for name, version in COMPLETE.items() if name not in names}
    return replace(PROBE, packages=kept | {name.replace("_", "-"): version for name, version in others.items()})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache é"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without uv
    return tmp_path / "cache é" / "devexplorer"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in place of an index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def wheel(folder: Path, name: str, version: str, tag: str) -> None:
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as file:
        file.writestr(f"{name}.py", f"__version__ = {version!r}")
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        file.writestr(f"{about}/RECORD", f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")


def here() -> Probe:
    """This Python, with nothing in it."""
    return replace(environment.probe(sys.executable, 20.0, with_torch=False), packages={}, torch="2.6.0")


def test_the_oldest_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = dict(entry.split(">=") for entry in project["dependencies"] if "," not in entry)
    needed = {name: least for name, least in packages.NEEDED.items() if name in required}
    assert set(packages.NEEDED) - set(needed) == {"markdown-it-py", "mdurl", "pygments"}, "what rich brings"
    assert needed == {name: required[name] for name in needed}
    assert needed["numpy"] == ".".join(map(str, environment.OLDEST_NUMPY))


@pytest.mark.parametrize(
    ("probe", "missing", "too_old"),
    [
        (PROBE, (), ()),
        (without("msgspec", psutil="5.9.8"), ("msgspec",), ("psutil",)),
        (without("nvidia-ml-py", pynvml="11.5.0"), (), ("nvidia-ml-py",)),
        (without("nvidia-ml-py", pynvml="12.0.0"), (), ("nvidia-ml-py",)),
    ],
)
def test_what_is_lacking(probe: Probe, missing: tuple[str, ...], too_old: tuple[str, ...]) -> None:
    assert (packages.missing(probe), packages.too_old(probe)) == (missing, too_old)


def test_nothing_is_made_for_an_environment_that_has_all(cache: Path) -> None:
    assert packages.provide("/usr/bin/python", PROBE) == (None, None)
    assert not cache.exists()


def test_our_own_are_copied_for_the_same_python_without_pip_or_network(cache: Path, wheels: Path) -> None:
    probe = replace(here(), packages={"numpy": "1.26.4", "psutil": "5.0", "pip": "1"}, pip=False)
    folders = packages.provide(sys.executable, probe)
    program = (
        "import msgspec, safetensors, rich.table, platformdirs, psutil, pynvml, importlib.metadata as m;"
        "print(msgspec.__file__, psutil.__file__, m.version('msgspec'))"
    )
    path = os.pathsep.join(map(str, folders))
    command = [sys.executable, "-S", "-c", program]
    output = subprocess.run(
        command, env={"PYTHONPATH": path}, cwd="/", capture_output=True, text=True, check=True
    ).stdout.split(".py ")
    assert output[0].startswith(str(folders.after))
    assert output[1].startswith(str(folders.before))
    assert output[2].strip() == importlib.metadata.version("msgspec")
    assert folders.options() == (f"--before={folders.before}", f"--after={folders.after}")
    assert not (folders.after / "numpy").exists()
    assert {path.parent for path in folders} == {cache / "packages"}
    assert packages.provide("/not/started/again", probe) == folders


def test_what_we_do_not_have_is_fetched_by_that_python_s_pip(wheels: Path) -> None:
    wheel(wheels, "msgspec", "99.0", "py3-none-any")
    wheel(wheels, "msgspec", "0.19", "py3-none-any")
    probe = replace(here(), packages=without("msgspec").packages, version="3.99.0")
    said: list[str] = []
    report = ProgressMonitor(lambda done, text, part="": said.append(text))
    folder = packages.provide(sys.executable, probe, report).after
    assert folder is not None
    assert {path.name for path in folder.iterdir()} >= {"msgspec.py", "msgspec-99.0.dist-info"}
    assert said == ["adding what Python 3.99.0 there lacks", "fetching msgspec for Python 3.99.0"]


def test_without_pip_the_one_that_python_brings_along_does_it(wheels: Path) -> None:
    pytest.importorskip("ensurepip")
    wheel(wheels, "msgspec", "99.0", "py3-none-any")
    probe = replace(here(), packages=without("msgspec").packages, version="3.99.0", pip=False)
    folder = packages.provide(sys.executable, probe).after
    assert folder is not None
    assert (folder / "msgspec.py").exists()


def test_wheels_for_another_machine_are_fetched_here(wheels: Path) -> None:
    for version, tag in (
        ("0.20", "cp312-cp312-manylinux_2_28_aarch64"),
        ("0.21", "cp312-cp312-manylinux_2_34_aarch64"),
        ("0.22", "cp311-cp311-manylinux_2_28_aarch64"),
        ("0.23", "cp312-cp312-linux_x86_64"),
    ):
        wheel(wheels, "msgspec", version, tag)
    wheel(wheels, "psutil", "7.0", "cp36-abi3-manylinux2014_aarch64")
    probe = replace(without("msgspec", "psutil"), platform="linux-aarch64")
    folder = packages.provide(None, probe).after
    assert folder is not None
    assert (folder / "msgspec-0.20.dist-info").exists()
    assert (folder / "psutil-7.0.dist-info").exists()


def test_a_failure_is_one_line_and_leaves_nothing(cache: Path, wheels: Path) -> None:
    probe = replace(here(), packages=without("msgspec", "mdurl").packages, version="3.99.0")
    with pytest.raises(Unavailable, match=r"msgspec could not be fetched for Python 3.99.0: ERROR: No matching dist"):
        packages.provide(sys.executable, probe)
    assert list((cache / "packages").iterdir()) == []


def test_fetching_can_be_cancelled(cache: Path, tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nsleep 99\n")
    slow.chmod(0o755)
    probe = replace(without("msgspec"), pip=True, version="3.99.0")
    with pytest.raises(Cancelled):
        packages.provide(str(slow), probe, ProgressMonitor(cancelled=lambda: True))
    assert list((cache / "packages").iterdir()) == []


def test_a_python_is_made_ready(tmp_path: Path) -> None:
    assert packages.prepare(sys.executable) == [sys.executable, "-P", "-m"]
    python = tmp_path / "my python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    *start, bootstrap = packages.prepare(str(python))
    assert (start, bootstrap) == ([str(python), "-P"], str(code_cache.folder() / code_cache.BOOTSTRAP))
    python.write_text("#!/bin/sh\necho wrong; exit 1\n")
    with pytest.raises(BadInput, match="my python cannot be used: it is not a Python that answers: wrong"):
        packages.prepare(str(python))
    python.write_text("#!/bin/sh\nsleep 99\n")
    with pytest.raises(Cancelled):
        packages.prepare(str(python), ProgressMonitor(cancelled=lambda: True))
