"""What an alert can be about, at which figures it is raised and ends, and what it says of itself. Pure, any thread.

A rule is about one quantity: any metric of `core.telemetry.metrics`, or one that is derived from samples here. Where
its two thresholds are the other way round (it ends above, not below), it is raised by values that are too low.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from devexplorer.core.alerts.records import Alert
from devexplorer.core.base import MISSING, bytes_text, count_text
from devexplorer.core.records import DeviceDetails
from devexplorer.core.telemetry.metrics import METRICS, UNITS

if TYPE_CHECKING:
    from devexplorer.core.session import Settings


ALARM, NOTICE = "alarm", "notice"
"""A notice is only listed and does not interrupt."""

LOST = "lost"
MEMORY_PERCENT = "memory_used_percent"
NEW_ECC_ERRORS = "new_ecc_errors"
THROTTLED = "throttled_percent"
POWER_CAPPED = "power_capped_percent"

SHARE_WINDOW_S = 10.0
"""Clock reasons come and go between two readings; what counts is their share of so many seconds."""
LONGEST_S = 3600.0
LARGEST = 1e18

SETTING = "alert_rules"

Figure = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """When an alert is raised and when it ends. What the user can change, and what settings store."""

    metric: str
    """Id of a `Quantity`."""
    enabled: bool = True
    raise_at: Figure | None = None
    """In the quantity's unit. None: follows from what the card says about itself (`limits`)."""
    clear_at: Figure | None = None
    """On the calm side of `raise_at`; between the two nothing changes."""
    seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)] = 0.0
    """How long the value must stay past a threshold, in both directions."""
    devices: tuple[str, ...] = ()
    """Ids of those that it is about; empty: all."""

    def is_about(self, device: str) -> bool:
        """Whether it is switched on for that device."""
        return self.enabled and (not self.devices or device in self.devices)


Rules = tuple[Rule, ...]
"""As the user left them; `complete` adds the defaults and leaves out what this version does not know."""


class Quantity(NamedTuple):
    """Something that a rule can be about."""

    id: str
    label: str
    unit: str
    """A key of `UNITS`."""
    meaning: str
    level: str = ALARM
    fixed: bool = False
    """Whether it is so or not: there is no threshold to choose."""
    auto: str = ""
    """What the thresholds are when the card decides; empty: the user does."""


_SPECIAL = (
    Quantity(
        LOST,
        "Lost, or does not answer",
        "count",
        "The card fell off the bus, or its driver does not answer.",
        fixed=True,
    ),
    Quantity(
        "temperature_c",
        "Temperature",
        "celsius",
        "Of the chip.",
        auto="3 °C below the temperature at which the card lowers its clocks, or 85 °C where it is not reported",
    ),
    Quantity(
        "memory_temperature_c",
        "Memory temperature",
        "celsius",
        "Of the memory, where the card tells.",
        auto="3 °C below the highest temperature that the card allows its memory, or 95 °C where it is not reported",
    ),
    Quantity(MEMORY_PERCENT, "Memory in use", "percent", "Share of the total memory that all processes use."),
    Quantity(
        NEW_ECC_ERRORS,
        "New uncorrected ECC errors",
        "count",
        "Uncorrectable memory errors since this window was opened. The alert stays until you dismiss "
        "it or the driver's counter restarts.",
    ),
    Quantity(
        THROTTLED,
        "Throttled by heat or power brake",
        "percent",
        f"Share of the last {SHARE_WINDOW_S:.0f} s in which heat or the power supply's brake held the clocks down.",
    ),
    Quantity(
        POWER_CAPPED,
        "Throttled by the power cap",
        "percent",
        f"Share of the last {SHARE_WINDOW_S:.0f} s at the power cap. Normal under full load, so it is a notice, not"
        " an alert.",
        level=NOTICE,
    ),
)
QUANTITIES: dict[str, Quantity] = {quantity.id: quantity for quantity in _SPECIAL} | {
    metric.id: Quantity(metric.id, metric.label, metric.unit, "")
    for metric in METRICS
    if metric.id not in ("temperature_c", "memory_temperature_c")
}
"""Everything that a rule can be about, by id."""

DEFAULT_RULES: tuple[Rule, ...] = (
    Rule(metric=LOST, raise_at=1, clear_at=0, seconds=0),
    Rule(metric="temperature_c", seconds=3),
    Rule(metric="memory_temperature_c", seconds=3),
    Rule(metric=MEMORY_PERCENT, raise_at=95, clear_at=90, seconds=2),
    Rule(metric=NEW_ECC_ERRORS, raise_at=1, clear_at=0, seconds=0),
    Rule(metric=THROTTLED, raise_at=50, clear_at=10, seconds=5),
    Rule(metric=POWER_CAPPED, raise_at=90, clear_at=50, seconds=30),
)
_MOST_SERIOUS = (LOST, THROTTLED, NEW_ECC_ERRORS)
_FIRST_GUESS = {
    "percent": (90.0, 80.0),
    "celsius": (85.0, 80.0),
    "watt": (300.0, 280.0),
    "bytes": (8.0 * 2**30, 7.0 * 2**30),
    "bytes_s": (16.0 * 2**30, 12.0 * 2**30),
    "megahertz": (1000.0, 1100.0),  # too low is what one wants to hear of
    "joule": (1e9, 0.9e9),
    "count": (1.0, 0.0),
}
AUTO_CLEARS_BELOW_C = 5
"""So much below the figure at which it is raised an alert clears where the card decides."""
_LEAST_THRESHOLD_C = 40.0
"""A card that says less of itself says nothing: some answer 0 for thresholds they do not have."""


class Limits(NamedTuple):
    """The two thresholds of a rule on one card."""

    raise_at: float
    clear_at: float

    @property
    def below(self) -> bool:
        """Whether low values raise the alert."""
        return self.clear_at > self.raise_at

    def passed_by(self, figure: float) -> bool:
        """Whether the alert is raised by it."""
        return figure <= self.raise_at if self.clear_at > self.raise_at else figure >= self.raise_at

    def cleared_by(self, figure: float) -> bool:
        """Whether the alert ends by it."""
        return figure >= self.clear_at if self.clear_at > self.raise_at else figure <= self.clear_at


def limits(rule: Rule, details: DeviceDetails | None = None) -> Limits:
    """The thresholds of `rule` on the card with these details."""
    if rule.raise_at is not None:
        return Limits(rule.raise_at, rule.raise_at if rule.clear_at is None else rule.clear_at)
    memory = rule.metric == "memory_temperature_c"
    reported = None
    if details is not None:
        reported = details.temperature_memory_limit_c if memory else details.temperature_slowdown_c
    raise_at = 95.0 if memory else 85.0
    if reported is not None and reported >= _LEAST_THRESHOLD_C:
        raise_at = reported - 3
    return Limits(raise_at, raise_at - AUTO_CLEARS_BELOW_C)


def rank(rule: Rule) -> int:
    """How serious what the rule finds is, the most serious 0: a lost card, clocks that are held down and errors, then
    limits of the card itself, then those that were chosen."""
    if rule.metric in _MOST_SERIOUS:
        return _MOST_SERIOUS.index(rule.metric)
    return len(_MOST_SERIOUS) + (rule.raise_at is not None)


def complete(saved: Iterable[Rule]) -> tuple[Rule, ...]:
    """The default rules, each replaced by a saved one about the same, then further saved ones. What makes no sense is
    left out."""
    known = {rule.metric: rule for rule in saved if _sensible(rule)}
    return (*(known.pop(rule.metric, rule) for rule in DEFAULT_RULES), *known.values())


def rules_of(settings: Settings) -> tuple[Rule, ...]:
    """Those of the user."""
    return complete(settings.of_features.get(SETTING, ()))


def new_rule(metric: str) -> Rule:
    """A rule to begin with, for a quantity that has none by default."""
    raise_at, clear_at = _FIRST_GUESS[QUANTITIES[metric].unit]
    return Rule(metric=metric, raise_at=raise_at, clear_at=clear_at, seconds=5)


def _sensible(rule: Rule) -> bool:
    quantity = QUANTITIES.get(rule.metric)
    if quantity is None or not all(
        math.isfinite(figure) for figure in (rule.raise_at or 0, rule.clear_at or 0, rule.seconds)
    ):
        return False
    if quantity.fixed:
        return (rule.raise_at, rule.clear_at) == (1, 0)
    return rule.raise_at is not None or bool(quantity.auto)


def figure_text(value: float, unit: str) -> str:
    """A value with its unit: `91 °C`, `95.5 %`, `527.79 MiB`, `—`."""
    if math.isnan(value):
        return MISSING
    if unit in ("bytes", "bytes_s"):
        return bytes_text(value) + ("/s" if unit == "bytes_s" else "")
    return f"{value:,.{0 if value == round(value) else 1}f} {UNITS[unit]}".rstrip()


def alert_message(alert: Alert) -> str:
    """The alert as a sentence without full stop: `cuda:1: temperature 91 °C, raised at 90 °C`."""
    device = f"{alert.device} (simulated)" if alert.simulated else alert.device
    quantity = QUANTITIES[alert.metric]
    figure = figure_text(alert.value if alert.raised else alert.worst, quantity.unit)
    if alert.metric == LOST:
        return f"{device} is lost or does not answer: {alert.detail}"
    if alert.metric == NEW_ECC_ERRORS:
        return f"{device}: {count_text(int(alert.worst), 'new memory error')} that ECC could not correct"
    if alert.detail:
        return f"{device}: throttled: {alert.detail}"
    label = quantity.label[:1].lower() + quantity.label[1:] if quantity.label[1:2].islower() else quantity.label
    return (
        f"{device}: {label} {figure}, raised at"
        f" {figure_text(alert.threshold, quantity.unit)}{' and below' if alert.below else ''}{calming_text(alert)}"
    )


def brief_text(alert: Alert) -> str:
    """In a few words: `Temperature 91 °C`."""
    quantity = QUANTITIES[alert.metric]
    words = quantity.label
    if not (quantity.fixed or alert.metric == NEW_ECC_ERRORS):
        words += f" {figure_text(alert.value, quantity.unit)}"
    return words + calming_text(alert)


def calming_text(alert: Alert) -> str:
    """What an alert that is raised waits for, where its value is not past the threshold any more."""
    limits = Limits(alert.threshold, alert.clear_at)
    if not alert.raised:
        return ""
    if limits.cleared_by(alert.value):
        return ", clearing"
    if not limits.passed_by(alert.value):
        return f", clears at {figure_text(alert.clear_at, QUANTITIES[alert.metric].unit)}"
    return ""
