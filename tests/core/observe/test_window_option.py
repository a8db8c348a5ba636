"""`devexplorer run --window`, and the option of the window that it uses."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from devexplorer.core.base import FIRST_PYTHON, USERS_PATH, BadInput
from devexplorer.core.cli.arguments import parse
from devexplorer.core.observe import launch
from devexplorer.core.observe.command_line import WINDOW_OPTIONS

WRITES = """
import json, os, sys
path = sys.argv[1]
told = {
    "words": sys.argv[2:], "awaited": os.environ.get("DEVEXPLORER_AWAITED"), "leads": os.getsid(0) == os.getpid(),
    "input": sys.stdin.read(),
}
with open(path + ".new", "w") as file:
    json.dump(told, file)
os.rename(path + ".new", path)
"""


def test_the_window_is_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    modules: list[str] = []

    def command(module: str, *words: str) -> list[str]:
        modules.append(module)
        return [sys.executable, "-c", WRITES, str(told), *words]

    monkeypatch.setattr(launch, "missing_display", lambda: None)
    monkeypatch.setattr(launch, "module_command", command)
    before = psutil.Process().children()  # of other tests
    launch.open_window(os.getpid(), dict(os.environ))
    assert [child for child in psutil.Process().children() if child not in before] == [], "of what becomes the script"
    end = time.monotonic() + 30
    while not told.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    pid = str(os.getpid())
    assert json.loads(told.read_text()) == {"words": ["--script", pid], "awaited": pid, "leads": True, "input": ""}


def test_a_script_in_another_python_is_shown_by_the_one_that_has_qt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, first = tmp_path / "told", tmp_path / "python"
    first.write_text(f'#!/bin/sh\necho "$@" PYTHONPATH="$PYTHONPATH" > {told}.new; mv {told}.new {told}\n')
    first.chmod(0o755)
    became: list[dict[str, str]] = []
    monkeypatch.setattr(launch, "missing_display", lambda: None)
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    monkeypatch.setattr(os, "execve", lambda path, command, environ: became.append(environ))
    monkeypatch.setenv(FIRST_PYTHON, str(first))
    monkeypatch.setenv(USERS_PATH, "/theirs")
    launch.run(parse(["run", "--window", __file__]))  # type: ignore[func-returns-value]
    end = time.monotonic() + 30
    while not told.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert told.read_text() == f"-P -m devexplorer.gui.shell.main --script {os.getpid()} PYTHONPATH=/theirs\n"
    assert FIRST_PYTHON not in became[0], "it is no variable of the script's"


def test_without_a_display_that_is_said_in_a_line_and_the_script_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(launch, "missing_display", lambda: "There is no display (neither is set).")
    monkeypatch.setattr(os, "execve", lambda path, command, environ: became.append(command))
    launch.run(parse(["run", "--window", __file__, "--lr", "1"]))  # type: ignore[func-returns-value]
    assert capsys.readouterr().err == "devexplorer: no window: there is no display (neither is set)\n"
    assert became == [[sys.executable, __file__, "--lr", "1"]]
    monkeypatch.setattr(launch, "missing_display", lambda: None)
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    launch.open_window(1, {})
    assert capsys.readouterr().err == f"devexplorer: no window: {sys.executable} has no PySide6\n"


def test_the_option_of_the_window_refuses_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devexplorer.core.observe.running.running", list)
    (option,) = WINDOW_OPTIONS
    arguments = parse(["--script", "123"])
    assert (arguments.script, arguments.command) == ("123", None)
    with pytest.raises(BadInput, match="process 123 is no script of yours that is observed; 'devexplorer attach"):
        option.check(arguments.script, arguments)
    assert parse(["run", "train.py"]).script is None, "a script that is run is no script to be shown"
