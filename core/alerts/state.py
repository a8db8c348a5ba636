"""The alerts of a machine, as part of what a window knows of it. Main thread, or that of a replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

from devexplorer.core.alerts.judging import Alerts
from devexplorer.core.alerts.records import PastAlerts
from devexplorer.core.alerts.rules import ALARM, QUANTITIES, rules_of
from devexplorer.core.alerts.words import alert_message, brief_text
from devexplorer.core.base import handles
from devexplorer.core.feature import LastingState, Trouble
from devexplorer.core.records import DeviceDetails, DeviceSample, ObjectSnapshot
from devexplorer.core.records.base import BaseEvent
from devexplorer.core.session.change import Change
from devexplorer.core.session.state import State

if TYPE_CHECKING:
    from devexplorer.core.devices.catalog import Catalog
    from devexplorer.core.session import Settings


class AlertsState(LastingState):
    """Feeds `alerts`."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        super().__init__(objects)
        self.alerts = Alerts()
        self._devices: frozenset[str] = frozenset()

    def devices_changed(self, catalog: Catalog) -> Change | None:
        """Alerts of devices that are gone end; those that cannot be read are lost."""
        self._devices = frozenset(info.id for info in catalog.devices)
        ended = [*self.alerts.keep(self._devices), *self.alerts.problems(catalog.problems)]
        return Change.ALERTS if ended else None

    @handles(DeviceDetails)
    def _details(self, details: DeviceDetails) -> None:
        if details.device in self._devices:
            self.alerts.details(details)

    @handles(DeviceSample)
    def _sample(self, sample: DeviceSample) -> Change | None:
        return Change.ALERTS if sample.device in self._devices and self.alerts.feed(sample) else None

    @handles(PastAlerts)
    def _past(self, past: PastAlerts) -> Change:
        known = (alert for alert in past.alerts if alert.device in self._devices and alert.metric in QUANTITIES)
        self.alerts.adopt(known)
        return Change.ALERTS

    def follow(self, settings: Settings) -> None:
        """Thresholds are the user's, not the machine's."""
        if (rules := rules_of(settings)) != self.alerts.rules:
            self.alerts.set_rules(rules)

    def troubles(self) -> Sequence[Trouble]:
        """The active alerts and notices."""
        return [
            Trouble(alert.device, brief_text(alert), alert_message(alert), alert.level == ALARM)
            for alert in self.alerts.active
        ]

    def past(self) -> Iterable[BaseEvent]:
        """All that are known."""
        yield PastAlerts(alerts=(*reversed(self.alerts.history), *self.alerts.active))

    def go_on_from(self, older: Self) -> None:
        """What is active there goes on."""
        older.alerts.adopt((*reversed(self.alerts.history), *self.alerts.active))
        self.alerts = older.alerts

    def copy(self) -> Self:
        """Another one that has come as far; its news begin anew."""
        result = type(self)(self.objects)
        result.alerts, result._devices = self.alerts.copy(), self._devices
        return result

    def begin(self, unix_s: float) -> None:
        """The time before the first reading."""
        self.alerts.begin(unix_s)


def alerts_of(state: State) -> Alerts:
    """The alerts of the machine that this is about."""
    return state.part(AlertsState).alerts
