"""The look of the table of blocks: chips for devices, and a list to choose another one from. Main thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, Qt, QTimer
from PySide6.QtGui import QColor, QFontMetrics, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QHeaderView,
    QStyle,
    QStyleOptionViewItem,
    QWidget,
)

from devexplorer.gui.split.blocks import Column, SplitBlocksModel
from devexplorer.gui.widgets.table import CutAtTheStart, RowsTable
from devexplorer.gui.widgets.theme import Role, Theme, device_colour, device_pen, font

Index = QModelIndex | QPersistentModelIndex
Look = Callable[[str], tuple[int, bool]]
"""Palette index of a device, and whether it is simulated."""
CHIP_PX = 18
_WIDTHS = {Column.TYPE: 108, Column.SIZE: 100, Column.NOW: 78, Column.DEVICE: 88}


def paint_chip(painter: QPainter, at: QRectF, device: str, look: Look, theme: Theme) -> None:
    """The device's name in its colour, with its outline; a simulated one's is dashed."""
    index, simulated = look(device)
    painter.setFont(font(Role.LABEL))
    painter.setPen(device_pen(index, theme, simulated=simulated))
    painter.setBrush(QColor(theme.panel))  # so that the name keeps its contrast in a selected row
    painter.drawRoundedRect(at, 4, 4)
    painter.setPen(QColor(device_colour(index, theme)))
    painter.drawText(at, Qt.AlignmentFlag.AlignCenter, device)


def chip_width(device: str) -> int:
    """In pixels."""
    return QFontMetrics(font(Role.LABEL)).horizontalAdvance(device) + 12


class _Chips(CutAtTheStart):
    """Paints the cells of devices; the editor is a list of those there are. Layers differ at the end of their paths."""

    def __init__(self, look: Look, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.look, self.theme = look, theme
        self.devices: Sequence[str] = ()

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        if index.column() not in (Column.NOW, Column.DEVICE):
            super().paint(painter, option, index)
            return
        where = QRect(option.rect)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(where, option.palette.highlight())
        model = index.model()
        assert isinstance(model, SplitBlocksModel)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        x = where.left() + 0.5
        for device in model.devices_at(index):
            width = chip_width(device)
            if x + width > where.right() and x > where.left() + 1:
                painter.setPen(QColor(self.theme.dim))
                painter.drawText(QRectF(x, where.top(), 16, where.height()), Qt.AlignmentFlag.AlignVCenter, "…")
                break
            paint_chip(
                painter,
                QRectF(x, where.center().y() - CHIP_PX / 2 + 1, width, CHIP_PX - 1),
                device,
                self.look,
                self.theme,
            )
            x += width + 4
        if index.column() == Column.DEVICE:
            painter.setPen(QColor(self.theme.dim))
            painter.drawText(QRectF(x + 2, where.top(), 14, where.height()), Qt.AlignmentFlag.AlignVCenter, "▾")
        painter.restore()

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

    def __init__(self, model: SplitBlocksModel, look: Look, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(model, "Blocks of the model", [_WIDTHS.get(column, 0) for column in Column], parent)
        self._chips = _Chips(look, theme, self)
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

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        self._chips.theme = theme
        self.viewport().update()

    def _on_click(self, index: QModelIndex) -> None:
        if index.column() == Column.DEVICE:
            self.edit(index)
