"""What an alert says of itself. Pure, any thread."""

from __future__ import annotations

from devexplorer.core.alerts.records import Alert
from devexplorer.core.alerts.rules import LOST, NEW_ECC_ERRORS, QUANTITIES, Limits, figure_text
from devexplorer.core.base import count_text


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
