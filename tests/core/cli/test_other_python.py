"""`--python PATH`: which Python runs the command, with which arguments and variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import devexplorer
from devexplorer.core.cli.run import main
from devexplorer.core.environments import code_cache


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
    with pytest.raises(ReplacedError) as replaced:
        main(argv)
    python = str(other / "bin" / "python")
    assert replaced.value.file == python
    bootstrap = str(code_cache.folder() / code_cache.BOOTSTRAP)
    assert replaced.value.command == [python, "-P", bootstrap, "devexplorer.core.cli", *argv]
    assert "PYTHONPATH" not in replaced.value.environ


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
