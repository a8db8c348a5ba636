"""Texts, tooltips and data of the cells of the object tree, and the badges behind a name: what is out of the ordinary
about a row, and what that means. Main thread."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from PySide6.QtCore import Qt

from devexplorer.core.base import shape_text
from devexplorer.core.records import Finding, ObjectSnapshot, Row
from devexplorer.gui.objects.arrangement import Entry
from devexplorer.gui.objects.findings import KIND, place_text, tally, told, words_of


class Badge(NamedTuple):
    """A word or two behind the name; a warning comes with a triangle, an error with a cross."""

    words: str
    warning: bool
    meaning: str = ""
    """A sentence for the tooltip."""
    error: bool = False


_MIXED: Final = Badge("mixed", True, "mixed: its tensors are on more than one device")
_UNREGISTERED: Final = Badge(
    "not registered", True, "not registered: .to(), parameters() and state_dict() do not see it"
)
_LAZY: Final = Badge("uninitialised", False, "uninitialised: a lazy parameter gets its shape in the first forward")
_FROZEN: Final = Badge(
    "frozen", False, "frozen: it requires no gradient, so training does not change it; other parameters here do train"
)
_STATE: Final = Badge("state", False, "state: the optimizer keeps it for the parameter that it is below")
_HOPS: Final = Badge("hops", False, "hops: its parts fetch what they are given to their own devices")


def badges(row: Row, snapshot: ObjectSnapshot | None = None, *, trains: bool = False) -> tuple[Badge, ...]:
    """What is out of the ordinary about this row. `snapshot`: for an object's own row; `trains`: a parameter of the
    object is trainable."""
    result = []
    if row.kind == "module" and len(row.devices) > 1:
        result.append(_MIXED)
    if snapshot is not None:
        if snapshot.dispatched is not None:
            result.append(Badge("dispatched", True, f"dispatched: {snapshot.dispatched}"))
        if snapshot.outdated:
            files = ", ".join(os.path.basename(file) for file in snapshot.outdated)
            meaning = f"previous code: {files} changed after it was built; Rebuild from its file, in its menu, uses it"
            result.append(Badge("previous code", True, meaning))
        if snapshot.hops:
            result.append(_HOPS)
        if snapshot.optimizer is not None:
            result.append(Badge(snapshot.optimizer.partition(",")[0], False, f"optimizer: {snapshot.optimizer}"))
    if not row.registered:
        result.append(_UNREGISTERED)
    if not row.initialised:
        result.append(_LAZY)
    if row.kind == "state":
        result.append(_STATE)
    elif trains and row.kind == "parameter" and row.requires_grad is False:
        result.append(_FROZEN)
    if row.tied_to is not None:
        result.append(
            Badge(f"tied to {row.tied_to}", False, f"tied to {row.tied_to}: the very same one under another name")
        )
    return tuple(result)


def doctor_badge(findings: Sequence[Finding]) -> Badge:
    """What the doctor found about a row and in it: how much, as bad as the worst of it."""
    worst = {finding.severity for finding in findings}
    return Badge(tally(findings), "warning" in worst and "error" not in worst, told(findings), error="error" in worst)


MIB = 1 << 20


class Column(enum.IntEnum):
    """The columns of the tree."""

    NAME = 0
    TYPE = 1
    SHAPE = 2
    DTYPE = 3
    DEVICE = 4
    MIB = 5


HEADERS = ("name", "type", "shape", "dtype", "device", "MiB")
SORTED_BY: dict[int, str] = {Column.NAME: "name", Column.MIB: "bytes"}
"""Columns that the tree can be sorted by."""

TARGET_ROLE = int(Qt.ItemDataRole.UserRole) + 1
"""`name`, or `name:path` for a part: what commands are addressed to; None for a device."""
DEVICES_ROLE = TARGET_ROLE + 1
"""Ids of the devices that hold it (tuple of str)."""
BADGES_ROLE = TARGET_ROLE + 2
"""What the user should know about it (tuple of `Badge`)."""
FINDING_ROLE = TARGET_ROLE + 3
"""The finding that the row is; None for everything else."""
PROGRESS_ROLE = TARGET_ROLE + 4
"""How far the work on an object is (`Progress`); None: nothing long is done to it."""


def mib_text(count: int) -> str:
    """Bytes in MiB without the unit, for the column: `16,276`, `527.8`, `0.01`, `<0.01` for what would read as
    nothing."""
    mib = count / MIB
    if mib >= 9_999.95:
        return f"{mib:,.0f}"
    if 0 < mib < 0.005:
        return "<0.01"
    return f"{mib:,.1f}" if mib >= 0.9995 else f"{mib:.2f}"


def _text(entry: Entry, at: int, column: int) -> str:
    row = entry.known.outline.rows[at]
    match column:
        case Column.NAME:
            return row.name if at else entry.name
        case _ if row.kind == KIND:
            return ""
        case Column.TYPE:
            return row.type
        case Column.SHAPE:
            return "" if row.kind == "module" else shape_text(row.shape)
        case Column.DTYPE:
            return row.dtype or ""
        case Column.DEVICE:
            return " ".join(row.devices)
        case _:
            return mib_text(entry.bytes(at)) if row.devices or row.bytes else ""


def _badges(entry: Entry, at: int, _column: int = 0) -> tuple[Badge, ...]:
    row, findings = entry.known.outline.rows[at], entry.known.findings
    if findings is not None:
        if row.kind == KIND:
            return ()
        result = findings.inside(at)
        if result:
            return (doctor_badge(result), *_own_badges(entry, at))
    return _own_badges(entry, at)


def _own_badges(entry: Entry, at: int) -> tuple[Badge, ...]:
    row = entry.known.outline.rows[at]
    looks_frozen = (
        row.kind == "parameter" and row.requires_grad is False
    )  # asked first: whether it trains may be a look at all rows
    return badges(row, None if at else entry.known.snapshot, trains=looks_frozen and entry.known.outline.trains)


def _tooltip(entry: Entry, at: int, column: int) -> str:
    row = entry.known.outline.rows[at]
    finding = entry.finding(at)
    if finding is not None:
        return "\n".join((words_of(finding), place_text(finding))).rstrip()
    if column == Column.MIB:
        here = "" if entry.is_whole(at) else f" on {entry.group}, {row.bytes:,} in all"
        return f"{entry.bytes(at):,} bytes{here}"
    if column == Column.DEVICE and len(row.devices) > 1:
        return "its tensors are on " + ", ".join(row.devices)
    lines = [entry.target(at), *(badge.meaning for badge in _badges(entry, at))]
    if at == 0 and entry.known.snapshot.source is not None:
        lines.insert(1, f"made from {entry.known.snapshot.source}")
    return "\n".join(lines)


def _accessible(entry: Entry, at: int, column: int) -> str:
    words = [_text(entry, at, column)]
    finding = entry.finding(at) if column == Column.NAME else None
    if finding is not None:
        words.insert(0, finding.severity)
    elif column == Column.NAME:
        words += [badge.words for badge in _badges(entry, at)]
    return ", ".join(words)


ANSWERS: dict[int, Callable[[Entry, int, int], Any]] = {
    int(Qt.ItemDataRole.DisplayRole): _text,
    int(Qt.ItemDataRole.ToolTipRole): _tooltip,
    int(Qt.ItemDataRole.AccessibleTextRole): _accessible,
    TARGET_ROLE: lambda entry, at, _column: entry.target(at),
    DEVICES_ROLE: lambda entry, at, _column: entry.known.outline.rows[at].devices,
    BADGES_ROLE: _badges,
    FINDING_ROLE: lambda entry, at, _column: entry.finding(at),
}
"""Role: how it is answered for a row of an entry, and a column."""
