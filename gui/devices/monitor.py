"""The cards of the layout Monitor: every device at a glance, with temperature, power, clocks, fan and throttling. Main
thread."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QWidget

from devexplorer.core.records import Problem
from devexplorer.core.session import Device, State, UnderWay
from devexplorer.core.telemetry.alerts import Alert
from devexplorer.gui.devices.card import DeviceCard
from devexplorer.gui.devices.card_text import CardTexts, watch_texts
from devexplorer.gui.devices.item import DeviceItem
from devexplorer.gui.widgets import Panel, ScrollArea, draw_text

CARD_WIDTH_PX = 236
"""Least width of a card: as many stand side by side as there is room for."""
LINE_PX = 17
LABEL_PX = 72


class MonitorCard(DeviceCard):
    """The card with a line for each quantity below it."""

    def _texts_of(self, device: Device, problems: tuple[Problem, ...], alerts: Sequence[Alert]) -> CardTexts:
        return super()._texts_of(device, problems, alerts)._replace(watched=watch_texts(device))

    def height_px(self) -> int:
        return super().height_px() + LINE_PX * len(self.texts.watched) + 4

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        top = super().height_px() - 6
        left, right = self._SIDE, self.width() - 13
        for number, (name, value) in enumerate(self.texts.watched):
            line = QRect(left, top + number * LINE_PX, right - left, LINE_PX)
            draw_text(painter, line, name, "dim")
            draw_text(painter, line.adjusted(LABEL_PX, 0, 0, 0), value, "text")


class MonitorPanel(Panel):
    """Reads `state.devices`. `refresh_devices` when the list changed, `refresh_texts` for new readings (2 Hz)."""

    selected = Signal(object)
    """Id of the device that was chosen (str)."""

    def __init__(self, state: State) -> None:
        super().__init__("Devices at a glance")
        self._state = state
        self.items: dict[str, MonitorCard] = {}
        self.chosen: str | None = None
        self._content = QWidget()
        self._grid = QGridLayout(self._content)
        self._grid.setContentsMargins(8, 8, 8, 8)
        self._grid.setSpacing(8)
        self._columns = 0
        self.area = ScrollArea(self._content, "Devices")
        self.set_content(self.area)
        self.refresh_devices()

    def choose(self, device_id: str | None) -> None:
        """Mark a device as chosen, without a signal."""
        self.chosen = device_id
        for name, item in self.items.items():
            item.set_selected(name == device_id)

    def refresh_devices(self) -> None:
        """Devices came, went or changed: cards that stay keep their widget."""
        for name in [name for name in self.items if name not in self._state.devices]:
            item = self.items.pop(name)
            item.hide()
            item.deleteLater()
        self.items = {name: self.items.get(name) or self._new_card(name) for name in self._state.devices}
        self._columns = 0
        self._place()
        self.choose(self.chosen)
        self.refresh_texts()

    def _new_card(self, name: str) -> MonitorCard:
        card = MonitorCard(self._state.devices[name])
        card.setAcceptDrops(False)
        card.selected.connect(self._on_selected)
        return card

    def _place(self) -> None:
        columns = max(1, (self.width() - 24) // (CARD_WIDTH_PX + 8))
        if columns == self._columns:
            return
        self._columns = columns
        previous: DeviceItem | None = None
        for number, card in enumerate(self.items.values()):
            self._grid.addWidget(card, number // columns, number % columns, Qt.AlignmentFlag.AlignTop)
            if previous is not None:
                QWidget.setTabOrder(previous, card)
            previous = card
        for column in range(self._grid.columnCount()):
            self._grid.setColumnStretch(column, int(column < columns))
        for row in range(self._grid.rowCount() + 1):
            self._grid.setRowStretch(row, int(row > (len(self.items) - 1) // columns))

    def show_progress(self, work: UnderWay) -> None:
        """Show long work on the cards of the devices that it keeps busy."""
        for name, card in self.items.items():
            card.set_progress(work.devices.get(name))

    def refresh_texts(self) -> None:
        """Take over the latest readings."""
        alerts = self._state.alerts.active
        for name, card in self.items.items():
            device = self._state.devices.get(name)
            if device is not None:
                card.refresh(device, self._state.problems, alerts)

    def _on_selected(self, device_id: str) -> None:
        self.choose(device_id)
        self.selected.emit(device_id)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()
