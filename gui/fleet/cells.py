"""The columns of a fleet's grid and what their cells say. Pure functions, main thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from devexplorer.core.base import MISSING
from devexplorer.core.fleet.arrangement import Floats
from devexplorer.core.fleet.report.verdict_text import cause_text, ratio_text
from devexplorer.core.records.fleet import CardVerdict, Verdict
from devexplorer.gui.machines.words import STALE_S, age_text
from devexplorer.gui.widgets import Tone
from devexplorer.gui.widgets.table import Column, numbers

GIB, TIB = 1 << 30, 1 << 40
SIMULATED = "simulated"
CARD, MODEL, STATE, LOAD, MEMORY, HEAT, POWER, CLOCK, THROTTLED, ECC, PCIE, CHECK, AGE = range(13)
COLUMNS = (
    Column("Card", "A heading folds and unfolds its cards: click it, or press Left and Right"),
    Column("Model"),
    Column("State", "Of the machine; of a card its alerts"),
    numbers("Load, %", "Utilization, and its last ten minutes; of several cards the mean"),
    numbers("Memory, GiB", "Used, and all of it"),
    numbers("°C", "Temperature, and its last ten minutes; of several cards the highest"),
    numbers("Power, W", "Power and its limit; of several cards their sum"),
    numbers("SM, MHz", "Clock of the multiprocessors; of several cards the lowest"),
    Column("Throttled", "What holds the clocks down"),
    numbers("ECC", "Memory errors that were not corrected; of several cards their sum"),
    numbers("PCIe", "Generation and lanes; of several cards the fewest"),
    Column("Check", "Verdict of the last check: the rate beside what the card was compared with"),
    numbers("Reading", "How old it is"),
)
WIDTHS = (214, 222, 150, 104, 132, 92, 114, 68, 116, 52, 62, 176, 70)
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
