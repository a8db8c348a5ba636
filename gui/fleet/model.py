"""The grid of a fleet as an item model: what each cell says, made for the cells that are asked for and kept until the
next reading. Main thread; reads a `WatchedFleet`, changes nothing."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PySide6.QtCore import QModelIndex, Qt

from devexplorer.core.base import MISSING, count_text
from devexplorer.core.fleet.events import FleetMachine
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
ALARM: tuple[str, Tone] = ("✕", "error")
NOTICE: tuple[str, Tone] = ("△", "warning")
STATE_TONES: dict[str, Tone] = {"connected": "text", "reconnecting": "warning", "lost": "error", "connecting": "dim"}


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
    PCIE: ("pcie_width", "pcie_generation"),
}  # fmt: skip
OF_SEVERAL: dict[int, Any] = {LOAD: np.mean, HEAT: np.max, CLOCK: np.min, PCIE: np.min}
"""The others are sums."""


def of_known(of: Any, values: Floats) -> float:
    """Of the values that are known; NaN where none is."""
    known = values[~np.isnan(values)]
    return float(of(known)) if len(known) else math.nan


def figure(column: int, value: float, other: float = math.nan) -> str:
    """The text of a number. `other`: the whole of a memory, the limit of a power, the generation of lanes."""
    if math.isnan(value):
        return MISSING
    known = not math.isnan(other)
    if column == PCIE:
        return f"{other:.0f}×{value:.0f}" if known else f"×{value:.0f}"
    if column == MEMORY and known:
        if other >= MANY * GIB:
            return f"{value / TIB:,.1f} / {other / TIB:,.1f} TiB"
        digits = 1 if other < 1000 * GIB else 0
        return f"{value / GIB:,.{digits}f} / {other / GIB:,.0f}"
    if column == MEMORY:
        return f"{value / GIB:.1f}"
    if column != POWER:
        return f"{value:,.0f}"
    most = np.fmax(value, other)
    divisor, digits, unit = 1.0, 0, ""
    if most >= MANY:
        divisor, digits, unit = 1e3, 1 if most < 10 * MANY else 0, " kW"
    limit = f" / {other / divisor:,.{digits}f}" if known else ""
    return f"{value / divisor:,.{digits}f}{limit}{unit}"


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
    """Each text's place among them in the order of the alphabet, `node2` before `node10`."""
    places = {text: place for place, text in enumerate(sorted(set(texts), key=_natural))}
    return np.array([places[text] for text in texts], dtype=np.float64)


def _natural(text: str) -> list[str | int]:
    parts: list[str | int] = list(re.split(r"(\d+)", text.lower(), flags=re.ASCII))
    parts[1::2] = map(int, parts[1::2])
    return parts


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
            made = self._cells[row, column] = self._made(row, column)
        return made

    def is_dimmed(self, row: int) -> bool:
        """Whether what is known of a card is not of now."""
        fleet = self.fleet.table
        machine = fleet.machines.get(fleet.cards[row].machine)
        if machine is None or machine.state != "connected":
            return True
        return bool(self.now() - fleet.column("time_unix_s")[row] >= STALE_S)

    def _made(self, row: int, column: int) -> FleetCell:
        table, alerts = self.fleet.table, self._alarms()
        group, rows = None, np.array([row])
        if row < 0:
            group = self.arrangement.groups[-1 - row]
            rows = group.rows
            machine = table.machines.get(group.name) if self.arrangement.by == "machine" else None
            dim = machine is not None and machine.state != "connected"
        else:
            machine = table.machines.get(table.cards[row].machine)
            dim = self.is_dimmed(row)
        tone: Tone = "dim" if dim else "text"
        if column == CARD:
            simulated = any(table.cards[one].info.simulated for one in rows[:1].tolist())
            simulated |= group is not None and machine is not None and machine.simulated
            return FleetCell(self._name(row, group), tone, mark=SIMULATED * simulated, alarmed=bool(alerts[rows].any()))
        if column == MODEL:
            text = table.cards[row].info.name.removeprefix("NVIDIA ") if group is None else self._what(group)
            return FleetCell(text, tone)
        if column == STATE and group is None:
            return self._state_cell(row, machine)
        if column == STATE:
            return self._group_state(int(alerts[rows].sum()), machine)
        if column == THROTTLED and group is None:
            code = table.reason_codes[row]
            held = ", ".join(held_in_short(table.reasons[code])) if code >= 0 else ""
            return FleetCell(held, "warning" if held and not dim else tone)
        if column == THROTTLED:
            number = int(self._held()[rows].sum())
            return FleetCell(count_text(number, "card"), "warning") if number else FleetCell("")
        if column == CHECK and group is None:
            return verdict_cell(self.fleet.verdicts.get(self._key(row)))
        if column == CHECK:
            return self._group_verdict(rows)
        if column == AGE:
            return FleetCell(*age_cell(self.now() - of_known(np.max, table.column("time_unix_s")[rows])))
        of = OF_SEVERAL.get(column, np.sum)
        values = [of_known(of, table.column(name)[rows]) for name in NEEDED[column]]
        text = figure(column, *values)
        share = values[0] / values[1] if column == MEMORY and values[1] > 0 else math.nan
        return FleetCell(text, "dim" if text == MISSING else tone, share)

    def _name(self, row: int, group: FleetGroup | None) -> str:
        if group is not None:
            return f"{'▾' if group.open else '▸'} {group.name}"
        card = self.fleet.table.cards[row]
        return card.info.id if self.arrangement.by == "machine" else card.name

    def _state_cell(self, row: int, machine: FleetMachine | None) -> FleetCell:
        raised = self.fleet.alerts.of(row)
        if raised:
            worst = next((one for one in raised if one.is_alarm), raised[0])
            sign, tone = ALARM if worst.is_alarm else NOTICE
            more = f" +{len(raised) - 1}" if len(raised) > 1 else ""
            return FleetCell(f"{sign} {worst.text}{more}", tone)
        if machine is None or machine.state == "connected" or self.arrangement.by == "machine":
            return FleetCell("")
        return FleetCell(STATES[machine.state], "dim")

    def _group_state(self, alerts: int, machine: FleetMachine | None) -> FleetCell:
        if not alerts:
            return FleetCell("") if machine is None else FleetCell(STATES[machine.state], STATE_TONES[machine.state])
        text = f"✕ {count_text(alerts, 'alert')}"
        if machine is not None and machine.state != "connected":
            text = f"{STATES[machine.state]}, {text}"
        return FleetCell(text, "error")

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

    def _group_verdict(self, rows: Rows) -> FleetCell:
        ranks = self._ranks[rows]
        ranks = np.floor_divide(ranks[~np.isnan(ranks)], 1000)
        if not len(ranks):
            return FleetCell("")
        worst = next(verdict for verdict, rank in WORST.items() if rank == ranks.min())
        sign, tone = SIGNS[worst]
        return FleetCell(f"{sign} {int((ranks == ranks.min()).sum())} {worst.value}", tone)
