"""What a bandwidth run says about pairs of devices: cells of a matrix, curves, and words. Pure functions, any thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from devexplorer.core.formats import MISSING, bytes_text, number_text, seconds_text
from devexplorer.core.records.benchmark import BandwidthRow

WRONG = "✕"
"""In front of a rate whose data arrived wrong."""
COMPARED = {True: "what arrived is equal bit by bit", False: f"{WRONG} what arrived differs from what was sent", None: "not compared"}
SMALL_BYTES = 64 << 10
"""Copies up to this size show latency more than bandwidth."""


class Kind(NamedTuple):
    """How copies were made."""

    pinned: bool
    """Kind of host memory; without meaning where the host is not involved."""
    both_ways: bool

    @property
    def words(self) -> str:
        """For a menu and a legend."""
        return ("pinned" if self.pinned else "pageable") + (", both ways at once" if self.both_ways else "")


class Copies:
    """The rows of one run, to be looked up."""

    def __init__(self, rows: Iterable[BandwidthRow]) -> None:
        self.rows = tuple(rows)
        self._by_key = {(row.source, row.destination, row.bytes, row.pinned, row.both_ways): row for row in self.rows}
        self.sizes = tuple(sorted({row.bytes for row in self.rows}))

    def find(self, source: str, destination: str, size: int, kind: Kind) -> BandwidthRow | None:
        """The copy; one without the host stands under either kind of host memory."""
        key = (source, destination, size)
        return self._by_key.get((*key, kind.pinned, kind.both_ways)) or self._by_key.get((*key, None, kind.both_ways))

    def kinds(self) -> list[Kind]:
        """The kinds that were measured, pinned first, one way first."""
        pinned = sorted({row.pinned for row in self.rows if row.pinned is not None}, reverse=True) or [True]
        return [Kind(kind, both) for both in sorted({row.both_ways for row in self.rows}) for kind in pinned]

    def curve(self, source: str, destination: str, kind: Kind) -> tuple[tuple[float, float, float, float], ...]:
        """(bytes, GB/s median, p20, p80) of a pair, rising."""
        found = (self.find(source, destination, size, kind) for size in self.sizes)
        return tuple(
            (float(row.bytes), row.gb_per_s.median, row.gb_per_s.p20, row.gb_per_s.p80)
            for row in found
            if row is not None and row.gb_per_s is not None
        )

    def wrong(self) -> list[tuple[str, str]]:
        """Pairs whose data arrived wrong at least once."""
        return list(dict.fromkeys((row.source, row.destination) for row in self.rows if row.verified is False))

    def is_wrong(self, source: str, destination: str) -> bool:
        """Whether data of this pair arrived wrong in any size."""
        return any(row.verified is False for row in self.rows if (row.source, row.destination) == (source, destination))

    def route_words(self, source: str, destination: str, size: int, kind: Kind) -> str:
        """The way round for a pair that cannot be trusted: through the host, and how fast that would be where both parts were measured."""
        first, second = self.find(source, "cpu", size, kind), self.find("cpu", destination, size, kind)
        words = f'Go through the host: x.to("cpu").to("{destination}")'
        if first is None or second is None or first.gb_per_s is None or second.gb_per_s is None:
            return f"{words}."
        rate = 1 / (1 / first.gb_per_s.median + 1 / second.gb_per_s.median)
        return f"{words}, about {number_text(rate)} GB/s one part after the other."


def rate_text(row: BandwidthRow | None, *, latency: bool = False) -> str:
    """A cell of the matrix: GB/s, or microseconds per copy; a sign where the data arrived wrong."""
    spread = None if row is None else row.seconds if latency else row.gb_per_s
    if row is None or spread is None:
        return MISSING
    text = number_text(spread.median * 1e6 if latency else spread.median)
    return f"{WRONG} {text}" if row.verified is False else text


def pair_text(source: str, destination: str) -> str:
    """`cuda:0 → cuda:1`, or `within cuda:0`."""
    return f"within {source}" if source == destination else f"{source} → {destination}"


def row_words(row: BandwidthRow | None, source: str, destination: str) -> str:
    """One copy in words, a line for each fact."""
    pair = pair_text(source, destination)
    if row is None:
        return f"{pair}\nnot measured (yet)"
    memory = "" if row.pinned is None else f", {'pinned' if row.pinned else 'pageable'} host memory"
    lines = [f"{pair}, {bytes_text(row.bytes, 0)}{memory}"]
    if row.gb_per_s is None:
        return "\n".join([*lines, f"not measured: {row.reason or 'no reason is known'}"])
    lines.append(f"{number_text(row.gb_per_s.median)} GB/s, p20 {number_text(row.gb_per_s.p20)}, p80 {number_text(row.gb_per_s.p80)}")
    lines += [f"{seconds_text(row.seconds.median)} per copy"] if row.seconds is not None else []
    lines += ["there and back at once, the sum of both"] if row.both_ways else []
    lines.append(COMPARED[row.verified])
    return "\n".join([*lines, *(["simulated"] if row.simulated else [])])


def latency_words(rows: Sequence[tuple[float, BandwidthRow]]) -> str:
    """`4 KiB takes 9.8 µs`: of the smallest copy, where it is a small one."""
    small = [row for size, row in rows if size <= SMALL_BYTES and row.seconds is not None]
    if not small or small[0].seconds is None:
        return ""
    return f"{bytes_text(small[0].bytes, 0)} takes {seconds_text(small[0].seconds.median)}."
