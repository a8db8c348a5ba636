from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from devexplorer.core.engine.process import (
    BEAT_S,
    CALM_S,
    FIRST_S,
    LOOK_S,
    PAUSE_S,
    YIELDING,
    EnginePriority,
    EngineProcess,
    OtherPrograms,
)


class Beats:
    """A window with fake clocks, and an engine whose nice values are recorded."""

    def __init__(self, *, possible: bool = True, others: float | None = 0.9) -> None:
        self.now = self.cpu = 100.0
        self.others = others
        self.nice: list[int] = []
        self.possible = possible
        self.priority = EnginePriority(
            self._renice, lambda: self.others, clock=lambda: self.now, cpu_clock=lambda: self.cpu
        )

    def _renice(self, nice: int) -> bool:
        if self.possible:
            self.nice.append(nice)
        return self.possible

    def beat(self, waited_s: float = 0.0, computed_s: float = 0.001) -> None:
        self.now += max(BEAT_S, computed_s) + waited_s
        self.cpu += computed_s
        self.priority.beat()

    def smooth(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.beat()


def test_the_engine_is_at_nice_0_while_the_window_beats_in_time() -> None:
    beats = Beats()
    beats.smooth(60)
    assert beats.nice == []


def test_it_yields_while_the_window_waits_for_a_core_and_continues_later() -> None:
    beats = Beats()
    beats.smooth(1)
    for _ in range(2):
        beats.beat(waited_s=0.05)
    assert beats.nice == [], "two late beats are nothing"
    beats.beat(waited_s=0.05)
    assert beats.nice == [YIELDING]
    beats.smooth(FIRST_S - 0.1)
    assert beats.nice == [YIELDING]
    beats.smooth(0.2)
    assert beats.nice == [YIELDING, 0]


def test_each_time_lasts_longer_until_it_was_calm_for_a_while() -> None:
    def stands_for(beats: Beats) -> float:
        for _ in range(3):
            beats.beat(waited_s=0.05)
        assert beats.priority.yielding
        began = beats.now
        while beats.priority.yielding:
            beats.beat()
        return beats.now - began

    beats = Beats()
    beats.smooth(1)
    first, second, third = (stands_for(beats) for _ in range(3))
    assert first == pytest.approx(FIRST_S, abs=0.1)
    assert second == pytest.approx(2 * first, abs=0.1)
    assert third == pytest.approx(4 * first, abs=0.2)
    beats.smooth(CALM_S + 1)
    assert stands_for(beats) == pytest.approx(first, abs=0.1)


def test_what_the_window_computes_itself_is_no_waiting() -> None:
    beats = Beats()
    for _ in range(20):
        beats.beat(computed_s=0.2)
    assert beats.nice == []


def test_it_continues_when_yielding_is_in_vain() -> None:
    """Others keep the machine busy: an engine that yields would starve, without benefit to the window."""
    beats = Beats()
    beats.smooth(1)
    for _ in range(12):
        beats.beat(waited_s=0.05)
    assert beats.nice == [YIELDING, 0]
    for _ in range(9):
        beats.beat(waited_s=0.05)
    assert beats.nice == [YIELDING, 0], "not tried again at once"
    beats.smooth(PAUSE_S)
    for _ in range(3):
        beats.beat(waited_s=0.05)
    assert beats.nice == [YIELDING, 0, YIELDING]


def test_beats_of_a_hidden_window_tell_nothing() -> None:
    beats = Beats()
    for _ in range(20):
        beats.beat(waited_s=1.0)
    assert beats.nice == []


def test_where_there_are_no_groups_it_is_asked_again_and_nothing_else_happens() -> None:
    beats = Beats(possible=False)
    for _ in range(20):
        beats.beat(waited_s=0.05)
    assert beats.nice == []
    assert not beats.priority.yielding


def test_while_no_other_program_needs_the_cores_it_yields_all_the_time() -> None:
    beats = Beats(others=0.02)
    beats.smooth(60)
    for _ in range(12):
        beats.beat(waited_s=0.05)
    assert beats.nice == [YIELDING], "also when the window is late: nothing else could be the reason"
    beats.others = 0.9
    beats.smooth(LOOK_S + 0.1)
    assert beats.nice == [YIELDING, 0]
    beats.others = 0.02
    beats.smooth(LOOK_S + 0.1)
    assert beats.nice == [YIELDING, 0, YIELDING]


def test_where_the_system_does_not_tell_what_others_use_the_late_beats_decide() -> None:
    beats = Beats(others=None)
    beats.smooth(60)
    assert beats.nice == []
    for _ in range(3):
        beats.beat(waited_s=0.05)
    assert beats.nice == [YIELDING]


def test_what_the_engine_and_the_window_use_is_not_another_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    now, window_s, engine_s = 100.0, 1.0, 5.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "process_time", lambda: window_s)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    others = OtherPrograms(lambda: engine_s)
    monkeypatch.setattr(others, "_busy", lambda: 75.0)
    now, window_s, engine_s = 102.0, 1.5, 7.5
    assert others() == pytest.approx(0.75 - 3.0 / 2.0 / 4)
    now = 104.0
    assert others() == pytest.approx(0.75), "since the last call"


def test_a_process_is_given_its_groups_nice_value_and_back(tmp_path: Path) -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel has no groups of sessions")
    process = EngineProcess(lambda _event: None, command=[sys.executable, "-c", "import sys; sys.stdin.read()"])
    assert not process.set_group_nice(YIELDING), "there is no process yet"
    process.start()
    while process.pid is None:
        os.sched_yield()
    try:
        for nice in (YIELDING, 0):
            while not process.set_group_nice(nice):  # the kernel allows one change in a tenth of a second
                os.sched_yield()
            assert Path(f"/proc/{process.pid}/autogroup").read_text().split()[-1] == str(nice)
    finally:
        process.close()
        assert process.join(3.0)
    assert not process.set_group_nice(YIELDING), "it has ended"


def test_a_process_tells_the_cpu_time_that_it_used() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("this system has no /proc")
    process = EngineProcess(lambda _event: None, command=[sys.executable, "-c", "while True: pass"])
    assert process.cpu_seconds() == 0.0, "there is no process yet"
    process.start()
    while process.cpu_seconds() < 0.02:
        os.sched_yield()
    process.kill()
    assert process.join(3.0)
