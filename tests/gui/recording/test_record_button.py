"""The record button: duration and size, also of a recording of hours."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from PySide6.QtGui import QAction
from pytestqt.qtbot import QtBot

from devexplorer.gui.recording.record_button import RecordButton


@pytest.mark.parametrize(("seconds", "words"), [(7, "0:07"), (65, "1:05"), (3600 + 125, "1:02:05")])
def test_the_button_says_how_long_it_records(qtbot: QtBot, seconds: int, words: str) -> None:
    now = 100.0
    button = RecordButton(QAction(), QAction(), clock=lambda: now)
    qtbot.addWidget(button)
    recorder = SimpleNamespace(problem=None, bytes_written=3 << 20, path=Path("run.devrec"))
    button.refresh(recorder)  # type: ignore[arg-type]
    now += seconds
    button.refresh(recorder)  # type: ignore[arg-type]
    assert button.text() == f"■ Stop recording  {words}  3.00 MiB"
