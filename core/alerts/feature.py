"""Alerts: rules for the readings of devices, and what is said when one is broken. Data; any thread."""

from __future__ import annotations

from devexplorer.core.alerts.records import PastAlerts
from devexplorer.core.feature import Feature

FEATURE = Feature(
    events=(PastAlerts,),
    state="core.alerts.judging:AlertsState",
    tab="gui.alerts.tab:TAB",
    window="gui.alerts.tab:AlertNews",
    device_menu="gui.alerts.tab:fill_device_menu",
    settings=(("alert_rules", "core.alerts.rules:Rules"),),
)
