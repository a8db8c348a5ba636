"""Which alarm the line in the status bar speaks of: the most serious that the user has not dismissed, and how many
others there are; when all of them are over, the last. Main thread only."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from devexplorer.core.alerts.records import Alert
from devexplorer.core.alerts.rules import ALARM
from devexplorer.core.alerts.state import alerts_of
from devexplorer.core.alerts.words import alert_message
from devexplorer.core.base import Clock, count_text
from devexplorer.core.session import State
from devexplorer.gui.plots.time_axis import clock_text
from devexplorer.gui.widgets import Banner

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
