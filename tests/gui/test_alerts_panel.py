"""The alerts tab and the messages on the desktop."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.host import hosted
from fakes.look_records import CPU, CUDA, VGPU, state_with
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QIcon, QWheelEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.records.devices import DeviceSample, Problem
from devexplorer.core.telemetry.alert_rules import DEFAULT_RULES, NEW_ECC_ERRORS, Rule
from devexplorer.core.telemetry.alerts import AlertChange, Alerts
from devexplorer.gui.notifications import Notifications
from devexplorer.gui.panels.alert_rules import AlertRulesForm
from devexplorer.gui.panels.alerts import SIDE_BY_SIDE_PX, AlertsPanel
from devexplorer.gui.theme import DARK, LIGHT, device_colour

NOW = 1_800_000_000.0


def feed(alerts: Alerts, second: float, device: str = "cuda:0", **fields: object) -> list[AlertChange]:
    return alerts.feed(DeviceSample(device=device, time_unix_s=NOW + second, **fields))  # type: ignore[arg-type]


def hot(alerts: Alerts, device: str = "cuda:0") -> list[AlertChange]:
    """Make a device too hot for long enough."""
    return [change for second in range(5) for change in feed(alerts, second, device, temperature_c=95, simulated=device.startswith("vgpu"))]


@pytest.fixture
def alerts() -> Alerts:
    return Alerts()


@pytest.fixture
def panel(qtbot: QtBot, alerts: Alerts) -> AlertsPanel:
    state = state_with(CPU, CUDA, VGPU)
    state.alerts = alerts
    return hosted(qtbot, lambda host: AlertsPanel(state, DARK, parent=host), 1400, 320)


def shown(panel: AlertsPanel) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in panel.model.rows]


# --- the list


def test_nothing_wrong_is_said_in_one_sentence(panel: AlertsPanel) -> None:
    assert panel.nothing.isVisible()
    assert panel.nothing.text() == "Nothing is wrong: no alert is active, and none was raised in this session."
    assert panel.count == 0
    assert not panel.dismiss_button.isVisible()


def test_active_alerts_stand_above_those_that_are_over(panel: AlertsPanel, alerts: Alerts) -> None:
    hot(alerts)
    for second in range(5, 10):
        feed(alerts, second, temperature_c=50)
    hot(alerts, "vgpu:0")
    alerts.problems([Problem("the card is lost", device="cuda:0")])
    panel.refresh()

    lost, simulated, over = shown(panel)
    assert lost[:5] == ["✕ alarm", "cuda:0", "Lost, or does not answer", "—", "—"]
    assert lost[7] == "the card is lost"
    assert simulated[:5] == ["✕ alarm", "vgpu:0 simulated", "Temperature", "95 °C", "85 °C"]
    assert over[:5] == ["over", "cuda:0", "Temperature", "95 °C", "85 °C"]
    assert over[6] == "8 s"
    assert panel.count == 2
    assert panel.summary.text() == "2 alarms now"
    assert panel.table.isVisible()
    assert panel.model.rows[0].cells[1].colour == device_colour(0, DARK)


def test_a_notice_is_told_from_an_alarm_and_counts_as_none(panel: AlertsPanel, alerts: Alerts) -> None:
    for second in range(45):
        feed(alerts, second, throttle_reasons=("power cap",), power_w=1)
    panel.refresh()
    assert shown(panel)[0][0] == "△ notice"
    assert panel.count == 0
    assert panel.summary.text() == "1 notice now"


def test_ecc_errors_can_be_dismissed_once_they_are_chosen(qtbot: QtBot, panel: AlertsPanel, alerts: Alerts) -> None:
    panel.dismissed.connect(alerts.dismiss)
    feed(alerts, 0, ecc_uncorrected=0)
    feed(alerts, 1, ecc_uncorrected=2)
    hot(alerts, "vgpu:0")
    panel.refresh()
    assert panel.dismiss_button.isVisible()
    assert not panel.dismiss_button.isEnabled()
    panel.table.selectRow([row[2] for row in shown(panel)].index("Temperature"))
    assert not panel.dismiss_button.isEnabled()
    panel.table.selectRow([row[2] for row in shown(panel)].index("New ECC errors, not corrected"))
    with qtbot.waitSignal(panel.dismissed) as said:
        panel.dismiss_button.click()
    assert said.args == ["cuda:0", NEW_ECC_ERRORS]
    panel.refresh()
    assert [row[0] for row in shown(panel)] == ["✕ alarm", "over"]


def test_another_theme_changes_the_colours(panel: AlertsPanel, alerts: Alerts) -> None:
    hot(alerts)
    for second in range(5, 10):
        feed(alerts, second, temperature_c=50)
    hot(alerts, "vgpu:0")
    panel.refresh()
    panel.set_theme(LIGHT)
    assert [row.cells[0].colour for row in panel.model.rows] == [LIGHT.error, LIGHT.dim]


def test_the_rules_go_below_the_list_where_there_is_no_room_beside_it(panel: AlertsPanel) -> None:
    assert panel.form.geometry().left() > panel.table.geometry().right()
    panel.resize(SIDE_BY_SIDE_PX - 1, 600)
    QApplication.processEvents()
    assert panel.form.geometry().left() == 0
    assert panel.form.geometry().top() > 0


# --- the rules


@pytest.fixture
def form(qtbot: QtBot) -> AlertRulesForm:
    return hosted(qtbot, lambda host: AlertRulesForm(DEFAULT_RULES, True, host), 600, 400)


def rule(rules: tuple[Rule, ...], metric: str) -> Rule:
    return next(rule for rule in rules if rule.metric == metric)


def test_a_threshold_that_is_changed_is_told_with_all_rules(qtbot: QtBot, form: AlertRulesForm) -> None:
    row = next(row for row in form.rows if row.rule.metric == "memory_used_percent")
    assert (row.raise_at.text(), row.clear_at.text(), row.seconds.text()) == ("95 %", "90 %", "2 s")
    with qtbot.waitSignal(form.rules_changed) as said:
        row.raise_at.setValue(80)
    (rules,) = said.args
    assert rule(rules, "memory_used_percent") == Rule(metric="memory_used_percent", raise_at=80, clear_at=90, seconds=2)
    assert row.check.text().endswith("too low"), "it is raised below 80 % now, and says so"
    row.clear_at.setValue(70)
    assert row.check.text() == "Memory in use"
    assert len(form.rules) == len(DEFAULT_RULES)


def test_auto_follows_the_card_and_the_first_step_up_is_a_sensible_figure(form: AlertRulesForm) -> None:
    row = next(row for row in form.rows if row.rule.metric == "temperature_c")
    assert (row.raise_at.text(), row.clear_at.text(), row.clear_at.isEnabled()) == ("auto", "auto", False)
    assert "lowers its clocks" in row.raise_at.toolTip()
    row.raise_at.stepUp()
    assert (row.rule.raise_at, row.rule.clear_at) == (85, 80)
    assert row.clear_at.isEnabled()
    row.raise_at.setValue(row.raise_at.minimum())
    assert (row.rule.raise_at, row.rule.clear_at) == (None, None)
    assert form.rules == DEFAULT_RULES


def test_a_rule_can_be_switched_off_and_the_defaults_come_back(qtbot: QtBot, form: AlertRulesForm) -> None:
    assert not form.defaults_button.isEnabled()
    row = form.rows[1]
    with qtbot.waitSignal(form.rules_changed):
        row.check.click()
    assert not row.rule.enabled
    assert not row.raise_at.isEnabled()
    with qtbot.waitSignal(form.rules_changed) as said:
        form.defaults_button.click()
    assert said.args == [DEFAULT_RULES]
    assert form.rows[1].check.isChecked()


def test_a_rule_for_any_other_metric_can_be_added_and_removed(qtbot: QtBot, form: AlertRulesForm) -> None:
    offered = {action.text(): action for action in form.add_button.menu().actions()}
    assert "Power" in offered
    assert "Temperature" not in offered, "it has a rule"
    with qtbot.waitSignal(form.rules_changed) as said:
        offered["Power"].trigger()
    assert rule(said.args[0], "power_w").raise_at == 300
    row = form.rows[-1]
    assert row.raise_at.text() == "300 W"
    assert all(other.remove is None for other in form.rows[:-1]), "the defaults stay"
    assert row.remove is not None
    row.remove.click()
    assert form.rules == DEFAULT_RULES


def test_bytes_are_chosen_in_gib_and_a_figure_nobody_touched_stays_exact(form: AlertRulesForm) -> None:
    exact = Rule(metric="memory_free_bytes", raise_at=1.5 * 2**30, clear_at=3.25 * 2**30, seconds=0.5)
    form.show_rules((*DEFAULT_RULES, exact))
    row = form.rows[-1]
    assert row.clear_at.text() == "3 GiB"
    row.check.click()
    assert (row.rule.raise_at, row.rule.clear_at, row.rule.seconds) == (exact.raise_at, exact.clear_at, exact.seconds)
    row.check.click()
    row.clear_at.setValue(7)
    assert (row.rule.raise_at, row.rule.clear_at) == (exact.raise_at, 7 * 2**30)


def test_the_wheel_over_the_form_changes_no_figure(form: AlertRulesForm) -> None:
    box = form.rows[3].raise_at
    before = box.value()
    wheel = QWheelEvent(
        QPointF(5, 5), QPointF(5, 5), QPoint(0, 0), QPoint(0, 120), Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(box, wheel)
    assert box.value() == before


def test_every_control_of_the_form_has_a_name(form: AlertRulesForm) -> None:
    for row in form.rows:
        for widget in row.widgets():
            assert widget is None or widget.accessibleName() or widget.property("text")


# --- on the desktop


class FakeDesktop:
    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.hidden = False

    def show(self, title: str, text: str) -> None:
        self.messages.append((title, text))

    def hide(self) -> None:
        self.hidden = True


class Told:
    """Notifications with a fake desktop, and what they said."""

    def __init__(self, make: Callable[[], FakeDesktop | None] | None = None) -> None:
        self.now = 0.0
        self.desktop = FakeDesktop()
        self.asked = 0
        self.banner: list[str] = []

        def desktop() -> FakeDesktop | None:
            self.asked += 1
            return self.desktop if make is None else make()

        self.notifications = Notifications(QIcon(), clock=lambda: self.now, make_desktop=desktop)
        self.notifications.said.connect(self.banner.append)


def test_an_alarm_is_said_in_the_window_and_on_the_desktop_and_its_end_is_not(alerts: Alerts) -> None:
    told = Told()
    told.notifications.tell([])
    assert told.asked == 0, "nobody asks the desktop for anything before there is something to say"
    hot(alerts)
    told.notifications.tell(alerts.take_news())
    assert told.banner == ["cuda:0: temperature 95 °C, raised at 85 °C."]
    assert told.desktop.messages == [("DevExplorer", told.banner[0])]
    for second in range(5, 10):
        feed(alerts, second, temperature_c=50)
    told.notifications.tell(alerts.take_news())
    assert len(told.banner) == 1
    told.notifications.close()
    assert told.desktop.hidden


def test_the_same_alarm_is_said_once_a_minute_and_another_device_at_once(alerts: Alerts) -> None:
    told = Told()
    changes = hot(alerts)
    for now in (0.0, 10.0, 59.0, 61.0):
        told.now = now
        told.notifications.tell(changes)
    assert len(told.banner) == len(told.desktop.messages) == 2
    told.notifications.tell(hot(alerts, "vgpu:0"))
    assert "vgpu:0 (simulated)" in told.banner[-1]
    assert told.asked == 1


def test_notices_and_a_user_who_wants_none_leave_the_desktop_alone(alerts: Alerts) -> None:
    told = Told()
    told.notifications.tell([change for second in range(45) for change in feed(alerts, second, throttle_reasons=("power cap",), power_w=1)])
    assert told.banner == []
    told.notifications.on_desktop = False
    told.notifications.tell(hot(alerts))
    assert len(told.banner) == 1
    assert told.asked == 0


def test_many_alarms_at_once_are_one_message(alerts: Alerts) -> None:
    told = Told()
    told.notifications.tell([change for index in range(16) for change in hot(alerts, f"cuda:{index}")])
    ((_, text),) = told.desktop.messages
    assert text.count("\n") == 4
    assert text.endswith("And 12 more.")


def test_where_there_is_no_desktop_the_window_says_it_alone(alerts: Alerts) -> None:
    told = Told(lambda: None)
    told.notifications.tell(hot(alerts))
    assert len(told.banner) == 1
    plain = Notifications(QIcon())  # the real thing, on the offscreen platform: no tray, no message, no complaint of Qt
    said: list[str] = []
    plain.said.connect(said.append)
    plain.tell(hot(alerts, "cuda:1"))
    assert len(said) == 1
    plain.close()
