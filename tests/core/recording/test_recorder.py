"""The recorder: `put` never blocks, at most the last second is lost, a full disk ends it with one sentence."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import recordings

from devexplorer.core.base import BadInput
from devexplorer.core.recording import recorder as recorder_
from devexplorer.core.recording.format import DeviceList, RecordedEntry, Recording, open_recording
from devexplorer.core.recording.recorder import Recorder
from devexplorer.core.records import Answer, DeviceSample, JobEnded, Log

DEADLINE_S = 20.0


def until(happened: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < end, f"did not happen: {what}"
        time.sleep(0.002)


def opened(path: Path) -> Recording:
    recording = open_recording(path)
    assert recording is not None
    return recording


def samples_in(path: Path) -> list[DeviceSample]:
    with opened(path) as recording:
        entries: list[RecordedEntry] = [entry for frame in recording.frames for entry in recording.readings(frame)]
        assert [entry.at_ms for entry in entries] == sorted(entry.at_ms for entry in entries)
        return [entry.record for entry in entries if isinstance(entry.record, DeviceSample)]


def silent(problem: str) -> None:
    raise AssertionError(problem)


def test_everything_that_matters_is_recorded_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "r.devrec"
    recorder = Recorder(path, recordings.CARDS, problems=(recordings.PROBLEM,), on_problem=silent)
    readings = [recordings.sample("cuda:0", index, index) for index in range(5000)]
    for reading in readings:
        recorder.put(reading)
    for _, record in recordings.happenings():
        recorder.put(record)  # type: ignore[arg-type]
    recorder.put(Log(level="warning", text="it is hot", time_unix_s=1.0))
    for useless in (
        Log(level="info", text="chatter", time_unix_s=1.0),
        Log(level="output", text="printed", time_unix_s=1.0),
        Answer(title="t", words="w"),
        JobEnded(ok=True, time_unix_s=1.0),
    ):
        recorder.put(useless)
    recorder.put_devices(recordings.CARDS[:1])
    assert recorder.close(DEADLINE_S)
    assert recorder.bytes_written == path.stat().st_size
    assert samples_in(path) == readings
    with opened(path) as recording:
        assert recording.ended
        assert recording.findings == ()
        assert recording.header.devices == recordings.CARDS
        records = [entry.record for entry in recording.events]
        assert records == [
            DeviceList(recordings.CARDS, (recordings.PROBLEM,)),
            *(record for _, record in recordings.happenings()),
            Log(level="warning", text="it is hot", time_unix_s=1.0),
            DeviceList(recordings.CARDS[:1]),
        ]


def test_what_comes_after_the_end_is_ignored(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", on_problem=silent)
    assert recorder.close(DEADLINE_S)
    recorder.put(recordings.sample("cuda:0", 1, 1))
    assert recorder.close(DEADLINE_S)
    assert samples_in(tmp_path / "r") == []


def test_a_file_that_exists_is_overwritten_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_text("weights")
    with pytest.raises(BadInput, match="exists already and is not overwritten; choose another name"):
        Recorder(path, on_problem=silent)
    assert path.read_text() == "weights"
    assert Recorder(path, overwrite=True, on_problem=silent).close(DEADLINE_S)
    with opened(path) as recording:
        assert recording.ended


def test_a_place_where_nothing_can_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no folder .*absent; make it first"):
        Recorder(tmp_path / "absent" / "r", on_problem=silent)
    with pytest.raises(BadInput, match="is no file"):
        Recorder(tmp_path, overwrite=True, on_problem=silent)
    with pytest.raises(BadInput, match="cannot be written"):
        Recorder(Path("nul\0l"), on_problem=silent)


class Disk:
    """Accepts `room` bytes, then fails like a full disk; or blocks while `held`."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room
        self.error = errno.ENOSPC
        self.may = threading.Event()
        self.may.set()

    def write(self, file: int, data: memoryview) -> int:
        assert self.may.wait(DEADLINE_S)
        if self.room <= 0:
            raise OSError(self.error, os.strerror(self.error))
        taken = os.write(file, data[: self.room])  # as the system does: the part that still fits
        self.room -= taken
        return taken


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "your share of the disk is used up"),
        (errno.EIO, "input/output error"),
    ],
)
def test_a_disk_that_takes_no_more_ends_the_recording_with_one_sentence(tmp_path: Path, error: int, words: str) -> None:
    disk, said = Disk(room=3000), list[str]()
    disk.error = error
    path = tmp_path / "r"
    recorder = Recorder(path, on_problem=said.append, write=disk.write)
    for index in range(500):
        recorder.put(recordings.sample("cuda:0", index, index))
    recorder.close(DEADLINE_S)
    assert said == [f"The recording r stopped: {words}. What was recorded until then can be opened."]
    assert recorder.problem == said[0]
    recorder.put(recordings.sample("cuda:0", 1, 1))
    assert not recorder.close(DEADLINE_S)
    assert len(said) == 1
    with opened(path) as recording:
        assert recording.cut_bytes == 0, "the frame that did not fit was taken out again"
        assert not recording.ended


def test_everything_before_the_full_disk_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_, "MOST_IN_A_FRAME", 10)
    said: list[str] = []
    recorder = Recorder(tmp_path / "r", on_problem=said.append, write=Disk(room=6000).write)
    for index in range(1000):
        recorder.put(recordings.sample("cuda:0", index, index))
    recorder.close(DEADLINE_S)
    assert len(said) == 1
    found = samples_in(tmp_path / "r")
    assert len(found) >= 20
    assert found == [recordings.sample("cuda:0", index, index) for index in range(len(found))]


def test_who_puts_never_waits_for_the_disk_and_what_is_lost_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_, "MOST_WAITING", 100)
    disk = Disk()
    disk.may.clear()
    recorder = Recorder(tmp_path / "r", on_problem=silent, write=disk.write)
    for index in range(150):
        recorder.put(recordings.sample("cuda:0", index, index))  # would wait forever if it waited
    assert not recorder.close(0.0)
    disk.may.set()
    assert recorder.close(DEADLINE_S)
    assert len(samples_in(tmp_path / "r")) == 99  # the list of devices was the first to wait
    with opened(tmp_path / "r") as recording:
        words = [entry.record.text for entry in recording.events if isinstance(entry.record, Log)]
        assert words == ["The disk was too slow for the recording: 51 readings before this moment are missing in it."]


def test_one_record_that_cannot_be_written_costs_no_other(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", on_problem=silent)
    good = recordings.sample("cuda:0", 1, 1)
    for reading in (good, recordings.sample("cuda:0", 1, 1 << 70), recordings.sample("cuda:\ud800", 1, 1), good):
        recorder.put(reading)
    assert recorder.close(DEADLINE_S)
    assert samples_in(tmp_path / "r") == [good, good]
    with opened(tmp_path / "r") as recording:
        (words,) = [entry.record.text for entry in recording.events if isinstance(entry.record, Log)]
        assert words.startswith("2 records before this moment are missing in the recording"), "and no disk was too slow"


@pytest.mark.skipif(os.name != "posix", reason="Windows keeps a file that is open")
def test_a_file_that_vanishes_ends_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_, "SYNC_S", 0.01)
    said: list[str] = []
    folder = tmp_path / "stick"
    folder.mkdir()
    recorder = Recorder(folder / "r", on_problem=said.append)
    (folder / "r").unlink()
    folder.rmdir()
    until(lambda: said, "it was noticed")
    assert said == ["The recording r stopped: the file was deleted."]
    recorder.close(DEADLINE_S)


def test_a_clock_that_jumps_changes_no_order(tmp_path: Path) -> None:
    unix, passed = [2_000.0], [0.0]
    recorder = Recorder(tmp_path / "r", on_problem=silent, clock=lambda: unix[0], monotonic=lambda: passed[0])
    for at_s, unix_s in ((0.0, 2_000.0), (1.0, 2_001.0), (2.0, 500.0), (3.0, 501.0)):
        unix[0], passed[0] = unix_s, at_s
        recorder.put(DeviceSample(device="cpu", time_unix_s=unix_s))
    assert recorder.close(DEADLINE_S)
    assert [sample.time_unix_s for sample in samples_in(tmp_path / "r")] == [2_000.0, 2_001.0, 500.0, 501.0]


RECORD = """
import sys, time
from pathlib import Path
from devexplorer.core.records.devices import DeviceSample
from devexplorer.core.recording.recorder import Recorder
{before}
recorder = Recorder(Path(sys.argv[1]), on_problem=lambda text: sys.stdout.write("problem " + text + chr(10)))
while recorder.problem is None:
    now = time.time()
    state = str(now) * {size}
    used = int(now * 1000)
    recorder.put(DeviceSample(device="cpu", time_unix_s=now, memory_used_bytes=used, performance_state=state))
    sys.stdout.write(str(now) + chr(10))  # in one piece: the recorder's thread writes as well
    sys.stdout.flush()
    time.sleep({pause})
recorder.close(5)
"""


def recording_process(path: Path, before: str = "", size: int = 1, pause: float = 0.01) -> subprocess.Popen[str]:
    source = RECORD.format(before=before, size=size, pause=pause)
    return subprocess.Popen([sys.executable, "-c", source, str(path)], stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is a signal")
def test_a_process_that_is_killed_loses_less_than_its_last_second(tmp_path: Path) -> None:
    path = tmp_path / "r"
    process = recording_process(path)
    assert process.stdout is not None
    put = []
    for line in process.stdout:
        put.append(float(line))
        if put[-1] - put[0] > 1.5:
            process.send_signal(signal.SIGKILL)
            break
    put += [float(line) for line in process.stdout if line.endswith("\n")]
    process.wait(DEADLINE_S)
    process.stdout.close()
    kept = [sample.time_unix_s for sample in samples_in(path)]
    assert kept == put[: len(kept)]
    assert put[-1] - kept[-1] < 1.0
    with opened(path) as recording:
        assert "not closed properly" in recording.findings[-1]


@pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX")
def test_a_process_whose_file_may_not_grow_says_so_and_continues(tmp_path: Path) -> None:
    path = tmp_path / "r"
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    process = recording_process(path, limit, size=30, pause=0.0)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    words = "problem The recording r stopped: the file has reached the largest size that is allowed here. "
    assert out.count(words + "What was recorded until then can be opened.") == out.count("problem") == 1
    assert path.stat().st_size <= 20_000
    with opened(path) as recording:
        assert recording.cut_bytes == 0
