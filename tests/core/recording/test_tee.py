"""Recording a session: also readings that its mailbox drops, the state before the start, and a disk error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import recordings
from fakes.look_records import ENGINE as READY
from fakes.nvml import FakeNvml

from devexplorer.core.base import BadInput
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.recording.format import DeviceList, open_recording
from devexplorer.core.recording.recorder import RecordingTee
from devexplorer.core.records import Command, DeviceDetails, EngineLost, Event, Log, Topology
from devexplorer.core.session.poll import PollResult
from devexplorer.core.session.session import Session
from devexplorer.core.telemetry.mailbox import Mailbox

DEADLINE_S = 20.0


def records(path: Path) -> tuple[list[object], list[object]]:
    """Events and readings of a recording that has ended."""
    recording = open_recording(path)
    assert recording is not None
    with recording:
        assert recording.ended
        readings = [entry.record for frame in recording.frames for entry in recording.readings(frame)]
        return [entry.record for entry in recording.events], list(readings)


class PlayedEngine:
    """An engine driven by the test."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self.put = put

    def start(self) -> None:
        return

    def send(self, command: Command) -> None:
        return

    def kill(self) -> None:
        self.put(EngineLost(reason="It was killed.", will_restart=False, time_unix_s=0))

    def close(self) -> None:
        return

    def join(self, deadline_s: float) -> bool:
        return True

    def beat(self) -> None:
        pass


def played(clock: Callable[[], float]) -> tuple[Session, list[PlayedEngine]]:
    engines: list[PlayedEngine] = []

    def make(put: Callable[[Event], None], *_: object) -> PlayedEngine:
        engines.append(PlayedEngine(put))
        return engines[-1]

    return Session(make_engine=make, nvml=Nvml(FakeNvml()), clock=clock), engines


def tee_of(session: Session) -> RecordingTee:
    tee: RecordingTee = session.listener("recording")
    return tee


def test_what_the_mailbox_drops_is_recorded(tmp_path: Path) -> None:
    session, [engine] = played(lambda: 5.0)
    mailbox = session._mailbox = Mailbox(limit=3)
    engine.put(recordings.sample("cuda:0", 0, 0))
    tee_of(session).start_recording(tmp_path / "r")
    samples = [recordings.sample("cuda:0", at, at) for at in range(1, 51)]
    for sample in samples:
        engine.put(sample)
    assert mailbox.dropped > 40
    assert session.close(DEADLINE_S)
    assert tee_of(session).recording is None
    assert records(tmp_path / "r")[1] == samples


def test_samples_are_recorded_as_the_window_sees_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, [engine] = played(lambda: 5.0)
    monkeypatch.setattr(session, "completed", lambda sample: recordings.sample(sample.device, 1, 99))
    tee_of(session).start_recording(tmp_path / "r")
    engine.put(recordings.sample("cuda:0", 1, None))
    assert session.close(DEADLINE_S)
    assert records(tmp_path / "r")[1] == [recordings.sample("cuda:0", 1, 99)]


def test_a_recording_that_begins_later_begins_with_the_current_state(tmp_path: Path) -> None:
    session, _ = played(lambda: 5.0)
    tee = tee_of(session)
    old, new = (DeviceDetails(device="cuda:0", time_unix_s=at, serial=str(at)) for at in (1.0, 2.0))
    topology = Topology(source="nvml")
    _, preparing = recordings.happenings()[1]
    _, started = recordings.happenings()[2]
    _, ended = recordings.happenings()[3]
    catalog = Catalog((recordings.CPU,), (recordings.PROBLEM,))
    tee.drained(PollResult([old, READY, topology, new, preparing, started], catalog))  # type: ignore[list-item]
    tee.start_recording(tmp_path / "one")
    tee.drained(PollResult([ended], None))  # type: ignore[list-item]
    tee.start_recording(tmp_path / "two")  # ends the other
    lost = EngineLost(reason="gone", will_restart=False, time_unix_s=3.0)
    tee.drained(PollResult([lost], Catalog((recordings.CPU, *recordings.CARDS))))
    tee.start_recording(tmp_path / "three")
    assert tee.close(DEADLINE_S)
    devices = DeviceList((recordings.CPU,), (recordings.PROBLEM,))
    one, two, three = (records(tmp_path / name)[0] for name in ("one", "two", "three"))
    assert one[0] == devices
    assert sorted(map(repr, one[1:-1])) == sorted(map(repr, [new, READY, topology, preparing, started]))
    assert one[-1] == ended
    assert sorted(map(repr, two[1:-2])) == sorted(map(repr, [new, READY, topology]))
    assert two[-2:] == [DeviceList((recordings.CPU, *recordings.CARDS)), lost]
    assert sorted(map(repr, three[1:])) == sorted(map(repr, [new, topology]))


def test_a_session_records_what_the_window_sees_and_ends_the_file(tmp_path: Path) -> None:
    session, [engine] = played(lambda: 5.0)
    session.drain()
    tee_of(session).start_recording(tmp_path / "r")
    assert tee_of(session).recording is not None
    with pytest.raises(BadInput, match="exists already"):
        tee_of(session).start_recording(tmp_path / "r")
    assert tee_of(session).recording is not None, "the one that runs goes on"
    engine.put(recordings.sample("cpu", 1, 1))
    engine.put(Log(level="warning", text="hot", time_unix_s=1.0))
    engine.kill()
    session.drain()
    assert session.close(DEADLINE_S)
    assert tee_of(session).recording is None
    events, readings = records(tmp_path / "r")
    assert readings == [recordings.sample("cpu", 1, 1)]
    [warning, lost] = [event for event in events if isinstance(event, Log | EngineLost)]
    assert warning == Log(level="warning", text="hot", time_unix_s=1.0)
    assert isinstance(lost, EngineLost)
    assert lost.will_restart, "as the window heard it"


def test_a_disk_that_ends_the_recording_is_an_error_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from devexplorer.core.recording import recorder

    monkeypatch.setattr(recorder, "SYNC_S", 0.005)
    session, _ = played(lambda: 5.0)
    tee_of(session).start_recording(tmp_path / "r")
    (tmp_path / "r").unlink()
    ending = tee_of(session).recording
    assert ending is not None
    ending._syncer.join(DEADLINE_S)
    assert tee_of(session).recording is None
    [line] = [event for event in session.drain().events if isinstance(event, Log)]
    assert (line.level, line.text) == ("error", "The recording r stopped: the file was deleted.")
    tee_of(session).stop_recording()
    session.close(DEADLINE_S)
