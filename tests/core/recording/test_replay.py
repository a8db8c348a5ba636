"""A recording instead of a session: results of a beat during playback, after a seek, at the end, and on a failed
open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import recordings
from fakes.recordings import START_UNIX_S

from devexplorer.core.base import elapsed_text
from devexplorer.core.recording.format import FrameKind, entries_frame
from devexplorer.core.recording.replay import ReplaySession
from devexplorer.core.records import Answer, BuildModel, Log
from devexplorer.core.session.state import State

DEADLINE_S = 20.0


class Stage:
    """A replay whose clock the test advances."""

    def __init__(self, path: Path) -> None:
        self.now_s = 100.0
        self.state = State()
        self.jumps = 0
        self.session = ReplaySession(path, monotonic=lambda: self.now_s, clock=lambda: 5.0)

    def beat(self, seconds: float = 0.0) -> None:
        """The heartbeat's work."""
        self.now_s += seconds
        drained = self.session.drain()
        if drained.state is not None:
            self.jumps += 1
            self.state.exchange(drained.state)
        if drained.catalog is not None:
            self.state.set_catalog(drained.catalog)
        for event in drained.events:
            self.state.apply(event)

    def until(self, happened: Callable[[], object], what: str) -> None:
        """Beat, without time passing."""
        end = time.monotonic() + DEADLINE_S
        while not happened():
            assert time.monotonic() < end, f"did not happen: {what}"
            self.beat()
            time.sleep(0.001)

    def ready(self) -> None:
        """Until what was sought is there, and the whole recording was looked through."""
        self.until(
            lambda: self.session.view.opened and not self.session.view.seeking and self.session.view.progress == 1.0,
            "ready",
        )

    def seek(self, at_s: float) -> None:
        self.session.seek(round(at_s * 1000))
        self.ready()

    def play_to(self, at_s: float, step_s: float = 0.5) -> None:
        """Let time pass in beats; what is not read yet makes none pass."""
        end = time.monotonic() + DEADLINE_S
        while self.session.view.position_ms < at_s * 1000:
            assert time.monotonic() < end, f"did not get to {at_s} s"
            self.beat(step_s)
            time.sleep(0.0005)

    @property
    def used(self) -> int | None:
        return self.state.devices["cuda:0"].used_bytes


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(recordings.write(tmp_path / "forge.devrec", 120))
    stage.session.start()
    yield stage
    assert stage.session.close(DEADLINE_S)


def test_it_opens_at_its_beginning_and_says_what_it_is(stage: Stage) -> None:
    stage.ready()
    view = stage.session.view
    assert (view.host, view.file, view.length_ms, view.position_ms, view.simulated) == (
        "forge",
        "forge.devrec",
        120_000,
        0,
        False,
    )
    assert (view.playing, view.speed, view.failed, view.findings) == (True, 1, None, ())
    assert view.now_unix_s == START_UNIX_S
    assert list(stage.state.devices) == ["cpu", "cuda:0", "cuda:1"]
    assert stage.state.recording == "recording of forge"
    answer = stage.state.answer
    assert answer is not None
    assert answer.title == "Recording of forge"
    facts = {fact.label: fact.value for fact in answer.facts}
    assert (facts["length"], facts["recorded by"]) == ("2:00", "DevExplorer 0.1.0")


def test_it_plays_what_happened_when_it_is_due(stage: Stage) -> None:
    stage.ready()
    stage.play_to(9.5)
    assert stage.used == recordings.used_at("cuda:0", 9.5)
    assert not stage.state.markers
    stage.play_to(10.5)
    assert [marker.text for marker in stage.state.markers] == ["mlp → cuda:0"]
    assert stage.session.now() == pytest.approx(START_UNIX_S + stage.session.view.position_ms / 1000)
    stage.play_to(25)
    assert [run.spec for run in stage.state.active_runs] == [recordings.SPEC]
    assert stage.state.devices["cuda:0"].throughput.latest("tflops") == 2.0


def test_ten_times_as_fast_is_ten_times_as_fast(stage: Stage) -> None:
    stage.ready()
    stage.session.set_speed(10)
    stage.until(lambda: stage.session.drain() and stage.session._ahead_ms > 15_000, "read ahead")
    before = stage.session.view.position_ms
    stage.beat(1.0)
    assert stage.session.view.position_ms - before == 10_000


def test_a_jump_goes_anywhere_and_back(stage: Stage) -> None:
    stage.ready()
    stage.session.pause()
    for at_s in (100, 3, 60, 60.25, 119, 0, 45):
        stage.seek(at_s)
        assert stage.session.view.position_ms == at_s * 1000
        assert stage.used == recordings.used_at("cuda:0", at_s)
        history = stage.state.devices["cuda:0"].history
        assert history.latest("memory_used_bytes") == stage.used
        assert history.latest_unix_s <= START_UNIX_S + at_s
        assert len(stage.state.markers) == (at_s >= 10) + (at_s >= 20)
        assert [entry.text for entry in stage.state.log] == (["a card was lost"] if at_s >= 40 else [])
        assert len(stage.state.active_runs) == (20 <= at_s < 30)


def test_it_stands_still_while_it_is_paused(stage: Stage) -> None:
    stage.ready()
    stage.session.pause()
    stage.seek(30)
    sample = stage.state.devices["cuda:0"].sample
    for _ in range(5):
        stage.beat(10.0)
    assert stage.session.view.position_ms == 30_000
    assert stage.state.devices["cuda:0"].sample is sample
    stage.session.play()
    stage.play_to(31)
    assert stage.used == recordings.used_at("cuda:0", 31)


def test_only_the_last_of_several_jumps_counts(stage: Stage) -> None:
    stage.ready()
    stage.session.pause()
    for at_ms in range(0, 100_000, 1000):
        stage.session.seek(at_ms)
    before = stage.jumps
    stage.ready()
    assert stage.session.view.position_ms == 99_000
    assert stage.used == recordings.used_at("cuda:0", 99)
    assert stage.jumps - before <= 2, "the others were left out"


def test_at_the_end_it_stops_and_begins_again_when_asked(stage: Stage) -> None:
    stage.ready()
    stage.seek(119)
    stage.play_to(120)
    stage.beat(1.0)
    view = stage.session.view
    assert (view.position_ms, view.playing) == (120_000, False)
    assert stage.used == recordings.used_at("cuda:0", 119.5)
    stage.session.play()
    stage.ready()
    assert stage.session.view.position_ms < 1000
    assert stage.session.view.playing


def test_a_position_outside_is_the_nearest_inside(stage: Stage) -> None:
    stage.ready()
    stage.session.pause()
    for asked, found in ((-5, 0), (10**9, 120_000)):
        stage.session.seek(asked)
        stage.ready()
        assert stage.session.view.position_ms == found


def test_nothing_in_it_can_be_changed(stage: Stage) -> None:
    stage.ready()
    assert stage.session.send(BuildModel(recipe="mlp")) != stage.session.send(BuildModel(recipe="mlp"))
    stage.beat()
    answer = stage.state.answer
    assert isinstance(answer, Answer)
    assert answer.failed
    assert answer.words == "A recording cannot be changed; choose “Back to live” to close it."
    stage.seek(5)
    stage.session.restart_engine()
    stage.beat()
    assert stage.state.answer is not None
    assert stage.state.answer.title == "A recording cannot be changed"
    stage.session.put(Log(level="error", text="of the window's own", time_unix_s=1.0))
    stage.beat()
    assert stage.state.log[-1].text == "of the window's own"


def test_a_file_that_is_none_says_so(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing")
    stage = Stage(path)
    stage.session.start()
    stage.until(lambda: stage.session.view.failed, "it failed")
    assert "is no recording of DevExplorer" in (stage.session.view.failed or "")
    assert not stage.session.view.opened
    stage.session.seek(5)
    stage.session.play()
    assert stage.session.close(DEADLINE_S)


def test_one_that_broke_off_is_shown_and_says_so(tmp_path: Path) -> None:
    pieces = recordings.recording(60)
    path = tmp_path / "r"
    path.write_bytes(b"".join(pieces[:60]) + pieces[60][:-5])
    stage = Stage(path)
    stage.session.start()
    stage.ready()
    [finding] = stage.session.view.findings
    assert "not closed properly" in finding
    assert stage.state.answer is not None
    assert finding in stage.state.answer.words
    stage.session.close(DEADLINE_S)


def test_a_list_of_devices_comes_before_the_readings_that_need_it(tmp_path: Path) -> None:
    from devexplorer.core.recording.format import DeviceList

    pieces = recordings.recording(0, devices=(recordings.CPU,))[:-1]
    found = DeviceList((recordings.CPU, *recordings.CARDS))
    reading = (5_000, recordings.sample("cuda:0", 5, 77))
    error = (4_999, Log(level="error", text="before", time_unix_s=1.0))
    events = entries_frame(FrameKind.EVENTS, [error, (5_000, found)], START_UNIX_S + 5)
    pieces += [entries_frame(FrameKind.READINGS, [(0, recordings.sample("cpu", 0, 1))], START_UNIX_S), events]
    pieces += [entries_frame(FrameKind.READINGS, [reading], START_UNIX_S + 5)]
    path = tmp_path / "r"
    path.write_bytes(b"".join(pieces))
    stage = Stage(path)
    stage.session.start()
    stage.ready()
    assert list(stage.state.devices) == ["cpu"]
    stage.play_to(5)
    stage.until(
        lambda: len(stage.state.devices) == 3 and stage.state.devices["cuda:0"].sample, "the card and its reading"
    )
    assert stage.used == 77
    stage.session.close(DEADLINE_S)


def test_it_can_be_closed_at_any_time(tmp_path: Path) -> None:
    path = recordings.write(tmp_path / "r", 30)
    stage = Stage(path)
    assert stage.session.close(DEADLINE_S), "before it was started"
    stage = Stage(path)
    stage.session.start()
    assert stage.session.close(DEADLINE_S), "while it opens"
    stage = Stage(path)
    stage.session.start()
    stage.until(lambda: stage.session.view.opened, "opened")
    stage.session.seek(20_000)
    assert stage.session.close(DEADLINE_S), "while it winds"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3723.4, "1:02:03"), (90_000, "25:00:00")]
)
def test_elapsed_time(seconds: float, words: str) -> None:
    assert elapsed_text(seconds) == words
