"""The tab Alerts: what is wrong, and by which rules; and the line in the status bar that says so. Main thread only."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QMenu

from devexplorer.core.alerts.judging import alerts_of
from devexplorer.core.alerts.records import Alert
from devexplorer.core.alerts.rules import ALARM, SETTING, Rule, alert_message
from devexplorer.core.base import Clock, count_text
from devexplorer.core.session import Change, State
from devexplorer.gui.actions import TabSpec, WindowContext, lazy_page
from devexplorer.gui.plots.time_axis import clock_text
from devexplorer.gui.widgets import Banner

if TYPE_CHECKING:
    from devexplorer.gui.alerts.page import AlertsPanel


def _connect(context: WindowContext, page: AlertsPanel) -> None:
    page.form.rules_changed.connect(partial(_set_rules, context))
    page.form.desktop_check.setChecked(context.settings.notifications)
    page.form.desktop_check.toggled.connect(lambda on: context.save_settings(notifications=on))
    page.dismissed.connect(partial(_dismiss, context))
    page.device_chosen.connect(context.device_requested)
    page.moment_chosen.connect(context.axis.show_moment)


def _set_rules(context: WindowContext, rules: tuple[Rule, ...]) -> None:
    context.remember(**{SETTING: rules})
    context.redraw(Change.ALERTS)


def _dismiss(context: WindowContext, device: str, metric: str) -> None:
    alerts_of(context.state).dismiss(device, metric)
    context.redraw(Change.ALERTS)


def fill_device_menu(menu: QMenu, context: WindowContext, _device: str) -> None:
    """A way to make a rule."""
    menu.addAction("Alert…", lambda: TAB.show(context).form.add_button.setFocus(Qt.FocusReason.TabFocusReason))


TAB: TabSpec[AlertsPanel] = TabSpec(
    "alerts",
    lazy_page("devexplorer.gui.alerts.page:AlertsPanel", _connect),
    "monitor",
    Change.ALERTS,
    live=True,
    count=lambda state: len(alerts_of(state).alarms),
    tooltip="Alerts and their rules: temperature, memory, throttling, errors, any reading",
    order=150,
)


# Which alarm the line in the status bar speaks of: the most serious that the user has not dismissed, and how many
# others there are; when all of them are over, the last.

ABOUT = "alarms"
"""What the banner is about while it shows them."""
QUIET_S = 600.0
"""For so long after it was dismissed the same alarm of a device does not bring the line back: a card that is throttled
every other minute would be said each time."""


class AlarmLine:
    """`changed` when alerts were raised or cleared, `refresh` once or twice a second: the figure in the line is the
    present one.

    The line stays until it is dismissed, and comes back after a hint. It comes back with the next alarm as well, and
    speaks of that one. Alarms of a recording are not shown.
    """

    def __init__(self, state: State, banner: Banner, clock: Clock = time.time) -> None:
        self._state, self._banner, self._clock = state, banner, clock
        self._over: Alert | None = None
        """The last that ended while the line spoke of alarms."""
        self._dismissed_s: dict[tuple[str, str], float] = {}
        """Device and quantity of what was dismissed, and when (unix seconds)."""
        self._raised = False
        """Whether there is news that the line does not show yet."""
        self._unread: set[tuple[str, str]] = set()
        """Device and quantity of what was raised since the user last dismissed the line."""
        banner.dismissed.connect(self._dismissed)

    def forget(self) -> None:
        """Another machine is shown: its devices have the same names, and nothing of it was dismissed."""
        self._unread.clear()
        self._raised = False
        self._dismissed_s.clear()
        self._over = None

    def changed(self, news: Iterable[Alert]) -> None:
        """Speak of what was raised."""
        known = set(self._unread)
        for alert in news:
            key = _key(alert)
            if self._state.recording is not None or alert.level != ALARM:
                continue
            if not alert.raised and key in known:
                self._over = alert
            elif alert.raised and self._clock() - self._dismissed_s.get(key, -math.inf) >= QUIET_S:
                self._unread.add(key)
                self._raised = True
        self.refresh()

    def refresh(self) -> None:
        """Follow what fires now; news comes in place of another message, but not while its button is about to be
        clicked."""
        hidden, ours = self._banner.isHidden(), self._banner.about == ABOUT
        if self._state.recording is not None:
            if ours and not hidden:
                self._banner.clear()
            return
        if self._raised and not self._banner.is_fresh_offer:
            self._raised = False
        elif not (hidden or ours):
            return
        alarms = alerts_of(self._state).alarms
        self._unread &= set(map(_key, alarms))
        if self._unread:
            active = sorted(alarms, key=lambda alert: _key(alert) not in self._unread)
            self._banner.say(words(active), error=True, about=ABOUT, action="Show alerts")
        elif self._over is not None:
            self._banner.say(over_words(self._over), about=ABOUT, action="Show alerts")
        elif ours and not hidden:
            self._banner.clear()

    def _dismissed(self, about: str) -> None:
        if about == ABOUT:
            over = () if self._over is None else (_key(self._over),)
            seen = (*self._unread, *map(_key, alerts_of(self._state).alarms), *over)
            self._dismissed_s |= dict.fromkeys(seen, self._clock())
            self._unread.clear()
            self._over = None


def _key(alert: Alert) -> tuple[str, str]:
    return alert.device, alert.metric


def over_words(alert: Alert) -> str:
    """An alarm that has ended."""
    return f"{alert_message(alert).rstrip('.')}. Cleared at {clock_text(alert.ended_unix_s or 0.0)}."


def words(active: Sequence[Alert]) -> str:
    """The first in a sentence, and how many others there are."""
    first = f"{alert_message(active[0]).rstrip('.')}."
    others = len(active) - 1
    if not others:
        return first
    return f"{first} {count_text(others, 'other alert')} {'is' if others == 1 else 'are'} active."


ABOUT_OTHERS = f"{ABOUT} on "
"""What the banner is about while it shows those of another machine: this, and its name."""
APART_S = 60.0
"""Between two messages on the desktop about the same rule of the same device."""


class AlertNews(QObject):
    """One for a window."""

    def __init__(self, context: WindowContext, clock: Clock = time.monotonic) -> None:
        super().__init__(context)
        self._context, self._state, self._banner, self._clock = context, context.state, context.banner, clock
        self._line = AlarmLine(context.state, context.banner)
        self._said: dict[tuple[str, str, str], float] = {}
        self._unread: list[str] = []
        """Other machines whose alarms the line has still to say, the oldest first."""
        self._counts: dict[str, int] = {}
        context.follow(Change.ALERTS, self._take)
        context.beaten.connect(self._beat)
        context.texts_due.connect(self._line.refresh)
        context.machine_shown.connect(self._machine_shown)
        context.banner.action_chosen.connect(self._open)
        context.banner.dismissed.connect(self._read)
        context.notifications.clicked.connect(self._open)

    def tell(self, alerts: Iterable[Alert], machine: str = "") -> None:
        """Announce on the desktop what was raised, all of it in one message, and each alarm once a minute at most.
        Notices and ends are not announced. `machine`: its name, where it is not the one shown."""
        now = self._clock()
        self._said = {key: then for key, then in self._said.items() if now - then < APART_S}
        lines = []
        for alert in alerts:
            key = (machine, alert.device, alert.metric)
            if alert.raised and alert.level == ALARM and key not in self._said:
                self._said[key] = now
                whose = f"{machine}, " if machine else ""
                lines.append(f"{whose}{alert_message(alert).rstrip('.')}.")  # no capital: it begins with a device's id
        self._context.notifications.show(lines, f"{ABOUT_OTHERS}{machine}" if machine else ABOUT)

    def _take(self) -> None:
        news = alerts_of(self._state).take_news()
        if self._state.recording is None:  # alarms of a recording are past
            self.tell(news)
        self._line.changed(news)

    def _beat(self) -> None:
        if self._context.unseen or self._counts:
            self._others()

    def _others(self) -> None:
        """Say what was raised there, until it is over, dismissed, or its machine shown."""
        unseen = {machine.name: alerts_of(machine.aside) for machine in self._context.unseen}
        for name, alerts in unseen.items():
            news = alerts.take_news()
            self.tell(news, name)
            if any(alert.raised and alert.level == ALARM for alert in news):
                self._unread = [*(other for other in self._unread if other != name), name]
        counts = {name: len(alerts.alarms) for name, alerts in unseen.items()}
        self._unread = [name for name in self._unread if counts.get(name)]
        ours = self._banner.about.startswith(ABOUT_OTHERS)
        if self._unread and (ours or self._banner.isHidden()):  # anything else in the line is left alone
            name = self._unread[-1]
            text = f"{name}: {words(unseen[name].alarms)}"
            about = f"{ABOUT_OTHERS}{name}"
            if self._banner.isHidden() or (self._banner.about, self._banner.words.full_text) != (about, text):
                self._banner.say(text, error=True, about=about, action="Show alerts")
        elif ours and not self._unread:
            self._banner.clear()
        if counts != self._counts:
            self._counts = counts
            self._context.machines_changed.emit()

    def _open(self, about: str) -> None:
        if about == ABOUT:
            TAB.show(self._context)
        elif about.startswith(ABOUT_OTHERS):
            name = about.removeprefix(ABOUT_OTHERS)
            machine = next((machine for machine in self._context.unseen if machine.name == name), None)
            if machine is not None:
                self._read(about)
                self._banner.clear()
                self._context.others.show(machine)
                TAB.show(self._context)

    def _read(self, about: str) -> None:
        self._unread = [name for name in self._unread if name != about.removeprefix(ABOUT_OTHERS)]

    def _machine_shown(self) -> None:
        """What is over on the machine that is shown now is no news."""
        alerts_of(self._state).take_news()
        self._line.forget()
