"""Which processes use which device, as far as they are visible from here. Main thread."""

from __future__ import annotations

from typing import Any

from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import QApplication, QWidget

from devexplorer.core.base import MISSING, bytes_text, running_text
from devexplorer.core.records import ProcessUse
from devexplorer.core.session import Device, State
from devexplorer.gui.widgets import (
    CENTRE,
    Cell,
    Column,
    RowsTable,
    TableRow,
    label,
    numbers,
    stack,
    vbox,
)

NOT_VISIBLE = "not visible from here"
WHY_NOT = "not reported by the driver; containers and WSL hide other processes"
HIDDEN = "the process has ended, or belongs to another user"
NO_CPU = f"it is known from the second reading on, unless {HIDDEN}"
THIS_ENGINE = "this engine"
HIDDEN_BYTES = 1 << 30
"""With so much memory in use and no visible process, there is a hidden one."""

COLUMNS = (
    Column("device"),
    numbers("pid"),
    Column("user"),
    Column("name"),
    Column("type", "compute (CUDA) or graphics"),
    numbers("MiB", "Memory on the device, as the driver counts it"),
    numbers("GPU %", "Share of the last seconds in which one of its kernels ran"),
    numbers("BW %", "Share of the last seconds in which it read or wrote the memory of the device"),
    numbers("CPU %", "Of one core, in the last seconds; above 100 with several threads"),
    numbers("host MiB", "Resident in the memory of the machine"),
    numbers("running", "Since it was started: hours, minutes, seconds"),
    Column("command line"),
)
WIDTHS = [76, 76, 72, 132, 92, 88, 64, 62, 64, 84, 88]
_DEVICE, _PID, _USER, _NAME, _TYPE, _MEMORY, _PERCENT, _BANDWIDTH, _CPU, _HOST, _RUNNING, _COMMAND = range(len(COLUMNS))
_FIELDS = {
    _PID: "pid",
    _USER: "user",
    _NAME: "name",
    _TYPE: "kind",
    _MEMORY: "memory_bytes",
    _PERCENT: "utilization_percent",
    _BANDWIDTH: "memory_utilization_percent",
    _CPU: "cpu_percent",
    _HOST: "host_memory_bytes",
    _RUNNING: "running_s",
    _COMMAND: "command",
}
"""Column -> the field of `ProcessUse` that it is sorted by."""


class ProcessesPanel(QWidget):
    """A row per process and device. By device, largest first, until a column is clicked; a device whose processes are
    hidden says so."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self.table = _Table(COLUMNS, "Processes", WIDTHS)
        self.table.sort_by_clicks(self.refresh)
        self.nothing = label("", words="dim", wrap=True, align=CENTRE)
        self._stack = stack(self.table, self.nothing)
        vbox(self._stack, parent=self)
        self.refresh()

    def refresh(self) -> None:
        """Show the processes of the latest samples."""
        result, notes = [], []
        for device in self._state.devices.values():
            if device.sample is None or device.info.kind == "cpu" or device.info.simulated:
                continue  # the CPU has all processes of the machine, a virtual GPU has none but the engine
            result += [(device, use) for use in device.sample.processes or ()]
            notes += self._note(device)
        column, down = self.table.show_sorted()
        rows = [self._row(device, use) for device, use in self._sorted(result, column, down)]
        if column < 0 and notes:  # each device's note where its processes would be
            place = {name: index for index, name in enumerate(self._state.devices)}
            rows = sorted([*rows, *notes], key=lambda row: place[row.cells[_DEVICE].text])
        else:
            rows += notes
        kept = self.table.selected_key
        self.table.set_rows(rows)
        if kept is not None and self.table.selected_key is None:  # another order resets the table
            self.table.select_key(kept)
        watched = any(device.info.kind not in ("cpu", "virtual") for device in self._state.devices.values())
        self.nothing.setText(
            "No process uses a GPU now."
            if watched
            else "No physical GPU here. Virtual GPUs are used by this window's engine only."
        )
        self._stack.setCurrentWidget(self.table if rows else self.nothing)

    def _sorted(
        self, result: list[tuple[Device, ProcessUse]], column: int, down: bool
    ) -> list[tuple[Device, ProcessUse]]:
        """By the clicked column, what is not known always last; else by device, largest first."""
        place = {name: index for index, name in enumerate(self._state.devices)}
        by_default = sorted(
            result, key=lambda pair: (place[pair[0].info.id], -(pair[1].memory_bytes or 0), pair[1].pid)
        )
        if column < 0:
            return by_default
        if column == _DEVICE:
            return sorted(by_default, key=lambda pair: place[pair[0].info.id], reverse=down)

        def value(pair: tuple[Device, ProcessUse]) -> Any:
            result = getattr(pair[1], _FIELDS[column])
            return result.casefold() if isinstance(result, str) else result

        known = sorted((pair for pair in by_default if value(pair) not in (None, "")), key=value, reverse=down)
        return known + [pair for pair in by_default if value(pair) in (None, "")]

    def _row(self, device: Device, use: ProcessUse) -> TableRow:
        name = use.name or MISSING
        if self._state.engine is not None and use.pid == self._state.engine.pid:
            named = Cell(f"{name}, {THIS_ENGINE}", tip="The process that holds the tensors and models of this window")
        else:
            named = self._text(name if use.name else None)
        host = None if use.host_memory_bytes is None else f"{use.host_memory_bytes / 1024**2:,.0f}"
        return TableRow(
            (device.info.id, use.pid),
            (
                self._where(device),
                Cell(str(use.pid)),
                self._text(use.user),
                named,
                self._text(use.kind),
                (
                    self._missing(device, "processes")
                    if use.memory_bytes is None
                    else Cell(f"{use.memory_bytes / 1024**2:,.1f}")
                ),
                self._percent(device, use.utilization_percent),
                self._percent(device, use.memory_utilization_percent),
                self._text(None if use.cpu_percent is None else f"{use.cpu_percent:.0f}", NO_CPU),
                self._text(host),
                self._text(None if use.running_s is None else running_text(use.running_s)),
                self._text(use.command),
            ),
        )

    def _note(self, device: Device) -> list[TableRow]:
        """A row in place of processes that cannot be seen; nothing where all of them can."""
        assert device.sample is not None
        processes = device.sample.processes
        used = device.sample.memory_used_bytes
        if processes is None:
            words = f"{NOT_VISIBLE}: {self._why(device, 'processes')}"
        elif not processes and used is not None and used >= HIDDEN_BYTES:
            words = f"{NOT_VISIBLE}: {bytes_text(used)} are in use; containers and WSL hide other processes"
        else:
            return []
        unknown = Cell(MISSING, "dim", words)
        cells = [self._where(device), *[unknown] * (len(COLUMNS) - 2), Cell(words, "dim", words)]
        return [TableRow(device.info.id, tuple(cells))]

    def _where(self, device: Device) -> Cell:
        return Cell(device.info.id, device.colour, device.info.name)

    def _percent(self, device: Device, percent: float | None) -> Cell:
        return self._missing(device, "process_utilization") if percent is None else Cell(f"{percent:.0f}")

    def _text(self, text: str | None, why_not: str = HIDDEN) -> Cell:
        """Somebody else's process can hide its name, user and command line."""
        if not text:
            return Cell(MISSING, "dim", f"{NOT_VISIBLE}: {why_not}")
        return Cell(text, tip=text)

    def _missing(self, device: Device, field: str) -> Cell:
        return Cell(MISSING, "dim", f"{NOT_VISIBLE}: {self._why(device, field)}")

    def _why(self, device: Device, field: str) -> str:
        """The most exact reason that was given."""
        for problem in self._state.problems:
            if problem.device in (device.info.id, None) and problem.field == field:
                return problem.reason
        return WHY_NOT if device.details is None else device.details.missing.get(field, WHY_NOT)


class _Table(RowsTable):
    """A row can be copied: its pid and command line are what one wants in a terminal."""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        chosen = self.selected_rows
        if event.matches(QKeySequence.StandardKey.Copy) and chosen:
            QApplication.clipboard().setText("\t".join(cell.text for cell in self.rows[chosen[0]].cells))
        else:
            super().keyPressEvent(event)
