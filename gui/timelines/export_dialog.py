"""The dialog that chooses which readings are exported: the span, the devices, the quantities. Main thread."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QListWidget,
    QListWidgetItem,
    QWidget,
)

from devexplorer.core.session import State
from devexplorer.core.telemetry.history import DEVICE_METRICS, THROUGHPUT
from devexplorer.gui.plots.time_axis import LONGEST_S, TimeAxis, clock_text, duration_text
from devexplorer.gui.widgets import EDGE_PX, hbox, label, push_button, vbox

ROW_PX = 24


class Choice(NamedTuple):
    """What is to be exported."""

    range_unix_s: tuple[float, float]
    devices: tuple[str, ...]
    metrics: tuple[str, ...]


class ExportDialog(QDialog):
    """Everything is chosen already as the plots show it."""

    chosen = Signal(object)
    """A `Choice`."""

    def __init__(
        self,
        kind: str,
        state: State,
        axis: TimeAxis,
        shown: Iterable[Sequence[str]],
        parent: QWidget | None,
        *,
        hidden: Collection[str] = (),
    ) -> None:
        """`shown`: ids of the quantities of each plot; `hidden`: devices of which no plot shows a curve."""
        super().__init__(parent)
        self.setWindowTitle(f"Export readings as {'CSV' if kind == 'csv' else 'Parquet'}")
        self.resize(560, 460)
        self._state = state
        self.span = QComboBox()
        self.span.setAccessibleName("Span")
        if axis.selection is not None:
            self._add_span("Selected", axis.selection)
        self._add_span("Shown", (axis.left_unix_s, min(axis.right_unix_s, axis.clock_unix_s)))
        self._add_span("The last 24 hours", (axis.clock_unix_s - LONGEST_S, axis.clock_unix_s))
        self.devices = _check_list("Devices")
        for name, device in state.devices.items():
            words = f"{name}{' simulated' if device.info.simulated else ''}"
            _add(self.devices, name, words, name not in hidden)
        self.metrics = _check_list("Quantities")
        in_plots = {metric for metrics in shown for metric in metrics}
        for metric in (THROUGHPUT, *DEVICE_METRICS):
            known = any(
                device.throughput.has(metric.id) or device.history.has(metric.id) for device in state.devices.values()
            )
            if known:
                _add(self.metrics, metric.id, metric.label, metric.id in in_plots)
        self.note = label(words="dim", wrap=True)
        self.save_button = push_button("Save as…", self._save, look="primary")
        self.save_button.setDefault(True)
        self._lay_out()
        self.span.currentIndexChanged.connect(self.refresh)
        for checks in (self.devices, self.metrics):
            checks.itemChanged.connect(self.refresh)
        self.refresh()

    @property
    def choice(self) -> Choice:
        """The current choice."""
        return Choice(self.span.currentData(), _checked(self.devices), _checked(self.metrics))

    def refresh(self) -> None:
        """Say what the file will have, or what is missing."""
        choice = self.choice
        early, _ = choice.range_unix_s
        bins = {
            self._state.devices[name].history.seconds_at(early)
            for name in choice.devices
            if name in self._state.devices
        }
        reason = "Choose a device." if not choice.devices else "Choose a quantity." if not choice.metrics else ""
        widest = max(bins, default=0.0)
        text = f"Lowest, mean and highest of every {widest:g} seconds." if widest else "Every reading."
        if widest:
            text += " Single readings are not kept that far back."
        self.note.setText(reason or text)
        self.save_button.setEnabled(not reason)
        self.save_button.setToolTip(reason)

    def _save(self) -> None:
        choice = self.choice
        self.accept()
        self.chosen.emit(choice)

    def _add_span(self, words: str, span: tuple[float, float]) -> None:
        early, late = span
        self.span.addItem(f"{words}: {clock_text(early)} to {clock_text(late)}, {duration_text(late - early)}", span)

    def _lay_out(self) -> None:
        lists = []
        for checks, stretch in ((self.devices, 2), (self.metrics, 3)):
            head = hbox(label(checks.accessibleName(), words="dim"), None)
            for text, state in (("all", Qt.CheckState.Checked), ("none", Qt.CheckState.Unchecked)):
                button = push_button(
                    text, partial(_check_all, checks, state), look="quiet", name=f"{checks.accessibleName()}: {text}"
                )
                button.setAutoDefault(False)
                head.addWidget(button)
            lists.append((vbox(head, (checks, 1), spacing=4), stretch))
        cancel = push_button("Cancel", self.reject)
        cancel.setAutoDefault(False)
        vbox(
            self.span,
            (hbox(*lists, spacing=EDGE_PX), 1),
            self.note,
            hbox(None, cancel, self.save_button),
            margins=EDGE_PX,
            parent=self,
        )


def _check_list(name: str) -> QListWidget:
    checks = QListWidget()
    checks.setObjectName("boxed")
    checks.setAccessibleName(name)
    return checks


def _add(checks: QListWidget, key: str, words: str, checked: bool) -> None:
    item = QListWidgetItem(words)
    item.setData(Qt.ItemDataRole.UserRole, key)
    item.setSizeHint(QSize(0, ROW_PX))  # asked before the stylesheet is known, so it is said
    item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsUserCheckable)
    item.setCheckState(Qt.CheckState.Checked if checked else Qt.CheckState.Unchecked)
    checks.addItem(item)


def _check_all(checks: QListWidget, to: Qt.CheckState, _clicked: bool = False) -> None:
    for row in range(checks.count()):
        checks.item(row).setCheckState(to)


def _checked(checks: QListWidget) -> tuple[str, ...]:
    items = [checks.item(row) for row in range(checks.count())]
    return tuple(item.data(Qt.ItemDataRole.UserRole) for item in items if item.checkState() == Qt.CheckState.Checked)
