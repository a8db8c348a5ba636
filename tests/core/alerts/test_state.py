"""Alerts as part of what a window knows: the rules of the user, the past of another machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.look_records import CPU, CUDA, state_with

from devexplorer.core.alerts.judging import alerts_of
from devexplorer.core.alerts.records import Alert, PastAlerts
from devexplorer.core.alerts.rules import DEFAULT_RULES, SETTING, Rule, rules_of
from devexplorer.core.records import DeviceSample
from devexplorer.core.session import Settings, SettingsFile, State


def hot(state: State, begin_s: int = 0) -> None:
    for second in range(begin_s, begin_s + 5):
        state.apply(DeviceSample(device="cuda:0", time_unix_s=float(second), temperature_c=95.0))


def test_rules_are_kept_and_followed(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path)
    rules = (*DEFAULT_RULES, Rule(metric="power_w", enabled=False, raise_at=300, clear_at=280))
    assert file.save(Settings(of_features={SETTING: rules})) is None
    loaded = file.load()
    assert loaded == Settings(of_features={SETTING: rules})
    assert rules_of(loaded) == rules
    state = State()
    state.follow(loaded)
    state.exchange(State())
    assert alerts_of(state).rules == rules, "they hold for whatever is shown"


@pytest.mark.parametrize(
    "rules",
    [
        '"x"',
        "[3]",
        '[{"metric": 3}]',
        '[{"metric": "power_w", "seconds": -1}]',
        '[{"metric": "power_w", "raise_at": 1e300}]',
    ],
)
def test_broken_rules_cost_none_of_the_other_settings(tmp_path: Path, rules: str) -> None:
    file = SettingsFile(tmp_path)
    file.path.write_text(f'{{"theme": "light", "{SETTING}": {rules}}}')
    assert file.load() == Settings(theme="light")
    assert file.damage is not None
    assert SETTING in file.damage


def test_a_window_that_comes_later_is_told_of_the_alerts_of_before() -> None:
    host, window = state_with(CPU, CUDA), state_with(CPU, CUDA)
    hot(host)
    for event in host.past():
        window.apply(event)
    assert alerts_of(window).active == alerts_of(host).active != ()


def test_alerts_about_what_is_not_known_are_left_out() -> None:
    state = state_with(CPU)
    good = {"device": "cpu", "metric": "temperature_c", "level": "alarm", "since_unix_s": 990.0, "value": 99.0,
            "worst": 99.0, "threshold": 85.0, "clear_at": 80.0}  # fmt: skip
    changed = (good, good | {"metric": "nonsense"}, good | {"device": "gone"})
    state.apply(PastAlerts(alerts=tuple(Alert(**fields) for fields in changed)))
    assert [(alert.device, alert.metric) for alert in alerts_of(state).active] == [("cpu", "temperature_c")]


def test_the_past_of_a_machine_goes_on_and_its_gone_devices_have_no_alerts() -> None:
    old, fresh = state_with(CPU, CUDA), state_with(CPU, CUDA)
    hot(old)
    fresh.go_on_from(old)
    assert [trouble.device for trouble in fresh.troubles()] == ["cuda:0"]
    again = state_with(CPU)
    again.go_on_from(fresh)
    assert again.troubles() == []
