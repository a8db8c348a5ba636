"""The window's alert rules over thousands of cards at once."""

from __future__ import annotations

from fakes.fleet_tables import NOW, joined, sample, table

from devexplorer.core.alerts.rules import DEFAULT_RULES, Rule
from devexplorer.core.fleet.alerts import FleetAlerts
from devexplorer.core.fleet.events import CardsListed, FleetMachine, MachineChanged, Readings
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.records import Problem


def read(fleet: FleetTable, machine: int, card: int, **readings: object) -> None:
    fleet.apply([Readings(machine=f"node{machine}", samples=(sample(card, **readings),))])


def told(alerts: FleetAlerts) -> list[tuple[int, str]]:
    return [(one.row, one.metric) for one in alerts.raised]


def test_a_threshold_has_to_last_and_clears_at_another() -> None:
    fleet, alerts = table(500, 8), FleetAlerts([Rule(metric="temperature_c", raise_at=85, clear_at=80, seconds=3)])
    read(fleet, 3, 1, temperature_c=86.0)
    for second in range(3):
        alerts.look(fleet, NOW + second)
        assert not alerts.alarms.any()
    alerts.look(fleet, NOW + 3)
    assert told(alerts) == [(25, "temperature_c")]
    assert alerts.alarms[25]
    assert alerts.of(25)[0].text == "Temperature 86 °C"
    for second, heat in ((4, 82.0), (5, 79.0), (6, 79.0)):
        read(fleet, 3, 1, temperature_c=heat)
        alerts.look(fleet, NOW + second)
        assert alerts.alarms[25]
    alerts.look(fleet, NOW + 8)
    assert not alerts.raised


def test_values_that_are_too_low_and_unknown_ones() -> None:
    fleet, alerts = table(2, 2), FleetAlerts([Rule(metric="sm_clock_mhz", raise_at=1000, clear_at=1100)])
    read(fleet, 1, 0, sm_clock_mhz=900)
    alerts.look(fleet, NOW)
    assert told(alerts) == [(2, "sm_clock_mhz")]
    read(fleet, 1, 0, sm_clock_mhz=None)
    alerts.look(fleet, NOW + 1)
    assert told(alerts) == [(2, "sm_clock_mhz")]


def test_what_is_lost_is_an_alarm_and_ecc_errors_count_from_the_first_reading() -> None:
    fleet, alerts = table(3, 2), FleetAlerts(DEFAULT_RULES)
    read(fleet, 0, 0, ecc_uncorrected=7)
    alerts.look(fleet, NOW)
    assert not alerts.raised
    read(fleet, 0, 0, ecc_uncorrected=8)
    gone = FleetMachine(name="node2", state="lost", problem="no answer")
    listed = joined(2, 2)[3]
    assert isinstance(listed, CardsListed)
    fleet.apply([
        MachineChanged(machine=gone),
        CardsListed(machine="node1", devices=listed.devices, problems=(Problem(device="cuda:1", reason="fell off"),)),
    ])  # fmt: skip
    alerts.look(fleet, NOW + 1)
    assert told(alerts) == [(0, "new_ecc_errors"), (3, "lost"), (4, "lost"), (5, "lost")]


def test_throttling_is_a_share_of_the_last_looks_and_idle_is_none() -> None:
    fleet, alerts = table(2, 2), FleetAlerts(DEFAULT_RULES)
    read(fleet, 0, 1, throttle_reasons=("too hot (the driver lowers the clocks)",))
    read(fleet, 1, 1, throttle_reasons=("idle",))
    for second in range(6):
        alerts.look(fleet, NOW + second)
    assert told(alerts) == [(1, "throttled_percent")]


def test_cards_that_come_leave_the_alerts_of_the_others() -> None:
    fleet, alerts = table(2, 2), FleetAlerts([Rule(metric="temperature_c", raise_at=85, clear_at=80)])
    read(fleet, 1, 1, temperature_c=99.0)
    alerts.look(fleet, NOW)
    fleet.apply([CardsListed(machine="node0", devices=())])
    alerts.look(fleet, NOW + 1)
    assert told(alerts) == [(1, "temperature_c")]


def test_a_rule_about_a_reading_that_a_fleet_does_not_keep_is_named() -> None:
    alerts = FleetAlerts([Rule(metric="encoder_percent", raise_at=90, clear_at=80), *DEFAULT_RULES])
    assert alerts.left_out == ("Encoder", "Memory temperature")


def test_a_rule_for_chosen_devices_is_about_those_of_every_machine() -> None:
    fleet = table(2, 2)
    name = fleet.cards[1].info.id
    alerts = FleetAlerts([Rule(metric="temperature_c", raise_at=85, clear_at=80, devices=(name,))])
    for machine, card in ((0, 0), (0, 1), (1, 0), (1, 1)):
        read(fleet, machine, card, temperature_c=99.0)
    alerts.look(fleet, NOW)
    assert told(alerts) == [(1, "temperature_c"), (3, "temperature_c")]
