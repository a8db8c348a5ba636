"""A recording as a file: written data is read back; damaged, truncated, foreign or newer parts are reported and lose
only themselves."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import msgspec
import pytest
from fakes import recordings
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.base import BadInput
from devexplorer.core.recording import format as format_
from devexplorer.core.recording.format import (
    Damaged,
    DeviceList,
    FrameKind,
    Recorded,
    RecordedEntry,
    Recording,
    decode_entries,
    entries_frame,
    is_sane,
    open_recording,
    prefix,
)
from devexplorer.core.records import BenchEnded, DeviceSample, Log, Moved


def opened(path: Path) -> Recording:
    recording = open_recording(path)
    assert recording is not None
    return recording


def everything(recording: Recording) -> list[RecordedEntry]:
    return [entry for frame in recording.frames for entry in recording.readings(frame)]


def test_what_was_recorded_comes_back(tmp_path: Path) -> None:
    with opened(recordings.write(tmp_path / "r.devrec", 60)) as recording:
        assert recording.header.host == "forge"
        assert recording.header.time_unix_s == recordings.START_UNIX_S
        assert [info.id for info in recording.header.devices] == ["cpu", "cuda:0", "cuda:1"]
        assert (recording.ended, recording.findings, recording.last_ms) == (True, (), 60_000)
        events = [entry.record for entry in recording.events]
        assert events == [
            DeviceList((recordings.CPU, *recordings.CARDS), (recordings.PROBLEM,)),
            *(r for _, r in recordings.happenings()),
        ]
        samples = [entry for entry in everything(recording) if isinstance(entry.record, DeviceSample)]
        expected = [entry for tick in range(120) for entry in recordings.readings(tick / 2)]
        assert samples == expected


def test_a_file_that_ends_anywhere_is_read_up_to_there_and_says_so(tmp_path: Path) -> None:
    whole = recordings.write(tmp_path / "whole", 3).read_bytes()
    with opened(tmp_path / "whole") as recording:
        complete = everything(recording)
    before = 0
    devices_known = len(b"".join(recordings.recording(3)[:3]))
    for length in range(len(whole)):
        path = tmp_path / "cut"
        path.write_bytes(whole[:length])
        if length < devices_known:
            with pytest.raises(BadInput, match=r"^[^\n]*$"):
                open_recording(path)
            continue
        recording = opened(path)
        with recording:
            found = everything(recording)
            assert found == complete[: len(found)], "only the end may be missing"
            assert len(found) >= before, "a longer file has no less in it"
            before = len(found)
            assert not recording.ended
            assert "not closed properly" in recording.findings[-1]
    assert before == len(complete)


@given(st.data())
def test_a_flipped_byte_costs_one_frame_and_is_reported(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(b"".join(recordings.recording(3)))
    at = data.draw(st.integers(len(prefix()), len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "flipped"
    path.write_bytes(whole)
    pieces = recordings.recording(3)
    ends = [sum(map(len, pieces[: index + 1])) for index in range(len(pieces))]
    damaged = next(
        index for index, end in enumerate(ends) if at < end
    )  # 0: prefix, 1: header, 2: devices, then 6 frames, then the end
    lost = len(pieces[damaged])
    with opened(path) as recording:
        if damaged == len(pieces) - 1:
            assert not recording.ended
            assert recording.cut_bytes == lost
        else:
            assert recording.ended
            assert recording.skipped == [lost]
            assert f"{lost} B in 1 place" in recording.findings[0]
        assert recording.header.host == ("unknown machine" if damaged == 1 else "forge")
        assert len(recording.events) == (0 if damaged == 2 else 1)
        assert len(recording.frames) == (5 if 2 < damaged < 9 else 6)


def test_rubbish_between_frames_is_stepped_over(tmp_path: Path) -> None:
    pieces = recordings.recording(3)
    rubbish = format_.MARK * 40 + bytes(range(256)) * 9
    path = tmp_path / "r"
    path.write_bytes(b"".join([*pieces[:4], rubbish, *pieces[4:6], rubbish[:7], *pieces[6:]]))
    with opened(path) as recording:
        assert recording.skipped == [len(rubbish), 7]
        assert [entry for entry in everything(recording) if isinstance(entry.record, DeviceSample)] == [
            entry for tick in range(6) for entry in recordings.readings(tick / 2)
        ]


def test_a_recording_without_its_beginning_still_knows_its_devices(tmp_path: Path) -> None:
    pieces = recordings.recording(3)
    path = tmp_path / "r"
    path.write_bytes(b"".join([pieces[0], b"\0" * len(pieces[1]), *pieces[2:]]))
    with opened(path) as recording:
        assert recording.header.host == "unknown machine"
        assert isinstance(recording.events[0].record, DeviceList)
        assert recording.skipped == [len(pieces[1])]


def test_a_newer_version_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(format_.PREFIX.pack(format_.MAGIC, format_.VERSION + 1) + b"whatever comes then")
    with pytest.raises(
        BadInput, match=r"newer DevExplorer \(format 2, this one reads up to 1\): open it with that version"
    ):
        open_recording(path)


@pytest.mark.parametrize(
    "content", [b"", b"\x89DEVREC", b"PK\x03\x04 a zip", b"time,device\n1,cpu\n", b"\x80\x04\x95" + b"pickle" * 9]
)
def test_a_file_that_is_no_recording_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(
        BadInput, match="is no recording of DevExplorer; recordings are made with 'devexplorer watch --record FILE'"
    ):
        open_recording(path)


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no file"):
        open_recording(tmp_path / "absent")
    with pytest.raises(BadInput, match="is a folder, not a file"):
        open_recording(tmp_path)
    (tmp_path / "nothing").write_bytes(recordings.recording(3)[0])
    with pytest.raises(BadInput, match="without a single reading"):
        open_recording(tmp_path / "nothing")


def frame_with(*records: object) -> bytes:
    """A payload of any records at all, as a frame's."""
    return zlib.compress(msgspec.msgpack.encode([(0, record) for record in records]))


def test_records_that_cannot_be_shown_are_left_out_alone() -> None:
    good = recordings.sample("cuda:0", 1, 5)
    bad = recordings.sample("cuda:0", float("nan"), 5)
    far = recordings.sample("cuda:0", 1, 5, power_w=1e300)
    unknown = {"type": "comes_with_version_9", "x": 1}
    long = Log(level="error", text="x" * 200_000, time_unix_s=1.0)
    entries, refused = decode_entries(frame_with(good, bad, far, unknown, long, good))
    assert [entry.record for entry in entries] == [good, good]
    assert refused == 4


def test_a_few_bytes_cannot_fill_the_memory() -> None:
    with pytest.raises(Damaged, match="more than any recording"):
        decode_entries(zlib.compress(bytes(format_.PLAIN_LIMIT + 1)))
    with pytest.raises(Damaged, match="too many"):
        entries_frame(
            FrameKind.EVENTS, [(0, Log(level="error", text="x" * (format_.PLAIN_LIMIT + 1), time_unix_s=1.0))], 1.0
        )


def test_times_inside_a_frame_cannot_leave_it(tmp_path: Path) -> None:
    """The header identifies its recording; a foreign frame does not affect the others."""
    records: list[tuple[int, Recorded]] = [
        (9**15, recordings.sample("cuda:0", 1, 1)),
        (-5, recordings.sample("cuda:0", 2, 2)),
    ]
    payload = zlib.compress(msgspec.msgpack.encode(records))
    crc = zlib.crc32(payload, zlib.crc32(struct.pack(">BQQd", FrameKind.READINGS, 100, 200, recordings.START_UNIX_S)))
    head = struct.pack(
        ">4sIIBQQd", format_.MARK, len(payload), crc, FrameKind.READINGS, 100, 200, recordings.START_UNIX_S
    )
    pieces = recordings.recording(1)
    path = tmp_path / "r"
    path.write_bytes(b"".join([*pieces[:3], head, payload, pieces[-1]]))
    with opened(path) as recording:
        assert [entry.at_ms for entry in everything(recording)] == [100, 200]


@given(st.binary(max_size=300))
def test_any_bytes_are_entries_or_damage(payload: bytes) -> None:
    for data in (payload, zlib.compress(payload)):
        try:
            decode_entries(data)
        except Damaged:  # any other exception fails the test
            continue


def test_every_kind_of_event_survives() -> None:
    for at_ms, record in recordings.happenings():
        payload = entries_frame(FrameKind.EVENTS, [(at_ms, record)], 1.0)[format_.HEAD_SIZE :]
        assert decode_entries(payload) == ([RecordedEntry(at_ms, record)], 0)
    assert {type(record) for _, record in recordings.happenings()} >= {Moved, BenchEnded, Log}
    assert is_sane(recordings.sample("cuda:0", 1, None))


def test_opening_can_be_given_up(tmp_path: Path) -> None:
    path = recordings.write(tmp_path / "r", 10)
    seen: list[float] = []

    def progress(done: float) -> bool:
        seen.append(done)
        return len(seen) < 5

    assert open_recording(path, progress) is None
    assert seen == sorted(seen)
    assert 0 <= seen[0] < seen[-1] < 1
