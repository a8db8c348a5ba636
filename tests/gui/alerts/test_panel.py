"""Alerts: the tab, the rules, desktop notifications, the banner, the device cards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from fakes.host import hosted
from fakes.look_records import CPU, CUDA, VGPU, state_with
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAction, QColor, QIcon, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QSpinBox, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.alerts.judging import Alerts, AlertsState, alerts_of
from devexplorer.core.alerts.records import Alert
from devexplorer.core.alerts.rules import DEFAULT_RULES, NEW_ECC_ERRORS, QUANTITIES, Rule
from devexplorer.core.records import DeviceSample, JobEnded, JobStarted, Problem
from devexplorer.core.session.state import State
from devexplorer.gui.alerts.page import AlertsPanel
from devexplorer.gui.alerts.rules import AlertRulesForm, _Row
from devexplorer.gui.alerts.tab import QUIET_S, SETTING, AlarmLine, AlertNews
from devexplorer.gui.alerts.tab import TAB as ALERTS
from devexplorer.gui.devices.card import DeviceRow
from devexplorer.gui.devices.panel import DevicesPanel
from devexplorer.gui.plots.time_axis import clock_text
from devexplorer.gui.widgets import Banner
from devexplorer.gui.widgets.banner import OFFER_MS, PASSING_MS
from devexplorer.gui.widgets.notifications import Notifications
from devexplorer.gui.widgets.theme import DARK

NOW = 1_800_000_000.0


def feed(alerts: Alerts, second: float, device: str = "cuda:0", **fields: object) -> list[Alert]:
    return alerts.feed(DeviceSample(device=device, time_unix_s=NOW + second, **fields))  # type: ignore[arg-type]


def hot(alerts: Alerts, device: str = "cuda:0", at_s: float = 0) -> list[Alert]:
    """Make a device too hot for long enough."""
    seconds = [at_s + second for second in range(5)]
    return [
        change
        for second in seconds
        for change in feed(alerts, second, device, temperature_c=95, simulated=device.startswith("vgpu"))
    ]


@pytest.fixture
def alerts() -> Alerts:
    return Alerts()


@pytest.fixture
def panel(qtbot: QtBot, alerts: Alerts) -> AlertsPanel:
    state = state_with(CPU, CUDA, VGPU)
    state.part(AlertsState).alerts = alerts
    return hosted(qtbot, lambda _: AlertsPanel(state), 1400, 320)


def shown(panel: AlertsPanel) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in panel.table.rows]


# --- the list


def test_nothing_wrong_is_said_in_one_sentence(panel: AlertsPanel) -> None:
    assert panel.nothing.isVisible()
    assert panel.nothing.text() == "Nothing is wrong: no alert is active, and none was raised in this session."
    assert ALERTS.count is not None
    assert ALERTS.count(panel._state) == 0
    assert not panel.dismiss_button.isVisible()
    panel._state.recording = "recording of a host"
    panel.refresh()
    assert panel.nothing.isVisible()
    assert "at this moment of the recording" in panel.nothing.text()


def test_active_alerts_are_above_those_that_are_over(panel: AlertsPanel, alerts: Alerts) -> None:
    hot(alerts)
    for second in range(5, 10):
        feed(alerts, second, temperature_c=50)
    hot(alerts, "vgpu:0")
    alerts.problems([Problem("the card is lost", device="cuda:0")])
    panel.refresh()

    lost, simulated, over = shown(panel)
    assert lost[:5] == ["✕ Alert", "cuda:0", "Lost, or does not answer", "the card is lost", "—"]
    assert simulated[:6] == ["✕ Alert", "vgpu:0 simulated", "Temperature", "", "95 °C", "85 °C"]
    assert over[:6] == ["Cleared", "cuda:0", "Temperature", "", "95 °C", "85 °C"]
    assert over[6].startswith("< "), "it began before the first reading"
    assert over[7] == "8 s"
    assert ALERTS.count is not None
    assert ALERTS.count(panel._state) == 2
    assert panel.summary.text() == "2 alerts now"
    assert panel.table.isVisible()
    assert panel.table.rows[0].cells[1].colour == 0


def test_a_notice_is_distinguished_from_an_alarm_and_counts_as_none(panel: AlertsPanel, alerts: Alerts) -> None:
    for second in range(45):
        feed(alerts, second, throttle_reasons=("power cap",), power_w=1)
    panel.refresh()
    assert shown(panel)[0][0] == "△ Notice"
    assert ALERTS.count is not None
    assert ALERTS.count(panel._state) == 0
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
    panel.table.selectRow([row[2] for row in shown(panel)].index("New uncorrected ECC errors"))
    with qtbot.waitSignal(panel.dismissed) as said:
        panel.dismiss_button.click()
    assert said.args == ["cuda:0", NEW_ECC_ERRORS]
    panel.refresh()
    assert [row[0] for row in shown(panel)] == ["✕ Alert", "Cleared"]


def test_why_is_in_sight_and_a_click_leads_to_the_device_and_the_moment(
    qtbot: QtBot, panel: AlertsPanel, alerts: Alerts
) -> None:
    for second in range(20):
        feed(alerts, second, throttle_reasons=("hardware thermal slowdown",) if second >= 4 else ())
    panel.refresh()
    table = panel.table
    why = table.visualRect(panel.table.rows_model.index(0, 3))
    assert table.viewport().rect().contains(why)
    assert why.width() > table.fontMetrics().horizontalAdvance("hardware thermal slowdown") + 16
    assert not table.isColumnHidden(6), "nor is there an alert without the time when it began"
    devices: list[object] = []
    moments: list[float] = []
    panel.device_chosen.connect(devices.append)
    panel.moment_chosen.connect(moments.append)
    qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=why.center())
    assert (devices, moments) == (["cuda:0"], [])
    qtbot.keyClick(table, Qt.Key.Key_Return)
    assert moments == [NOW + 4]
    qtbot.mouseDClick(table.viewport(), Qt.MouseButton.LeftButton, pos=why.center())
    assert moments == [NOW + 4, NOW + 4]


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    quiet = QuietWindow(qapp, tmp_path, CPU, CUDA)
    yield quiet
    quiet.close()


def test_a_double_click_holds_the_plots_at_the_moment(qtbot: QtBot, quiet: QuietWindow) -> None:
    window = quiet.window
    window.axis.advance(NOW + 500)
    hot(alerts_of(window.state))
    page = ALERTS.show(window.context)
    page.refresh()
    since = alerts_of(window.state).active[0].since_unix_s
    where = page.table.visualRect(page.table.rows_model.index(0, 2)).center()
    qtbot.mouseClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    qtbot.mouseDClick(page.table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert window.axis.paused
    assert (window.axis.left_unix_s + window.axis.right_unix_s) / 2 == pytest.approx(since)


# --- the rules


@pytest.fixture
def form(qtbot: QtBot) -> AlertRulesForm:
    return hosted(qtbot, lambda _: AlertRulesForm(DEFAULT_RULES), 600, 400)


def rule(rules: tuple[Rule, ...], metric: str) -> Rule:
    return next(rule for rule in rules if rule.metric == metric)


def row_of(form: AlertRulesForm, metric: str) -> _Row:
    return next(row for row in form.rows if row.rule.metric == metric)


def type_into(box: QSpinBox, text: str) -> None:
    """As the user does it: select what is there, type, Enter."""
    box.setFocus()
    box.selectAll()
    QTest.keyClicks(box, text)
    QTest.keyClick(box, Qt.Key.Key_Return)


def test_what_is_typed_after_a_click_is_a_new_figure(qtbot: QtBot, form: AlertRulesForm) -> None:
    row = form.rows[3]
    form.activateWindow()
    qtbot.mouseClick(row.raise_at.lineEdit(), Qt.MouseButton.LeftButton)
    QApplication.processEvents()
    qtbot.keyClicks(row.raise_at, "80")
    qtbot.keyClick(row.raise_at, Qt.Key.Key_Return)
    assert row.raise_at.value() == 80


def test_thresholds_that_cross_are_refused_at_the_row_and_the_rule_stays(qtbot: QtBot, form: AlertRulesForm) -> None:
    row = row_of(form, "memory_used_percent")
    type_into(row.raise_at, "80")
    before = row.rule
    assert (before.raise_at, before.clear_at, row.clear_at.text()) == (80, 75, "75 %"), "the other figure comes along"
    with qtbot.assertNotEmitted(form.rules_changed):
        type_into(row.clear_at, "85")
        QApplication.processEvents()
        assert row.problem.isVisible()
        assert (
            row.problem.text()
            == "“clear at” must be below “raise at” (80 %). Until then the rule stays at 80 % and 75 %."
        )
        assert row.problem.geometry().top() >= row.raise_at.geometry().bottom(), "it stands at its fields"
        assert "must be below" in row.clear_at.toolTip()
        assert (row.rule, row.side.currentText()) == (before, "too high")
        type_into(row.clear_at, "80")
        assert row.problem.isVisible(), "equal figures would raise and clear at once"
    with qtbot.waitSignal(form.rules_changed) as said:
        type_into(row.clear_at, "70")
    assert rule(said.args[0], "memory_used_percent") == Rule(
        metric="memory_used_percent", raise_at=80, clear_at=70, seconds=2
    )
    assert not row.problem.isVisible()


@pytest.mark.parametrize(
    ("raised", "cleared"),
    [
        ((95, 80, 1, 80), 75),  # as far below as it was chosen, though it had to stop at 0 in between
        ((1, 50), 45),
        ((80, 97), 90),  # what was chosen makes a rule again
        ((97, 95), 90),
        ((100, 0, 100), 90),
    ],
)
def test_clear_at_comes_along_and_comes_back(form: AlertRulesForm, raised: tuple[int, ...], cleared: int) -> None:
    row = row_of(form, "memory_used_percent")
    for figure in raised:
        type_into(row.raise_at, f"{figure}")
    assert (row.rule.raise_at, row.rule.clear_at) == (raised[-1], cleared)
    type_into(row.clear_at, "40")
    for figure in (30, 1, 60):
        type_into(row.raise_at, f"{figure}")
    assert row.rule.clear_at == 40, "the user has chosen another figure meanwhile"


def test_a_rule_is_about_all_devices_or_those_that_are_chosen(qtbot: QtBot) -> None:
    form = hosted(qtbot, lambda _: AlertRulesForm(DEFAULT_RULES, lambda: ("cuda:0", "cuda:1")), 760, 400)
    row = row_of(form, "temperature_c")

    def choose(text: str) -> list[str]:
        """Click an entry of the menu; those that are checked when it is opened again."""
        menu = row.devices.menu()
        for _ in range(2):
            menu.aboutToShow.emit()
            if text:
                next(action for action in menu.actions() if action.text() == text).trigger()
                text = ""
        return [action.text() for action in menu.actions() if action.isChecked()]

    assert (row.devices.text(), choose("")) == ("all", ["All devices"])
    assert choose("cuda:1") == ["cuda:1"]
    assert (row.devices.text(), rule(form.rules, "temperature_c").devices) == ("1", ("cuda:1",))
    assert "cuda:1" in row.devices.toolTip()
    assert choose("cuda:0") == ["cuda:0", "cuda:1"]
    assert choose("All devices") == ["All devices"]
    assert rule(form.rules, "temperature_c").devices == ()
    assert choose("cuda:1") == ["cuda:1"]
    again = hosted(qtbot, lambda _: AlertRulesForm(form.rules), 760, 400)
    assert row_of(again, "temperature_c").devices.text() == "1", "and what is not there now is still chosen"
    again.rows[0].devices.menu().aboutToShow.emit()


def test_a_rule_turns_round_when_the_user_says_so(qtbot: QtBot, form: AlertRulesForm) -> None:
    row = row_of(form, "memory_used_percent")
    with qtbot.waitSignal(form.rules_changed) as said:
        row.side.setFocus()
        QTest.keyClick(row.side, Qt.Key.Key_Down)
        row.side.activated.emit(row.side.currentIndex())
    assert rule(said.args[0], "memory_used_percent") == Rule(
        metric="memory_used_percent", raise_at=90, clear_at=95, seconds=2
    )
    assert (row.raise_at.text(), row.clear_at.text()) == ("90 %", "95 %")
    type_into(row.clear_at, "85")
    assert row.problem.text().startswith("“clear at” must be above “raise at” (90 %).")
    again = hosted(qtbot, lambda _: AlertRulesForm(form.rules), 600, 400)
    assert row_of(again, "memory_used_percent").side.currentText() == "too low"


def test_auto_follows_the_card_and_the_first_step_up_is_a_sensible_figure(form: AlertRulesForm) -> None:
    row = next(row for row in form.rows if row.rule.metric == "temperature_c")
    assert (row.raise_at.text(), row.clear_at.text(), row.clear_at.isEnabled()) == ("auto", "auto", False)
    assert "lowers its clocks" in row.raise_at.toolTip()
    assert row.clear_at.toolTip() == "auto: 5 °C below the figure at which it is raised."
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
    assert form.defaults_button.text() == "Undo defaults"
    with qtbot.waitSignal(form.rules_changed):
        form.defaults_button.click()
    assert not form.rows[1].check.isChecked(), "the user's own rule is back"
    assert form.defaults_button.text() == "Defaults"
    form.defaults_button.click()
    form.rows[2].check.click()
    assert form.defaults_button.text() == "Defaults", "after another change there is nothing to undo"


def lines(menu: QMenu) -> dict[str, QAction]:
    """What a menu and those in it offer."""
    result: dict[str, QAction] = {}
    for action in menu.actions():
        result |= lines(inner) if (inner := action.menu()) is not None else {action.text(): action}
    return result


def test_a_rule_for_any_other_metric_can_be_added_and_removed(qtbot: QtBot, form: AlertRulesForm) -> None:
    menu = form.add_button.menu()
    assert len(menu.actions()) <= 14, "it is on one screen, and read at a glance"
    offered = lines(menu)
    assert "Power" in offered
    assert set(offered) == {
        f"{quantity.label} (has a rule)" if quantity.id in {rule.metric for rule in DEFAULT_RULES} else quantity.label
        for quantity in QUANTITIES.values()
    }
    offered["Temperature (has a rule)"].trigger()
    assert form.rules == DEFAULT_RULES
    assert QApplication.focusWidget() is form.rows[1].raise_at
    with qtbot.waitSignal(form.rules_changed) as said:
        offered["Power"].trigger()
    assert rule(said.args[0], "power_w").raise_at == 300
    row = form.rows[-1]
    assert row.raise_at.text() == "300 W"
    assert all(other.remove is None for other in form.rows[:-1]), "the defaults stay"
    assert row.remove is not None
    row.remove.click()
    assert form.rules == DEFAULT_RULES


def test_a_rule_that_was_added_is_in_sight_as_soon_as_there_is_room_for_it(qtbot: QtBot) -> None:
    low = hosted(qtbot, lambda _: AlertRulesForm(DEFAULT_RULES), 600, 160)
    QApplication.processEvents()
    lines(low.add_button.menu())["Power"].trigger()
    QApplication.processEvents()
    control, area = low.rows[-1].raise_at, low.scroll_area
    area.verticalScrollBar().setValue(0)  # the place was asked for before the row had it
    area.verticalScrollBar().setMaximum(area.verticalScrollBar().maximum() + 1)
    seen = control.mapTo(area.viewport(), control.rect().bottomRight())
    assert control.hasFocus()
    assert area.viewport().rect().contains(seen)


def test_bytes_are_chosen_in_gib_and_an_untouched_figure_stays_exact(form: AlertRulesForm) -> None:
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
        QPointF(5, 5), QPointF(5, 5), QPoint(0, 0), QPoint(0, 120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(box, wheel)
    assert box.value() == before


# --- on the desktop


class FakeDesktop:
    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.hidden = False

    def show(self) -> None:
        self.hidden = False

    def showMessage(self, title: str, text: str, *_how: object) -> None:
        self.messages.append((title, text))

    def hide(self) -> None:
        self.hidden = True


class Told:
    """A window with a fake desktop, and what was said there."""

    def __init__(self, quiet: QuietWindow, make: Callable[[], FakeDesktop | None] | None = None) -> None:
        self.now = 0.0
        self.desktop = FakeDesktop()
        self.asked = 0

        def desktop() -> FakeDesktop | None:
            self.asked += 1
            return self.desktop if make is None else make()

        context = quiet.window.context
        self.notifications = context.notifications
        self.notifications._make_tray = desktop  # type: ignore[assignment]
        self.tell = AlertNews(context, lambda: self.now).tell


def test_an_alarm_is_said_on_the_desktop_and_its_end_is_not(quiet: QuietWindow, alerts: Alerts) -> None:
    told = Told(quiet)
    told.tell([])
    assert told.asked == 0, "nobody asks the desktop for anything before there is something to say"
    hot(alerts)
    told.tell(alerts.take_news())
    assert told.desktop.messages == [("DevExplorer", "cuda:0: temperature 95 °C, raised at 85 °C.")]
    for second in range(5, 10):
        feed(alerts, second, temperature_c=50)
    told.tell(alerts.take_news())
    assert len(told.desktop.messages) == 1
    told.notifications.close()
    assert told.desktop.hidden


def test_the_same_alarm_is_said_once_a_minute_and_another_device_at_once(quiet: QuietWindow, alerts: Alerts) -> None:
    told = Told(quiet)
    changes = hot(alerts)
    for now in (0.0, 10.0, 59.0, 61.0):
        told.now = now
        told.tell(changes)
    assert len(told.desktop.messages) == 2
    told.tell(hot(alerts, "vgpu:0"))
    assert "vgpu:0 (simulated)" in told.desktop.messages[-1][1]
    assert told.asked == 1


def test_notices_and_a_user_who_wants_none_leave_the_desktop_alone(quiet: QuietWindow, alerts: Alerts) -> None:
    told = Told(quiet)
    told.tell(
        [change for second in range(45) for change in feed(alerts, second, throttle_reasons=("power cap",), power_w=1)]
    )
    quiet.window.context.save_settings(notifications=False)
    told.tell(hot(alerts))
    assert told.asked == 0


def test_many_alarms_at_once_are_one_message(quiet: QuietWindow, alerts: Alerts) -> None:
    told = Told(quiet)
    told.tell([change for index in range(16) for change in hot(alerts, f"cuda:{index}")])
    ((_, text),) = told.desktop.messages
    assert text.count("\n") == 4
    assert text.endswith("And 12 more.")


def test_where_there_is_no_desktop_nothing_is_said_there(quiet: QuietWindow, alerts: Alerts) -> None:
    told = Told(quiet, lambda: None)
    told.tell(hot(alerts))
    assert (told.asked, told.desktop.messages) == (1, [])
    plain = Notifications(QIcon())  # the real thing, on the offscreen platform: no tray, no message, no complaint of Qt
    plain.show(["It is hot."])
    plain.close()


class LongCheck(QuietWindow):
    """A window with a fake desktop, in which a check takes `seconds` until it ends."""

    def __init__(self, qapp: QApplication, folder: Path) -> None:
        super().__init__(qapp, folder)
        self.told = Told(self)
        self.window.news.long_jobs._clock = lambda: self.now

    def check(self, seconds: float) -> list[tuple[str, str]]:
        """What the desktop was told when it ended."""
        before = len(self.told.desktop.messages)
        self.tell(JobStarted(request=1, title="checking mlp", time_unix_s=self.now))
        self.now += seconds
        self.tell(JobEnded(request=1, ok=True, time_unix_s=self.now))
        return self.told.desktop.messages[before:]


@pytest.fixture
def long_check(qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LongCheck]:
    monkeypatch.setattr(QApplication, "activeWindow", lambda: None)
    check = LongCheck(qapp, tmp_path)
    yield check
    check.close()


def test_the_end_of_long_work_is_said_while_the_user_is_elsewhere(
    long_check: LongCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert long_check.check(59) == []
    assert long_check.check(90) == [("DevExplorer", "checking mlp: finished after 1:30.")]
    monkeypatch.setattr(QApplication, "activeWindow", lambda: long_check.window)
    assert long_check.check(90) == [], "who looks at the window sees it there"


def test_the_setting_that_silences_alarms_silences_the_end_of_work(long_check: LongCheck) -> None:
    page = ALERTS.show(long_check.window.context)
    page.form.desktop_check.click()
    assert not long_check.window.context.settings.notifications
    assert long_check.check(90) == []
    assert long_check.told.asked == 0
    page.form.desktop_check.click()
    assert len(long_check.check(90)) == 1
    page.form.rows[1].check.click()
    assert long_check.window.context.settings.of_features[SETTING] == page.form.rules, "rules are kept, too"


def test_a_click_on_the_message_brings_the_window_and_only_an_alarm_its_tab(
    long_check: LongCheck, alerts: Alerts
) -> None:
    shown = long_check.window.bottom_dock
    before = shown.current
    long_check.window.showMinimized()
    long_check.check(90)
    long_check.told.notifications._clicked()
    assert not long_check.window.isMinimized()
    assert shown.current == before
    long_check.told.tell(hot(alerts))
    long_check.told.notifications._clicked()
    assert shown.current == "alerts"


# --- in the banner and on the cards


@pytest.fixture
def line(qtbot: QtBot) -> Banner:
    return hosted(qtbot, lambda _: Banner(), 900, 40)


def test_the_line_speaks_of_the_worst_alarm_and_counts_the_others(qtbot: QtBot, line: Banner) -> None:
    state = State()
    alarm_line = AlarmLine(state, line)

    def beat() -> None:
        alarm_line.changed(alerts_of(state).take_news())

    hot(alerts_of(state))
    beat()
    assert line.words.full_text == "cuda:0: temperature 95 °C, raised at 85 °C."
    for at_s, device in ((10, "cuda:1"), (20, "cuda:2")):
        for second in range(5):
            feed(alerts_of(state), at_s + second, device, temperature_c=96)
        beat()
    assert line.words.full_text == "cuda:0: temperature 95 °C, raised at 85 °C. 2 other alerts are active.", (
        "alike, it lasts longest"
    )
    feed(alerts_of(state), 25, "cuda:0", temperature_c=99)
    alarm_line.refresh()
    assert "99 °C" in line.words.full_text, "the present figure"
    for second in range(26, 40):
        feed(alerts_of(state), second, "cuda:2", temperature_c=50, throttle_reasons=("hardware thermal slowdown",))
    beat()
    assert line.words.full_text == "cuda:2: throttled: hardware thermal slowdown. 2 other alerts are active.", (
        "it is worse than what is older"
    )
    for second in range(40, 60):
        feed(alerts_of(state), second, "cuda:2", temperature_c=50, throttle_reasons=())
    beat()
    assert line.words.full_text == "cuda:0: temperature 99 °C, raised at 85 °C. 1 other alert is active."
    qtbot.mouseClick(line.close_button, Qt.MouseButton.LeftButton)
    alarm_line.refresh()
    assert not line.isVisible(), "dismissed"
    hot(alerts_of(state), "cuda:3", 60)
    beat()
    assert line.words.full_text == "cuda:3: temperature 95 °C, raised at 85 °C. 2 other alerts are active.", (
        "a new alarm is said also within a minute, before those that were dismissed"
    )
    for second in range(70, 75):
        feed(alerts_of(state), second, "cuda:3", temperature_c=50)
    beat()
    assert line.words.full_text == f"cuda:3: temperature 95 °C, raised at 85 °C. Cleared at {clock_text(NOW + 73)}.", (
        "nothing is wrong any more that was not dismissed, and nothing moves under the mouse"
    )
    qtbot.mouseClick(line.close_button, Qt.MouseButton.LeftButton)
    alarm_line.refresh()
    assert not line.isVisible()


def test_an_alarm_that_comes_and_goes_brings_the_dismissed_line_back_after_ten_minutes(line: Banner) -> None:
    state, now_s = State(), [0.0]
    alarm_line = AlarmLine(state, line, lambda: now_s[0])

    def episode(at_s: int) -> None:
        now_s[0] = at_s
        hot(alerts_of(state), "cuda:0", at_s)
        alarm_line.changed(alerts_of(state).take_news())

    episode(0)
    assert line.isVisible()
    line.close_button.click()
    for at_s in (100, 200):
        for second in range(at_s - 20, at_s - 10):
            feed(alerts_of(state), second, "cuda:0", temperature_c=50)
        episode(at_s)
        assert not line.isVisible(), "it was dismissed"
    for second in range(300, 310):
        feed(alerts_of(state), second, "cuda:0", temperature_c=50)
    alarm_line.changed(alerts_of(state).take_news())
    episode(int(QUIET_S) + 1)
    assert line.isVisible()


def test_what_was_dismissed_or_is_over_on_one_machine_is_no_news_of_another(line: Banner) -> None:
    state = State()
    alarm_line = AlarmLine(state, line, lambda: 0.0)
    hot(alerts_of(state))
    alarm_line.changed(alerts_of(state).take_news())
    for second in range(10, 20):
        feed(alerts_of(state), second, "cuda:0", temperature_c=50)
    alarm_line.changed(alerts_of(state).take_news())
    assert "Cleared at" in line.words.full_text
    alarm_line.forget()
    alarm_line.refresh()
    assert not line.isVisible()
    hot(alerts_of(state), "cuda:0", 20)
    alarm_line.changed(alerts_of(state).take_news())
    line.close_button.click()
    alarm_line.forget()
    state.part(AlertsState).alerts = Alerts()
    hot(alerts_of(state))
    alarm_line.changed(alerts_of(state).take_news())
    assert line.isVisible()


def test_the_line_leaves_other_messages_alone_and_its_button_leads_to_the_alerts(qtbot: QtBot, line: Banner) -> None:
    state = State()
    alarm_line = AlarmLine(state, line)
    hot(alerts_of(state))
    alarm_line.changed(alerts_of(state).take_news())
    with qtbot.waitSignal(line.action_chosen):
        qtbot.mouseClick(line.action_button, Qt.MouseButton.LeftButton)
    line.say("The engine ended.", error=True)
    alarm_line.refresh()
    assert line.words.full_text == "The engine ended."
    assert not line.action_button.isVisible()
    for second in range(45):
        feed(alerts_of(state), 100 + second, "cuda:9", throttle_reasons=("power cap",), power_w=1)
    alarm_line.changed(alerts_of(state).take_news())
    assert line.words.full_text == "The engine ended.", "a notice is not shown in the banner"
    line.say("Select an object first.", passing=True)
    line.passing.timeout.emit()
    alarm_line.refresh()
    assert line.words.full_text.startswith("cuda:0: temperature"), "it comes back after a hint"


def test_an_alarm_does_not_put_its_button_where_another_is_about_to_be_clicked(line: Banner) -> None:
    state = State()
    alarm_line = AlarmLine(state, line)
    line.say("Recorded to a.devrec.", passing=True, action="Open")
    hot(alerts_of(state))
    alarm_line.changed(alerts_of(state).take_news())
    assert line.action_button.text() == "Open"
    line.passing.start(OFFER_MS - 2 * PASSING_MS)  # timers of Qt are up to 5 % late
    alarm_line.refresh()
    assert line.words.full_text.startswith("cuda:0: temperature"), "it waits for no more than a few seconds"


def test_a_card_says_its_alarms_in_words_beside_a_sign(qtbot: QtBot) -> None:
    state = state_with(CPU, *(msgspec.structs.replace(CUDA, id=f"cuda:{at}") for at in range(7)))
    panel = hosted(qtbot, lambda _: DevicesPanel(state), 276, 420)
    panel.refresh_devices()
    card, row = panel.items["cuda:0"], panel.items["cuda:6"]
    assert isinstance(row, DeviceRow)
    before = card.sizeHint().height(), row.sizeHint().height()
    for device in ("cuda:0", "cuda:6"):
        hot(alerts_of(state), device)
    feed(alerts_of(state), 20, "cuda:6", memory_used_bytes=99, memory_total_bytes=100)
    feed(alerts_of(state), 23, "cuda:6", memory_used_bytes=99, memory_total_bytes=100)
    panel.refresh_texts()
    card, row = panel.items["cuda:0"], panel.items["cuda:6"]
    assert card.texts.alarm == "Temperature 95 °C"
    assert row.texts.alarm == "Temperature 95 °C, 1 more alert"
    assert (card.sizeHint().height(), row.sizeHint().height()) == before, "an alert moves nothing"
    for item in (card, row):
        assert item.spoken().startswith(f"Alert: {item.texts.alarm}. ")
        assert "alert: cuda:" in item.tip()
    QApplication.processEvents()
    assert nearest(row, DARK.error) < 40 < nearest(panel.items["cuda:5"], DARK.error), "a red sign, on this row alone"


def nearest(widget: QWidget, colour: str) -> int:
    """How near a pixel of `widget` comes to `colour`: thin strokes are mixed with what is below them."""
    image, wanted = widget.grab().toImage(), QColor(colour)
    seen = {image.pixel(x, y) for x in range(image.width()) for y in range(image.height())}
    return min(
        abs(found.red() - wanted.red()) + abs(found.green() - wanted.green()) + abs(found.blue() - wanted.blue())
        for found in map(QColor, seen)
    )
