"""Which alarm the line across the window speaks of: the most serious that fires now, and how many others do. Main
thread only."""

from __future__ import annotations

from collections.abc import Iterable

from devexplorer.core.base import count_text
from devexplorer.core.session import State
from devexplorer.core.telemetry.alert_rules import ALARM
from devexplorer.core.telemetry.alerts import Alert, alert_message
from devexplorer.gui.widgets import Banner

ABOUT = "alarms"
"""What the banner is about while it shows them."""


class AlarmLine:
    """`changed` when alerts were raised or cleared, `refresh` twice a second: the figure in the line is the present
    one.

    A dismissed line comes back with the next alarm. Alarms of a recording are not shown.
    """

    def __init__(self, state: State, banner: Banner) -> None:
        self._state, self._banner = state, banner
        self._wanted = False
        """An alarm was raised and the user has not dismissed the line."""
        banner.dismissed.connect(self._dismissed)

    def changed(self, news: Iterable[Alert]) -> None:
        """Speak of what was raised."""
        if self._state.recording is None and any(alert.raised and alert.level == ALARM for alert in news):
            self._wanted = True
            self._say()
        self.refresh()

    def refresh(self) -> None:
        """Follow what fires now; another message in the line is left alone."""
        shown = not self._banner.isHidden()
        if self._wanted and not alarms(self._state):
            self._wanted = False
        if self._wanted and self._state.recording is None:
            if not shown or self._banner.about == ABOUT:
                self._say()
        elif shown and self._banner.about == ABOUT:
            self._banner.hide()

    def _say(self) -> None:
        if active := alarms(self._state):
            self._banner.say(words(active), error=True, about=ABOUT, action="Show alerts")

    def _dismissed(self, about: str) -> None:
        if about == ABOUT:
            self._wanted = False


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
