"""Which environments are found, from folders as venv, conda and uv leave them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import devexplorer
from devexplorer.core.base import BadInput
from devexplorer.core.environments import environment, finding

PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"


def python_in(prefix: Path, version: str = "3.12", *, name: str = "python") -> Path:
    """A folder with an interpreter and a library, as every environment has them."""
    path = prefix / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    (prefix / "lib" / f"python{version}" / "site-packages").mkdir(parents=True, exist_ok=True)
    return path


def venv_in(prefix: Path, version: str = "3.12.4", torch: str = "", settings: str = "") -> Path:
    path = python_in(prefix, version.rpartition(".")[0])
    (prefix / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n{settings}")
    if torch:
        (prefix / "lib" / path_name(version) / "site-packages" / f"torch-{torch}.dist-info").mkdir()
    return path


def path_name(version: str) -> str:
    return f"python{version.rpartition('.')[0]}"


def conda_in(prefix: Path, version: str) -> Path:
    path = python_in(prefix, version.rpartition(".")[0])
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / f"python-{version}-h955ad1f_0_cpython.json").write_text("{}")
    return path


def found(folder: Path, home: Path, **environ: str) -> list[tuple[str, str, str, str]]:
    rows = finding.find(str(folder), {"HOME": str(home), **environ})
    return [(row["kind"], row["label"], row["version"], row["torch"]) for row in rows if str(home) in row["python"]]


def test_the_active_one_comes_first_and_is_listed_once(tmp_path: Path) -> None:
    venv_in(tmp_path / "проект é" / ".venv", torch="2.6.0+cu124")
    other = tmp_path / "other env"
    venv_in(other)
    folder = tmp_path / "проект é" / "src" / "models"
    folder.mkdir(parents=True)
    rows = found(folder, tmp_path, VIRTUAL_ENV=str(other), PATH=f"{other}/bin")
    assert rows == [("active", "~/other env", "3.12.4", ""), ("project", "~/проект é/.venv", "3.12.4", "2.6.0+cu124")]


def test_conda_its_base_its_environments_and_those_made_elsewhere(tmp_path: Path) -> None:
    base, elsewhere = tmp_path / "miniforge3", tmp_path / "scratch" / "train"
    conda_in(base, "3.12.1")
    train = conda_in(base / "envs" / "vision", "3.11.9")
    conda_in(elsewhere, "3.13.0")
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text(f"{base}\n{train.parents[1]}\n{elsewhere}\n/gone\n")
    rows = found(tmp_path, tmp_path, CONDA_PREFIX=str(elsewhere), CONDA_DEFAULT_ENV="train")
    assert rows == [
        ("active", "train", "3.13.0", ""),
        ("conda", "base in ~/miniforge3", "3.12.1", ""),
        ("conda", "vision", "3.11.9", ""),
    ]


def test_uv_and_pixi(tmp_path: Path) -> None:
    uv = tmp_path / ".local" / "share" / "uv" / "python"
    python_in(uv / "cpython-3.12.9-linux-x86_64-gnu", name="python3.12")
    (uv / "cpython-3.12-linux-x86_64-gnu").symlink_to("cpython-3.12.9-linux-x86_64-gnu")
    conda_in(tmp_path / ".pixi" / "envs" / "default", "3.12.7")
    assert found(tmp_path, tmp_path) == [
        ("project", "~/.pixi/envs/default", "3.12.7", ""),
        ("uv", "cpython-3.12.9-linux-x86_64-gnu", "3.12.9", ""),
    ]


def test_what_python_means_on_path_without_the_programs_of_pyenv(tmp_path: Path) -> None:
    module = python_in(tmp_path / "apps" / "python" / "3.12.3" / "gcc", name="python3")
    plain = python_in(tmp_path / "usr", "3.11")
    shim = python_in(tmp_path / ".pyenv" / "shims").parent
    path = os.pathsep.join(map(str, (shim.parent, module.parent, plain.parent, "relative")))
    assert found(tmp_path, tmp_path, PATH=path) == [("path", str(module), "3.12", ""), ("path", str(plain), "3.11", "")]


def test_torch_is_seen_through_what_a_venv_shares(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "torch-2.5.1.dist-info").mkdir(parents=True)
    linked = venv_in(tmp_path / "a" / ".venv")
    (linked.parents[1] / "lib" / "python3.12" / "site-packages" / "more.pth").write_text(f"import x\n{shared}\n")
    base = python_in(tmp_path / "base").parent
    (base.parent / "lib" / "python3.12" / "site-packages" / "torch-2.4.0-py3.12.egg-info").mkdir()
    settings = "include-system-site-packages = true\n"
    inner = venv_in(tmp_path / "b" / ".venv")
    (inner.parents[1] / "pyvenv.cfg").write_text(f"home = {base}\nversion_info = 3.12.4.final.0\n{settings}")
    assert found(tmp_path / "a", tmp_path) == [("project", "~/a/.venv", "3.12.4", "2.5.1")]
    assert found(tmp_path / "b", tmp_path) == [("project", "~/b/.venv", "3.12.4", "2.4.0")]


def test_a_hostile_machine_is_read_without_an_error(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "pyvenv.cfg").write_bytes(b"\xff\xfe version\0= x")
    (tmp_path / ".venv" / "bin" / "python").symlink_to("python")  # in a circle
    named_badly = tmp_path / ".pixi" / "envs" / "a\nb"
    python_in(named_badly)
    python_in(tmp_path / ".pixi" / "envs" / os.fsdecode(b"\xff"))
    (tmp_path / ".conda").write_text("a file, not a folder")
    assert found(tmp_path / "missing", tmp_path, PATH="", CONDA_EXE="/", VIRTUAL_ENV="/nowhere") == []


def test_a_venv_keeps_its_link_and_python_on_path_is_another(tmp_path: Path) -> None:
    real = python_in(tmp_path / "usr", name="python3.12")
    (real.parent / "python3").symlink_to("python3.12")
    venv = venv_in(tmp_path / ".venv")
    venv.unlink()
    venv.symlink_to(real)
    rows = finding.find(str(tmp_path), {"HOME": str(tmp_path), "PATH": str(real.parent)})
    names = [Path(row["python"]) for row in rows if str(tmp_path) in row["python"]]
    assert names == [venv, real.parent / "python3"]


def test_an_environment_is_given_by_its_folder_or_its_interpreter(tmp_path: Path) -> None:
    python = venv_in(tmp_path / "my env" / ".venv", torch="2.7.0")
    for path in (python, python.parents[1], tmp_path / "my env"):
        assert environment.given(str(path)).python == str(python)
    assert environment.given(str(python)).torch == "2.7.0"
    (tmp_path / "notes.txt").write_text("")
    for path, words in (("gone", "there is no file"), ("notes.txt", "is not a program"), (".", "no Python in the fol")):
        with pytest.raises(BadInput, match=words):
            environment.given(str(tmp_path / path))


def test_this_python_is_always_listed(tmp_path: Path) -> None:
    rows = environment.find(tmp_path, {"HOME": str(tmp_path), "PATH": ""})
    assert [row.kind for row in rows if environment.is_own(row.python)] == ["own"]


def test_one_that_was_started_where_devexplorer_is_not_installed_is_called_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devexplorer, "__start__", ("bootstrap.py",), raising=False)
    rows = environment.find(tmp_path, {"HOME": str(tmp_path), "PATH": ""})
    own = next(row for row in rows if environment.is_own(row.python))
    assert own.kind == "given"
    assert own.label.rpartition("/")[2] == Path(sys.prefix).name


def test_who_logs_in_is_offered_those_of_the_projects_in_the_home_folder(tmp_path: Path) -> None:
    venv_in(tmp_path / "work" / ".venv", torch="2.9.1")
    (tmp_path / "notes").mkdir()
    assert found(tmp_path, tmp_path, PATH="") == [("project", "~/work/.venv", "3.12.4", "2.9.1")]
    assert found(tmp_path / "notes", tmp_path, PATH="") == []


def test_those_that_can_serve_come_first_and_of_these_the_nearest(tmp_path: Path) -> None:
    active, folder = tmp_path / "active", tmp_path / "project" / "src"
    venv_in(active)  # without torch
    venv_in(tmp_path / "project" / ".venv", torch="2.3.1")  # too old
    venv_in(folder / ".venv", torch="2.6.0+cu124")
    conda_in(tmp_path / "miniconda3" / "envs" / "a", "3.10.4")
    b = conda_in(tmp_path / "miniconda3" / "envs" / "b", "3.12.4").parents[1]
    (b / "lib" / "python3.12" / "site-packages" / "torch-2.9.1.dist-info").mkdir()
    found = environment.find(folder, {"HOME": str(tmp_path), "VIRTUAL_ENV": str(active), "PATH": ""})
    assert [row.label for row in found if str(tmp_path) in row.python] == [
        "~/project/src/.venv", "b", "~/active", "~/project/.venv", "a",
    ]  # fmt: skip


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.10", "3.12", "3.13", "3.14"])
def test_the_files_that_are_sent_run_in_other_pythons(version: str, tmp_path: Path) -> None:
    python = next(PYENV.glob(f"{version}.*/bin/python"), None)
    if python is None:
        pytest.skip(f"no Python {version} in {PYENV}")
    folder = Path(finding.__file__).parent
    venv_in(tmp_path / ".venv", torch="2.6.0")
    program = (
        f"import sys; sys.dont_write_bytecode = True; sys.path.insert(0, {str(folder)!r}); import finding, probe;"
        f"row = finding.find({str(tmp_path)!r}, {{}})[0]; file = open(probe.__file__); source = file.read();"
        f"file.close(); print(row['torch'], probe.ask(sys.executable, source, 20.0)['version'])"
    )
    run = subprocess.run([python, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (run.stderr, run.stdout.split()) == ("", ["2.6.0", python.parts[-3]])


def test_the_sent_files_are_alone(tmp_path: Path) -> None:
    """They import nothing of ours: a Python without DevExplorer runs them."""
    for name in ("finding", "probe"):
        text = (Path(finding.__file__).parent / f"{name}.py").read_text()
        (tmp_path / f"{name}.py").write_text(text)
    subprocess.run([sys.executable, "-I", "-S", str(tmp_path / "finding.py")], check=True)
    assert "devexplorer" not in (tmp_path / "finding.py").read_text() + (tmp_path / "probe.py").read_text()
