"""The guards of this folder themselves: a test that leaves a window fails, a window in a reference cycle does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TESTS = """
from PySide6.QtWidgets import QMainWindow, QPushButton

held = []

def test_holds_its_window():
    held.append(QMainWindow())
    held[0].show()

def test_holds_its_window_through_a_closure():
    window = QMainWindow()
    held.append(lambda: window)

def test_window_that_holds_itself():
    window = QMainWindow()
    button = QPushButton(window)
    button.clicked.connect(lambda: window.setWindowTitle(button.text()))
    window.show()
"""


def test_a_window_that_outlives_its_test_fails_it(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_windows.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path).stdout
    assert said.count("windows left behind: ['QMainWindow']") >= 2, said
    for name in ("test_holds_its_window", "test_holds_its_window_through_a_closure"):
        assert f"ERROR at teardown of {name} " in said, said
    assert "3 passed, 2 errors" in said, said
