"""A report about memory that ran out is opened as other files are; the inspector says what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.look_records import VGPU
from fakes.quiet_window import QuietWindow
from PySide6.QtWidgets import QApplication

from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.observe.memory_report import FILE_KIND, MARK, ExplainReport
from devexplorer.core.records import Answer
from devexplorer.gui.files.actions import files_of


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "devexplorer-oom-train.py-7.json"
    path.write_bytes(MARK + b',"schema":99}')
    return path


def test_a_report_is_sent_to_the_engine(qapp: QApplication, tmp_path: Path, report: Path) -> None:
    quiet = QuietWindow(qapp, tmp_path / "settings", VGPU)
    try:
        files_of(quiet.window.context).opening.open([report])
        quiet.answered()
        assert [command.path for command in quiet.sent if isinstance(command, ExplainReport)] == [str(report)]
    finally:
        quiet.close()


def test_what_cannot_be_read_is_said(report: Path) -> None:
    with LocalEngine(None) as engine:
        (answer,) = (event for event in engine.run(ExplainReport(path=str(report))) if isinstance(event, Answer))
    assert answer.failed
    assert "written by a newer DevExplorer" in answer.words
    assert FILE_KIND == "out of memory"
