"""The objects of the workspace as a tree for Qt: a thin adapter over the snapshots in the state. Main thread.

A node is a plain Python object that Qt knows by number: an index that outlived its node finds nothing.
`update` compares the new snapshots with the shown ones. A snapshot that is the same object costs nothing, changed cells
are announced as such, rows are inserted and removed one run at a time, so that selection and expansion survive.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from PySide6.QtCore import QAbstractItemModel, QMimeData, QModelIndex, QObject, QPersistentModelIndex, Qt, Signal

from devexplorer.core.formats import shape_text
from devexplorer.core.records.objects import ObjectSnapshot, Row
from devexplorer.gui.item_models.dragging import encode
from devexplorer.gui.plain import tip

Index = QModelIndex | QPersistentModelIndex
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

TARGET_ROLE = int(Qt.ItemDataRole.UserRole) + 1
"""`name`, or `name:path` for a part: what commands are addressed to."""
DEVICES_ROLE = TARGET_ROLE + 1
"""Ids of the devices that hold it (tuple of str)."""
BADGES_ROLE = TARGET_ROLE + 2
"""What the user should know about it (tuple of `Badge`)."""
ROW_ROLE = TARGET_ROLE + 3
"""The record itself."""


class Badge(NamedTuple):
    """A word or two behind the name; a warning comes with a triangle."""

    words: str
    warning: bool


def badges(row: Row) -> tuple[Badge, ...]:
    """What is out of the ordinary about this row."""
    found = []
    if row.kind == "module" and len(row.devices) > 1:
        found.append(Badge("mixed", True))
    if not row.registered:
        found.append(Badge("not registered", True))
    if not row.initialised:
        found.append(Badge("uninitialised", False))
    if row.tied_to is not None:
        found.append(Badge(f"tied to {row.tied_to}", False))
    return tuple(found)


def mib_text(count: int) -> str:
    """Bytes in MiB without the unit, for the column: `527.8`, `0.01`, `<0.01` for what would read as nothing."""
    mib = count / MIB
    if 0 < mib < 0.005:
        return "<0.01"
    return f"{mib:,.1f}" if mib >= 0.9995 else f"{mib:.2f}"


class _Node:
    """One row of the tree. `number` is what Qt holds; `at` is its place among its parent's children."""

    __slots__ = ("at", "children", "name", "number", "parent", "row")

    def __init__(self, number: int, name: str, row: Row, parent: _Node | None, at: int) -> None:
        self.number, self.name, self.row, self.parent, self.at = number, name, row, parent, at
        self.children: list[_Node] = []


class _Branch(NamedTuple):
    """A row of a new snapshot with what stands below it, before it has a node."""

    row: Row
    children: list[_Branch]


def _branches(rows: Sequence[Row]) -> _Branch:
    """Rows in depth-first order as a tree. A row whose parent is missing hangs below the nearest shallower one."""
    root = _Branch(rows[0], [])
    path = [root]
    for row in rows[1:]:
        branch = _Branch(row, [])
        while len(path) > 1 and path[-1].row.depth >= row.depth:
            path.pop()
        path[-1].children.append(branch)
        path.append(branch)
    return root


def _keys(rows: Iterator[Row]) -> list[tuple[str, int]]:
    """What tells siblings apart: the path, and a count where a path comes twice."""
    seen: dict[str, int] = {}
    result = []
    for row in rows:
        count = seen[row.path] = seen.get(row.path, -1) + 1
        result.append((row.path, count))
    return result


MANY = 8
"""Changed ranges, from which on the view is asked to paint anew instead of being told of each."""


class ObjectsModel(QAbstractItemModel):
    """The tree. Call `update(state.objects)` whenever objects changed."""

    repaint_wanted = Signal()
    """So many cells changed that the view is to paint everything on screen anew."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._roots: list[_Node] = []
        self._nodes: dict[int, _Node] = {}
        self._snapshots: dict[str, ObjectSnapshot] = {}
        self._last = 0
        self._changed: list[tuple[_Node, _Node]] = []
        """First and last of each range of siblings that the running update has changed."""

    # --- taking over new snapshots ---------------------------------------------------------------------------------

    def update(self, objects: Mapping[str, ObjectSnapshot]) -> None:
        """Make the tree show `objects`; what did not change is not touched."""
        for node in [node for node in self._roots if node.name not in objects]:
            self._remove(None, node.at, node.at)
            del self._snapshots[node.name]
        for node in self._roots:
            snapshot = objects[node.name]
            if snapshot is not self._snapshots[node.name]:
                self._snapshots[node.name] = snapshot
                self._merge(node, _branches(snapshot.rows))
                self._announce(node)
        new = [snapshot for name, snapshot in objects.items() if name not in self._snapshots and snapshot.rows]
        if new:
            self.beginInsertRows(QModelIndex(), len(self._roots), len(self._roots) + len(new) - 1)
            for snapshot in new:
                self._snapshots[snapshot.name] = snapshot
                self._roots.append(self._grow(snapshot.name, _branches(snapshot.rows), None, len(self._roots)))
            self.endInsertRows()

    def _grow(self, name: str, branch: _Branch, parent: _Node | None, at: int) -> _Node:
        self._last += 1
        node = _Node(self._last, name, branch.row, parent, at)
        self._nodes[node.number] = node
        node.children = [self._grow(name, child, node, place) for place, child in enumerate(branch.children)]
        return node

    def _merge(self, node: _Node, branch: _Branch) -> None:
        """Make `node` and everything below it show `branch`."""
        if node.row != branch.row:
            node.row = branch.row
            self._changed.append((node, node))
        self._merge_children(node, branch.children)

    def _announce(self, root: _Node) -> None:
        """Say which cells changed; after a move of a whole model in one signal, because each costs the filter a walk through its rows.

        The one signal is for `root` alone: rows below it have no state of their own in views, and what is on screen is painted anew.
        """
        changed, self._changed = self._changed, []
        if len(changed) > MANY:
            changed = [(root, root)]
            self.repaint_wanted.emit()
        for first, last in changed:
            self.dataChanged.emit(self._index(first, 0), self._index(last, Column.MIB))

    def _merge_children(self, node: _Node, wanted: list[_Branch]) -> None:
        new = _keys(branch.row for branch in wanted)
        kept = set(new)
        old = _keys(child.row for child in node.children)
        if old != new:
            for first, last in _runs([at for at, key in enumerate(old) if key not in kept]):
                self._remove(node, first, last)
            old = [key for key in old if key in kept]
            if old != [key for key in new if key in set(old)]:  # siblings changed places: rare, so simply all anew
                self._remove(node, 0, len(old) - 1)
                old = []
            there = set(old)
            for first, last in reversed(_runs([at for at, key in enumerate(new) if key not in there])):
                self._insert(node, first, last, wanted)
        changed = []
        for child, branch in zip(node.children, wanted, strict=True):
            if child.row is not branch.row and child.row != branch.row:
                child.row = branch.row
                changed.append(child.at)
            if child.children or branch.children:
                self._merge_children(child, branch.children)
        if changed:  # one range per parent: Qt asks again only for what is on screen
            self._changed.append((node.children[changed[0]], node.children[changed[-1]]))

    def _insert(self, node: _Node, first: int, last: int, wanted: list[_Branch]) -> None:
        self.beginInsertRows(self._index(node, 0), first, last)
        fresh = [self._grow(node.name, wanted[at], node, at) for at in range(first, last + 1)]
        node.children[first:first] = fresh
        self._renumber(node.children)
        self.endInsertRows()

    def _remove(self, node: _Node | None, first: int, last: int) -> None:
        siblings = self._roots if node is None else node.children
        self.beginRemoveRows(QModelIndex() if node is None else self._index(node, 0), first, last)
        for gone in siblings[first : last + 1]:
            self._forget(gone)
        del siblings[first : last + 1]
        self._renumber(siblings)
        self.endRemoveRows()

    def _forget(self, node: _Node) -> None:
        del self._nodes[node.number]
        for child in node.children:
            self._forget(child)

    @staticmethod
    def _renumber(siblings: list[_Node]) -> None:
        for at, node in enumerate(siblings):
            node.at = at

    # --- finding things --------------------------------------------------------------------------------------------

    def _index(self, node: _Node, column: int) -> QModelIndex:
        return self.createIndex(node.at, column, node.number)

    def _node(self, index: Index) -> _Node | None:
        return self._nodes.get(index.internalId()) if index.isValid() else None

    def index_of(self, target: str) -> QModelIndex:
        """The index of `name` or `name:path`; invalid when there is none."""
        for node in self._walk(target.partition(":")[0]):
            if self._target(node) == target:
                return self._index(node, 0)
        return QModelIndex()

    def _walk(self, name: str) -> Iterator[_Node]:
        waiting = [node for node in self._roots if node.name == name]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    @staticmethod
    def _target(node: _Node) -> str:
        return f"{node.name}:{node.row.path}" if node.row.path else node.name

    def matching(self, words: Sequence[str]) -> tuple[set[int], set[int]]:
        """Numbers of the nodes that a filter shows, and of those whose children it opens.

        A node matches when name, type, dtype and devices together hold every word. Shown are the matches, what they
        are in (opened), and what is in them (not opened).
        """
        shown: set[int] = set()
        opened: set[int] = set()
        for node in self._nodes.values():
            row = node.row
            label = node.name if node.parent is None else row.name
            text = f"{label} {row.type} {row.dtype or ''} {' '.join(row.devices)}".lower()
            if all(word in text for word in words):
                waiting = [node]
                while waiting:
                    found = waiting.pop()
                    if found is node or found.number not in shown:
                        shown.add(found.number)
                        waiting.extend(found.children)
                above = node.parent
                while above is not None and above.number not in opened:
                    shown.add(above.number)
                    opened.add(above.number)
                    above = above.parent
        return shown, opened

    def number_of(self, row: int, parent: Index) -> int:
        """The number of the node in this place, as `matching` counts them."""
        node = self._node(parent)
        return (self._roots if node is None else node.children)[row].number

    # --- what Qt asks ----------------------------------------------------------------------------------------------

    def index(self, row: int, column: int, parent: Index = QModelIndex()) -> QModelIndex:  # noqa: B008 - Qt's signature
        if not 0 <= column < len(HEADERS) or row < 0 or (parent.isValid() and parent.column() != 0):
            return QModelIndex()
        node = self._node(parent)
        if node is None and parent.isValid():
            return QModelIndex()
        siblings = self._roots if node is None else node.children
        return self._index(siblings[row], column) if row < len(siblings) else QModelIndex()

    def parent(self, index: Index = QModelIndex()) -> Any:  # noqa: B008
        node = self._node(index)
        return QModelIndex() if node is None or node.parent is None else self._index(node.parent, 0)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        if parent.isValid() and parent.column() != 0:
            return 0
        node = self._node(parent)
        if node is None:
            return 0 if parent.isValid() else len(self._roots)
        return len(node.children)

    def hasChildren(self, parent: Index = QModelIndex()) -> bool:  # noqa: B008
        return self.rowCount(parent) > 0

    def columnCount(self, _parent: Index = QModelIndex()) -> int:  # noqa: B008
        return len(HEADERS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = int(Qt.ItemDataRole.DisplayRole)) -> Any:
        if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(HEADERS):
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return HEADERS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            right = section in (Column.SHAPE, Column.MIB)
            return (Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft) | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = int(Qt.ItemDataRole.DisplayRole)) -> Any:
        node = self._node(index)
        if node is None:
            return None
        row = node.row
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return self._text(node, index.column())
            case Qt.ItemDataRole.TextAlignmentRole if index.column() in (Column.SHAPE, Column.MIB):
                return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            case Qt.ItemDataRole.ToolTipRole:
                return self._tooltip(node, index.column())
            case Qt.ItemDataRole.AccessibleTextRole:
                words = [self._text(node, index.column())]
                if index.column() == Column.NAME:
                    words += [badge.words for badge in badges(row)]
                return ", ".join(words)
            case _ if role == TARGET_ROLE:
                return self._target(node)
            case _ if role == DEVICES_ROLE:
                return row.devices
            case _ if role == BADGES_ROLE:
                return badges(row)
            case _ if role == ROW_ROLE:
                return row
        return None

    @staticmethod
    def _text(node: _Node, column: int) -> str:
        row = node.row
        match column:
            case Column.NAME:
                return node.name if node.parent is None else row.name
            case Column.TYPE:
                return row.type
            case Column.SHAPE:
                return "" if row.kind == "module" else shape_text(row.shape)
            case Column.DTYPE:
                return row.dtype or ""
            case Column.DEVICE:
                return " ".join(row.devices)
            case _:
                return mib_text(row.bytes) if row.devices or row.bytes else ""

    def _tooltip(self, node: _Node, column: int) -> str:
        row = node.row
        if column == Column.MIB:
            return f"{row.bytes:,} bytes"
        if column == Column.DEVICE and len(row.devices) > 1:
            return "its tensors are on " + ", ".join(row.devices)
        lines = [self._target(node)]
        for badge in badges(row):
            lines.append(
                {
                    "mixed": "mixed: its tensors are on more than one device",
                    "not registered": "not registered: .to(), parameters() and state_dict() do not see it",
                    "uninitialised": "uninitialised: a lazy parameter gets its shape in the first forward",
                }.get(badge.words, f"{badge.words}: the very same tensor under another name")
            )
        return tip("\n".join(lines))

    def flags(self, index: Index) -> Qt.ItemFlag:
        if self._node(index) is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsDragEnabled

    def mimeTypes(self) -> list[str]:
        return list(encode(()).formats())

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        nodes = (self._node(index) for index in indexes)
        return encode(tuple(dict.fromkeys(self._target(node) for node in nodes if node is not None)))

    def supportedDragActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction | Qt.DropAction.CopyAction


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers as (first, last), the highest first: removing one leaves the others in place."""
    result: list[tuple[int, int]] = []
    for place in places:
        if result and result[-1][1] == place - 1:
            result[-1] = (result[-1][0], place)
        else:
            result.append((place, place))
    return result[::-1]
