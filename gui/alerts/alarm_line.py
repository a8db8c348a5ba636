"""Which alarm the line across the window speaks of: the most serious that the user has not dismissed, and how many
others there are. Main thread only."""

from __future__ import annotations

from collections.abc import Iterable

from devexplorer.core.base import count_text
from devexplorer.core.session import State
from devexplorer.core.telemetry.alert_rules import ALARM
from devexplorer.core.telemetry.alert_words import alert_message
from devexplorer.core.telemetry.alerts import Alert
from devexplorer.gui.widgets import Banner

ABOUT = "alarms"
"""What the banner is about while it shows them."""


class AlarmLine:
    """`changed` when alerts were raised or cleared, `refresh` twice a second: the figure in the line is the present
    one.

    A dismissed line comes back with the next alarm, and speaks of that one. Alarms of a recording are not shown.
    """

    def __init__(self, state: State, banner: Banner) -> None:
        self._state, self._banner = state, banner
        self._unread: set[tuple[str, str]] = set()
        """Device and quantity of what was raised since the user last dismissed the line."""
        banner.dismissed.connect(self._dismissed)

    def changed(self, news: Iterable[Alert]) -> None:
        """Speak of what was raised."""
        if self._state.recording is None:
            raised = {_key(alert) for alert in news if alert.raised and alert.level == ALARM}
            self._unread |= raised
            if raised:
                self._say()
        self.refresh()

    def refresh(self) -> None:
        """Follow what fires now; another message in the line is left alone."""
        shown, live = not self._banner.isHidden(), self._state.recording is None
        if live:
            self._unread &= {_key(alert) for alert in alarms(self._state)}
        if self._unread and live:
            if not shown or self._banner.about == ABOUT:
                self._say()
        elif shown and self._banner.about == ABOUT:
            self._banner.hide()

    def _say(self) -> None:
        active = sorted(alarms(self._state), key=lambda alert: _key(alert) not in self._unread)
        if active:
            self._banner.say(words(active), error=True, about=ABOUT, action="Show alerts")

    def _dismissed(self, about: str) -> None:
        if about == ABOUT:
            self._unread.clear()


def _key(alert: Alert) -> tuple[str, str]:
    return alert.device, alert.metric


def alarms(state: State) -> list[Alert]:
    """The alarms that fire now, the most serious and longest-standing first."""
    return [alert for alert in state.alerts.active if alert.level == ALARM]


def words(active: list[Alert]) -> str:
    """The first in a sentence, and how many others there are."""
    first = f"{alert_message(active[0]).rstrip('.')}."
    others = len(active) - 1
    if not others:
        return first
    return f"{first} {count_text(others, 'other alarm')} {'is' if others == 1 else 'are'} active."
