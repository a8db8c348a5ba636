"""Rows of the memory breakdown: each part, its objects or processes, its definition. Main thread; only reads."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from devexplorer.core.base import MISSING, bytes_text, count_text
from devexplorer.core.session import Device
from devexplorer.core.telemetry.memory_breakdown import PART_TEXTS, MemoryParts
from devexplorer.gui.widgets.table import Cell, Column, TableRow, numbers

COLUMNS = (
    Column("part"),
    numbers("size"),
    numbers("bytes", "Exactly: the parts add up to the total."),
    numbers("share", "Of the device's memory."),
    Column("what it is"),
)
WITH_CHILDREN = ("workspace", "other_processes", "unsplit", "used")
MOST_PROCESSES = 30


class Key(NamedTuple):
    """What a row is about: a part, or an object or process in it (`child`), or the total (part "")."""

    part: str
    child: str = ""


class Child(NamedTuple):
    """A share of a part."""

    key: str
    name: str
    bytes: int | None
    words: str


def part_rows(device: Device, engine_pid: int | None, opened: Collection[str]) -> list[TableRow]:
    """A row per part, below those in `opened` one per object or process; the total last."""
    parts, total = device.parts, device.total_bytes
    rows = []
    for key, size in _shown(parts, simulated=device.info.simulated):
        rows.append(_row(Key(key), PART_TEXTS[key].title, size, total, _definition(device, key), tip=_tip(key, size)))
        if key in opened:
            rows += [
                _row(Key(key, child.key), child.name, child.bytes, total, child.words)
                for child in children(device, key, engine_pid)
            ]
    rows.append(_row(Key(""), "total", total, total, ""))
    return rows


def children(device: Device, key: str, engine_pid: int | None) -> list[Child]:
    """The objects or processes of a part, largest first; what they do not account for is one more."""
    parts = device.parts
    if key == "workspace" and device.allocator is not None:
        result = [Child(use.name, use.name, use.bytes, "") for use in device.allocator.objects]
        return _with_rest(result, parts.workspace, "more objects", "only the largest are listed")
    if (
        key not in ("other_processes", "unsplit", "used")
        or device.sample is None
        or not device.sample.processes
        or device.info.kind == "cpu"
    ):
        return []
    others = [use for use in device.sample.processes if use.pid != engine_pid]
    others.sort(key=lambda use: -(use.memory_bytes or 0))
    result = [
        Child(str(use.pid), f"{use.name or 'process'} {use.pid}", use.memory_bytes, use.command or use.user or "")
        for use in others[:MOST_PROCESSES]
    ]
    if not result:
        return []
    return _with_rest(
        result, parts.other_processes, "not attributed to a process", "the list of processes is read every few seconds"
    )


def _with_rest(result: list[Child], whole: int | None, name: str, words: str) -> list[Child]:
    rest = (whole or 0) - sum(child.bytes or 0 for child in result)
    return [*result, Child("…", name, rest, words)] if result and rest > 0 else result


def _shown(parts: MemoryParts, *, simulated: bool) -> list[tuple[str, int | None]]:
    """Parts and their bytes: also those that are 0 or not known, as far as they could be anything here."""
    if parts.workspace is None:
        result: list[tuple[str, int | None]] = [("used", parts.other_processes)]
    else:
        result = [(key, getattr(parts, key)) for key in ("workspace", "other_allocated", "cached")]
        if parts.context is None and not simulated:
            result.append(("unsplit", parts.other_processes))
        else:
            result += [("context", parts.context), ("other_processes", parts.other_processes)]
    if parts.driver is not None:
        result.append(("driver", parts.driver))
    return [*result, ("free", parts.free)]


def _definition(device: Device, key: str) -> str:
    text = PART_TEXTS[key].definition
    allocator = device.allocator
    if key == "cached" and allocator is not None and allocator.largest_free_block_bytes is not None:
        where = "" if allocator.segments is None else f", {count_text(allocator.segments, 'segment')}"
        text = f"largest free block {bytes_text(allocator.largest_free_block_bytes)}{where}: {text}"
    if device.info.simulated and key == "context":
        text = f"assumed for virtual GPUs, from the first tensor on: {text}"
    if device.info.simulated and key == "other_processes":
        text = "a virtual GPU has no other processes"
    return text


def _tip(key: str, size: int | None) -> str:
    part = PART_TEXTS[key]
    exact = "" if size is None else f"\n{size:,} bytes"
    return f"{part.title}: {part.definition}.{exact}" + (f"\n{part.remedy}" if part.remedy else "")


def _row(key: Key, title: str, size: int | None, total: int | None, words: str, tip: str = "") -> TableRow:
    share = (
        MISSING
        if size is None or not total
        else "< 0.1 %"
        if 0 < size < total / 2000
        else f"{100 * size / total:.1f} %"
    )
    why = "" if size is not None else "not known here"
    return TableRow(
        key,
        (
            Cell(title, tip=tip or title),
            Cell(bytes_text(size), tip=why or tip),
            Cell(MISSING if size is None else f"{size:,}", "dim", tip=why or tip),
            Cell(share, "dim", tip=tip),
            Cell(words, "dim", tip=words),
        ),
    )
