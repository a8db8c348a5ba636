"""Seeking a recording gives the state of that time: compared with a state that received every record, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes import recordings
from fakes.recordings import START_UNIX_S, frames, opened

from devexplorer.core.recording import timeline
from devexplorer.core.recording.format import FrameKind, RecordedEntry, Recording, end_frame, entries_frame
from devexplorer.core.recording.timeline import RecordingTimeline, apply_record
from devexplorer.core.records import DeviceInfo
from devexplorer.core.session.state import Device, State
from devexplorer.core.telemetry import history
from devexplorer.core.telemetry.history import History

LENGTH_S = 400


@pytest.fixture
def short_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings of a minute, four minutes and more, so that a few minutes of a recording show what a day does."""
    monkeypatch.setattr(history, "READINGS", 120)
    monkeypatch.setattr(timeline, "READINGS", 120)
    monkeypatch.setattr(history, "TIERS", ((5.0, 48), (30.0, 2900)))
    monkeypatch.setattr(History.__init__, "__kwdefaults__", {"gap_s": history.GAP_S, "readings": 120})


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    with opened(recordings.write(tmp_path / "r", LENGTH_S)) as recording:
        yield recording


def lived(recording: Recording, until_ms: int) -> State:
    """The state of a window that received everything."""
    state = State()
    entries = [*recording.events, *(entry for frame in recording.frames for entry in recording.readings(frame))]
    for entry in sorted(entries, key=lambda entry: entry.at_ms):
        if entry.at_ms <= until_ms:
            apply_record(state, entry.record)
    return state


def wound(recording: Recording, until_ms: int) -> State:
    """The same by seeking, after a scan of the whole recording."""
    made = RecordingTimeline(recording)
    while made.advance():
        pass
    return made.state_at(until_ms)


def same(found: History, expected: History, now_unix_s: float) -> None:
    assert found.metrics == expected.metrics
    assert len(found) == len(expected)
    for metric in expected.metrics:
        for seconds in (10, 30, 120, 235, 600, 7200):
            a, b = (each.window(metric, now_unix_s - seconds, now_unix_s, seconds / 100) for each in (found, expected))
            assert a.seconds == b.seconds, f"{metric} {seconds}"
            for one, other in zip(a[:4], b[:4], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, err_msg=f"{metric} {seconds}")
            x, y = (each.span(metric, now_unix_s - seconds, now_unix_s) for each in (found, expected))
            np.testing.assert_allclose(x, y, rtol=1e-9)
        assert found.latest(metric) == pytest.approx(expected.latest(metric), nan_ok=True)
        for seconds in (0, 3, 100, 350):
            assert found.value_at(metric, now_unix_s - seconds) == pytest.approx(
                expected.value_at(metric, now_unix_s - seconds), nan_ok=True
            )


def same_state(found: State, expected: State, now_unix_s: float) -> None:
    assert list(found.devices) == list(expected.devices)
    for name, device in expected.devices.items():
        other: Device = found.devices[name]
        assert (other.sample, other.allocator, other.details, other.engine_bytes) == (
            device.sample, device.allocator, device.details, device.engine_bytes,
        )  # fmt: skip
        assert (other.colour, other.parts) == (device.colour, device.parts)
        same(other.history, device.history, now_unix_s)
        if len(other.throughput) > 1 or not len(device.throughput):
            same(other.throughput, device.throughput, now_unix_s)
        else:  # a run longer ago than the minutes before has its bins
            spans = [each.throughput.span("tflops", START_UNIX_S, now_unix_s) for each in (other, device)]
            assert spans[0] == spans[1]
            assert other.throughput.seconds_at(START_UNIX_S + 25) == 5.0
    assert found.markers == expected.markers
    assert found.log == expected.log
    assert found.problems == expected.problems
    assert {n: (r.spec, r.ended, r.result, r.started_unix_s, r.ended or r.latest) for n, r in found.runs.items()} == {
        n: (r.spec, r.ended, r.result, r.started_unix_s, r.ended or r.latest) for n, r in expected.runs.items()
    }


MOMENTS = [0, 1, 499, 500, 9_999, 10_000, 25_250, 61_000, 123_456, 299_000, 399_500, 400_000]


@pytest.mark.parametrize("at_ms", MOMENTS)
def test_any_moment_is_as_it_was(recording: Recording, at_ms: int) -> None:
    same_state(wound(recording, at_ms), lived(recording, at_ms), START_UNIX_S + at_ms / 1000)


@pytest.mark.usefixtures("short_rings")
@pytest.mark.parametrize("at_ms", MOMENTS)
def test_any_moment_is_as_it_was_when_the_rings_are_full(recording: Recording, at_ms: int) -> None:
    found, expected = wound(recording, at_ms), lived(recording, at_ms)
    assert expected.devices["cuda:0"].history.capacity == 120
    same_state(found, expected, START_UNIX_S + at_ms / 1000)


@pytest.mark.usefixtures("short_rings")
@pytest.mark.parametrize("at_ms", [25_250, 299_000])
def test_it_continues_from_there_as_it_did(recording: Recording, at_ms: int) -> None:
    state = wound(recording, at_ms)
    for until_ms, entries in RecordingTimeline(recording).following(at_ms):
        for entry in entries:
            assert at_ms < entry.at_ms <= until_ms
            apply_record(state, entry.record)
    same_state(state, lived(recording, LENGTH_S * 1000), START_UNIX_S + LENGTH_S)


def test_what_follows_is_everything_and_in_order(recording: Recording) -> None:
    entries = [entry for _, entries in RecordingTimeline(recording).following(9_999) for entry in entries]
    assert [entry.at_ms for entry in entries] == sorted(entry.at_ms for entry in entries)
    everything = [*recording.events, *(entry for frame in recording.frames for entry in recording.readings(frame))]
    assert len(entries) == sum(entry.at_ms > 9_999 for entry in everything)


def test_before_the_recording_was_looked_through_there_are_the_minutes_before(recording: Recording) -> None:
    made = RecordingTimeline(recording)
    assert made.overview_done == 0
    state, expected = made.state_at(300_000), lived(recording, 300_000)
    now = START_UNIX_S + 300
    same(state.devices["cuda:0"].history, expected.devices["cuda:0"].history, now)


def test_a_glance_has_the_cards_and_the_coarse_curves(recording: Recording) -> None:
    made = RecordingTimeline(recording)
    while made.advance():
        pass
    assert not made.is_near(300_000)
    state, expected = made.state_at(300_000, whole=False), lived(recording, 300_000)
    for name, device in expected.devices.items():
        assert state.devices[name].sample == device.sample
        assert state.devices[name].allocator == device.allocator
    assert state.markers == expected.markers
    found = state.devices["cuda:1"].history.window("memory_used_bytes", START_UNIX_S, START_UNIX_S + 280)
    assert np.nanmax(found.high) == max(recordings.used_at("cuda:1", at_s) for at_s in range(284))
    made.state_at(300_000)
    assert made.is_near(300_000)


def test_each_state_has_curves_that_a_plot_takes_for_new(recording: Recording) -> None:
    made = RecordingTimeline(recording)
    versions = {made.state_at(at_ms).devices["cuda:0"].history.version for at_ms in (10_000, 10_000, 20_000)}
    assert len(versions) == 3


def test_a_clock_that_was_set_back_restarts_the_curves(tmp_path: Path) -> None:
    pieces = recordings.recording(0)[:-1]
    back_s = 3600.0
    before = [(at * 500, recordings.sample("cuda:0", at / 2, 5)) for at in range(200)]
    after = [(at * 500, recordings.sample("cuda:0", at / 2 - back_s, 7)) for at in range(200, 400)]
    path = tmp_path / "r"
    path.write_bytes(
        b"".join([*pieces, frames(before, START_UNIX_S), frames(after, START_UNIX_S - back_s), end_frame(200_000, 1.0)])
    )
    with opened(path) as recording:
        made = RecordingTimeline(recording)
        while made.advance():
            pass
        assert made.unix_s(50_000) == START_UNIX_S + 50
        assert made.unix_s(150_000) == START_UNIX_S + 150 - back_s
        for at_ms in (50_000, 99_500, 100_000, 150_000):
            found, expected = made.state_at(at_ms), lived(recording, at_ms)
            same_state(found, expected, made.unix_s(at_ms))


def test_a_gap_stays_a_gap(tmp_path: Path) -> None:
    pieces = recordings.recording(0)[:-1]
    moments = [*range(0, 20_000, 500), *range(100_000, 130_000, 500)]
    path = tmp_path / "r"
    path.write_bytes(
        b"".join([*pieces, frames([(at, recordings.sample("cuda:0", at / 1000, at)) for at in moments], START_UNIX_S)])
    )
    with opened(path) as recording:
        found = wound(recording, 129_500).devices["cuda:0"].history
        same(found, lived(recording, 129_500).devices["cuda:0"].history, START_UNIX_S + 129.5)
        assert np.isnan(found.value_at("memory_used_bytes", START_UNIX_S + 60))


def test_a_slow_recording_has_its_readings_at_every_moment(tmp_path: Path) -> None:
    """`watch --interval 60`: the last reading of a card can be a minute old."""
    pieces = recordings.recording(0)[:-1]
    path = tmp_path / "r"
    entries = [(at * 60_000, recordings.sample("cuda:0", at * 60, at)) for at in range(100)]
    path.write_bytes(b"".join([*pieces, frames(entries, START_UNIX_S)]))
    with opened(path) as recording:
        for at_ms in (59_000, 3_000_000, 5_999_000):
            state = wound(recording, at_ms)
            assert state.devices["cuda:0"].sample == lived(recording, at_ms).devices["cuda:0"].sample
            same(
                state.devices["cuda:0"].history,
                lived(recording, at_ms).devices["cuda:0"].history,
                START_UNIX_S + at_ms / 1000,
            )


def test_a_card_that_went_keeps_its_colour_and_its_curve(tmp_path: Path) -> None:
    from devexplorer.core.recording.format import DeviceList

    def list_of(*devices: DeviceInfo) -> DeviceList:
        return DeviceList((recordings.CPU, *devices))

    pieces = recordings.recording(0)[:-1]
    first, second = recordings.CARDS
    parts = [*pieces]
    for at in range(0, 30_000, 500):
        parts.append(entries_frame(FrameKind.READINGS, recordings.readings(at / 1000), START_UNIX_S + at / 1000))
        if at == 10_000:
            parts.append(entries_frame(FrameKind.EVENTS, [(at, list_of(second))], START_UNIX_S + at / 1000))
        if at == 20_000:
            parts.append(entries_frame(FrameKind.EVENTS, [(at, list_of(first, second))], START_UNIX_S + at / 1000))
    path = tmp_path / "r"
    path.write_bytes(b"".join(parts))
    with opened(path) as recording:
        for at_ms in (9_000, 15_000, 25_000):
            found, expected = wound(recording, at_ms), lived(recording, at_ms)
            assert list(found.devices) == list(expected.devices)
            same_state(found, expected, START_UNIX_S + at_ms / 1000)


def test_a_recording_without_readings_can_be_wound(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(b"".join(recordings.recording(0)))
    with opened(path) as recording:
        made = RecordingTimeline(recording)
        assert (made.length_ms, made.overview_done, made.advance()) == (0, 1.0, False)
        assert list(made.state_at(0).devices) == ["cpu", "cuda:0", "cuda:1"]
        assert [entry for _, entries in made.following(0) for entry in entries] == list[RecordedEntry]()
