"""The tab Alerts: what is wrong, and by which rules. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu

from devexplorer.core.alerts.judging import alerts_of
from devexplorer.core.alerts.rules import SETTING, Rule
from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext, lazy_page

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
