"""Every card of a fleet as a row of numbers, with a short and coarse history: what the page Fleet draws, sorts, groups
and filters, and what is exported. Main thread only.

The columns are numpy arrays over all cards, so that thousands of readings are one step; a card takes about 2 kB.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.base import Clock
from devexplorer.core.fleet.events import (
    CardDetails,
    CardKey,
    CardsListed,
    FleetEvent,
    FleetMachine,
    MachineChanged,
    MachineLeft,
    Readings,
)
from devexplorer.core.records import DeviceDetails, DeviceInfo, DeviceSample, Problem

Floats = npt.NDArray[np.float64]

COLUMNS = (
    "time_unix_s", "utilization_percent", "memory_used_bytes", "memory_total_bytes", "temperature_c", "power_w",
    "power_cap_w", "sm_clock_mhz", "memory_clock_mhz", "pcie_generation", "pcie_width", "ecc_corrected",
    "ecc_uncorrected", "fan_percent",
)  # fmt: skip
"""Fields of `DeviceSample` that are kept of the last reading; NaN where one is not known."""
DRAWN = ("utilization_percent", "temperature_c")
"""Those with a history."""
BIN_S, BINS = 5.0, 120
"""Ten minutes in means of five seconds."""

_values = attrgetter(*COLUMNS)
_DRAWN = [COLUMNS.index(name) for name in DRAWN]


class FleetCard(NamedTuple):
    """A row: which card it is."""

    machine: str
    info: DeviceInfo

    @property
    def name(self) -> str:
        """`MACHINE/DEVICE`."""
        return f"{self.machine}/{self.info.id}"


class FleetTable:
    """`apply` events; read `machines`, `cards` and `column`, whose rows belong together."""

    def __init__(self, monotonic: Clock = time.monotonic) -> None:
        self._monotonic = monotonic
        self.machines: dict[str, FleetMachine] = {}
        """By name, in the order in which they joined."""
        self.cards: list[FleetCard] = []
        """Those of one machine next to each other."""
        self.samples: list[DeviceSample | None] = []
        """The last reading of each."""
        self.problems: dict[str, tuple[Problem, ...]] = {}
        """What could not be found out, by machine."""
        self.details: dict[CardKey, DeviceDetails] = {}
        """What seldom changes, as far as it is known."""
        self.reasons: list[tuple[str, ...]] = [()]
        """Every set of throttle reasons that was read, by its code."""
        self.structure = 0
        """Counts changes of `cards`."""
        self._rows: dict[tuple[str, str], int] = {}
        self._values: Floats = np.empty((0, len(COLUMNS)))
        self._history: npt.NDArray[np.float32] = np.empty((BINS, 0, len(DRAWN)), np.float32)
        """Bin by bin, because a bin is written at once."""
        self._counts: npt.NDArray[np.int32] = np.empty((0, len(DRAWN)), np.int32)
        """Known readings in the present bin."""
        self.reason_codes: npt.NDArray[np.int32] = np.empty(0, np.int32)
        """Index into `reasons` of each card; -1: not known."""
        self._codes: dict[tuple[str, ...] | None, int] = {None: -1, (): 0}
        self.bin = 0
        """Number of the present bin of the histories."""

    def apply(self, events: Sequence[FleetEvent]) -> None:
        """Take what happened, in order: first which cards there are, then what was read of them."""
        listed: dict[str, Sequence[DeviceInfo]] = {}
        for event in events:
            match event:
                case MachineChanged():
                    self.machines[event.machine.name] = event.machine
                case CardsListed():
                    listed[event.machine] = event.devices
                    self.problems[event.machine] = event.problems
                case CardDetails():
                    self.details[event.machine, event.details.device] = event.details
                case MachineLeft():
                    self.machines.pop(event.name, None)
                    self.problems.pop(event.name, None)
                    listed[event.name] = ()
        if listed:
            self._list(listed)
        samples: dict[int, DeviceSample] = {}
        for event in events:
            if isinstance(event, Readings):
                for sample in event.samples:
                    row = self._rows.get((event.machine, sample.device))
                    if row is not None:
                        samples[row] = sample
        if samples:
            self._put(samples)

    @property
    def settled(self) -> bool:
        """Whether every machine that is not lost is connected and has told of each card, or why not."""
        return self.settled_without(())

    @property
    def unreached(self) -> set[str]:
        """Machines that could not be connected, so far."""
        return {name for name, machine in self.machines.items() if machine.state != "connected" and machine.problem}

    def settled_without(self, without: Collection[str]) -> bool:
        """The same of all machines but these."""
        known = {(machine, problem.device) for machine, problems in self.problems.items() for problem in problems}
        silent = {
            card.machine
            for card, sample in zip(self.cards, self.samples, strict=True)
            if sample is None and (card.machine, card.info.id) not in known
        }
        listed = {card.machine for card in self.cards}
        return all(
            machine.state == "lost" or (machine.state == "connected" and name in listed and name not in silent)
            for name, machine in self.machines.items()
            if name not in without
        )

    def row(self, machine: str, device: str) -> int | None:
        """Where a card is; right until `structure` changes."""
        return self._rows.get((machine, device))

    def column(self, name: str) -> Floats:
        """The last value of each card, one of `COLUMNS`; a view that `apply` changes."""
        return self._values[:, COLUMNS.index(name)]

    def history(self, row: int, name: str) -> npt.NDArray[np.float32]:
        """Means of one of `DRAWN` in each bin, oldest first, NaN where there was no reading; the last bin is not full
        yet. Shape `(BINS,)`."""
        last = self.bin % BINS
        return np.roll(self._history[:, row, DRAWN.index(name)], BINS - 1 - last)

    def _put(self, samples: dict[int, DeviceSample]) -> None:
        rows = np.fromiter(samples, np.intp, len(samples))
        for row, sample in samples.items():
            self.samples[row] = sample
        values = np.array([_values(sample) for sample in samples.values()], dtype=np.float64)
        self._turn(int(self._monotonic() // BIN_S))  # whatever the clocks of the machines say
        self._values[rows] = values
        self.reason_codes[rows] = [self._code(sample.throttle_reasons) for sample in samples.values()]
        bins = self._history[self.bin % BINS]
        drawn, before = values[:, _DRAWN], bins[rows]
        known = ~np.isnan(drawn)
        self._counts[rows] += known
        mean = before + (drawn - before) / np.maximum(self._counts[rows], 1)
        bins[rows] = np.where(known, np.where(np.isnan(before), drawn, mean), before)

    def _code(self, reasons: tuple[str, ...] | None) -> int:
        code = self._codes.get(reasons)
        if code is None:
            assert reasons is not None
            code = self._codes[reasons] = len(self.reasons)
            self.reasons.append(reasons)
        return code

    def _turn(self, to: int) -> None:
        """Begin the bin of a new time; those that were left out are empty."""
        if to <= self.bin:
            return
        for passed in range(max(self.bin + 1, to - BINS + 1), to + 1):
            self._history[passed % BINS] = np.nan
        self.bin = to
        self._counts[:] = 0

    def _list(self, listed: dict[str, Sequence[DeviceInfo]]) -> None:
        """Replace the cards of some machines; one that is still there keeps what is known of it."""
        devices: dict[str, list[DeviceInfo]] = {}
        for card in self.cards:
            devices.setdefault(card.machine, []).append(card.info)
        devices |= {machine: list(infos) for machine, infos in listed.items()}
        before, values, history, counts, samples = self._rows, self._values, self._history, self._counts, self.samples
        self.cards = [FleetCard(machine, info) for machine, infos in devices.items() for info in infos]
        self._rows = {(card.machine, card.info.id): row for row, card in enumerate(self.cards)}
        old = [before.get(key) for key in self._rows]
        stays = np.array([row is not None for row in old], dtype=bool)
        rows = np.array([row for row in old if row is not None], dtype=np.intp)
        self.samples = [None if row is None else samples[row] for row in old]
        self._values = np.full((len(old), len(COLUMNS)), np.nan)
        self._history = np.full((BINS, len(old), len(DRAWN)), np.nan, np.float32)
        self._counts = np.zeros((len(old), len(DRAWN)), np.int32)
        codes, self.reason_codes = self.reason_codes, np.full(len(old), -1, np.int32)
        self.reason_codes[stays] = codes[rows]
        self._values[stays], self._history[:, stays], self._counts[stays] = values[rows], history[:, rows], counts[rows]
        self.structure += 1


GroupBy = Literal["machine", "model", "rack", "nothing"]
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
