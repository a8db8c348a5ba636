"""Stored runs as rows of a table, made when they are looked at: a history of thousands costs what is on the screen.
Main thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QModelIndex, Qt, Signal

from devexplorer.core.base import MISSING, Clock, joined, number_text, rate_texts
from devexplorer.core.benchmark.conditions import all_conditions
from devexplorer.core.benchmark.kind import Figure, dtype, figures, kind_of, simulated_text
from devexplorer.core.benchmark.published import best
from devexplorer.core.benchmark.statistics import noise_verdict
from devexplorer.core.history.filter import device_here, device_of
from devexplorer.core.records import Conditions, Spread, StoredRun
from devexplorer.core.session import State
from devexplorer.gui.widgets import Cell, Colour, Column, Index, RowsModel, TableRow, numbers

COLUMNS = (
    Column("when"),
    Column("kind"),
    Column("device", "Where it ran; the colour is that of the device here, where it is here"),
    Column("what", "Shape M×N×K, of a sweep the best of its shapes, or the model"),
    Column("dtype"),
    numbers(
        "median",
        "Of a sweep: that of the fastest; of copies: of the largest within the device, else to it; of scaling: the"
        " speed-up",
    ),
    Column(""),
    numbers("% of datasheet"),
    numbers("% of best", "Share of the best that was published for this card and dtype; shapes differ"),
    numbers("noise %", "Interquartile range over median: quiet below 1 %, noisy above 5 %"),
    numbers("MHz", "SM clock during the run, median"),
    numbers("W", "Power during the run, median"),
    numbers("°C", "Temperature during the run, median"),
    Column("remarks", "How it ended, and what held the clocks down"),
    Column("tags", "Double-click or F2 to edit; commas between tags"),
)
WIDTHS = [108, 84, 132, 192, 108, 74, 80, 92, 70, 60, 56, 46, 40, 60]
TAGS = len(COLUMNS) - 1
RECENT_S = 335 * 86400.0


def best_share(run: StoredRun) -> float | None:
    """Per cent of the best published figure for this card, dtype and mode; None where there is none."""
    known, name = kind_of(run.result).headline(run.result), dtype(run.result.spec)
    if known.spread is None or name is None or known.is_sustained is None:
        return None
    row = best(run.conditions.device_name, name)
    if row is None:
        return None
    return 100 * known.spread.median / ((row.sustained if known.is_sustained else None) or row.peak_burst)


def run_colour(run: StoredRun, state: State) -> Colour:
    """The colour of the run's device where that device is here, else the quiet one."""
    info = device_here(run, (device.info for device in state.devices.values()))
    return "dim" if info is None else state.devices[info.id].colour


def device_text(run: StoredRun, measured: Sequence[Figure] | None = None) -> str:
    """`vgpu:0  simulated`; of a run that was read from a file the name of its card, since its id says nothing here.
    `measured`: the figures that it stands beside, else all of the run."""
    name = (run.conditions.device_name if run.imported else "") or device_of(run)
    if not run.result.simulated:
        return name
    mark = simulated_text(figures(run.result) if measured is None else measured)
    return f"{name}  {mark}" if mark else name


def when_text(time_unix_s: float) -> str:
    """`2026-11-20 13:47`, by the clock on the wall."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_unix_s))


def short_when_text(time_unix_s: float, now_unix_s: float) -> str:
    """`11-20 13:47` of the last eleven months, before that `2025-11-20`: enough for a narrow column."""
    is_recent = 0 <= now_unix_s - time_unix_s < RECENT_S
    return time.strftime("%m-%d %H:%M" if is_recent else "%Y-%m-%d", time.localtime(time_unix_s))


def tags_text(tags: Sequence[str]) -> str:
    """As they are shown and typed."""
    return ", ".join(tags)


def tags_from(text: str) -> tuple[str, ...]:
    """What was typed, as tags; nothing is checked here."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def conditions_text(known: Conditions) -> str:
    """Every condition that is known, a line each."""
    return "\n".join(f"{row.label}: {row.value}" for row in all_conditions(known) if row.value != MISSING)


def remarks(run: StoredRun) -> tuple[str, bool, bool]:
    """How it ended and what held the clocks down; whether that is an error, whether a warning."""
    result, held = run.result, run.conditions.throttle_reasons
    words = [kind_of(result).remark(result)]
    if result.verified is False:
        words.append("✕ values are wrong")
    if result.failure:
        words.append(f"▲ ended early: {result.failure}")
    elif result.stopped:
        words.append("stopped")
    if held:
        words.append(f"▲ {', '.join(held)}")
    if run.imported:
        words.append("imported")
    return joined(", ", *words), result.verified is False, bool(result.failure or held)


def history_row(run: StoredRun, state: State, now_unix_s: float) -> TableRow:
    """One run."""
    result, known, kind = run.result, run.conditions, kind_of(run.result)
    head, share = kind.headline(result), best_share(run)
    median = head.spread.median if head.spread is not None else None
    datasheet = kind.datasheet(result, known)
    sheet = None if median is None or not datasheet else 100 * median / datasheet
    words, is_wrong, is_warning = remarks(run)
    tone: Colour = "dim"
    if is_wrong:
        tone = "error"
    elif is_warning:
        tone = "warning"
    middle, unit, spread = MISSING, "", ""
    if head.spread is not None:
        middle, low, high, unit = rate_texts(head.unit, head.spread.median, head.spread.p20, head.spread.p80)
        spread = f"p20 {low}, p80 {high} {unit}"
    about = conditions_text(known)
    return TableRow(
        run.id,
        (
            Cell(short_when_text(known.started_unix_s, now_unix_s), tip=about),
            Cell(kind.name, "dim"),
            Cell(device_text(run), run_colour(run, state), about),
            Cell(kind.subject(result), tip=kind.subject_tip(result)),
            Cell(dtype(result.spec) or MISSING, "dim"),
            Cell(middle, tip=spread),
            Cell(unit, "dim"),
            percent_cell(sheet, datasheet_tip(datasheet, head.unit, kind.datasheet_note)),
            percent_cell(share, "no published figure is known for this card and dtype"),
            Cell(
                MISSING if head.noise is None else f"{100 * head.noise:.1f}",
                "warning" if noise_verdict(head.noise) == "noisy" else "",
            ),
            *(_reading(value, run) for value in (known.sm_clock_mhz, known.power_w, known.temperature_c)),
            Cell(words, tone, words),
            Cell(tags_text(run.tags), tip=tags_text(run.tags)),
        ),
    )


def percent_cell(percent: float | None, tip: str) -> Cell:
    """Without the sign, which the column has."""
    return Cell(MISSING if percent is None else f"{percent:.0f}", tip=tip)


def datasheet_tip(figure: float | None, unit: str = "TFLOP/s", note: str = "") -> str:
    """What the datasheet says."""
    return f"datasheet {number_text(figure)} {unit}\n{note}".strip() if figure else "no datasheet figure is known"


def _reading(known: Spread | None, run: StoredRun) -> Cell:
    if known is None:
        return Cell(MISSING, tip="not modelled" if run.result.simulated else "not reported by the device")
    return Cell(f"{known.median:,.0f}", tip=f"{known.p20:,.0f} to {known.p80:,.0f} for the middle 60 % of the run")


class _Rows:
    """Rows of runs, each made when it is first asked for."""

    def __init__(self, runs: Sequence[StoredRun], state: State, now_unix_s: float) -> None:
        self._runs, self._state, self._now_unix_s = runs, state, now_unix_s
        self._made: dict[int, TableRow] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index: int) -> TableRow:
        if index not in self._made:
            self._made[index] = history_row(self._runs[index], self._state, self._now_unix_s)
        return self._made[index]


class HistoryModel(RowsModel):
    """Shows the runs of the last `set_runs`; `tags_edited` carries a run's number and its new tags, in a tuple."""

    tags_edited = Signal(object)

    def __init__(self, state: State, clock: Clock = time.time) -> None:
        super().__init__(COLUMNS)
        self._state, self._clock = state, clock
        self.runs: tuple[StoredRun, ...] = ()
        """From the top."""

    def set_runs(self, runs: Sequence[StoredRun]) -> None:
        """Show these; rows that are new at the top leave selection and scroll position alone."""
        old, new = [run.id for run in self.runs], [run.id for run in runs]
        added = len(new) - len(old)
        if added > 0 and old and new[added:] == old:
            self.beginInsertRows(QModelIndex(), 0, added - 1)
            self._take(runs)
            self.endInsertRows()
        elif new != old:
            self.beginResetModel()
            self._take(runs)
            self.endResetModel()
        else:
            self._take(runs)
        if new:
            self.dataChanged.emit(self.index(0, 0), self.index(len(new) - 1, len(COLUMNS) - 1))

    def _take(self, runs: Sequence[StoredRun]) -> None:
        self.runs = tuple(runs)
        rows: Any = _Rows(self.runs, self._state, self._clock())
        self._rows = rows

    def row(self, at: int) -> TableRow:
        """One row, as it is shown."""
        return self._rows[at]

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = super().flags(index)
        return flags | Qt.ItemFlag.ItemIsEditable if index.isValid() and index.column() == TAGS else flags

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        if role != Qt.ItemDataRole.EditRole or index.column() != TAGS:
            return False
        run = self.runs[index.row()]
        if (tags := tags_from(str(value))) != run.tags:
            self.tags_edited.emit(((run.id, tags),))  # shown when the store has it
        return True
