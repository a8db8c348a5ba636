"""The heartbeat of an open window makes its session's engine yield, in the engine's own scheduling group."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.nvml import FakeNvml
from PySide6.QtWidgets import QApplication

from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.engine.process import BEAT_S, FIRST_S, HELD_UP, YIELDING, EnginePriority, EngineProcess
from devexplorer.core.records import Event
from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.shell.app import App

WAITS = (sys.executable, "-c", "import sys; sys.stdin.read()")


class Told(EngineProcess):
    """A real process, and the nice values that it was to have."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        super().__init__(put, command=list(WAITS))
        self.nice: list[int] = []
        self.obeys = True

    def set_group_nice(self, nice: int) -> bool:
        if not self.obeys:
            return super().set_group_nice(nice)
        self.nice.append(nice)
        return True


class Window:
    """An open window with a session whose engine does nothing; its heart beats by hand, on played clocks."""

    def __init__(self, qapp: QApplication, folder: Path) -> None:
        self.engines: list[Told] = []
        self.now = 100.0
        self.others = 0.9
        """Share of the cores that other programs use."""
        self.app = App(qapp, SettingsFile(folder), data_folder=folder)
        self.session = Session(make_engine=self._make, nvml=Nvml(FakeNvml()))
        self.app.show()
        self.heartbeat = self.app.connect(self.session)
        self.heartbeat.stop()
        self.until_running()

    def _make(self, put: Callable[[Event], None], *_: object) -> Told:
        self.engines.append(Told(put))
        self.engines[-1].priority = EnginePriority(
            lambda nice: self.engines[-1].set_group_nice(nice), lambda: self.others, lambda: self.now, lambda: 0.0
        )
        return self.engines[-1]

    def until_running(self) -> None:
        while self.engines[-1].pid is None:
            os.sched_yield()

    def beat(self, times: int, after_s: float = BEAT_S) -> None:
        for _ in range(times):
            self.now += after_s
            self.heartbeat.tick()


@pytest.fixture
def window(qapp: QApplication, tmp_path: Path) -> Iterator[Window]:
    window = Window(qapp, tmp_path)
    yield window
    window.app.stop()
    window.app.window.hide()


def test_the_engine_yields_when_the_windows_beats_are_late_and_continues_when_they_are_not(window: Window) -> None:
    window.beat(5)
    window.beat(HELD_UP[0] - 1, after_s=0.1)
    assert window.engines[0].nice == []
    window.beat(1, after_s=0.1)
    assert window.engines[0].nice == [YIELDING]
    window.beat(int(FIRST_S / BEAT_S) + 1)
    assert window.engines[0].nice == [YIELDING, 0]


def test_the_engine_yields_while_no_other_program_needs_the_cores(window: Window) -> None:
    window.others = 0.0
    window.beat(int(1 / BEAT_S) + 2)
    assert window.engines[0].nice == [YIELDING]


def test_the_newest_engine_is_the_one_that_is_reported(window: Window) -> None:
    window.beat(HELD_UP[0] + 1, after_s=0.1)
    window.session.restart_engine()
    while len(window.engines) < 2:
        window.heartbeat.tick()
    window.until_running()
    window.beat(HELD_UP[0], after_s=0.1)
    assert [engine.nice for engine in window.engines] == [[YIELDING], [YIELDING]]


def test_the_group_of_the_engines_process_has_the_nice_value_and_the_windows_own_has_not(window: Window) -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel has no groups of sessions")
    own = Path("/proc/self/autogroup").read_text()
    engine = window.engines[0]
    engine.obeys = False
    window.beat(1)
    while not window.engines[0].priority.yielding:  # the kernel allows one change in a tenth of a second
        window.beat(1, after_s=0.1)
    assert Path(f"/proc/{engine.pid}/autogroup").read_text().split()[-1] == str(YIELDING)
    assert Path("/proc/self/autogroup").read_text() == own
