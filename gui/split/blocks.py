"""The table of a split's blocks: path, type, size, where it is, and where it would go, which can be edited. Main
thread."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QByteArray, QMimeData, QModelIndex, QPersistentModelIndex, Qt, Signal

from devexplorer.core.base.formats import bytes_text
from devexplorer.gui.split.draft import Draft, shown_path
from devexplorer.gui.widgets.theme import Role, font

Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()
MIME = "application/x-devexplorer-blocks"
"""UTF-8 JSON: a list of the places of blocks."""


class Column(enum.IntEnum):
    """From left to right."""

    BLOCK = 0
    TYPE = 1
    SIZE = 2
    NOW = 3
    DEVICE = 4


_TITLES = ("block", "type", "size", "is on", "goes to")


class SplitBlocksModel(QAbstractTableModel):
    """Shows a `Draft`; `put_requested(places, device)` when a cell was edited. Drags carry the places of blocks."""

    put_requested = Signal(object, str)

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        self._draft: Draft | None = None
        self._now: Sequence[tuple[str, ...]] = ()

    def show_draft(self, draft: Draft | None, now: Sequence[tuple[str, ...]]) -> None:
        """Show this one; the same one again, changed, keeps the selection."""
        if draft is not self._draft:
            self.beginResetModel()
            self._draft, self._now = draft, now
            self.endResetModel()
            return
        self._now = now
        if draft is not None:
            self.dataChanged.emit(self.index(0, 0), self.index(self.rowCount() - 1, Column.DEVICE))

    def devices_at(self, index: Index) -> tuple[str, ...]:
        """The chips of a cell."""
        if self._draft is None:
            return ()
        return self._now[index.row()] if index.column() == Column.NOW else (self._draft.devices[index.row()],)

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() or self._draft is None else len(self._draft.blocks)

    def columnCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(_TITLES)

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsDragEnabled
        return flags | Qt.ItemFlag.ItemIsEditable if index.column() == Column.DEVICE else flags

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or self._draft is None:
            return None
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.AccessibleTextRole | Qt.ItemDataRole.EditRole:
                return self._text(self._draft, index.row(), Column(index.column()))
            case Qt.ItemDataRole.ToolTipRole:
                return self._tip(self._draft, index.row(), Column(index.column()))
            case Qt.ItemDataRole.TextAlignmentRole:
                side = Qt.AlignmentFlag.AlignRight if index.column() == Column.SIZE else Qt.AlignmentFlag.AlignLeft
                return int(side | Qt.AlignmentFlag.AlignVCenter)
        return None

    def _text(self, draft: Draft, row: int, column: Column) -> str:
        block = draft.blocks[row]
        match column:
            case Column.BLOCK:
                return f"{shown_path(block, draft.blocks)}{'  (tied)' if block.tied_with else ''}"
            case Column.TYPE:
                return block.type
            case Column.SIZE:
                return bytes_text(block.bytes)
            case Column.NOW:
                return ", ".join(self._now[row])
            case Column.DEVICE:
                return draft.devices[row]

    def _tip(self, draft: Draft, row: int, column: Column) -> str | None:
        block = draft.blocks[row]
        if column == Column.BLOCK and block.tied_with:
            return f"{block.path} shares a tensor with {' and '.join(block.tied_with)}: they move together"
        if column == Column.DEVICE:
            return "Click to choose another device, or drag the row onto one"
        return block.path or None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        if role != Qt.ItemDataRole.EditRole or self._draft is None or index.column() != Column.DEVICE or not value:
            return False
        self.put_requested.emit([index.row()], str(value))
        return True

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(_TITLES):
            return None
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return _TITLES[section]
            case Qt.ItemDataRole.TextAlignmentRole:
                side = Qt.AlignmentFlag.AlignRight if section == Column.SIZE else Qt.AlignmentFlag.AlignLeft
                return int(side | Qt.AlignmentFlag.AlignVCenter)
            case Qt.ItemDataRole.FontRole:
                return font(Role.LABEL)
        return None

    def mimeTypes(self) -> list[str]:
        return [MIME]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:
        return encode(sorted({index.row() for index in indexes}))


def encode(places: Sequence[int]) -> QMimeData:
    """Places of blocks as a drag carries them."""
    data = QMimeData()
    data.setData(MIME, QByteArray(json.dumps(list(places)).encode()))
    return data


def decode(data: QMimeData) -> list[int]:
    """The places of a drag; empty for anything that is not ours, however it is broken."""
    if not data.hasFormat(MIME):
        return []
    try:
        found = json.loads(bytes(data.data(MIME).data()).decode())
    except ValueError:  # not UTF-8, or not JSON: another program used our name
        return []
    return found if isinstance(found, list) and all(isinstance(place, int) for place in found) else []
