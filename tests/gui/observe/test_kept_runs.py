"""The run of a script that has ended is in the history of the window; the file of a report is opened there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from fakes.far_machines import MachinesFake
from fakes.quiet_window import QuietWindow
from fakes.run_reports import report
from msgspec.structs import replace
from PySide6.QtWidgets import QApplication

from devexplorer.core.history.store import Store
from devexplorer.core.history.store_thread import StoreThread
from devexplorer.core.machines.greeting import Greeting
from devexplorer.core.observe.records import RunReport, ScriptEnded
from devexplorer.gui.files.actions import files_of
from devexplorer.gui.history.room import history_of
from devexplorer.gui.history.tab import TAB
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.observe.scripts import scripts_of

RUN = replace(report(forward=5, backward=10, optimizer=5), started_unix_s=1_700_000_000.0, arguments=("--fast",))
SCRIPT = Greeting(pid=11, name="train.py", folder="/", since_unix_s=1_000.0, torch="2.13.0")


class Desk:
    """A window with a history in a folder of its own."""

    def __init__(self, quiet: QuietWindow, folder: Path) -> None:
        self.quiet, self.context = quiet, quiet.window.context
        session = SimpleNamespace(on_run=[], data_folder=folder, close=lambda *_: True)
        self.thread = StoreThread(session)  # type: ignore[arg-type]
        session.listener = lambda _feature: self.thread
        self.context.shown.here.session = session
        history_of(self.context)._open(session)

    def deliver(self) -> None:
        self.thread.close()
        while self.thread.deliver():
            self.quiet.settle()


@pytest.fixture
def desk(qapp: QApplication, tmp_path: Path) -> Iterator[Desk]:
    quiet = QuietWindow(qapp, tmp_path / "settings")
    made = Desk(quiet, tmp_path)
    yield made
    made.context.shown.here.session = None
    quiet.close()


def write(path: Path, run: RunReport) -> Path:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2))
    return path


def test_the_file_of_a_report_is_opened_in_the_history(desk: Desk, tmp_path: Path) -> None:
    files_of(desk.context).opening.open([write(tmp_path / "run.json", RUN)])
    desk.quiet.answered()
    desk.quiet.answered()
    desk.deliver()
    (run,) = Store(tmp_path / "history.sqlite3").runs()
    page = TAB.show(desk.context)
    page.show_runs([run], 1)
    assert [chosen.id for chosen in page.table.chosen] == [run.id]
    texts = [cell.text for cell in page.model.row(0).cells]
    assert texts[1:4] == ["script", "cuda:0", "train.py --fast"]
    assert texts[5:7] == ["20.0", "ms"]
    assert "compute-bound" in texts
    assert desk.quiet.window.bottom_dock.in_front["measure"] == "history"


def test_a_damaged_report_is_said(desk: Desk, tmp_path: Path) -> None:
    path = write(tmp_path / "run.json", RUN)
    path.write_bytes(path.read_bytes()[:-100])
    files_of(desk.context).opening.open([path])
    desk.quiet.answered()
    desk.quiet.answered()
    assert "is no report of a run" in desk.quiet.window.banner.words.full_text


def test_the_run_of_a_script_that_was_shown_is_kept(desk: Desk, tmp_path: Path) -> None:
    MachinesFake(desk.context)
    scripts_of(desk.context).show(SCRIPT, "this machine")
    (machine,) = room_of(desk.context).others
    assert machine.session is not None
    assert machine.session.listeners["history"] is desk.thread, "it runs on this machine"
    desk.context.beaten.emit()
    machine.aside.apply(ScriptEnded(report=msgspec.json.encode(RUN)))
    desk.context.shown.machines = (desk.context.shown.here, machine)
    desk.context.beaten.emit()
    desk.context.beaten.emit()
    desk.deliver()
    assert [run.result.report for run in Store(tmp_path / "history.sqlite3").runs()] == [RUN]  # type: ignore[attr-defined]
