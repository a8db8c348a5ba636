"""The table of the layout Monitor: every device with its load, memory, temperature, power, clocks and throttling. Main
thread.

The order of the rows changes with a click on a title, when devices come or go, and when the table is shown again; never
while values change under the pointer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QRect, QRectF, Signal
from PySide6.QtGui import QPainter, QShowEvent

from devexplorer.core.base import MISSING, sentence
from devexplorer.core.session import Device, Progress, State, UnderWay
from devexplorer.core.telemetry.device_facts import Writer, held_in_short
from devexplorer.gui.devices.card_text import CardTexts, card_texts
from devexplorer.gui.devices.panel import ReadingsPanel
from devexplorer.gui.widgets import (
    CHIP_PX,
    HEADER_PX,
    PAD_PX,
    ROW_PX,
    Cell,
    Column,
    Index,
    Padded,
    RowsTable,
    TableRow,
    chip_width,
    draw_text,
    numbers,
    paint_device,
)

COLUMNS = (
    Column("device"),
    Column("name"),
    numbers("util %", "Share of the last period in which something ran"),
    numbers("memory GiB", "In use by all processes / total"),
    numbers("°C", "Temperature of the chip"),
    numbers("power W", "Now / limit"),
    numbers("SM MHz", "Clock of the multiprocessors"),
    numbers("mem MHz", "Clock of the memory"),
    numbers("fan %"),
    Column("throttled", "Why the clocks are lower than they could be"),
    numbers("processes", "That use the device, as far as the driver tells"),
    Column("status", "Alerts, problems, and what runs from this window"),
)
DEVICE, NAME, UTIL, MEMORY, CELSIUS, POWER, SM, MEMORY_CLOCK, FAN, THROTTLED, PROCESSES, STATUS = range(len(COLUMNS))
WIDTHS = [134, 120, 60, 104, 48, 84, 72, 78, 56, 120, 80, 110]
GIVES_UP = (PROCESSES, MEMORY_CLOCK, FAN)
_FIELDS = {
    UTIL: "utilization_percent",
    CELSIUS: "temperature_c",
    SM: "sm_clock_mhz",
    MEMORY_CLOCK: "memory_clock_mhz",
    FAN: "fan_percent",
}
"""Columns that show one whole number of the sample."""


class MonitorPanel(ReadingsPanel):
    """Reads `state.devices`. `refresh_devices` when the list changed, `refresh_texts` for new readings."""

    selected = Signal(object)
    """Id of the device that was chosen (str)."""
    opened = Signal()
    """The chosen device was double-clicked, or Enter was pressed on it."""
    needs = Signal(int)
    """It needs no more than so many pixels of height."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._work: Mapping[str, Progress] = {}
        self._order: list[str] = []
        self.table = RowsTable(COLUMNS, "Devices", WIDTHS, stretched=STATUS, gives_up=GIVES_UP, named=(NAME,))
        self.table.setItemDelegateForColumn(DEVICE, _DeviceCell(state, self.table))
        self.table.sort_by_clicks(self.refresh_devices)
        self.table.clicked.connect(self._select)
        self.table.selected.connect(self._on_selection)
        self.table.activated.connect(self.opened)
        self.set_content(self.below_veil(self.table))

    def choose(self, device_id: str | None) -> None:
        """Mark a device as chosen, without a signal."""
        self.chosen = device_id
        if device_id != self.table.selected_key and not self.table.select_key(device_id):
            self.table.clearSelection()

    def show_progress(self, work: UnderWay) -> None:
        """Show long work at the devices that it keeps busy."""
        if work.devices != self._work:
            self._work = work.devices
            self.refresh_texts()

    def refresh_devices(self) -> None:
        """Devices came or went, or the rows are to be sorted by another column."""
        column, down = self.table.show_sorted()
        devices = self._state.devices
        values = {name: self._value(device, column) for name, device in devices.items()}
        known = [name for name in devices if values[name] is not None]
        if column == DEVICE:
            known = [*reversed(known)] if down else known
        elif column >= 0:
            known.sort(key=lambda name: values[name], reverse=down)
        self._order = [*known, *(name for name in devices if values[name] is None)]
        self.refresh_texts()
        self.choose(self.chosen)  # another order resets the table
        self.needs.emit(HEADER_PX + (len(self._order) + 1) * ROW_PX + 4)

    def refresh_texts(self) -> None:
        """Take over the latest readings."""
        if set(self._order) != set(self._state.devices):
            self.refresh_devices()
            return
        self.table.set_rows([self._row(self._state.devices[name]) for name in self._order])
        self._show_subtitle()

    def _show_subtitle(self) -> None:
        age, about = self._age
        machine = dict.fromkeys(problem.reason for problem in self._state.problems if problem.device is None)
        first, others = [*machine][:1], [*machine][1:]
        words = [*([age] if age else []), *first]
        brief = " · ".join(word.partition(":")[0] for word in words)  # without the reason
        self.set_subtitle(" · ".join(words), "\n".join([*([about] if about else []), *map(sentence, others)]), brief)

    def _row(self, device: Device) -> TableRow:
        state, info, sample = self._state, device.info, device.sample
        texts = card_texts(device, state.problems, state.troubles())
        writer = Writer(info, sample, device.details, state.problems)

        def shown(field: str, text: str) -> Cell:
            return Cell(text) if text else Cell(MISSING, tip=sentence(writer.why_null(field)))

        def whole(field: str, of: str = "") -> Cell:
            value, most = getattr(sample, field, None), getattr(sample, of, None)
            text = "" if value is None else f"{value:,.0f}"
            return shown(field, f"{text} / {most:,.0f}" if text and most is not None else text)

        cells = {column: whole(field) for column, field in _FIELDS.items()}
        cells[DEVICE] = Cell(f"{info.id} simulated" if info.simulated else info.id, device.colour, info.name)
        cells[NAME] = Cell(info.name.removeprefix("NVIDIA "), tip=info.name)
        cells[MEMORY] = shown("memory_used_bytes", "" if device.used_bytes is None else texts.short.replace("/", " / "))
        cells[POWER] = whole("power_w", "power_cap_w")
        reasons = None if sample is None else sample.throttle_reasons
        held = ", ".join(held_in_short(reasons))
        cells[THROTTLED] = shown("throttle_reasons", "" if reasons is None else "no")
        if held:
            cells[THROTTLED] = Cell(held, "warning", held)
        processes = None if sample is None else sample.processes
        cells[PROCESSES] = shown("processes", "" if processes is None else str(len(processes)))
        cells[STATUS] = _status(texts, self._work.get(info.id))
        return TableRow(info.id, tuple(cells[column] for column in range(len(COLUMNS))))

    def _value(self, device: Device, column: int) -> Any:
        """What a device is sorted by; None comes last."""
        if column in (NAME, THROTTLED, STATUS):
            return self._row(device).cells[column].text.casefold() or None
        if column == MEMORY:
            return device.used_bytes
        if column == POWER:
            return None if device.sample is None else device.sample.power_w
        if column == PROCESSES:
            processes = None if device.sample is None else device.sample.processes
            return None if processes is None else len(processes)
        return getattr(device.sample, _FIELDS[column], None) if column in _FIELDS else 0

    def _on_selection(self) -> None:
        if self.table.selected_key not in (None, self.chosen):
            self._select()

    def _select(self) -> None:
        self.chosen = str(self.table.selected_key)
        self.selected.emit(self.chosen)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh_devices()  # nobody called it while this was hidden


class _DeviceCell(Padded):
    """The device as a chip in its colour, dashed where it is simulated, and that word."""

    def __init__(self, state: State, view: RowsTable) -> None:
        super().__init__(view)
        self._state = state

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        name, _, mark = str(index.data()).partition(" ")
        device = self._state.devices.get(name)
        if device is None:
            return False
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        width = chip_width(name)
        chip = QRectF(cell.left() + PAD_PX + 0.5, cell.center().y() - CHIP_PX / 2 + 1.5, width, CHIP_PX - 1)
        paint_device(painter, chip, name, lambda _: (device.colour, device.info.simulated))
        draw_text(painter, cell.adjusted(PAD_PX + width + 6, 0, 0, 0), mark, "dim")
        return True


def _status(texts: CardTexts, progress: Progress | None) -> Cell:
    """What is to be known of a device beside its figures, the most serious first."""
    if texts.alarm:
        return Cell(f"✕ {texts.alarm}", "error", texts.alarm)
    if texts.reason:
        return Cell(f"✕ {texts.reason}", "error", texts.reason)
    if texts.warning:
        return Cell(f"△ {texts.warning}", "warning", texts.warning)
    return Cell("" if progress is None else progress.words, "soft")
