"""The grid of a fleet as an item model: what each cell says, made for the cells that are asked for and kept until the
next reading. Main thread; reads a `WatchedFleet`, changes nothing."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PySide6.QtCore import QModelIndex, Qt

from devexplorer.core.base import MISSING, count_text
from devexplorer.core.fleet.records import CardVerdict, Verdict
from devexplorer.core.fleet.report.document import cause_text, ratio_text
from devexplorer.core.fleet.report.document import line as verdict_line
from devexplorer.core.fleet.table import Bools, FleetArrangement, FleetGroup, Floats, GroupBy, Rows
from devexplorer.core.fleet.window.watched_fleet import WatchedFleet
from devexplorer.core.machines.window.link import STALE_S, STATES, age_text
from devexplorer.core.telemetry.device_facts import held_in_short
from devexplorer.gui.widgets import Column, Index, RowsModel, Tone, numbers

GIB, TIB = 1 << 30, 1 << 40
SIMULATED = "simulated"
CARD, MODEL, STATE, LOAD, MEMORY, HEAT, POWER, CLOCK, THROTTLED, ECC, PCIE, CHECK, AGE = range(13)
COLUMNS = (
    Column("card", "A heading folds and unfolds its cards: click it, or press Left and Right"),
    Column("model"),
    Column("state", "Of the machine; of a card its alerts"),
    numbers("util %", "Utilization, and its last ten minutes; of several cards the mean"),
    numbers("memory GiB", "Used, and all of it"),
    numbers("°C", "Temperature, and its last ten minutes; of several cards the highest"),
    numbers("power W", "Power and its limit; of several cards their sum"),
    numbers("SM MHz", "Clock of the multiprocessors; of several cards the lowest"),
    Column("throttled", "What holds the clocks down"),
    numbers("ECC", "Memory errors that were not corrected; of several cards their sum"),
    numbers("PCIe", "Generation and lanes; of several cards the fewest"),
    Column("check", "Verdict of the last check: the rate beside what the card was compared with"),
    numbers("reading", "How old it is"),
)
WIDTHS = (172, 250, 130, 92, 120, 84, 110, 66, 110, 52, 58, 150, 66)
MANY = 10_000
"""GiB and W of several cards, from which on a larger unit is written: the column has room for so many digits."""
GIVES_UP = (ECC, PCIE, CLOCK, THROTTLED, AGE, STATE, MODEL)
FIELDS = {
    LOAD: "utilization_percent", MEMORY: "memory_used_bytes", HEAT: "temperature_c", POWER: "power_w",
    CLOCK: "sm_clock_mhz", ECC: "ecc_uncorrected", AGE: "time_unix_s",
}  # fmt: skip
SPARKS = {LOAD: ("utilization_percent", 0.0, 100.0), HEAT: ("temperature_c", 20.0, 100.0)}
"""Columns with a curve: what it is of, and its scale."""
WORST = {Verdict.FAILED: 0.0, Verdict.SLOW: 1.0, Verdict.UNKNOWN: 2.0, Verdict.NORMAL: 3.0}
SIGNS: dict[Verdict, tuple[str, Tone]] = {
    Verdict.FAILED: ("✕", "error"), Verdict.SLOW: ("△", "warning"), Verdict.UNKNOWN: ("?", "dim"),
    Verdict.NORMAL: ("●", "text"),
}  # fmt: skip


class FleetCell(NamedTuple):
    """What one cell says."""

    text: str
    tone: Tone = "text"
    share: float = math.nan
    """For a bar, 0 to 1."""
    mark: str = ""
    """Behind the text, dimmed, and never cut."""

    alarmed: bool = False
    """With the sign of an alarm before it."""

    @property
    def whole(self) -> str:
        """All of it as one text."""
        return f"{self.text} {self.mark}".strip()


NEEDED: dict[int, tuple[str, ...]] = {
    LOAD: ("utilization_percent",), MEMORY: ("memory_used_bytes", "memory_total_bytes"), HEAT: ("temperature_c",),
    POWER: ("power_w", "power_cap_w"), CLOCK: ("sm_clock_mhz",), ECC: ("ecc_uncorrected",),
    PCIE: ("pcie_generation", "pcie_width"),
}  # fmt: skip
OF_SEVERAL: dict[str, Any] = {
    "utilization_percent": np.nanmean, "temperature_c": np.nanmax, "sm_clock_mhz": np.nanmin,
    "pcie_generation": np.nanmin, "pcie_width": np.nanmin,
}  # fmt: skip


def of_known(of: Any, values: Floats) -> float:
    """Of the values that are known; NaN where none is."""
    known = values[~np.isnan(values)]
    return float(of(known)) if len(known) else math.nan


def figure(column: int, values: dict[str, float]) -> tuple[str, float]:
    """The text of a number, and what a bar shows."""
    first, *rest = values.values()
    if column == PCIE:
        if math.isnan(values["pcie_width"]):
            return MISSING, math.nan
        generation = values["pcie_generation"]
        return f"{'' if math.isnan(generation) else f'{generation:.0f}'}×{values['pcie_width']:.0f}", math.nan
    if math.isnan(first):
        return MISSING, math.nan
    match column:
        case 4:
            total = rest[0]
            if math.isnan(total):
                return f"{first / GIB:.1f}", math.nan
            share = first / total if total else math.nan
            if total >= MANY * GIB:
                return f"{first / TIB:,.1f} / {total / TIB:,.1f} TiB", share
            digits = 1 if total < 1000 * GIB else 0
            return f"{first / GIB:,.{digits}f} / {total / GIB:,.0f}", share
        case 6:
            if (most := float(np.nanmax((first, rest[0])))) >= MANY:
                digits = 1 if most < 10 * MANY else 0
                limit = "" if math.isnan(rest[0]) else f" / {rest[0] / 1e3:,.{digits}f}"
                return f"{first / 1e3:,.{digits}f}{limit} kW", math.nan
            return f"{first:,.0f}{'' if math.isnan(rest[0]) else f' / {rest[0]:,.0f}'}", math.nan
    return f"{first:,.0f}", math.nan


def age_cell(seconds: float) -> tuple[str, Tone]:
    """How old a reading is."""
    if math.isnan(seconds):
        return MISSING, "dim"
    return age_text(max(seconds, 0.0)), "warning" if seconds >= STALE_S else "dim"


def verdict_cell(verdict: CardVerdict | None) -> FleetCell:
    """What the last check says of a card, in a few letters."""
    if verdict is None:
        return FleetCell("")
    sign, tone = SIGNS[verdict.verdict]
    if verdict.worst is None:
        return FleetCell(f"{sign} {verdict.verdict.value}", tone)
    if verdict.verdict is Verdict.NORMAL:
        return FleetCell(f"{sign} {100 * verdict.worst.ratio:.1f} %", tone)
    cause = f", {cause_text(verdict.causes[0])}" if verdict.causes else ""
    return FleetCell(f"{sign} {ratio_text(verdict.worst).partition(' of ')[0]}{cause}", tone)


def rank(verdict: CardVerdict | None) -> float:
    """The worst first."""
    if verdict is None:
        return math.nan
    return WORST[verdict.verdict] * 1000 + (verdict.ratio or 0.0)


def places(texts: Sequence[str]) -> Floats:
    """Each text's place among them in the order of the alphabet."""
    places = {text: place for place, text in enumerate(sorted(set(texts), key=_natural))}
    return np.array([places[text] for text in texts], dtype=np.float64)


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """`node2` before `node10`."""
    parts: list[tuple[int, int, str]] = []
    number = ""
    for letter in f"{text.lower()} ":
        if letter.isdecimal() and letter.isascii():
            number += letter
            continue
        if number:
            parts.append((0, int(number), ""))
            number = ""
        parts.append((1, 0, letter))
    return tuple(parts)


_NOWHERE = QModelIndex()


class FleetModel(RowsModel):
    """Has the header of a `RowsModel`, and rows of its own. `refresh` at most once a second; `order_by`, `arrangement`,
    then `arrange` when something was chosen."""

    def __init__(self, fleet: WatchedFleet) -> None:
        super().__init__(COLUMNS)
        self.now: Callable[[], float] = time.time
        self._cells: dict[tuple[int, int], FleetCell] = {}
        self.column: int | None = None
        """What the cards are sorted by."""
        self.set_fleet(fleet)

    def set_fleet(self, fleet: WatchedFleet) -> None:
        """Show this one from now on, grouped and sorted as before."""
        self.beginResetModel()
        before = getattr(self, "arrangement", None)
        self.fleet, self.arrangement = fleet, FleetArrangement(fleet.table)
        if before is not None:
            self.arrangement.by, self.arrangement.descending = before.by, before.descending
            self.arrangement.words = before.words
        self._known: tuple[object, ...] = ()
        self._arranged()
        self._lines = len(self.arrangement.lines)
        self.endResetModel()

    # --- what is shown

    def group_at(self, line: int) -> FleetGroup | None:
        """The group whose heading is there."""
        row = int(self.arrangement.lines[line])
        return None if row >= 0 else self.arrangement.groups[-1 - row]

    def row_at(self, line: int) -> int:
        """The card that is there, as a row of the table; negative: it is a heading."""
        return int(self.arrangement.lines[line])

    def key_at(self, line: int) -> object:
        """What is there, through every change of the order."""
        group = self.group_at(line)
        return group.name if group is not None else self._key(self.row_at(line))

    def line_of(self, key: object) -> int:
        """Where that is now; -1: nowhere."""
        if isinstance(key, tuple):
            row = self.fleet.table.row(*key)
            return -1 if row is None else self.arrangement.line_of(row)
        names = [group.name for group in self.arrangement.groups]
        return self.arrangement.line_of(-1 - names.index(str(key))) if key in names else -1

    def _key(self, row: int) -> tuple[str, str]:
        card = self.fleet.table.cards[row]
        return card.machine, card.info.id

    # --- changes

    def order_by(self, column: int | None, *, descending: bool = False) -> None:
        """Sort by this column; None: as the cards came."""
        self.column, self.arrangement.descending = column, descending
        self.arrange()

    def group_by(self, by: GroupBy) -> None:
        """Group the cards by this."""
        self.arrangement.set_by(by)
        self._contents.clear()
        self.arrange()

    def filter(self, text: str) -> None:
        """Leave the cards whose texts contain every word."""
        self.arrangement.words = tuple(text.lower().split())
        self.arrange()

    def toggle(self, name: str) -> None:
        """Fold or unfold a group."""
        self.arrangement.toggle(name)
        self.arrange()

    def reveal(self, key: object) -> None:
        """Unfold the group that hides a card."""
        row = self.fleet.table.row(*key) if isinstance(key, tuple) else None
        if row is not None and self.arrangement.line_of(row) < 0:
            hiding = next((group for group in self.arrangement.groups if row in group.rows), None)
            if hiding is not None:
                self.toggle(hiding.name)

    def arrange(self) -> None:
        """Have the lines that are wanted now."""
        before = len(self.arrangement.lines)
        self._arranged()
        now = len(self.arrangement.lines)
        if now > before:
            self.beginInsertRows(_NOWHERE, before, now - 1)
            self._lines = now
            self.endInsertRows()
        elif now < before:
            self.beginRemoveRows(_NOWHERE, now, before - 1)
            self._lines = now
            self.endRemoveRows()

    def _arranged(self) -> None:
        self._cells.clear()
        self._follow()
        self.arrangement.verdicts = self._marks() if self.arrangement.words else []
        self.arrangement.arrange(self._values())

    def refresh(self, first: int, last: int) -> None:
        """There are new readings; only the lines from `first` to `last` are seen."""
        self.arrange()
        last = min(last, len(self.arrangement.lines) - 1)
        if 0 <= first <= last:
            self.dataChanged.emit(self.index(first, 0), self.index(last, len(COLUMNS) - 1))

    def _follow(self) -> None:
        """Cards have come or gone, or a check is over: what has to look at each card."""
        table, verdicts = self.fleet.table, self.fleet.verdicts
        known = (table.structure, self.fleet.report)
        if self._known and known[0] == self._known[0] and known[1] is self._known[1]:
            return
        self._known = known
        every = [verdicts.get((card.machine, card.info.id)) for card in table.cards]
        self._verdicts = every
        self._ranks = np.array([rank(verdict) for verdict in every])
        self._places = {
            CARD: places([card.name for card in table.cards]), MODEL: places([card.info.name for card in table.cards])
        }  # fmt: skip
        self._contents: dict[str, str] = {}

    def _marks(self) -> list[str]:
        """What the filter finds besides names: verdicts and alerts."""
        alarms = self._alarms()
        return [
            f"{'' if verdict is None else verdict.verdict.value}{' alert' * bool(alarm)}"
            for verdict, alarm in zip(self._verdicts, alarms, strict=True)
        ]

    def _alarms(self) -> Bools:
        alarms = self.fleet.alerts.alarms
        return alarms if len(alarms) == len(self.fleet.table.cards) else np.zeros(len(self.fleet.table.cards), bool)

    def _held(self) -> Bools:
        """Which cards something holds down."""
        reasons = np.array([bool(held_in_short(reasons)) for reasons in self.fleet.table.reasons])
        codes = self.fleet.table.reason_codes
        held: Bools = reasons[codes] & (codes >= 0)
        return held

    def _values(self) -> Floats | None:
        """What to sort by."""
        table, column = self.fleet.table, self.column
        if column is None:
            return None
        if column in FIELDS:
            return table.column(FIELDS[column])
        if column == PCIE:
            return 100 * table.column("pcie_generation") + table.column("pcie_width")
        if column == CHECK:
            return self._ranks
        if column in self._places:
            return self._places[column]
        return (self._alarms() if column == STATE else self._held()).astype(np.float64)

    # --- Qt

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else self._lines

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or index.row() >= len(self.arrangement.lines):
            return None
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.AccessibleTextRole:
                return self.cell(self.row_at(index.row()), index.column()).whole
            case Qt.ItemDataRole.ToolTipRole:
                return self._tip(index.row(), index.column()) or None
        return None

    def _tip(self, line: int, column: int) -> str:
        row = self.row_at(line)
        if row < 0:
            name = self.arrangement.groups[-1 - row].name
            machine = self.fleet.table.machines.get(name)
            if self.arrangement.by == "machine" and machine is not None and machine.problem:
                return machine.problem
            return name if column == CARD else ""
        if column == STATE:
            return "\n".join(one.text for one in self.fleet.alerts.of(row))
        verdict = self.fleet.verdicts.get(self._key(row))
        if column == CHECK and verdict is not None:
            return verdict_line(verdict)
        return self.cell(row, column).text if column in (CARD, MODEL, THROTTLED) else ""

    # --- texts

    def cell(self, row: int, column: int) -> FleetCell:
        """What is said of a card, or under a negative number of a group."""
        made = self._cells.get((row, column))
        if made is None:
            made = self._card_cell(row, column) if row >= 0 else self._group_cell(-1 - row, column)
            self._cells[row, column] = made
        return made

    def is_dimmed(self, row: int) -> bool:
        """Whether what is known of a card is not of now."""
        fleet = self.fleet.table
        machine = fleet.machines.get(fleet.cards[row].machine)
        if machine is None or machine.state != "connected":
            return True
        return bool(self.now() - fleet.column("time_unix_s")[row] >= STALE_S)

    def _card_cell(self, row: int, column: int) -> FleetCell:
        fleet = self.fleet.table
        card = fleet.cards[row]
        tone: Tone = "dim" if self.is_dimmed(row) else "text"
        match column:
            case 0:
                name = card.info.id if self.arrangement.by == "machine" else card.name
                return FleetCell(name, tone, mark=SIMULATED * card.info.simulated, alarmed=bool(self._alarms()[row]))
            case 1:
                return FleetCell(card.info.name.removeprefix("NVIDIA "), tone)
            case 2:
                return self._state_cell(row)
            case 8:
                code = fleet.reason_codes[row]
                held = ", ".join(held_in_short(fleet.reasons[code])) if code >= 0 else ""
                return FleetCell(held, "warning" if held and tone == "text" else tone)
            case 11:
                return verdict_cell(self.fleet.verdicts.get(self._key(row)))
            case 12:
                then = float(fleet.column("time_unix_s")[row])
                return FleetCell(*age_cell(self.now() - then))
        values = {name: float(fleet.column(name)[row]) for name in NEEDED[column]}
        text, share = figure(column, values)
        return FleetCell(text, "dim" if text == MISSING else tone, share)

    def _state_cell(self, row: int) -> FleetCell:
        raised = self.fleet.alerts.of(row)
        if raised:
            worst = next((one for one in raised if one.is_alarm), raised[0])
            sign = "✕" if worst.is_alarm else "△"
            more = f" +{len(raised) - 1}" if len(raised) > 1 else ""
            return FleetCell(f"{sign} {worst.text}{more}", "error" if worst.is_alarm else "warning")
        fleet = self.fleet.table
        card = fleet.cards[row]
        if self.arrangement.by == "machine":
            return FleetCell("")
        machine = fleet.machines.get(card.machine)
        state = "lost" if machine is None else machine.state
        return FleetCell("" if state == "connected" else STATES[state], "dim")

    def _group_cell(self, number: int, column: int) -> FleetCell:
        group, fleet = self.arrangement.groups[number], self.fleet.table
        machine = fleet.machines.get(group.name) if self.arrangement.by == "machine" else None
        away = machine is not None and machine.state != "connected"
        tone: Tone = "dim" if away else "text"
        match column:
            case 0:
                some = (self.fleet.table.cards[row].info.simulated for row in group.rows[:1])
                mark = SIMULATED * any((machine is not None and machine.simulated, *some))
                alarmed = bool(self._alarms()[group.rows].any())
                return FleetCell(f"{'▾' if group.open else '▸'} {group.name}", tone, mark=mark, alarmed=alarmed)
            case 1:
                return FleetCell(self._what(group), tone)
            case 2:
                return self._group_state(group, None if machine is None else machine.state)
            case 8:
                held = int(self._held()[group.rows].sum())
                return FleetCell(count_text(held, "card") if held else "", "warning" if held else tone)
            case 11:
                return self._group_verdict(group.rows)
            case 12:
                newest = of_known(np.nanmax, fleet.column("time_unix_s")[group.rows])
                return FleetCell(*age_cell(self.now() - newest))
        values = {
            name: of_known(OF_SEVERAL.get(name, np.nansum), fleet.column(name)[group.rows]) for name in NEEDED[column]
        }
        text, share = figure(column, values)
        return FleetCell(text, "dim" if text == MISSING else tone, share)

    def _what(self, group: FleetGroup) -> str:
        """Which cards a group has."""
        if group.name not in self._contents or self.arrangement.words:
            cards = [self.fleet.table.cards[row] for row in group.rows]
            counts = Counter((card.info.name.removeprefix("NVIDIA "), card.info.simulated) for card in cards)
            mixed = len({simulated for _, simulated in counts}) > 1  # else the heading's mark says it
            self._contents[group.name] = ", ".join(
                f"{count} × {name}{f' ({SIMULATED})' * (simulated and mixed)}"
                for (name, simulated), count in counts.items()
            )
        return self._contents[group.name]

    def _group_state(self, group: FleetGroup, state: str | None) -> FleetCell:
        count = int(self._alarms()[group.rows].sum())
        parts = [STATES[state]] if state is not None and (state != "connected" or not count) else []
        if count:
            parts.append(f"✕ {count_text(count, 'alert')}")
        tones: dict[str | None, Tone] = {"reconnecting": "warning", "lost": "error", "connecting": "dim"}
        return FleetCell(", ".join(parts), "error" if count else tones.get(state, "text"))

    def _group_verdict(self, rows: Rows) -> FleetCell:
        ranks = self._ranks[rows]
        ranks = np.floor_divide(ranks[~np.isnan(ranks)], 1000)
        if not len(ranks):
            return FleetCell("")
        worst = next(verdict for verdict, rank in WORST.items() if rank == ranks.min())
        sign, tone = SIGNS[worst]
        return FleetCell(f"{sign} {int((ranks == ranks.min()).sum())} {worst.value}", tone)
