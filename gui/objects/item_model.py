"""The objects of the workspace as a tree for Qt: a thin adapter over an arrangement of their rows; texts, tooltips and
data of the cells, and the badges behind a name: what is out of the ordinary about a row, and what that means. Main
thread.

`update` compares the new snapshots with the shown ones. A snapshot that is the same object costs nothing; where paths
stay the same the records are exchanged and what is on screen is repainted; anything else, like another filter or order,
is a new arrangement, into which Qt's persistent indexes are carried over, so that selection and expansion survive.
"""

from __future__ import annotations

import enum
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from PySide6.QtCore import (
    QAbstractItemModel,
    QItemSelection,
    QItemSelectionRange,
    QModelIndex,
    QPersistentModelIndex,
    Qt,
    Signal,
)

from devexplorer.core.base import shape_text
from devexplorer.core.records import Diagnosis, Finding, ObjectSnapshot, Row
from devexplorer.core.session import Progress, RowTables
from devexplorer.core.session.arrangement import Arrangement, Key, KnownObject, Options, TreeEntry, known_as, visible
from devexplorer.core.session.findings import KIND, place_text, tally, told, words_of
from devexplorer.gui.widgets import RIGHT


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


class TreeColumn(enum.IntEnum):
    """The columns of the tree."""

    NAME = 0
    TYPE = 1
    SHAPE = 2
    DTYPE = 3
    DEVICE = 4
    MIB = 5


HEADERS = ("name", "type", "shape", "dtype", "device", "MiB")
SORTED_BY: dict[int, str] = {TreeColumn.NAME: "name", TreeColumn.MIB: "bytes"}
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


def _text(entry: TreeEntry, at: int, column: int) -> str:
    row = entry.known.outline.rows[at]
    match column:
        case TreeColumn.NAME:
            return row.name if at else entry.name
        case _ if row.kind == KIND:
            return ""
        case TreeColumn.TYPE:
            return row.type
        case TreeColumn.SHAPE:
            return "" if row.kind == "module" else shape_text(row.shape)
        case TreeColumn.DTYPE:
            return row.dtype or ""
        case TreeColumn.DEVICE:
            return " ".join(row.devices)
        case _:
            return mib_text(entry.bytes(at)) if row.devices or row.bytes else ""


def _badges(entry: TreeEntry, at: int, _column: int = 0) -> tuple[Badge, ...]:
    row, findings = entry.known.outline.rows[at], entry.known.findings
    if findings is not None:
        if row.kind == KIND:
            return ()
        result = findings.inside(at)
        if result:
            return (doctor_badge(result), *_own_badges(entry, at))
    return _own_badges(entry, at)


def _own_badges(entry: TreeEntry, at: int) -> tuple[Badge, ...]:
    row = entry.known.outline.rows[at]
    looks_frozen = (
        row.kind == "parameter" and row.requires_grad is False
    )  # asked first: whether it trains may be a look at all rows
    return badges(row, None if at else entry.known.snapshot, trains=looks_frozen and entry.known.outline.trains)


def _tooltip(entry: TreeEntry, at: int, column: int) -> str:
    row = entry.known.outline.rows[at]
    finding = entry.finding(at)
    if finding is not None:
        return "\n".join((words_of(finding), place_text(finding))).rstrip()
    if column == TreeColumn.MIB:
        here = "" if entry.is_whole(at) else f" on {entry.group}, {row.bytes:,} in all"
        return f"{entry.bytes(at):,} bytes{here}"
    if column == TreeColumn.DEVICE and len(row.devices) > 1:
        return "its tensors are on " + ", ".join(row.devices)
    lines = [entry.target(at), *(badge.meaning for badge in _badges(entry, at))]
    if at == 0 and entry.known.snapshot.source is not None:
        lines.insert(1, f"made from {entry.known.snapshot.source}")
    return "\n".join(lines)


def _accessible(entry: TreeEntry, at: int, column: int) -> str:
    words = [_text(entry, at, column)]
    finding = entry.finding(at) if column == TreeColumn.NAME else None
    if finding is not None:
        words.insert(0, finding.severity)
    elif column == TreeColumn.NAME:
        words += [badge.words for badge in _badges(entry, at)]
    return ", ".join(words)


ANSWERS: dict[int, Callable[[TreeEntry, int, int], Any]] = {
    int(Qt.ItemDataRole.DisplayRole): _text,
    int(Qt.ItemDataRole.ToolTipRole): _tooltip,
    int(Qt.ItemDataRole.AccessibleTextRole): _accessible,
    TARGET_ROLE: lambda entry, at, _column: entry.target(at),
    DEVICES_ROLE: lambda entry, at, _column: entry.known.outline.rows[at].devices,
    BADGES_ROLE: _badges,
    FINDING_ROLE: lambda entry, at, _column: entry.finding(at),
}
"""Role: how it is answered for a row of an entry, and a column."""


Index = QModelIndex | QPersistentModelIndex
_NOTHING = QModelIndex()
_COLUMNS = len(HEADERS)

MANY = 8
"""From this number of changed rows on the view repaints everything on screen."""


class ObjectsModel(QAbstractItemModel):
    """The tree. Call `update(state.objects, state.row_tables)` whenever objects changed."""

    repaint_wanted = Signal()
    """So many cells changed that the view should repaint everything on screen."""

    rearranging = Signal()
    """Everything is about to get another place. Who holds a large selection takes it away meanwhile: Qt carries over
    cell by cell."""

    def __init__(self) -> None:
        super().__init__()
        self._objects: dict[str, KnownObject] = {}
        self.has_findings = False
        """Whether some rows are findings of the doctor."""
        self.working: dict[int, Progress] = {}
        """Nodes that show long work: the object's own, and that of the part that is being worked on."""
        self._numbers = itertools.count(1)
        self._own_row_tables = RowTables()
        self._shown = Arrangement({}, Options(), self._numbers)

    # --- taking over new snapshots ---------------------------------------------------------------------------------

    def update(
        self,
        objects: Mapping[str, ObjectSnapshot],
        row_tables: RowTables | None = None,
        diagnoses: Mapping[str, Diagnosis] | None = None,
    ) -> None:
        """Make the tree show `objects`, and what the doctor found in them; what did not change is not touched."""
        row_tables, diagnoses = row_tables or self._own_row_tables, diagnoses or {}
        before, now = self._objects, {}
        for name, snapshot in objects.items():
            known, diagnosis = before.get(name), diagnoses.get(name)
            if known is not None and known.snapshot is snapshot and known.diagnosis is diagnosis:
                now[name] = known
            elif snapshot.rows:
                now[name] = known_as(snapshot, row_tables.of(snapshot), diagnosis, known)
        self.has_findings = any(known.findings is not None for known in now.values())
        changes = {
            name: known.outline.changes_since(before[name].outline)
            for name, known in now.items()
            if name in before and before[name] is not known
        }
        self._objects = {
            name: now[name] for name in (*before, *(name for name in now if name not in before)) if name in now
        }
        if now.keys() != before.keys() or any(self._must_rearrange(name, changed) for name, changed in changes.items()):
            self._rearrange(self.options)
        for name, changed in changes.items():
            for entry in self._shown.of(name):
                if entry.known is not self._objects[name]:
                    self._announce(entry, entry.take(self._objects[name]), changed or ())

    def set_progress(self, progress: Mapping[str, Progress], is_open: Callable[[QModelIndex], bool]) -> None:
        """Show this work at its objects, and at the part that is being worked on or the closed module around it; what
        reads the same as before is not painted again."""
        before, self.working = self.working, {}
        for name, work in progress.items():
            for entry in self._shown.of(name):
                self.working[self._at_work(entry, work.part, is_open)] = work._replace(done=None)
                self.working[entry.base] = work
        for node in {*before, *self.working} if before or self.working else ():
            was, now = before.get(node), self.working.get(node)
            if (was is None or now is None or was.words != now.words) and self._shown.found(node) is not None:
                index = self._index(node)
                self.dataChanged.emit(index, index)

    def _at_work(self, entry: TreeEntry, path: str, is_open: Callable[[QModelIndex], bool]) -> int:
        """The node of a part; of the nearest one around it that can be seen."""
        outline = entry.known.outline
        way = [outline.place(path) or 0]
        while way[-1]:
            way.append(outline.shape.parents[way[-1]])
        node = entry.base
        for inner in way[-2::-1]:
            if not entry.is_shown(inner) or not is_open(self._index(node)):
                break
            node = entry.base | inner
        return node

    def _must_rearrange(self, name: str, changed: Sequence[int] | None) -> bool:
        """Whether other rows are shown now, or in another order."""
        known, options = self._objects[name], self.options
        if changed is None or (options.grouped and options.query.words):
            return True
        if options.grouped and any(
            _devices(entry.known, changed) != _devices(known, changed) for entry in self._shown.of(name)
        ):
            return True
        for entry in self._shown.of(name):
            if not entry.shows(visible(known, options, entry.group).shown):
                return True
            if options.sorted_by == "bytes" and (entry.known.outline.bytes != known.outline.bytes).any():
                return True
        return not self._shown.of(name) and bool(options.query.words)

    def _announce(self, entry: TreeEntry, old: KnownObject, changed: Sequence[int]) -> None:
        """Say which cells changed. For many rows only the object's own is named, and the screen is repainted."""
        rows, was = entry.known.outline.rows, old.outline.rows
        if len(changed) > MANY or _badges_of(old) != _badges_of(entry.known):
            self.repaint_wanted.emit()
            changed = (0,)
        else:
            changed = [at for at in changed if rows[at] != was[at]]
        for at in changed:
            if entry.is_shown(at):
                index = self._index(entry.base | at)
                self.dataChanged.emit(index, index.siblingAtColumn(TreeColumn.MIB))

    def _rearrange(self, options: Options) -> None:
        """Rearrange everything and carry over Qt's persistent indexes."""
        self.rearranging.emit()
        self.layoutAboutToBeChanged.emit()
        held = self.persistentIndexList()
        keys = [(self._shown.key(index.internalId()), index.column()) for index in held]
        self._shown = Arrangement(self._objects, options, self._numbers)
        self.changePersistentIndexList(held, [self._index_of(key, column) for key, column in keys])
        self.layoutChanged.emit()

    # --- how it is arranged ----------------------------------------------------------------------------------------

    @property
    def options(self) -> Options:
        """How the objects are arranged."""
        return self._shown.options

    def arrange(self, options: Options) -> None:
        """Arrange the objects like this."""
        if options != self.options:
            was = self.options
            self._rearrange(options)
            if (was.sorted_by, was.descending) != (options.sorted_by, options.descending):
                self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(HEADERS) - 1)

    def opened(self) -> Iterator[QModelIndex]:
        """Indexes that have to be expanded for every match of the query to be seen, parents first."""
        return map(self._index, self._shown.opened())

    # --- finding things --------------------------------------------------------------------------------------------

    def _index(self, node: int, column: int = 0) -> QModelIndex:
        return self.createIndex(self._shown.place(node), column, node)

    def _index_of(self, key: Key | None, column: int = 0) -> QModelIndex:
        node = None if key is None else self._shown.node(key)
        return QModelIndex() if node is None else self._index(node, column)

    def index_of(self, target: str) -> QModelIndex:
        """The index of `name` or `name:path`; invalid when there is none."""
        name, _, path = target.partition(":")
        return self._index_of(Key(None, name, path))

    def finding_at(self, index: Index) -> tuple[str, int] | None:
        """The object and the number of the finding that this row is."""
        result = self._shown.found(index.internalId()) if index.isValid() else None
        findings = None if result is None else result[0].known.findings
        if result is None or findings is None or result[1] not in findings.numbers:
            return None
        return result[0].name, findings.numbers[result[1]]

    def finding_index(self, name: str, number: int) -> QModelIndex:
        """The index of a finding, by its number in the diagnosis of the object; invalid when it is not there."""
        for entry in self._shown.of(name):
            for index, result in entry.known.findings.numbers.items() if entry.known.findings is not None else ():
                if result == number and entry.is_shown(index):
                    return self._index(entry.base | index)
        return QModelIndex()

    def targets(self, selection: QItemSelection) -> tuple[str, ...]:
        """What commands are addressed to when this is selected, in the order of the tree; what is in another target is
        left out."""
        return self._shown.targets(self._nodes(selection))

    def _nodes(self, selection: QItemSelection) -> list[int]:
        nodes: list[int] = []
        for part in (selection.at(index) for index in range(selection.count())):
            parent = part.parent()
            siblings = self._shown.children(parent.internalId()) if parent.isValid() else self._shown.roots
            nodes += siblings[part.top() : part.bottom() + 1]
        return nodes

    def keys(self, selection: QItemSelection) -> list[Key]:
        """What is selected, whatever the arrangement."""
        return [key for key in map(self._shown.key, self._nodes(selection)) if key is not None]

    def keys_where(self, holds: Callable[[QModelIndex], bool]) -> list[Key]:
        """Of what has been looked into so far, and may be open, that for which this holds."""
        result = (self._shown.key(node) for node in self._shown.listed if holds(self._index(node)))
        return [key for key in result if key is not None]

    def indexes(self, keys: Sequence[Key]) -> Iterator[QModelIndex]:
        """What is shown of these now."""
        return (index for index in map(self._index_of, keys) if index.isValid())

    def selection(self, keys: Sequence[Key]) -> QItemSelection:
        """The rows that are this now; what is not shown is left out."""
        places: dict[int | None, list[int]] = {}
        for node in dict.fromkeys(map(self._shown.node, keys)):
            if node is not None:
                places.setdefault(self._shown.parent(node), []).append(self._shown.place(node))
        result = QItemSelection()
        for parent, rows in places.items():
            above = QModelIndex() if parent is None else self._index(parent)
            for first, last in _runs(sorted(rows)):
                result.append(self._range(above, first, last))
        return result

    def everything(self, is_open: Callable[[QModelIndex], bool]) -> QItemSelection:
        """Every row that is below open ones only; with a filter what matches it, and not what it is in."""
        result = QItemSelection()
        for parent, nodes in self._shown.below_open(lambda node: is_open(self._index(node))):
            above = QModelIndex() if parent is None else self._index(parent)
            for first, last in _runs([index for index, node in enumerate(nodes) if self._shown.is_meant(node)]):
                result.append(self._range(above, first, last))
        return result

    def _range(self, parent: QModelIndex, first: int, last: int) -> QItemSelectionRange:
        return QItemSelectionRange(self.index(first, 0, parent), self.index(last, TreeColumn.MIB, parent))

    # --- what Qt asks ----------------------------------------------------------------------------------------------

    def index(self, row: int, column: int, parent: Index = _NOTHING) -> QModelIndex:
        above = parent.internalId()  # 0: none. Asked for each row that is laid out: no call more than is needed
        nodes = self._shown.children(above) if above else self._shown.roots
        if 0 <= row < len(nodes) and 0 <= column < _COLUMNS:
            return self.createIndex(row, column, nodes[row])
        return QModelIndex()

    # No flags(): Qt asks for them twice per row when it lays out a branch, which is a third of the time that takes. The
    # default is all but
    # the right to be dragged, and the tree begins its drags itself.

    def parent(self, index: Index = _NOTHING) -> Any:
        above = self._shown.parent(index.internalId()) if index.isValid() else None
        return QModelIndex() if above is None else self._index(above)

    def rowCount(self, parent: Index = _NOTHING) -> int:
        if not parent.isValid():
            return len(self._shown.roots)
        return 0 if parent.column() else len(self._shown.children(parent.internalId()))

    def hasChildren(self, parent: Index = _NOTHING) -> bool:
        above = parent.internalId()
        return self._shown.has_children(above) and parent.column() == 0 if above else bool(self._shown.roots)

    def columnCount(self, _parent: Index = _NOTHING) -> int:
        return _COLUMNS

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = int(Qt.ItemDataRole.DisplayRole)
    ) -> Any:
        if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(HEADERS):
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            sorted_by = SORTED_BY.get(section)
            is_sorted = sorted_by is not None and sorted_by == self.options.sorted_by
            return HEADERS[section] + (" ↓" if self.options.descending else " ↑") * is_sorted
        if role == Qt.ItemDataRole.ToolTipRole and section in SORTED_BY:
            return "Click to sort; again for the other way round, and once more for the original order"
        if role == Qt.ItemDataRole.TextAlignmentRole:
            right = section in (TreeColumn.SHAPE, TreeColumn.MIB)
            return (
                Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
            ) | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = int(Qt.ItemDataRole.DisplayRole)) -> Any:
        if not index.isValid():
            return None
        node, column = index.internalId(), index.column()
        match role:
            case Qt.ItemDataRole.TextAlignmentRole if column in (TreeColumn.SHAPE, TreeColumn.MIB):
                return RIGHT
            case _ if role == PROGRESS_ROLE:
                return self.working.get(node)
            case _ if role in ANSWERS:
                result = self._shown.found(node)
                if result is not None:
                    answer = ANSWERS[role](*result, column)
                    working = self.working.get(node) if column == TreeColumn.NAME else None
                    return answer if working is None else _with_progress(answer, role, working)
                return self._of_device(node, column, role) if node in self._shown.groups else None
        return None

    def _of_device(self, node: int, column: int, role: int) -> Any:
        """What is said of a device that objects are grouped below."""
        device = self._shown.groups[node]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                label = {
                    TreeColumn.NAME: device or "no tensors",
                    TreeColumn.MIB: mib_text(self._shown.bytes(node)) if device else "",
                }
                return label.get(TreeColumn(column), "")
            case Qt.ItemDataRole.ToolTipRole:
                return f"what is on {device}" if device else "what holds no tensor"
            case Qt.ItemDataRole.AccessibleTextRole:
                return self._of_device(node, column, int(Qt.ItemDataRole.DisplayRole))
            case _ if role == DEVICES_ROLE:
                return (device,) if device else ()
            case _ if role == BADGES_ROLE:
                count = len(self._shown.children(node))
                return (Badge(f"{count:,} object{'s' * (count != 1)}", False),)
        return None


def _with_progress(answer: Any, role: int, progress: Progress) -> Any:
    match role:
        case _ if role == BADGES_ROLE:
            return (Badge(progress.words, False, progress.title), *answer)
        case Qt.ItemDataRole.ToolTipRole:
            return f"{answer}\n{progress.title}"
        case Qt.ItemDataRole.AccessibleTextRole:
            return f"{answer}, {progress.words}"
        case _:
            return answer


def _badges_of(known: KnownObject) -> tuple[Badge, ...]:
    return badges(known.outline.rows[0], known.snapshot)


def _devices(known: KnownObject, rows: Sequence[int]) -> list[tuple[str, ...]]:
    return [known.outline.rows[index].devices for index in rows]


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers as (first, last)."""
    result: list[tuple[int, int]] = []
    for place in places:
        if result and result[-1][1] == place - 1:
            result[-1] = (result[-1][0], place)
        else:
            result.append((place, place))
    return result
