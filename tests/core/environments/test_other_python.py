"""`--python PATH`: which Python runs the command, with which arguments and variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import devexplorer
from devexplorer.core.base import USERS_PATH
from devexplorer.core.cli.arguments import cli_commands
from devexplorer.core.cli.run import main
from devexplorer.core.environments import code_cache
from devexplorer.core.session.settings import Settings, SettingsFile


class ReplacedError(Exception):
    """In place of a process that goes on as another program."""

    def __init__(self, file: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
        super().__init__(file)
        self.file, self.command, self.environ = file, list(command), dict(environ)


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of another environment; the program that would go on there is an exception."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.delenv("LOADEDMODULES", raising=False)

    def execve(file: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
        raise ReplacedError(file, command, environ)

    monkeypatch.setattr(os, "execve", execve)
    python = tmp_path / "other env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return tmp_path / "other env"


@pytest.mark.parametrize(
    "line", ["devices --json", "watch --count 1", "bench matmul", "place mlp", "doctor mlp", "fit mlp", "env"]
)
def test_the_command_goes_on_in_the_other_python(other: Path, line: str) -> None:
    argv = [*line.split(), "--python", str(other)]
    if argv[0] not in cli_commands():
        pytest.skip("its feature is not there")
    with pytest.raises(ReplacedError) as replaced:
        main(argv)
    python = str(other / "bin" / "python")
    assert replaced.value.file == python
    bootstrap = str(code_cache.folder() / code_cache.BOOTSTRAP)
    assert replaced.value.command == [python, "-P", bootstrap, "devexplorer.core.cli", *argv]
    assert "PYTHONPATH" not in replaced.value.environ
    assert replaced.value.environ[USERS_PATH] == "/mine"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SettingsFile:
    """The window's, and a folder that a command is started in."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return SettingsFile()


def test_what_was_chosen_in_the_window_counts_and_is_said(
    other: Path, settings: SettingsFile, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    python = str(other / "bin" / "python")
    settings.save(Settings(pythons={str(tmp_path / "project"): python}))
    with pytest.raises(ReplacedError) as replaced:
        main(["devices", "--json"])
    assert replaced.value.file == python
    out, err = capfd.readouterr()
    assert out == ""
    assert f"devexplorer: using {python}, chosen in the window for this folder; --python names another\n" in err
    assert main(["place", "mlp", "--python", sys.executable]) == 0, "named on the command line"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("chosen", ["", sys.executable, "/gone/python"])
def test_devexplorers_own_python_is_used_where_no_other_is_chosen(
    chosen: str, other: Path, settings: SettingsFile, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings.save(Settings(pythons={str(tmp_path): str(other / "bin" / "python"), str(tmp_path / "project"): chosen}))
    assert main(["place", "mlp"]) == 0
    gone = "devexplorer: the Python that was chosen for this folder, /gone/python, is no longer there\n"
    assert capfd.readouterr().err == (gone if "gone" in chosen else "")


def test_damaged_settings_are_the_windows_affair(
    other: Path, settings: SettingsFile, capfd: pytest.CaptureFixture[str]
) -> None:
    settings.save(Settings())
    settings.path.write_text('{"pythons": 3')
    assert main(["place", "mlp"]) == 0
    assert capfd.readouterr().err == ""


def test_it_goes_on_once(other: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(devexplorer), "__start__", ("/bootstrap.py",))
    assert main(["place", "mlp", "--python", str(other)]) == 0
    monkeypatch.delitem(vars(devexplorer), "__start__")
    assert main(["place", "mlp", "--python", sys.executable]) == 0, "and not at all to this one"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("gone", "there is no file"),
        ("other env/bin", "there is no Python in the folder"),
        ("empty", "bin/python cannot be used: it is not a Python that answers: with exit code 3"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    other: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], path: str, words: str
) -> None:
    python = tmp_path / "empty" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    (other / "bin" / "python").rename(other / "bin" / "pypy")
    assert main(["devices", "--python", str(tmp_path / path)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
