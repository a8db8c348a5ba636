"""Alerts: raised when a value stays past its threshold, cleared beyond the band, and never changed by unknown
values."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.alerts.judging import Alerts
from devexplorer.core.alerts.records import Alert
from devexplorer.core.alerts.rules import (
    ALARM,
    DEFAULT_RULES,
    LOST,
    MEMORY_PERCENT,
    NEW_ECC_ERRORS,
    NOTICE,
    POWER_CAPPED,
    QUANTITIES,
    THROTTLED,
    Rule,
    alert_message,
    complete,
    figure_text,
    limits,
    new_rule,
)
from devexplorer.core.devices.nvml.fields import clock_reasons
from devexplorer.core.records import DeviceDetails, DeviceSample, Problem
from devexplorer.core.telemetry.metrics import METRICS

GIB = 1 << 30


def power(raise_at: float = 300, clear_at: float = 280, seconds: float = 0.0) -> Rule:
    return Rule(metric="power_w", raise_at=raise_at, clear_at=clear_at, seconds=seconds)


def sample(time_s: float, device: str = "cuda:0", **fields: object) -> DeviceSample:
    return DeviceSample(device=device, time_unix_s=time_s, **fields)  # type: ignore[arg-type]


def words(changes: list[Alert]) -> list[tuple[str, str, bool]]:
    return [(change.device, change.metric, change.raised) for change in changes]


# --- hysteresis


def test_an_alert_is_raised_at_its_threshold_and_ends_below_the_band() -> None:
    alerts = Alerts([power()])
    assert [words(alerts.feed(sample(t, power_w=watts))) for t, watts in enumerate((299, 300, 350, 281, 299))] == [
        [],
        [("cuda:0", "power_w", True)],
        [],
        [],
        [],
    ]
    (active,) = alerts.active
    assert (active.value, active.worst, active.threshold, active.since_unix_s) == (299, 350, 300, 1)
    assert words(alerts.feed(sample(5, power_w=280))) == [("cuda:0", "power_w", False)]
    assert alerts.active == ()
    (over,) = alerts.history
    assert (over.worst, over.since_unix_s, over.ended_unix_s) == (350, 1, 5)
    assert words(alerts.take_news()) == [("cuda:0", "power_w", True), ("cuda:0", "power_w", False)]
    assert alerts.take_news() == []


def test_a_value_must_stay_past_the_threshold_for_the_seconds_of_the_rule_in_both_directions() -> None:
    alerts = Alerts([power(seconds=3)])
    watts = [310, 310, 290, 310, 310, 310, 310, 270, 270, 300, 270, 270, 270, 270]
    changed = [t for t, value in enumerate(watts) if alerts.feed(sample(t, power_w=value))]
    assert changed == [6, 13], "raised 3 s after the dip at 2, ended 3 s after the peak at 9"
    assert alerts.history[0].since_unix_s == 3


@given(
    st.lists(st.tuples(st.floats(0, 20), st.none() | st.floats(0, 600) | st.just(math.nan)), max_size=60),
    st.floats(200, 400),
    st.just(0.0) | st.floats(0.001, 150),  # a band that vanishes in the rounding of the thresholds is none
    st.floats(0, 20),
    st.booleans(),
)
def test_no_alert_is_raised_twice_without_an_end_and_what_is_unknown_changes_nothing(
    readings: list[tuple[float, float | None]], raise_at: float, band: float, seconds: float, below: bool
) -> None:
    clear_at = raise_at + band if below else raise_at - band
    alerts = Alerts([power(raise_at, clear_at, seconds)])
    now, on = 0.0, False
    for step, watts in readings:
        now += step
        changes = alerts.feed(sample(now, power_w=watts))
        assert len(changes) <= 1
        known = watts is not None and not math.isnan(watts)
        if not known:
            assert changes == []
        for change in changes:
            assert watts is not None
            assert change.raised is not on, "raised and ended take turns"
            on = change.raised
            beyond = (watts <= raise_at) if (below and band) else (watts >= raise_at)
            calm = (watts >= clear_at) if (below and band) else (watts <= clear_at)
            assert beyond if on else calm, "nothing changes inside the band"
        assert bool(alerts.active) is on


@given(st.lists(st.floats(281, 299.99), min_size=1, max_size=40), st.booleans())
def test_nothing_flaps_inside_the_band(watts: list[float], was_raised: bool) -> None:
    alerts = Alerts([power()])
    alerts.feed(sample(0, power_w=301 if was_raised else 200))
    assert all(alerts.feed(sample(1 + t, power_w=value)) == [] for t, value in enumerate(watts))
    assert bool(alerts.active) is was_raised


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.none() | st.floats(0, 600)), max_size=40))
def test_a_clock_that_jumps_neither_raises_twice_nor_breaks_anything(
    readings: list[tuple[float, float | None]],
) -> None:
    alerts = Alerts([power(seconds=2), *DEFAULT_RULES])
    on = False
    for now, watts in readings:
        for change in alerts.feed(sample(now, power_w=watts, throttle_reasons=("hardware thermal slowdown",))):
            if change.metric == "power_w":
                assert change.raised is not on
                on = change.raised


def test_what_was_before_a_long_gap_did_not_last_through_it() -> None:
    alerts = Alerts([power(seconds=5)])
    assert alerts.feed(sample(0, power_w=310)) == []
    assert alerts.feed(sample(1000, power_w=310)) == []
    assert alerts.feed(sample(1005, power_w=310))


def test_thresholds_the_other_way_round_are_raised_by_values_that_are_too_low() -> None:
    alerts = Alerts([Rule(metric="utilization_percent", raise_at=5, clear_at=20)])
    assert alerts.feed(sample(0, utilization_percent=6)) == []
    (change,) = alerts.feed(sample(1, utilization_percent=0))
    assert alert_message(change) == "cuda:0: utilization 0 %, raised at 5 % and below"
    assert alerts.feed(sample(2, utilization_percent=19)) == []
    assert words(alerts.feed(sample(3, utilization_percent=20))) == [("cuda:0", "utilization_percent", False)]


def test_every_metric_can_have_a_rule() -> None:
    for metric in [metric.id for metric in METRICS]:
        alerts = Alerts([Rule(metric=metric, raise_at=60, clear_at=50)])
        (change,) = alerts.feed(sample(0, **{metric: 70}))
        assert change.value == 70
        assert complete([new_rule(metric)])[-1].metric in (metric, DEFAULT_RULES[-1].metric)


def test_devices_are_judged_apart_and_simulated_ones_are_marked() -> None:
    alerts = Alerts()
    changes = alerts.feed(sample(0, "vgpu:0", memory_used_bytes=96, memory_total_bytes=100, simulated=True))
    changes += alerts.feed(sample(0, "cuda:0", memory_used_bytes=10, memory_total_bytes=100))
    changes += alerts.feed(sample(3, "vgpu:0", memory_used_bytes=96, memory_total_bytes=100, simulated=True))
    assert words(changes) == [("vgpu:0", MEMORY_PERCENT, True)]
    assert changes[0].simulated
    assert alert_message(changes[0]) == "vgpu:0 (simulated): memory in use 96 %, raised at 95 %"


# --- the default rules


def test_temperature_follows_the_card_where_it_tells_and_a_fixed_figure_where_not() -> None:
    alerts = Alerts([rule for rule in DEFAULT_RULES if rule.metric == "temperature_c"])
    alerts.details(DeviceDetails(device="cuda:0", time_unix_s=0, temperature_slowdown_c=93))
    alerts.details(
        DeviceDetails(device="cuda:2", time_unix_s=0, temperature_slowdown_c=0)
    )  # a threshold that the card does not have
    raised = [
        change.device for t in range(8) for name in ("cuda:0", "cuda:1", "cuda:2")
        for change in alerts.feed(sample(t, name, temperature_c=89))
    ]  # fmt: skip
    assert raised == ["cuda:1", "cuda:2"]
    for t in range(8, 12):
        alerts.feed(sample(t, temperature_c=90))
    assert "cuda:0" in [alert.device for alert in alerts.active]
    assert limits(Rule(metric="temperature_c", raise_at=70, clear_at=60)) == (70, 60), "what the user chose counts"


def test_memory_is_an_alert_above_95_percent_and_unknown_sizes_are_none() -> None:
    alerts = Alerts()
    assert all(alerts.feed(sample(t, memory_used_bytes=100)) == [] for t in range(5))
    for t in range(5, 9):
        alerts.feed(sample(t, memory_used_bytes=95, memory_total_bytes=100))
    assert [alert.metric for alert in alerts.active] == [MEMORY_PERCENT]


def test_only_new_ecc_errors_are_an_alert_and_it_stays_until_it_is_dismissed_or_the_count_restarts() -> None:
    alerts = Alerts()
    assert alerts.feed(sample(0, ecc_uncorrected=7)) == []
    assert alerts.feed(sample(1, ecc_uncorrected=None, power_w=1)) == []
    (change,) = alerts.feed(sample(2, ecc_uncorrected=8))
    assert alert_message(change) == "cuda:0: 1 new memory error that ECC could not correct"
    assert alerts.feed(sample(3, ecc_uncorrected=9)) == []
    assert alerts.active[0].value == 2
    assert words(alerts.dismiss("cuda:0", NEW_ECC_ERRORS)) == [("cuda:0", NEW_ECC_ERRORS, False)]
    assert alerts.feed(sample(4, ecc_uncorrected=9)) == []
    assert words(alerts.feed(sample(5, ecc_uncorrected=10))) == [("cuda:0", NEW_ECC_ERRORS, True)]
    assert words(alerts.feed(sample(6, ecc_uncorrected=0))) == [("cuda:0", NEW_ECC_ERRORS, False)], (
        "the driver was loaded again"
    )
    assert alerts.dismiss("cuda:9", NEW_ECC_ERRORS) == []


def test_a_lost_card_is_an_alert_until_the_driver_sees_it_again() -> None:
    alerts = Alerts()
    alerts.feed(sample(0, power_w=1))
    reason = "the card is lost"
    (change,) = alerts.problems(
        [Problem(reason, device="cuda:0"), Problem("no fan", device="cuda:1", field="fan_percent")]
    )
    assert (change.raised, change.metric, change.detail) == (True, LOST, reason)
    assert alerts.problems([Problem(reason, device="cuda:0")]) == []
    assert words(alerts.problems([])) == [("cuda:0", LOST, False)]


def test_a_card_that_falls_silent_is_an_alert_and_one_that_never_spoke_is_none() -> None:
    alerts = Alerts()
    assert alerts.feed(sample(0, "cuda:1")) == []
    alerts.feed(sample(0, "cuda:0", fan_percent=30))
    (change,) = alerts.feed(sample(1, "cuda:0"))
    assert "no reading arrives" in alert_message(change)
    assert alerts.feed(sample(2, "cpu", utilization_percent=1)) == []
    assert words(alerts.feed(sample(3, "cuda:0", utilization_percent=1))) == [("cuda:0", LOST, False)]


def test_a_lost_card_that_must_be_so_for_a_while_is_raised_by_the_samples_of_others() -> None:
    alerts = Alerts([Rule(metric=LOST, raise_at=1, clear_at=0, seconds=3)])
    alerts.feed(sample(0, "cuda:0", power_w=1))
    alerts.problems([Problem("gone", device="cuda:0")])
    times = [t / 10 for t in range(50) if alerts.feed(sample(t / 10 - 0.05 * (t % 2), "cpu", utilization_percent=1))]
    assert len(times) == 1
    assert times[0] == pytest.approx(3, abs=0.2)


HEAT, CAP = "too hot (the driver lowers the clocks)", "power cap"


@pytest.mark.parametrize(
    ("bits", "metric", "level"),
    [
        (0x8, THROTTLED, ALARM),
        (0x20, THROTTLED, ALARM),
        (0x40, THROTTLED, ALARM),
        (0x80, THROTTLED, ALARM),
        (0x4, POWER_CAPPED, NOTICE),
        *((bit, None, None) for bit in (0x0, 0x1, 0x2, 0x10, 0x100, 0x200, 0x400, 0x800)),
        (None, None, None),
    ],
)
def test_only_what_holds_the_clocks_down_against_ones_will_is_an_alert(
    bits: int | None, metric: str | None, level: str | None
) -> None:
    reasons = None if bits is None else clock_reasons(bits)
    alerts = Alerts()
    for t in range(45):
        alerts.feed(sample(t, throttle_reasons=reasons, power_w=1))
    assert [(alert.metric, alert.level) for alert in alerts.active] == ([] if metric is None else [(metric, level)])


def test_throttling_that_comes_and_goes_is_one_alert() -> None:
    alerts = Alerts()
    changes = [
        change
        for t in range(600)
        for change in alerts.feed(sample(t / 10, throttle_reasons=(HEAT, CAP) if t % 3 else (), power_w=1))
    ]
    assert words(changes) == [("cuda:0", THROTTLED, True)]
    assert HEAT in alert_message(changes[0])
    assert CAP not in alert_message(changes[0])
    changes = [
        change for t in range(600, 900) for change in alerts.feed(sample(t / 10, throttle_reasons=(), power_w=1))
    ]
    assert words(changes) == [("cuda:0", THROTTLED, False)]


# --- rules that change, devices that go


def test_a_rule_that_is_switched_off_ends_its_alerts_and_a_changed_one_judges_by_the_new_figures() -> None:
    alerts = Alerts([power()])
    alerts.feed(sample(0, power_w=310))
    assert alerts.set_rules([power(raise_at=400, clear_at=350)]) == []
    assert words(alerts.feed(sample(1, power_w=310))) == [("cuda:0", "power_w", False)]
    alerts.feed(sample(2, power_w=410))
    off = msgspec.structs.replace(power(), enabled=False)
    assert words(alerts.set_rules([off])) == [("cuda:0", "power_w", False)]
    assert alerts.feed(sample(3, power_w=900)) == []
    assert alerts.rules == (off,)


def test_switching_the_rule_on_shows_a_card_that_is_lost_already() -> None:
    alerts = Alerts([])
    alerts.problems([Problem("gone", device="cuda:0")])
    assert words(alerts.set_rules(DEFAULT_RULES)) == [("cuda:0", LOST, True)]


def test_alerts_of_devices_that_are_gone_end() -> None:
    alerts = Alerts([power()])
    alerts.feed(sample(0, "vgpu:0", power_w=310))
    alerts.feed(sample(0, "vgpu:1", power_w=310))
    assert words(alerts.keep(["vgpu:1", "cpu"])) == [("vgpu:0", "power_w", False)]
    assert [alert.device for alert in alerts.active] == ["vgpu:1"]


def test_the_history_is_bounded_and_the_latest_comes_first() -> None:
    alerts = Alerts([power()])
    for t in range(1000):
        alerts.feed(sample(t, power_w=310 if t % 2 else 0))
    assert len(alerts.history) == 200
    assert [alert.ended_unix_s for alert in alerts.history[:2]] == [998, 996]
    assert len(alerts.take_news()) == 200


def test_a_rule_for_chosen_devices_leaves_the_others_alone() -> None:
    chosen = msgspec.structs.replace(power(), devices=("cuda:1",))
    alerts = Alerts([chosen])
    assert alerts.feed(sample(0, power_w=400)) == []
    assert words(alerts.feed(sample(0, "cuda:1", power_w=400))) == [("cuda:1", "power_w", True)]
    assert words(alerts.set_rules([msgspec.structs.replace(chosen, devices=("cuda:0",))])) == [
        ("cuda:1", "power_w", False)
    ], "an alert of a device that the rule is not about any more ends"
    assert words(alerts.feed(sample(1, power_w=400))) == [("cuda:0", "power_w", True)]
    assert alerts.feed(sample(1, "cuda:1", power_w=400)) == []
    lost = Alerts([Rule(metric=LOST, raise_at=1, clear_at=0, devices=("cuda:1",))])
    found = lost.problems([Problem("it is lost", device="cuda:0"), Problem("it is lost", device="cuda:1")])
    assert words(found) == [("cuda:1", LOST, True)]


def test_rules_of_before_are_about_all_devices() -> None:
    old = b'{"metric":"power_w","raise_at":300.0,"clear_at":280.0}'
    assert msgspec.json.decode(old, type=Rule).is_about("cuda:7")
    chosen = msgspec.structs.replace(power(), devices=("cuda:1",))
    assert msgspec.json.decode(msgspec.json.encode(chosen), type=Rule) == chosen


def test_saved_rules_complete_the_defaults_and_what_makes_no_sense_is_left_out() -> None:
    saved = [
        Rule(metric="temperature_c", raise_at=70, clear_at=60),
        Rule(metric="pizza", raise_at=1),
        Rule(metric=MEMORY_PERCENT),  # no threshold, and none that the card could give
        Rule(metric=LOST, raise_at=5, clear_at=0),
        Rule(metric="power_w", raise_at=math.inf, clear_at=1),
        Rule(metric="fan_percent", raise_at=90, clear_at=80),
    ]
    rules = complete(saved)
    assert [rule.metric for rule in rules] == [*(rule.metric for rule in DEFAULT_RULES), "fan_percent"]
    assert saved[0] in rules
    assert DEFAULT_RULES[0] in rules
    assert next(rule for rule in rules if rule.metric == MEMORY_PERCENT).raise_at == 95


def test_figures_are_written_with_their_units_and_unknown_ones_as_a_dash() -> None:
    assert [
        figure_text(value, unit)
        for value, unit in ((91, "celsius"), (3 * GIB, "bytes"), (GIB, "bytes_s"), (math.nan, "watt"))
    ] == [
        "91 °C",
        "3.00 GiB",
        "1.00 GiB/s",
        "—",
    ]
    assert all(quantity.label and figure_text(1, quantity.unit) for quantity in QUANTITIES.values())


def test_the_most_serious_comes_first_then_what_lasts_longest() -> None:
    alerts = Alerts([*DEFAULT_RULES, power(), Rule(metric="utilization_percent", raise_at=90, clear_at=80)])
    held = ("hardware thermal slowdown",)
    for t in range(20):
        alerts.feed(sample(t, "cuda:0", throttle_reasons=held if t > 2 else (), power_w=100))
        alerts.feed(sample(t, "cuda:1", temperature_c=95 if t > 10 else 50, power_w=100))
        alerts.feed(sample(t, "cuda:2", utilization_percent=99 if t > 15 else 0, power_w=310 if t > 1 else 0))
    assert [(alert.device, alert.metric) for alert in alerts.active] == [
        ("cuda:0", THROTTLED),
        ("cuda:1", "temperature_c"),
        ("cuda:2", "power_w"),
        ("cuda:2", "utilization_percent"),
    ]


def test_throttling_is_since_the_clocks_were_first_held_down() -> None:
    alerts = Alerts()
    raised = [
        (t, change)
        for t in range(30)
        for change in alerts.feed(sample(t, throttle_reasons=("HW slowdown: too hot",) if t >= 12 else ()))
    ]
    ((at, alert),) = raised
    assert at > 12 + 5
    assert (alert.since_unix_s, alert.since_before) == (12, False)


def test_what_was_so_at_the_first_reading_began_before_it() -> None:
    alerts = Alerts([power(seconds=2)])
    changes = [change for t in range(3) for change in alerts.feed(sample(t, power_w=310))]
    assert [(change.since_unix_s, change.since_before) for change in changes] == [(0, True)]
    alerts = Alerts([power()])
    alerts.feed(sample(0, power_w=250))
    alerts.set_rules([power(200, 150)])
    (change,) = alerts.feed(sample(1, power_w=250))
    assert change.since_before, "it was above the new figure already"


def test_an_alert_keeps_the_figure_at_which_it_was_raised_and_says_where_it_clears() -> None:
    alerts = Alerts([power(70, 65, seconds=3)])
    for t in range(5):
        alerts.feed(sample(t, power_w=75))
    alerts.feed(sample(5, power_w=66))
    assert alert_message(alerts.active[0]) == "cuda:0: power 66 W, raised at 70 W, clears at 65 W"
    alerts.feed(sample(6, power_w=64))
    assert alert_message(alerts.active[0]) == "cuda:0: power 64 W, raised at 70 W, clearing"
    alerts.set_rules([power(89, 60, seconds=3)])
    alerts.feed(sample(7, power_w=75))
    assert alert_message(alerts.active[0]) == "cuda:0: power 75 W, raised at 70 W"
