"""The alerts at any moment of a recording."""

from __future__ import annotations

from pathlib import Path

from fakes import recordings
from fakes.recordings import START_UNIX_S, frames, opened

from devexplorer.core.alerts.judging import alerts_of
from devexplorer.core.alerts.rules import SETTING, Rule
from devexplorer.core.recording.format import Recording, end_frame
from devexplorer.core.recording.timeline import RecordingTimeline, apply_record
from devexplorer.core.records import DeviceSample
from devexplorer.core.session import Settings, State


def held_down(path: Path, seconds: int, from_s: int, until_s: int) -> Recording:
    """A card whose clocks are held down for a part of its recording, two readings a second."""
    pieces = recordings.recording(0)[:-1]
    entries = [
        (
            at * 500,
            DeviceSample(
                device="cuda:0",
                time_unix_s=START_UNIX_S + at / 2,
                throttle_reasons=("hardware thermal slowdown",) if from_s <= at / 2 < until_s else (),
            ),
        )
        for at in range(2 * seconds)
    ]
    path.write_bytes(b"".join([*pieces, frames(entries, START_UNIX_S), end_frame(seconds * 1000, 1.0)]))
    return opened(path)


def test_alarms_of_a_moment_are_those_that_the_readings_before_it_raise(tmp_path: Path) -> None:
    with held_down(tmp_path / "r", 600, 50, 500) as recording:
        made = RecordingTimeline(recording)
        assert alerts_of(made.state_at(49_000)).active == ()
        (alarm,) = alerts_of(made.state_at(70_000)).active
        assert (alarm.since_unix_s, alarm.since_before) == (START_UNIX_S + 50, False)
        for whole in (True, False):
            (later,) = alerts_of(made.state_at(400_000, whole=whole)).active
            assert later.since_before, "it began before the readings that were looked at"
            assert later.since_unix_s <= START_UNIX_S + 340
        assert not made.knows_before(400_000)
        while made.advance():
            pass
        assert made.knows_before(400_000)
        for at_ms in (400_000, 70_000, 490_000):
            (later,) = alerts_of(made.state_at(at_ms)).active
            assert (later.since_unix_s, later.since_before) == (START_UNIX_S + 50, False), "all before is judged"
        after = alerts_of(made.state_at(520_000))
        assert after.active == ()
        assert [alert.metric for alert in after.history] == ["throttled_percent"]
        assert after.take_news() == []


def test_an_alarm_between_its_limits_is_found_and_a_long_rule_too(tmp_path: Path) -> None:
    """Hot for a minute, then warm for eight: neither raised again nor over."""
    warm = tuple(95.0 if 10 <= at < 70 else 80.0 if at < 550 else 40.0 for at in range(600))
    long = Rule(metric="utilization_percent", raise_at=90.0, clear_at=50.0, seconds=300.0)
    rules = (Rule(metric="temperature_c", raise_at=90.0, clear_at=70.0, seconds=3.0), long)
    entries = [
        (
            at * 1000,
            DeviceSample(
                device="cuda:0", time_unix_s=START_UNIX_S + at, temperature_c=degrees, utilization_percent=100.0
            ),
        )
        for at, degrees in enumerate(warm)
    ]
    path = tmp_path / "r"
    path.write_bytes(b"".join([*recordings.recording(0)[:-1], frames(entries, START_UNIX_S), end_frame(600_000, 1.0)]))

    def fresh() -> State:
        state = State()
        state.follow(Settings(of_features={SETTING: rules}))
        return state

    with opened(path) as recording:
        made = RecordingTimeline(recording, fresh)
        while made.advance():
            pass
        assert [alert.metric for alert in alerts_of(made.state_at(8_000)).active] == []
        assert [alert.metric for alert in alerts_of(made.state_at(200_000)).active] == ["temperature_c"]
        both = alerts_of(made.state_at(500_000)).active
        assert {alert.metric: alert.since_unix_s - START_UNIX_S for alert in both} == {
            "temperature_c": 10,
            "utilization_percent": 0,
        }
        assert [alert.metric for alert in alerts_of(made.state_at(599_000)).active] == ["utilization_percent"]


def test_alarms_go_on_from_a_moment_as_it_is_played(tmp_path: Path) -> None:
    with held_down(tmp_path / "r", 100, 50, 80) as recording:
        made = RecordingTimeline(recording)
        state = made.state_at(52_000)
        assert alerts_of(state).active == ()
        for _, entries in made.following(52_000):
            for entry in entries:
                apply_record(state, entry.record)
        assert alerts_of(state).active == ()
        (over,) = alerts_of(state).history
        assert over.since_unix_s == START_UNIX_S + 50
