"""The alerts tab: what is wrong now, what was, and the rules by which that is decided. Main thread; reads the state
only."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, cast

from PySide6.QtCore import QModelIndex, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from devexplorer.core.alerts.judging import alerts_of
from devexplorer.core.alerts.records import Alert
from devexplorer.core.alerts.rules import ALARM, NEW_ECC_ERRORS, QUANTITIES, alert_message, figure_text
from devexplorer.core.base import MISSING, count_text, elapsed_text
from devexplorer.core.session import State
from devexplorer.gui.alerts.rules import AlertRulesForm
from devexplorer.gui.widgets import (
    CENTRE,
    CPU,
    EDGE_PX,
    ROW_PX,
    UNLIMITED_PX,
    Cell,
    Colour,
    Column,
    RowsTable,
    TableRow,
    hbox,
    holder,
    label,
    lay_out,
    numbers,
    push_button,
    stack,
    thin_line,
    vbox,
)

SIDE_BY_SIDE_PX = 1180
"""From this width on the rules are beside the list."""
LEAST_ROWS = 2
"""Alerts for which the list has room at least."""
NOTHING = "Nothing is wrong: no alert is active, and none was raised in this session."
NOTHING_THEN = (
    "No alert is active at this moment of the recording. Alerts that had cleared more than a minute earlier are not"
    " listed after a jump."
)
COLUMNS = (
    Column("state"),
    Column("device"),
    Column("what"),
    Column("why"),
    numbers("value", "Now; of a cleared alert, the worst there was."),
    numbers("raised at", "The limit when it was raised."),
    Column("since", "When the condition began; “<”, before then: it was so at the first reading that is known."),
    numbers("lasted"),
)
COLUMN_PX = [80, 80, 176, 190, 60, 80, 96, 66]
WHY, RAISED_AT, SINCE, LASTED = 3, 5, 6, 7
"""Why takes what room is left."""


class AlertsPanel(QWidget):
    """The list of alerts and the form of rules; `dismissed` carries the device and the metric of an alert that the user
    has seen."""

    dismissed = Signal(str, str)
    device_chosen = Signal(object)
    """An alert of this device (its id) was clicked."""
    moment_chosen = Signal(float)
    """An alert that began then (unix seconds) was double-clicked, or Enter was pressed on it."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._over: list[TableRow] = []
        self._latest_over: tuple[Alert, ...] = ()
        self.summary = label(words="dim")
        self.dismiss_button = push_button("Dismiss", self._dismiss, look="quiet")
        self.table = RowsTable(COLUMNS, "Alerts", COLUMN_PX, stretched=WHY, gives_up=(RAISED_AT, LASTED, WHY))
        self.table.setMinimumHeight((1 + LEAST_ROWS) * ROW_PX + 8)
        self.nothing = label(NOTHING, words="dim", wrap=True, align=CENTRE)
        self.nothing.setContentsMargins(EDGE_PX, EDGE_PX, EDGE_PX, EDGE_PX)
        self.form = AlertRulesForm(alerts_of(self._state).rules, lambda: state.devices)
        self._lay_out()
        self.table.selected.connect(self._show_button)
        self.table.clicked.connect(self._choose_device)
        self.table.activated.connect(self._choose_moment)
        self.refresh()

    def _lay_out(self) -> None:
        head = hbox((self.summary, 1), self.dismiss_button, margins=(EDGE_PX, 4, 6, 0))
        self._stack = stack(self.table, self.nothing)
        self._list = holder(vbox(head, (self._stack, 1), spacing=0))
        self._line = thin_line()
        self._both = hbox((self._list, 1), self._line, self.form, spacing=0, parent=self)

    # What the window calls

    def refresh(self) -> None:
        """Show the alerts as they are now."""
        active, over = alerts_of(self._state).active, alerts_of(self._state).history
        if over[:1] != self._latest_over or len(over) != len(self._over):  # they change seldom, and can be many
            self._latest_over, self._over = over[:1], [self._row(alert) for alert in over]
        self.table.set_rows([*map(self._row, active), *self._over])
        alarms = len(alerts_of(self._state).alarms)
        notices = len(active) - alarms
        counts = [count_text(alarms, "alert")] if alarms else []
        counts += [count_text(notices, "notice")] if notices else []
        calm = "Nothing is wrong now" if over else ""
        self.summary.setText(f"{' and '.join(counts)} now" if counts else calm)
        self.nothing.setText(NOTHING if self._state.recording is None else NOTHING_THEN)
        self._stack.setCurrentWidget(self.table if active or over else self.nothing)
        self._show_button()

    # Inside

    def _row(self, alert: Alert) -> TableRow:
        quantity = QUANTITIES[alert.metric]
        is_over = alert.ended_unix_s is not None
        is_alarm = alert.level == ALARM
        colour: Colour | Literal[""] = "dim" if is_over else ""
        status = Cell("✕ Alert", "error") if is_alarm else Cell("△ Notice", "warning")  # never colour alone
        if is_over:
            status = Cell("Cleared", "dim")
        device = self._state.devices.get(alert.device)
        name = f"{alert.device} simulated" if alert.simulated else alert.device
        until = alerts_of(self._state).now_unix_s if alert.ended_unix_s is None else alert.ended_unix_s
        since = datetime.fromtimestamp(alert.since_unix_s)
        before = "before " if alert.since_before else ""
        value = alert.worst if is_over else alert.value
        figures = (
            (MISSING, MISSING)
            if quantity.fixed
            else (figure_text(value, quantity.unit), figure_text(alert.threshold, quantity.unit))
        )
        what = f"{quantity.label}, too low" if alert.below else quantity.label
        text = alert_message(alert)
        return TableRow(
            (alert.device, alert.metric, alert.since_unix_s, is_over),
            (
                status,
                Cell(name, CPU if device is None else device.colour),
                Cell(what, colour, f"{text}. {quantity.meaning}"),
                Cell(alert.detail, colour, alert.detail),
                Cell(figures[0], colour),
                Cell(figures[1], colour),
                Cell(f"{'< ' if before else ''}{since:%H:%M:%S}", colour, f"{before}{since:%Y-%m-%d %H:%M:%S}"),
                Cell(_lasted(until - alert.since_unix_s), colour),
            ),
        )

    @property
    def _selected(self) -> Alert | None:
        key = self.table.selected_key
        return next(
            (
                alert
                for alert in alerts_of(self._state).active
                if (alert.device, alert.metric, alert.since_unix_s, False) == key
            ),
            None,
        )

    def _show_button(self) -> None:
        chosen = self._selected
        can = chosen is not None and chosen.metric == NEW_ECC_ERRORS
        self.dismiss_button.setVisible(any(alert.metric == NEW_ECC_ERRORS for alert in alerts_of(self._state).active))
        self.dismiss_button.setEnabled(can)
        self.dismiss_button.setToolTip(
            "Acknowledge these errors" if can else "Choose an alert about ECC errors; the others end by themselves."
        )

    def _choose_device(self, index: QModelIndex) -> None:
        device, *_ = cast("tuple[str, str, float, bool]", self.table.rows[index.row()].key)
        self.device_chosen.emit(device)

    def _choose_moment(self, index: QModelIndex) -> None:
        self._choose_device(index)
        _, _, since_unix_s, _ = cast("tuple[str, str, float, bool]", self.table.rows[index.row()].key)
        self.moment_chosen.emit(since_unix_s)

    def _dismiss(self) -> None:
        chosen = self._selected
        if chosen is not None:
            self.dismissed.emit(chosen.device, chosen.metric)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        beside = event.size().width() >= SIDE_BY_SIDE_PX
        lay_out(self._both, beside=beside)
        self._line.setFixedSize(*((1, UNLIMITED_PX) if beside else (UNLIMITED_PX, 1)))


def _lasted(seconds: float) -> str:
    """`12 s`, `3:05`, `1:02:03`."""
    return f"{max(int(seconds), 0)} s" if seconds < 60 else elapsed_text(seconds)
