"""Which processes use which device, as far as they are visible from here. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QStackedLayout, QWidget

from devexplorer.core.formats import MISSING
from devexplorer.core.state import Device, State
from devexplorer.gui.item_models.rows import Cell, Column, RowsModel, TableRow
from devexplorer.gui.panels.panel import label
from devexplorer.gui.panels.rows_table import RowsTable
from devexplorer.gui.theme import Theme, device_colour

NOT_VISIBLE = "not visible from here"
WHY_NOT = "the driver does not tell; in containers and under WSL the processes of others are hidden"
COLUMNS = (Column("device"), Column("process", is_number=True), Column("MiB", is_number=True), Column("name"))


class ProcessesPanel(QWidget):
    """A row per process and device, largest first; a device whose processes cannot be seen has one row that says so."""

    def __init__(self, state: State, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self._theme = theme
        self.count = 0
        """Processes that are shown, for the tab's title."""
        self.model = RowsModel(COLUMNS, self)
        self.table = RowsTable(self.model, "Processes", [120, 90, 100])
        self.nothing = label("", words="dim", wrap=True)
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._stack = QStackedLayout(self)
        self._stack.addWidget(self.table)
        self._stack.addWidget(self.nothing)
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        self._theme = theme
        self.refresh()

    def refresh(self) -> None:
        """Show the processes of the latest samples."""
        rows = [row for device in self._state.devices.values() for row in self._rows(device)]
        self.model.set_rows(rows)
        self.count = sum(isinstance(row.key, tuple) for row in rows)
        watched = any(device.info.kind not in ("cpu", "virtual") for device in self._state.devices.values())
        self.nothing.setText(
            "No process uses a GPU now."
            if watched
            else "No GPU is here that other processes could use; a virtual GPU belongs to this window's engine alone."
        )
        self._stack.setCurrentWidget(self.table if rows else self.nothing)

    def _rows(self, device: Device) -> list[TableRow]:
        name = device.info.id
        where = Cell(name, device_colour(device.colour, self._theme))
        if device.sample is None or device.info.kind == "cpu" or device.info.simulated:
            return []  # the CPU has all processes of the machine, a virtual GPU has none but the engine
        if device.sample.processes is None:
            reason = next((p.reason for p in self._state.problems if p.device in (name, None) and p.field == "processes"), WHY_NOT)
            words = f"{NOT_VISIBLE}: {reason}"
            return [TableRow(name, (where, Cell(MISSING), Cell(MISSING), Cell(words, self._theme.dim, words)))]
        ordered = sorted(device.sample.processes, key=lambda process: -(process.memory_bytes or 0))
        return [
            TableRow(
                (name, process.pid),
                (
                    where,
                    Cell(str(process.pid)),
                    _mib(process.memory_bytes),
                    Cell(process.name or MISSING, tip="" if process.name else NOT_VISIBLE),
                ),
            )
            for process in ordered
        ]


def _mib(count: int | None) -> Cell:
    return Cell(MISSING, tip=f"{NOT_VISIBLE}: {WHY_NOT}") if count is None else Cell(f"{count / 1024**2:,.1f}")
