"""The look of the table of blocks: chips for devices, and a list to choose another one from. Main thread."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QRect, QRectF, QTimer
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QHeaderView,
    QStyleOptionViewItem,
    QWidget,
)

from devexplorer.gui.split.blocks import Column, SplitBlocksModel
from devexplorer.gui.widgets import Look, draw_text, paint_chips, paint_device
from devexplorer.gui.widgets.table import CutAtTheStart, Index, RowsTable

_WIDTHS = {Column.BLOCK: 110, Column.TYPE: 108, Column.SIZE: 100, Column.NOW: 78, Column.DEVICE: 88}


class _Chips(CutAtTheStart):
    """Paints the cells of devices; the editor is a list of those there are. Layers differ at the end of their paths."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.look = look
        self.devices: Sequence[str] = ()

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        if index.column() not in (Column.NOW, Column.DEVICE):
            return False
        model = index.model()
        assert isinstance(model, SplitBlocksModel)
        x = paint_chips(
            painter, cell, model.devices_at(index),
            lambda box, device: paint_device(painter, box, device, self.look),
        )  # fmt: skip
        if index.column() == Column.DEVICE:
            draw_text(painter, QRectF(x + 2, cell.top(), 14, cell.height()), "▾", "dim")
        return True

    def createEditor(self, parent: QWidget, _option: QStyleOptionViewItem, index: Index) -> QWidget:
        editor = QComboBox(parent)
        editor.setAccessibleName(f"device of {index.model().index(index.row(), Column.BLOCK).data()}")
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
        gives_up = (Column.TYPE, Column.NOW, Column.SIZE)
        super().__init__(model, "Blocks of the model", [_WIDTHS[column] for column in Column], gives_up=gives_up)
        self._chips = _Chips(look)
        self.setItemDelegate(self._chips)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setDragEnabled(True)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragOnly)
        self.horizontalHeader().setStretchLastSection(False)
        self.horizontalHeader().setSectionResizeMode(Column.BLOCK, QHeaderView.ResizeMode.Stretch)
        self.clicked.connect(self._on_click)

    def set_devices(self, devices: Sequence[str]) -> None:
        """What can be chosen."""
        self._chips.devices = tuple(devices)

    def _on_click(self, index: QModelIndex) -> None:
        if index.column() == Column.DEVICE:
            self.edit(index)
