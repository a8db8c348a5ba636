"""The alerts of a machine: one is raised when a reading is past its threshold for long enough, and cleared at a second
threshold (`Alerts`); as part of what a window knows (`AlertsState`). One thread at a time, the main one or that of a
replay.

Time is that of the samples, so a replayed recording raises the same alerts as the live window. Unknown values neither
raise nor clear anything.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from devexplorer.core.alerts.records import Alert, PastAlerts
from devexplorer.core.alerts.rules import (
    ALARM,
    DEFAULT_RULES,
    LOST,
    MEMORY_PERCENT,
    NEW_ECC_ERRORS,
    POWER_CAPPED,
    QUANTITIES,
    SHARE_WINDOW_S,
    THROTTLED,
    Limits,
    Rule,
    alert_message,
    brief_text,
    limits,
    rank,
    rules_of,
)
from devexplorer.core.base import handles
from devexplorer.core.feature import LastingState, Trouble
from devexplorer.core.records import DeviceDetails, DeviceSample, ObjectSnapshot, Problem
from devexplorer.core.records.base import BaseEvent
from devexplorer.core.session.poll import Change
from devexplorer.core.session.state import State
from devexplorer.core.telemetry.metrics import is_empty_sample

if TYPE_CHECKING:
    from devexplorer.core.devices.catalog import Catalog
    from devexplorer.core.session import Settings


HISTORY = 200
"""Cleared alerts that are kept."""
GAP_S = 30.0
"""Longest gap between two readings through which a condition is taken to last."""
OUT_OF_ORDER_S = 5.0
NO_READING = "no reading arrives from it"
REASON_WORDS = {
    THROTTLED: ("too hot", "thermal", "heat", "brake", "hardware slowdown"),
    POWER_CAPPED: ("power cap", "power limit"),
}
"""What the reasons for lower clocks are known by; others (an idle card, clocks that were set) are nothing to
report."""


@dataclass(slots=True)
class _Watch:
    """One rule on one device."""

    alert: Alert | None = None
    since: float | None = None
    """Since when the value is past the threshold that would change something."""
    seen: float = -math.inf
    begun: float = 0.0
    """When the condition began that raised the alert, or will."""


@dataclass(slots=True)
class _Share:
    """In how many of the last readings something was so, in per cent."""

    window: deque[tuple[float, bool]] = field(default_factory=deque)
    yes: int = 0
    reasons: str = ""
    """The latest."""

    @property
    def begun(self) -> float:
        """The first time in the window at which it was so."""
        return next((then for then, so in self.window if so), math.inf)

    def add(self, now: float, reasons: list[str]) -> float:
        so = bool(reasons)
        if so:
            self.reasons = ", ".join(reasons)
        if self.window and now < self.window[-1][0]:  # the clock jumped
            self.window.clear()
            self.yes = 0
        self.window.append((now, so))
        self.yes += so
        while self.window[0][0] <= now - SHARE_WINDOW_S:
            self.yes -= self.window.popleft()[1]
        return 100 * self.yes / len(self.window)


@dataclass(slots=True)
class _Device:
    """What is remembered of one device."""

    watches: dict[str, _Watch] = field(default_factory=dict)
    shares: dict[str, _Share] = field(default_factory=dict)
    details: DeviceDetails | None = None
    judged_by: list[tuple[Rule, Limits, _Figure]] | None = None
    """What its samples are judged by; None: the rules or the details are new."""
    errors: int | None = None
    """ECC errors that are not new."""
    calm: set[str] = field(default_factory=set)
    """Quantities that were not past their threshold at some time: what is past it now began after that."""
    answered: bool = False
    silent: bool = False
    named: str = ""
    """Why nothing at all can be read from it."""
    simulated: bool = False

    def copy(self) -> _Device:
        """With everything that changes."""
        shares = {
            metric: dataclasses.replace(share, window=share.window.copy()) for metric, share in self.shares.items()
        }
        watches = {metric: dataclasses.replace(watch) for metric, watch in self.watches.items()}
        return dataclasses.replace(self, watches=watches, shares=shares, calm=self.calm.copy())


class Alerts:
    """Takes samples, details and problems, and keeps the active alerts.

    Every alert that is raised or over is returned, and also kept for `take_news`.
    """

    def __init__(self, rules: Iterable[Rule] = DEFAULT_RULES) -> None:
        self._now: float | None = None
        self._devices: dict[str, _Device] = {}
        self._troubled: set[str] = set()
        """Devices that are lost, or may be: they are judged while nothing comes from them."""
        self._history: deque[Alert] = deque(maxlen=HISTORY)
        self._news: deque[Alert] = deque(maxlen=HISTORY)
        self.rules: tuple[Rule, ...] = ()
        """The rules that apply; `set_rules` changes them."""
        self.set_rules(rules)

    @property
    def now_unix_s(self) -> float:
        """The time of the latest sample, which is that of a recording while one is replayed."""
        return time.time() if self._now is None else self._now

    @property
    def active(self) -> tuple[Alert, ...]:
        """Active alerts with their latest values: alarms before notices, the most serious and longest-standing
        first."""
        watches = [watch for device in self._devices.values() for watch in device.watches.values()]
        alerts = [watch.alert for watch in watches if watch.alert is not None]
        return tuple(
            sorted(
                alerts,
                key=lambda alert: (alert.level != ALARM, alert.rank, alert.since_unix_s, alert.device, alert.metric),
            )
        )

    @property
    def alarms(self) -> tuple[Alert, ...]:
        """Those of them that are more than a notice."""
        return tuple(alert for alert in self.active if alert.level == ALARM)

    @property
    def history(self) -> tuple[Alert, ...]:
        """Cleared alerts, latest first; at most `HISTORY`."""
        return tuple(reversed(self._history))

    def begin(self, unix_s: float) -> None:
        """The time before the first sample."""
        self._now = unix_s

    def take_news(self) -> list[Alert]:
        """Alerts that were raised or are over since the last call."""
        news = list(self._news)
        self._news.clear()
        return news

    def set_rules(self, rules: Iterable[Rule]) -> list[Alert]:
        """Other rules from now on. Alerts whose rule is gone or switched off end; the others go on by the new
        figures."""
        before, self.rules = set(self.rules), tuple(rules)
        self._enabled = {rule.metric: rule for rule in self.rules if rule.enabled and rule.metric in QUANTITIES}
        changes = []
        for name, device in self._devices.items():
            device.judged_by = None
            for metric in [metric for metric in device.watches if self._rule(metric, name) is None]:
                changes += self._end(device.watches.pop(metric))
            device.calm -= {rule.metric for rule in before.symmetric_difference(self.rules)}
        for name in self._devices:
            changes += self._judge_lost(name)
        return changes

    def details(self, details: DeviceDetails) -> None:
        """What a device says about itself; thresholds that depend on it follow with the next sample."""
        device = self._device(details.device)
        device.details, device.judged_by = details, None

    def problems(self, problems: Iterable[Problem]) -> list[Alert]:
        """The whole list of what cannot be found out now: one that concerns a whole device says that the device
        is lost."""
        named = {
            problem.device: problem.reason
            for problem in problems
            if problem.device is not None and problem.field is None
        }
        for name, device in self._devices.items():
            device.named = named.pop(name, "")
        for name, reason in named.items():
            self._device(name).named = reason
        self._troubled.update(self._devices)
        return self._judge_troubled()

    def feed(self, sample: DeviceSample) -> list[Alert]:
        """Judge a sample by every rule; returns what changed."""
        now = sample.time_unix_s
        # Devices are read on threads of their own: a sample can be a little older than the one before it.
        self._now = now if self._now is None or abs(now - self._now) > OUT_OF_ORDER_S else max(now, self._now)
        device = self._device(sample.device)
        device.simulated = sample.simulated
        nothing = is_empty_sample(sample)
        device.silent = nothing and device.answered
        device.answered = device.answered or not nothing
        changes: list[Alert] = []
        if device.judged_by is None:
            device.judged_by = [
                (rule, limits(rule, device.details), _figure_of(rule.metric))
                for rule in self._enabled.values()
                if rule.metric != LOST and rule.is_about(sample.device)
            ]
        for rule, thresholds, figure_of in device.judged_by:
            figure = figure_of(sample, device)
            if figure is None or figure != figure:  # NaN: what is not known changes nothing
                continue
            if rule.metric not in device.watches and not thresholds.passed_by(figure):
                device.calm.add(rule.metric)  # as nearly always; ten readings a second of each device come here
            else:
                changes += self._judge(sample.device, device, rule, thresholds, float(figure), now)
        if device.silent:
            self._troubled.add(sample.device)
        return changes + self._judge_troubled() if self._troubled else changes

    def dismiss(self, device: str, metric: str) -> list[Alert]:
        """The user has seen an alert that does not end by itself: errors that were counted are not new any more."""
        known = self._devices.get(device)
        watch = known.watches.get(metric) if known is not None and metric == NEW_ECC_ERRORS else None
        if known is None or watch is None or watch.alert is None:
            return []
        known.errors = None  # the next sample says how many there are
        return self._end(known.watches.pop(metric))

    def keep(self, devices: Iterable[str]) -> list[Alert]:
        """Keep only these devices; alerts of others end."""
        gone = set(self._devices) - set(devices)
        self._troubled -= gone
        return [
            change
            for name in sorted(gone)
            for watch in self._devices.pop(name).watches.values()
            for change in self._end(watch)
        ]

    def adopt(self, alerts: Iterable[Alert]) -> None:
        """Take over what was found out elsewhere, by other rules: what is active goes on by these. It is told of as
        if it had been raised now."""
        for alert in alerts:
            watches = self._device(alert.device).watches
            mine = watches.get(alert.metric)
            if alert.raised:
                self._troubled.add(alert.device)
                known = self._rule(alert.metric, alert.device) is not None
                if known and (mine is None or mine.alert is None):
                    watches[alert.metric] = _Watch(self._tell(alert), seen=alert.since_unix_s, begun=alert.since_unix_s)
            elif not any(_is_same(alert, over) for over in self._history):
                self._history.append(alert)
                if mine is not None and mine.alert is not None and _is_same(alert, mine.alert):
                    self._tell(alert)
                    del watches[alert.metric]

    def copy(self) -> Alerts:
        """Another one that has come as far; its news begin anew."""
        result = Alerts(self.rules)
        result._now, result._history = self._now, self._history.copy()
        result._devices = {name: device.copy() for name, device in self._devices.items()}
        result._troubled = self._troubled.copy()
        return result

    # --- inside ------------------------------------------------------------------------------------------------------

    def _device(self, name: str) -> _Device:
        device = self._devices.get(name)
        if device is None:
            device = self._devices[name] = _Device()
        return device

    def _rule(self, metric: str, device: str) -> Rule | None:
        """The rule about that quantity of that device, if there is one."""
        rule = self._enabled.get(metric)
        return rule if rule is not None and rule.is_about(device) else None

    def _judge_troubled(self) -> list[Alert]:
        changes: list[Alert] = []
        for name in [name for name in self._devices if name in self._troubled]:
            changes += self._judge_lost(name)
            device = self._devices[name]
            if not (device.silent or device.named or LOST in device.watches):
                self._troubled.discard(name)
        return changes

    def _judge_lost(self, name: str) -> list[Alert]:
        rule = self._rule(LOST, name)
        device = self._devices[name]
        if rule is None:
            return []
        lost = bool(device.named) or device.silent
        return self._judge(name, device, rule, Limits(1.0, 0.0), float(lost), self.now_unix_s)

    def _judge(
        self, name: str, device: _Device, rule: Rule, thresholds: Limits, figure: float, now: float
    ) -> list[Alert]:
        watch = device.watches.get(rule.metric)
        past = thresholds.passed_by(figure)
        if not past:
            device.calm.add(rule.metric)
        if watch is None:
            if not past:
                return []
            watch = device.watches.setdefault(rule.metric, _Watch())
        if (
            not watch.seen <= now <= watch.seen + GAP_S
        ):  # it did not last through a gap, nor through a clock that was set back
            watch.since = None
        watch.seen = now
        if watch.alert is None:
            if not past:
                del device.watches[rule.metric]
                return []
            if watch.since is None:
                watch.since = now
                share = device.shares.get(rule.metric)
                watch.begun = now if share is None else min(share.begun, now)
            if now - watch.since < rule.seconds:
                return []
            watch.alert = Alert(
                device=name,
                metric=rule.metric,
                level=QUANTITIES[rule.metric].level,
                rank=rank(rule),
                since_unix_s=watch.begun,
                since_before=rule.metric not in device.calm and not (rule.metric == LOST and device.answered),
                value=figure,
                worst=figure,
                threshold=thresholds.raise_at,
                clear_at=thresholds.clear_at,
                below=thresholds.below,
                detail=_detail(rule.metric, device),
                simulated=device.simulated,
            )
            watch.since = None
            return [self._tell(watch.alert)]
        calm = not past and thresholds.cleared_by(figure)
        self._update(watch, thresholds, figure, "" if calm else _detail(rule.metric, device))
        if not calm:
            watch.since = None
            return []
        if watch.since is None:
            watch.since = now
        if now - watch.since < rule.seconds:
            return []
        return self._end(device.watches.pop(rule.metric), now)

    def _update(self, watch: _Watch, thresholds: Limits, figure: float, detail: str) -> None:
        alert = watch.alert
        assert alert is not None
        watch.alert = replace(
            alert,
            value=figure,
            worst=min(alert.worst, figure) if alert.below else max(alert.worst, figure),
            clear_at=thresholds.clear_at,
            detail=detail or alert.detail,
        )

    def _end(self, watch: _Watch, now: float | None = None) -> list[Alert]:
        if watch.alert is None:
            return []
        alert = replace(watch.alert, ended_unix_s=self.now_unix_s if now is None else now)
        self._history.append(alert)
        return [self._tell(alert)]

    def _tell(self, alert: Alert) -> Alert:
        self._news.append(alert)
        return alert


_Figure = Callable[[DeviceSample, _Device], float | None]
"""What a rule compares with its thresholds, None where it is not known; remembers what it needs of earlier samples."""


def _memory_percent(sample: DeviceSample, _device: _Device) -> float | None:
    used, total = sample.memory_used_bytes, sample.memory_total_bytes
    return None if used is None or not total else 100 * used / total


def _new_errors(sample: DeviceSample, device: _Device) -> float | None:
    count = sample.ecc_uncorrected
    if count is None:
        return None
    # fewer than before: the driver counts from 0 again
    device.errors = count if device.errors is None else min(device.errors, count)
    return float(count - device.errors)


def _throttled(metric: str, sample: DeviceSample, device: _Device) -> float | None:
    reasons = sample.throttle_reasons
    if reasons is None:
        return None
    held_by = [reason for reason in reasons if _is_about(metric, reason)] if reasons else []
    return device.shares.setdefault(metric, _Share()).add(sample.time_unix_s, held_by)


@cache
def _is_about(metric: str, reason: str) -> bool:
    return any(word in reason.lower() for word in REASON_WORDS[metric])


def _figure_of(metric: str) -> _Figure:
    if metric == MEMORY_PERCENT:
        return _memory_percent
    if metric == NEW_ECC_ERRORS:
        return _new_errors
    if metric in REASON_WORDS:
        return partial(_throttled, metric)
    reading = attrgetter(metric)
    return lambda sample, _device: reading(sample)


def _is_same(one: Alert, other: Alert) -> bool:
    """Whether it is the same condition, told twice: by clocks that may differ a little."""
    same = (one.device, one.metric) == (other.device, other.metric)
    return same and abs(one.since_unix_s - other.since_unix_s) < OUT_OF_ORDER_S


def _detail(metric: str, device: _Device) -> str:
    if metric == LOST:
        return device.named or NO_READING
    return device.shares[metric].reasons if metric in device.shares else ""


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
