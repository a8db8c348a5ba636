"""Choosing the Python of the engine: the list fills as each one answers, and says why one cannot serve; the choice is
remembered for the folder and restarts the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.look_records import VGPU
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from devexplorer.core.environments.records import Environment, Probe, ProbedDevice
from devexplorer.gui.environments import python_choice
from devexplorer.gui.environments.python_choice import PythonDialog

LEFT = Qt.MouseButton.LeftButton
VENV, OLD, BROKEN, OWN = "/net/.venv/bin/python", "/usr/bin/python3", "/conda/bin/python", "/own/bin/python"
FOUND = (
    Environment(VENV, "/net/.venv", "project", "~/net/.venv", "3.11.7", "2.6.0"),
    Environment(OLD, "/usr", "path", OLD, "3.9.2"),
    Environment(BROKEN, "/conda", "conda", "torch25", "3.12.1", "2.5.1"),
    Environment(OWN, "/own", "own", "DevExplorer's own", "3.11.7", "2.13.0"),
)
PROBES = {
    VENV: Probe(
        version="3.11.7", implementation="cpython", torch="2.6.0", cuda="12.4",
        devices=(ProbedDevice("cuda:0", "NVIDIA A10"), ProbedDevice("cuda:1", "NVIDIA A10")),
    ),
    OLD: Probe(version="3.9.2", implementation="cpython"),
    BROKEN: Probe(version="3.12.1", implementation="cpython", torch_problem="torch cannot be imported: no libcudart"),
    OWN: Probe(version="3.11.7", implementation="cpython", torch="2.13.0"),
}  # fmt: skip


class PythonsFake:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Callable[[Any], None]]] = []
        self.found: list[Callable[[Any], None]] = []

    def find_pythons(self, folder: str, then: Callable[[Any], None], failed: Callable[[str], None]) -> None:
        self.found.append(then)

    def given_python(self, path: str, then: Callable[[Any], None], failed: Callable[[str], None]) -> None:
        failed("There is no file /x.") if path == "/x" else then(Environment(path, "", "given", path))

    def probe_python(self, python: str, then: Callable[[Any], None]) -> None:
        self.asked.append((python, then))

    def answer(self) -> None:
        while self.asked:
            python, then = self.asked.pop(0)
            then(PROBES.get(python, Probe(version="3.13.0", implementation="cpython", torch="2.9.0")))


class SessionFake:
    python = OWN

    def __init__(self) -> None:
        self.pythons: list[str | None] = []

    def set_python(self, python: str | None) -> None:
        self.pythons.append(python)


@pytest.fixture
def pythons() -> PythonsFake:
    return PythonsFake()


@pytest.fixture
def opened(
    qapp: QApplication, tmp_path: Path, pythons: PythonsFake, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[QuietWindow, PythonDialog, SessionFake]]:
    quiet, session = QuietWindow(qapp, tmp_path / "settings", VGPU), SessionFake()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    for method in ("find_pythons", "given_python", "probe_python"):
        monkeypatch.setattr(python_choice.PythonsHere, method, getattr(pythons, method))
    quiet.window.context.session = session  # type: ignore[assignment]
    quiet.window.context.machine.session = session  # type: ignore[assignment]
    quiet.window.actions_by_id["python"].setEnabled(True)
    quiet.window.actions_by_id["python"].trigger()
    quiet.settle()
    yield quiet, next(iter(quiet.window.findChildren(PythonDialog))), session
    quiet.window.context.session = quiet.window.context.machine.session = None
    quiet.close()


def texts(dialog: PythonDialog) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in dialog.table.rows]


def test_the_list_fills_as_each_python_answers(
    opened: tuple[QuietWindow, PythonDialog, SessionFake], pythons: PythonsFake
) -> None:
    _, dialog, _ = opened
    assert dialog.message.text() == "Looking for Pythons on this machine…"
    pythons.found[0](FOUND)
    assert [python for python, _ in pythons.asked] == [VENV, OLD], "two at a time: each reads hundreds of megabytes"
    assert texts(dialog)[0] == ["~/net/.venv", "project", "3.11.7", "2.6.0", "…", "…", "…"], "what its files say"
    pythons.answer()
    assert texts(dialog) == [
        ["~/net/.venv", "project", "3.11.7", "2.6.0", "CUDA 12.4", "2 × NVIDIA A10", ""],
        [OLD, "on PATH", "3.9.2", "—", "—", "—", "△ cannot serve"],
        ["torch25", "conda", "3.12.1", "—", "—", "—", "△ cannot serve"],
        ["DevExplorer's own", "own", "3.11.7", "2.13.0", "CPU", "CPU only", "● runs now"],
    ]
    assert dialog.message.text() == "The engine runs in this Python."
    for python, words in (
        (OLD, "It is Python 3.9.2; the engine needs 3.11 or newer."),
        (BROKEN, "Torch cannot be imported: no libcudart."),
    ):
        dialog.table.select_key(python)
        assert dialog.message.text() == words
        assert not dialog.accept_button.isEnabled()


def test_the_choice_restarts_the_engine_and_is_remembered(
    opened: tuple[QuietWindow, PythonDialog, SessionFake], pythons: PythonsFake, tmp_path: Path
) -> None:
    quiet, dialog, session = opened
    pythons.found[0](FOUND)
    pythons.answer()
    dialog.add("/x")
    assert dialog.message.text() != "", "said in one line"
    dialog.add("/other/python")
    pythons.answer()
    assert dialog.table.selected_key == "/other/python"
    assert dialog.message.text() == "The engine restarts with torch 2.9.0."
    dialog.table.select_key(VENV)
    assert dialog.remember.text() == f"Remember for ~/{tmp_path.name}"
    QTest.mouseClick(dialog.accept_button, LEFT)
    assert session.pythons == [VENV]
    assert quiet.window.context.settings.pythons == {str(tmp_path): VENV}
    pythons.asked.append((OLD, lambda probe: None))


def test_the_python_that_runs_is_listed_wherever_it_is(
    opened: tuple[QuietWindow, PythonDialog, SessionFake], pythons: PythonsFake
) -> None:
    _, dialog, _ = opened
    pythons.found[0](FOUND[:1])
    pythons.answer()
    assert texts(dialog)[1][0::6] == [OWN, "● runs now"]
    assert dialog.table.selected_key == OWN


def test_a_late_answer_finds_no_dialog(
    opened: tuple[QuietWindow, PythonDialog, SessionFake], pythons: PythonsFake
) -> None:
    quiet, dialog, session = opened
    pythons.found[0](FOUND)
    dialog.reject()
    quiet.settle()
    pythons.answer()
    assert session.pythons == []
