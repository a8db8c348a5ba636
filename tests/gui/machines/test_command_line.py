"""`devexplorer --ssh`: the window connects to another machine, and nothing is started on this one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from devexplorer.gui.shell.main import main


def test_a_machine_to_connect_to_is_handed_to_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []

    def open_window(**arguments: Any) -> int:
        opened.append(arguments)
        return 0

    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    monkeypatch.setattr("devexplorer.gui.shell.app.open_window", open_window)
    monkeypatch.setattr("gc.disable", lambda: None)
    assert main(["--ssh", "me@gpu1", "--python", "~/there/.venv"]) == 0
    assert main([]) == 0
    seen = [(call["away"], len(call["opens_on"]), call["python"]) for call in opened]
    assert seen == [(True, 1, None), (False, 0, None)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tour --ssh gpu1", "--ssh is for the window, and for devices"),
        ("--ssh=-oProxyCommand=x", "a host neither begins with a minus"),
    ],
)
def test_bad_input_is_refused_before_there_is_a_window(
    words: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(words)) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_its_layout_has_all_the_room(qapp: QApplication, tmp_path: Path) -> None:
    quiet = QuietWindow(qapp, tmp_path)
    quiet.window.activateWindow()
    QTest.keyClick(quiet.window, Qt.Key.Key_5, Qt.KeyboardModifier.AltModifier)
    assert quiet.window.workbench.layout_shown.name == "remote"
    assert not quiet.window.objects.isVisible()
    quiet.close()
