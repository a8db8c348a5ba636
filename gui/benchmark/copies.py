"""What a bandwidth run says about pairs of devices: cells of a matrix, curves, and words. Pure functions, any
thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from devexplorer.core.base import MISSING, bytes_text, number_text, seconds_text
from devexplorer.core.records import BandwidthRow

WRONG = "✕"
"""In front of a rate whose data arrived wrong."""
COMPARED = {
    True: "what arrived is equal bit by bit",
    False: f"{WRONG} what arrived differs from what was sent",
    None: "not compared",
}
SMALL_BYTES = 64 << 10
"""Copies up to this size show latency more than bandwidth."""


class Kind(NamedTuple):
    """How copies were made. Both ways at once is measured once per pair, and with pinned memory."""

    pinned: bool = True
    """Kind of host memory; without meaning where the host is not involved."""
    both_ways: bool = False

    @property
    def words(self) -> str:
        """For a menu and a legend."""
        return "both ways at once" if self.both_ways else "pinned" if self.pinned else "pageable"


class Copies:
    """The rows of one run, to be looked up."""

    def __init__(self, rows: Iterable[BandwidthRow]) -> None:
        self.rows = tuple(rows)
        self._by_key = {(row.source, row.destination, row.bytes, row.pinned, row.both_ways): row for row in self.rows}
        self.sizes = tuple(sorted({row.bytes for row in self.rows}))

    def find(self, source: str, destination: str, size: int, kind: Kind) -> BandwidthRow | None:
        """The copy. One that does not involve the host is found under either kind of host memory, one both ways under
        either direction."""
        host = (source == "cpu") != (destination == "cpu")
        pinned = (kind.pinned or kind.both_ways) if host else None
        result = self._by_key.get((source, destination, size, pinned, kind.both_ways))
        return result or (self._by_key.get((destination, source, size, pinned, True)) if kind.both_ways else None)

    @property
    def simulated_words(self) -> str:
        """Which figures of the matrix are simulated; empty: none."""
        if not any(row.simulated for row in self.rows):
            return ""
        real = dict.fromkeys(pair_text(row.source, row.destination) for row in self.rows if not row.simulated)
        return f"simulated, but not {', '.join(real)}" if real else "simulated"

    def round_trip(self, source: str, destination: str, size: int) -> BandwidthRow | None:
        """What was measured through the host, for a pair of accelerators whose data arrives wrong: there pinned memory
        is involved."""
        return (
            self._by_key.get((source, destination, size, True, False)) if "cpu" not in (source, destination) else None
        )

    def curve(self, source: str, destination: str, kind: Kind) -> tuple[tuple[float, float, float, float], ...]:
        """(bytes, GB/s median, p20, p80) of a pair, rising."""
        result = (self.find(source, destination, size, kind) for size in self.sizes)
        return tuple(
            (float(row.bytes), row.gb_per_s.median, row.gb_per_s.p20, row.gb_per_s.p80)
            for row in result
            if row is not None and row.gb_per_s is not None
        )

    def wrong(self) -> list[tuple[str, str]]:
        """Pairs whose data arrived wrong at least once."""
        return list(dict.fromkeys((row.source, row.destination) for row in self.rows if row.verified is False))

    def is_wrong(self, source: str, destination: str) -> bool:
        """Whether data of this pair arrived wrong in any size."""
        return any(row.verified is False for row in self.rows if (row.source, row.destination) == (source, destination))

    def route_words(self, source: str, destination: str, size: int) -> str:
        """The way round for a pair that cannot be trusted: through the host, and how fast that was where it was
        measured."""
        words = f'Copy through the host: x.cpu().to("{destination}")'
        row = self.round_trip(source, destination, size)
        if row is None or row.gb_per_s is None:
            return f"{words}."
        right = "equal bit by bit" if row.verified else "wrong as well" if row.verified is False else "not compared"
        return f"{words}, {number_text(row.gb_per_s.median)} GB/s, {right}."


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
    lines.append(
        f"{number_text(row.gb_per_s.median)} GB/s, p20 {number_text(row.gb_per_s.p20)}, p80"
        f" {number_text(row.gb_per_s.p80)}"
    )
    lines += [f"{seconds_text(row.seconds.median)} per copy"] if row.seconds is not None else []
    lines += ["there and back at once, the sum of both"] if row.both_ways else []
    lines.append(COMPARED[row.verified])
    lines += [row.reason] if row.reason else []
    return "\n".join([*lines, *(["simulated"] if row.simulated else [])])


def latency_words(rows: Sequence[tuple[float, BandwidthRow]]) -> str:
    """`4 KiB takes 9.8 µs`: of the smallest copy, where it is a small one."""
    small = [row for size, row in rows if size <= SMALL_BYTES and row.seconds is not None]
    if not small or small[0].seconds is None:
        return ""
    return f"{bytes_text(small[0].bytes, 0)} takes {seconds_text(small[0].seconds.median)}."
