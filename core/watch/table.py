"""The table of `devexplorer watch`: a line for each device and then the processes, never wider nor higher than the
terminal; what its columns show, and how much room each needs. Main thread.

Columns are taken by priority as long as they fit; 80 characters hold those that matter. Widths are counted in cells as
terminals do, because names can hold characters that are two cells wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from devexplorer.core.base import MISSING, bytes_text, printable, running_text
from devexplorer.core.cli.terminal import Line, cell_len, set_cell_size
from devexplorer.core.records import DeviceInfo, DeviceSample, Problem, ProcessUse


class WatchColumn(NamedTuple):
    """One column: the numbers of its fields, joined by a stroke."""

    title: str
    cells: int
    """Room that its usual values need."""
    fields: tuple[str, ...]
    always: bool = False
    """Whether a real card has it even while its value is not known."""
    scale: float = 1.0
    """What the numbers are divided by."""
    digits: int = 0
    write: Callable[[DeviceSample], str] | None = None
    """Where its text is made in another way."""

    def text(self, sample: DeviceSample) -> str:
        """Its text for a device; a dash for what is not known."""
        if self.write is not None:
            return self.write(sample)
        values = [getattr(sample, field) for field in self.fields]
        if all(value is None for value in values):
            return MISSING
        return "/".join(number_text(value, self.digits, self.scale) for value in values)


def number_text(value: float | None, digits: int = 0, scale: float = 1.0) -> str:
    """A number, or a dash."""
    return MISSING if value is None else f"{value / scale:.{digits}f}"


def _power(sample: DeviceSample) -> str:
    """Without the cap where it is not known."""
    cap = sample.power_cap_w
    return number_text(sample.power_w) + ("" if cap is None else f"/{number_text(cap)}")


def _pcie(sample: DeviceSample) -> str:
    return MISSING if sample.pcie_generation is None else f"{sample.pcie_generation}x{number_text(sample.pcie_width)}"


def _performance_state(sample: DeviceSample) -> str:
    return sample.performance_state or MISSING


COLUMNS = (
    WatchColumn("util%", 5, ("utilization_percent",), always=True),
    WatchColumn("°C", 3, ("temperature_c",), always=True),
    WatchColumn("W/cap", 7, ("power_w", "power_cap_w"), always=True, write=_power),
    WatchColumn("MHz", 4, ("sm_clock_mhz",), always=True),
    WatchColumn("mem%", 4, ("memory_utilization_percent",)),
    WatchColumn("fan%", 4, ("fan_percent",)),
    WatchColumn("PCIe rx/tx GB/s", 15, ("pcie_rx_bytes_s", "pcie_tx_bytes_s"), scale=1e9, digits=2),
    WatchColumn("NVLink rx/tx GB/s", 17, ("nvlink_rx_bytes_s", "nvlink_tx_bytes_s"), scale=1e9, digits=1),
    WatchColumn("mem°C", 5, ("memory_temperature_c",)),
    WatchColumn("mem MHz", 7, ("memory_clock_mhz",)),
    WatchColumn("P", 3, ("performance_state",), write=_performance_state),
    WatchColumn("PCIe", 4, ("pcie_generation", "pcie_width"), write=_pcie),
    WatchColumn("enc/dec%", 8, ("encoder_percent", "decoder_percent")),
    WatchColumn("ECC fixed/not", 13, ("ecc_corrected", "ecc_uncorrected")),
    WatchColumn("kWh", 6, ("energy_j",), scale=3.6e6, digits=2),
)
"""After device, name and memory, by priority."""


class ProcessColumn(NamedTuple):
    """One column of the processes: its text for a device's id and a process."""

    title: str
    cells: int
    text: Callable[[str, ProcessUse], str]
    right: bool = True


PROCESS_COLUMNS = (
    ProcessColumn("pid", 7, lambda _, use: str(use.pid)),
    ProcessColumn("user", 8, lambda _, use: printable(use.user or MISSING), right=False),
    ProcessColumn("memory", 10, lambda _, use: bytes_text(use.memory_bytes)),
    ProcessColumn("util%", 5, lambda _, use: number_text(use.utilization_percent)),
)
"""Between the device and the command."""
WIDER_PROCESS_COLUMNS = (
    ProcessColumn("CPU%", 5, lambda _, use: number_text(use.cpu_percent)),
    ProcessColumn("host mem", 10, lambda _, use: bytes_text(use.host_memory_bytes)),
    ProcessColumn("running", 8, lambda _, use: running_text(use.running_s)),
)
"""After those, by priority, where the terminal is wide enough."""


GIB, MIB = 1 << 30, 1 << 20
GAP = 2
LEAST_NAME, USUAL_NAME = 6, 16
LEAST_BAR, USUAL_BAR, LARGEST_BAR = 6, 10, 20
STATE = 10
"""Cells for `simulated`, and for the sign that more words follow."""
LEAST_PROCESSES = 3
"""Lines below the devices that make a list of processes worth it: a gap, a header, a process."""
LEAST_COMMAND = 20
"""Cells of a process's command that further columns leave."""
_CARDS = ("cuda", "nvml")


class WatchReading(NamedTuple):
    """What is known of a device at one tick."""

    info: DeviceInfo
    sample: DeviceSample
    problem: str = ""
    """Why nothing can be read from it: lost, or it does not answer."""
    age_s: float | None = None
    """How old the reading is, where the device has not answered since."""
    reasons: Mapping[str, str] = MappingProxyType({})
    """Field -> why it is not known."""
    machine: tuple[Problem, ...] = ()
    """Of the CPU: what cannot be found out about the whole machine."""


class _Budget:
    """Cells of a line that are not taken yet."""

    def __init__(self, cells: int) -> None:
        self.left = cells

    def take(self, cells: int) -> bool:
        """Take so many, if they are there."""
        if cells > self.left:
            return False
        self.left -= cells
        return True

    def grow(self, wish: int) -> int:
        """Take as many of them as there are."""
        got = min(max(wish, 0), max(self.left, 0))
        self.left -= got
        return got


class _Layout(NamedTuple):
    """Widths in cells; a bar of 0 is not there."""

    device: int
    name: int
    bar: int
    memory: int
    columns: dict[WatchColumn, int]


class WatchTable:
    """Makes the lines of each tick; a column that had a value once stays, so that the table does not jump."""

    def __init__(self, *, ascii_only: bool = False) -> None:
        self._ascii = ascii_only
        self._seen: set[str] = set()
        self._state = 0

    def lines(self, readings: Sequence[WatchReading], width: int, height: int | None = None) -> list[Line]:
        """The table, `width` cells wide at most, and why there are dashes or no GPU.

        With a `height` in lines the processes follow, as far as they fit.
        """
        layout = self._layout(readings, width)
        lines = [*self._devices(readings, layout), *self._notes(readings, layout.columns)]
        if all(reading.info.kind == "cpu" for reading in readings):
            lines += [
                Line(self._plain(f"No GPU: {printable(problem.reason)}"), "dim")
                for reading in readings
                for problem in reading.machine
            ]
        if height is not None:
            lines = _cut(lines, height, "device", width)
            left = height - len(lines)
            if left >= LEAST_PROCESSES:
                lines += _cut(self._processes(readings, width), left, "line", width)
        # Long words, and a terminal too narrow for the least, are cut.
        return [line.fitted(width, "" if self._ascii else "…") for line in lines]

    # --- devices

    def _layout(self, readings: Sequence[WatchReading], width: int) -> _Layout:
        """What every terminal shows, then one column after the other, then longer names, words and bars."""
        device = max([6, *(cell_len(reading.info.id) for reading in readings)])
        memory = max([13, *(cell_len(_memory(reading.sample)) for reading in readings)])
        longest = max([4, *(cell_len(printable(reading.info.name)) for reading in readings)])
        longest_state = max([0, *(cell_len(_state(reading)) for reading in readings)])
        self._state = max(self._state, min(longest_state, STATE))
        state = self._state
        name = min(LEAST_NAME, longest)
        budget = _Budget(width - device - GAP - name - GAP - memory - (GAP + state if state else 0))
        bar = LEAST_BAR if budget.take(LEAST_BAR + 1) else 0
        wanted = {column: self._cells(column, readings) for column in COLUMNS if self._is_wanted(column, readings)}
        columns = {column: cells for column, cells in wanted.items() if column.always and budget.take(GAP + cells)}
        name += budget.grow(min(USUAL_NAME, longest) - name)
        bar += budget.grow(USUAL_BAR - bar) if bar else 0
        columns |= {column: cells for column, cells in wanted.items() if not column.always and budget.take(GAP + cells)}
        budget.grow(longest_state - state)
        name += budget.grow(longest - name)
        bar += budget.grow(LARGEST_BAR - bar) if bar else 0
        return _Layout(device, name, bar, memory, columns)

    def _devices(self, readings: Sequence[WatchReading], layout: _Layout) -> list[Line]:
        bar = layout.bar + 1 if layout.bar else 0
        header = [
            self._cell("device", layout.device),
            self._cell("name", layout.name),
            self._cell("memory", bar + layout.memory),
            *(self._cell(column.title, cells, right=True) for column, cells in layout.columns.items()),
        ]
        return [Line((" " * GAP).join(header), "dim"), *(self._device(reading, layout) for reading in readings)]

    def _device(self, reading: WatchReading, layout: _Layout) -> Line:
        cells = [self._cell(reading.info.id, layout.device), self._cell(printable(reading.info.name), layout.name)]
        if reading.problem and reading.age_s is None:
            line = Line((" " * GAP).join([*cells, ""]))
            return line.append(self._plain(f"✕ {printable(reading.problem)}"), "red")
        memory = self._cell(_memory(reading.sample), layout.memory, right=True)
        cells.append(f"{self._bar(reading.sample, layout.bar)} {memory}" if layout.bar else memory)
        cells += [
            self._cell(column.text(reading.sample), width, right=True) for column, width in layout.columns.items()
        ]
        line = Line((" " * GAP).join(cells))
        if state := _state(reading):
            line.append(" " * GAP + self._plain(state), "dim" if reading.info.simulated else "yellow")
        return line

    def _notes(self, readings: Sequence[WatchReading], shown: Iterable[WatchColumn]) -> list[Line]:
        """Why there are dashes in the columns that are shown, a line for each reason."""
        by_reason: dict[str, dict[str, list[str]]] = {}
        for reading in readings:
            if reading.info.kind not in _CARDS or (reading.problem and reading.age_s is None):
                continue
            subjects = [
                ("name", ("name",)),
                ("memory", ("memory_used_bytes", "memory_total_bytes")),
                *((column.title, column.fields) for column in shown),
            ]
            for title, fields in subjects:
                for field in fields:
                    if getattr(reading.sample, field, None) is None and (why := reading.reasons.get(field)):
                        titles = by_reason.setdefault(why, {}).setdefault(reading.info.id, [])
                        if title not in titles:
                            titles.append(title)
        notes = []
        for why, devices in by_reason.items():
            by_titles: dict[str, list[str]] = {}
            for device, titles in devices.items():
                by_titles.setdefault(", ".join(titles), []).append(device)
            subjects_text = "; ".join(f"{', '.join(ids)} {titles}" for titles, ids in by_titles.items())
            notes.append(Line(self._plain(f"{MISSING} {subjects_text}: {printable(why)}"), "dim"))
        return notes

    def _cells(self, column: WatchColumn, readings: Sequence[WatchReading]) -> int:
        return max([column.cells, *(cell_len(column.text(reading.sample)) for reading in readings)])

    def _is_wanted(self, column: WatchColumn, readings: Sequence[WatchReading]) -> bool:
        if any(column.text(reading.sample) != MISSING for reading in readings):
            self._seen.add(column.title)
        return column.title in self._seen or (
            column.always and any(reading.info.kind in _CARDS for reading in readings)
        )

    def _bar(self, sample: DeviceSample, cells: int) -> str:
        full, empty = ("#", ".") if self._ascii else ("█", "░")
        if sample.memory_used_bytes is None or not sample.memory_total_bytes:
            return " " * cells
        filled = min(max(round(cells * sample.memory_used_bytes / sample.memory_total_bytes), 0), cells)
        return full * filled + empty * (cells - filled)

    # --- processes

    def _processes(self, readings: Sequence[WatchReading], width: int) -> list[Line]:
        rows: list[tuple[str, ProcessUse]] = []
        hidden: list[str] = []
        for reading in readings:
            if reading.sample.processes is None:
                if reading.info.kind in _CARDS and not reading.problem:
                    hidden.append(reading.info.id)
                continue
            ordered = sorted(reading.sample.processes, key=lambda use: (-(use.memory_bytes or 0), use.pid))
            rows += [(reading.info.id, use) for use in ordered]
        if not rows and not hidden:
            return []
        lines = [Line()]
        if rows:
            columns = self._process_columns(rows, width)
            room = max(width - sum(column.cells + GAP for column in columns), 8)
            header = [self._cell(column.title, column.cells, right=column.right) for column in columns]
            lines.append(Line((" " * GAP).join([*header, "process"]), "dim"))
        for device, use in rows:
            cells = [self._cell(column.text(device, use), column.cells, right=column.right) for column in columns]
            lines.append(
                Line((" " * GAP).join([*cells, self._cell(printable(use.command or use.name or MISSING), room)]))
            )
        if hidden:
            lines.append(Line(self._plain(f"{', '.join(hidden)}: processes are not visible from here"), "dim"))
        return lines

    def _process_columns(self, rows: Sequence[tuple[str, ProcessUse]], width: int) -> list[ProcessColumn]:
        """What every terminal shows, then what leaves enough of the command."""
        device_cells = max([6, *(cell_len(device) for device, _ in rows)])
        columns = [ProcessColumn("device", device_cells, lambda device, _: device, right=False), *PROCESS_COLUMNS]
        budget = _Budget(width - LEAST_COMMAND - sum(column.cells + GAP for column in columns))
        for column in WIDER_PROCESS_COLUMNS:
            cells = max([column.cells, *(cell_len(column.text(device, use)) for device, use in rows)])
            if budget.take(cells + GAP):
                columns.append(column._replace(cells=cells))
        return columns

    # --- text

    def _cell(self, text: str, cells: int, *, right: bool = False) -> str:
        if cell_len(text) > cells:
            text = set_cell_size(text, max(cells - 1, 0)) + "…"
        pad = " " * (cells - cell_len(text))
        return self._plain(pad + text if right else text + pad)

    def _plain(self, text: str) -> str:
        if not self._ascii:
            return text
        swapped = text.translate({ord("…"): ".", ord("—"): "-", ord("°"): " ", ord("✕"): "x"})
        return swapped.encode("ascii", "replace").decode()


def _cut(lines: list[Line], height: int, noun: str, width: int) -> list[Line]:
    """The first `height` lines; the last one then says how many are missing."""
    if len(lines) <= height:
        return lines
    missing = len(lines) - height + 1
    message = f"… {missing} more {noun}s; a higher terminal shows them"
    return [*lines[: max(height - 1, 0)], Line(message if len(message) <= width else f"… {missing} more", "dim")]


def _memory(sample: DeviceSample) -> str:
    used, total = sample.memory_used_bytes, sample.memory_total_bytes
    largest = total or used or 0
    if largest < 1000 * MIB:
        unit, word = MIB, "MiB"
    elif largest < 1000 * GIB:
        unit, word = GIB, "GiB"
    else:
        unit, word = 1024 * GIB, "TiB"
    figures = [MISSING if count is None else _three(count / unit) for count in (used, total)]
    if used is None and total is None:
        return MISSING
    return f"{figures[0]}/{figures[1]} {word}" if total is not None else f"{figures[0]} {word}"


def _three(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _state(reading: WatchReading) -> str:
    """What one should know of these figures, in words."""
    parts = ["simulated"] if reading.info.simulated or reading.sample.simulated else []
    if reading.age_s is not None:
        parts.append(f"{reading.age_s:.1f} s old")
    if reading.info.memory_shared:
        parts.append("shared memory")
    if reading.sample.throttle_reasons:
        from devexplorer.core.telemetry.device_facts import (
            held_in_short,  # the rows of every fact: needed by busy cards only
        )

        parts += map(printable, held_in_short(reading.sample.throttle_reasons))
    return ", ".join(parts)
