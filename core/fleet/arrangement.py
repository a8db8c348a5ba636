"""The cards of a fleet as lines: grouped, folded, filtered, sorted. Main thread only.

Thousands of cards are a step or two of numpy: what has to look at each of them happens when cards come or go.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.fleet.table import FleetTable

GroupBy = Literal["machine", "model", "rack", "nothing"]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
OPEN_CARDS = 64
"""With more cards than that, groups are folded at first."""
NO_RACK = "no rack"


class FleetGroup(NamedTuple):
    """Cards under one heading."""

    name: str
    rows: Rows
    """Of the table, in the order in which they are shown."""
    open: bool


class FleetArrangement:
    """`arrange` whenever something of it changes; `lines` is what is shown: the row of a card, or -1 minus the number
    of a group for its heading."""

    def __init__(self, fleet: FleetTable) -> None:
        self.groups: list[FleetGroup] = []
        self.lines: Rows = np.empty(0, np.intp)
        self.by: GroupBy = "machine"
        self.descending = False
        self.words: tuple[str, ...] = ()
        """What a card's text has to contain, in small letters."""
        self.verdicts: list[str] = []
        """What the filter finds of each card besides its names; empty: nothing."""
        self.hits = 0
        """Cards that the filter leaves."""
        self._fleet = fleet
        self._toggled: set[str] = set()
        self._known: tuple[object, ...] = ()
        self._names: list[str] = []
        self._codes: Rows = np.empty(0, np.intp)
        self._texts: list[str] = []
        self._shown: Bools = np.empty(0, bool)

    def toggle(self, name: str) -> None:
        """Fold or unfold a group."""
        self._toggled ^= {name}

    def set_by(self, by: GroupBy) -> None:
        """Group by this from now on."""
        self.by = by
        self._toggled.clear()

    def fold_all(self, names: Collection[str]) -> None:
        """Those that are not folded."""
        self._toggled ^= set(names)

    def arrange(self, values: Floats | None) -> None:
        """`values`: what to sort by, for each card; None: the order in which they came."""
        self._follow()
        shown = self._shown
        if self.words:
            shown = shown & self._matches()
        rows = np.flatnonzero(shown)
        self.hits = len(rows)
        if values is None:
            keys = np.arange(len(shown), dtype=np.float64)
        else:
            keys = -values if self.descending else values.copy()
            keys[np.isnan(keys)] = np.inf  # what is not known comes last
        codes = self._codes[rows]
        first = np.full(len(self._names), np.inf)
        np.minimum.at(first, codes, keys[rows])
        rank = np.empty(len(first), np.intp)
        rank[np.argsort(first, kind="stable") if values is not None else np.arange(len(first))] = np.arange(len(first))
        order = rows[np.lexsort((keys[rows], rank[codes]))]
        ends = np.searchsorted(rank[self._codes[order]], np.arange(len(first) + 1))
        open_at_first = self.by == "nothing" or bool(self.words) or int(self._shown.sum()) <= OPEN_CARDS
        names = [self._names[at] for at in np.argsort(rank)]
        self.groups = []
        parts: list[Rows] = []
        for place, name in enumerate(names):
            members = order[ends[place] : ends[place + 1]]
            if not len(members) and (self.words or self.by != "machine"):
                continue
            is_open = (name in self._toggled) != open_at_first
            if self.by != "nothing":
                parts.append(np.array([-1 - len(self.groups)], np.intp))
            self.groups.append(FleetGroup(name, members, is_open))
            if is_open:
                parts.append(members)
        self.lines = np.concatenate(parts) if parts else np.empty(0, np.intp)

    def line_of(self, row: int) -> int:
        """Where a card is shown; -1: it is not."""
        found = np.flatnonzero(self.lines == row)
        return int(found[0]) if len(found) else -1

    def _matches(self) -> Bools:
        texts = self._texts
        if self.verdicts:
            texts = [f"{text} {verdict}" for text, verdict in zip(texts, self.verdicts, strict=True)]
        return np.fromiter((all(word in text for word in self.words) for text in texts), bool, len(texts))

    def _follow(self) -> None:
        """Cards have come or gone, or they are grouped another way."""
        fleet = self._fleet
        racks = {name: machine.rack or NO_RACK for name, machine in fleet.machines.items()}
        known = (fleet.structure, self.by, racks)
        if known == self._known:
            return
        self._known = known
        match self.by:
            case "machine":
                of = [card.machine for card in fleet.cards]
                numbers = {name: number for number, name in enumerate(fleet.machines)}
            case "rack":
                of = [racks.get(card.machine, NO_RACK) for card in fleet.cards]
                numbers = {}
            case "model":
                of = [card.info.name for card in fleet.cards]
                numbers = {}
            case _:
                of, numbers = [""] * len(fleet.cards), {}
        for name in of:
            numbers.setdefault(name, len(numbers))
        self._names = list(numbers)
        self._codes = np.fromiter((numbers[name] for name in of), np.intp, len(of))
        self._texts = [
            f"{card.machine}/{card.info.id} {card.info.name} {racks.get(card.machine, '')}"
            f"{' simulated' * card.info.simulated}".lower()
            for card in fleet.cards
        ]
        others = {card.machine for card in fleet.cards if card.info.kind != "cpu"}
        self._shown = np.fromiter(
            (card.info.kind != "cpu" or card.machine not in others for card in fleet.cards), bool, len(fleet.cards)
        )
