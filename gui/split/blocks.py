"""The table of a split's blocks: path, type, size, where each is, and where it would go, which can be edited. Main
thread."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QByteArray, QMimeData, QModelIndex, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QStyleOptionViewItem,
    QWidget,
)

from devexplorer.core.base import bytes_text
from devexplorer.core.split.draft import Draft, shown_path
from devexplorer.gui.widgets import Look, draw_text, paint_chips, paint_device, table
from devexplorer.gui.widgets.table import Cell, CutAtTheStart, Index, RowsModel, RowsTable, TableRow

MIME = "application/x-devexplorer-blocks"
"""UTF-8 JSON: a list of the places of blocks."""


class BlockColumn(enum.IntEnum):
    """From left to right."""

    BLOCK = 0
    TYPE = 1
    SIZE = 2
    NOW = 3
    DEVICE = 4


_TITLES = ("block", "type", "size", "is on", "goes to")


class SplitBlocksModel(RowsModel):
    """Shows a `Draft`; `put_requested(places, device)` when a cell was edited. Drags carry the places of blocks."""

    put_requested = Signal(object, str)

    def __init__(self) -> None:
        super().__init__([table.Column(title, is_number=title == "size") for title in _TITLES])
        self._draft: Draft | None = None
        self._now: Sequence[tuple[str, ...]] = ()

    def show_draft(self, draft: Draft | None, now: Sequence[tuple[str, ...]]) -> None:
        """Show this one; the same one again, changed, keeps the selection."""
        self._draft, self._now = draft, now
        self.set_rows([] if draft is None else [self._row(draft, place) for place in range(len(draft.blocks))])

    def _row(self, draft: Draft, place: int) -> TableRow:
        block = draft.blocks[place]
        tied = f"{block.path} shares a tensor with {' and '.join(block.tied_with)}: they move together"
        return TableRow(
            (draft, place),
            (
                Cell(
                    f"{shown_path(block, draft.blocks)}{'  (tied)' if block.tied_with else ''}",
                    tip=tied if block.tied_with else block.path,
                ),
                Cell(block.type, tip=block.path),
                Cell(bytes_text(block.bytes), tip=block.path),
                Cell(", ".join(self._now[place]), tip=block.path),
                Cell(draft.devices[place], tip="Click to choose another device, or drag the row onto one"),
            ),
        )

    def devices_at(self, index: Index) -> tuple[str, ...]:
        """The chips of a cell."""
        if self._draft is None:
            return ()
        return self._now[index.row()] if index.column() == BlockColumn.NOW else (self._draft.devices[index.row()],)

    def flags(self, index: Index) -> Qt.ItemFlag:
        flags = super().flags(index) | Qt.ItemFlag.ItemIsDragEnabled
        return flags | Qt.ItemFlag.ItemIsEditable if index.column() == BlockColumn.DEVICE else flags

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        if role != Qt.ItemDataRole.EditRole or index.column() != BlockColumn.DEVICE or value in ("", index.data()):
            return False
        self.put_requested.emit([index.row()], str(value))
        return True

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
        places = json.loads(bytes(data.data(MIME).data()).decode())
    except ValueError:  # not UTF-8, or not JSON: another program uses this type
        return []
    return places if isinstance(places, list) and all(isinstance(place, int) for place in places) else []


_WIDTHS = {
    BlockColumn.BLOCK: 100,
    BlockColumn.TYPE: 108,
    BlockColumn.SIZE: 100,
    BlockColumn.NOW: 78,
    BlockColumn.DEVICE: 80,
}


class _Chips(CutAtTheStart):
    """Paints the cells of devices; the editor is a list of those there are. Layers differ at the end of their paths."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.look = look
        self.devices: Sequence[str] = ()

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        if index.column() not in (BlockColumn.NOW, BlockColumn.DEVICE):
            return False
        model = index.model()
        assert isinstance(model, SplitBlocksModel)
        x = paint_chips(
            painter, cell, model.devices_at(index),
            lambda box, device: paint_device(painter, box, device, self.look),
        )  # fmt: skip
        if index.column() == BlockColumn.DEVICE:
            draw_text(painter, QRectF(x + 2, cell.top(), 14, cell.height()), "▾", "dim")
        return True

    def createEditor(self, parent: QWidget, _option: QStyleOptionViewItem, index: Index) -> QWidget:
        editor = QComboBox(parent)
        editor.setAccessibleName(f"device of {index.model().index(index.row(), BlockColumn.BLOCK).data()}")
        editor.addItems(list(self.devices))
        editor.activated.connect(lambda _at: self._chosen(editor))
        QTimer.singleShot(0, editor, editor.showPopup)
        return editor

    def _chosen(self, editor: QComboBox) -> None:
        self.commitData.emit(editor)
        self.closeEditor.emit(editor)


class BlocksTable(RowsTable):
    """One row per block; rows can be dragged, devices chosen."""

    def __init__(self, model: SplitBlocksModel, look: Look) -> None:
        gives_up = (BlockColumn.TYPE, BlockColumn.NOW, BlockColumn.SIZE)
        widths = [_WIDTHS[column] for column in BlockColumn]
        super().__init__(
            model,
            "Blocks of the model",
            widths,
            stretched=BlockColumn.DEVICE,
            gives_up=gives_up,
            named=(BlockColumn.BLOCK,),
        )
        self._chips = _Chips(look)
        self.setItemDelegate(self._chips)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setDragEnabled(True)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragOnly)
        self.setMinimumWidth(
            _WIDTHS[BlockColumn.BLOCK] + _WIDTHS[BlockColumn.DEVICE] + self.verticalScrollBar().sizeHint().width() + 2
        )
        self.clicked.connect(self._on_click)

    def set_devices(self, devices: Sequence[str]) -> None:
        """What can be chosen."""
        self._chips.devices = tuple(devices)

    def _on_click(self, index: QModelIndex) -> None:
        if index.column() == BlockColumn.DEVICE:
            self.edit(index)
