"""A split to look at and to edit: the table of its blocks, and the picture with a lane per device, the blocks in their
order, and arrows where activations hop. Main thread."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from PySide6.QtCore import QByteArray, QMimeData, QModelIndex, QPointF, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QPainter,
    QPainterPath,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QStyleOptionViewItem,
    QWidget,
)

from devexplorer.core.base import bytes_text, seconds_text
from devexplorer.core.records import Hop
from devexplorer.core.split.draft import INPUT, OUTPUT, Arrow, Draft, runs, shown_path
from devexplorer.gui.actions.controller import carried
from devexplorer.gui.widgets import (
    CENTRE,
    CHIP_PX,
    RIGHT,
    Cell,
    CutAtTheStart,
    Index,
    Look,
    Picture,
    RowsModel,
    RowsTable,
    TableRow,
    chip_width,
    current_theme,
    device_colour,
    device_pen,
    draw_text,
    paint_chips,
    paint_device,
    table,
    text_width,
)

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
    return carried(data, MIME, int)


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


HEADER_PX, BLOCK_PX, GAP_PX, ARROW_GAP_PX, EDGE_PX = 26, 20, 2, 38, 8
MORE = -3
"""Place of a box that represents several blocks."""
LEAST_LANE_PX, LANE_PX, MOST_LANE_PX = 86, 130, 260
"""The least has room for a name only; sizes and the word simulated are in lanes as wide as the second."""


class PlacedBox(NamedTuple):
    """A box of the picture."""

    place: int
    """Of the block; `INPUT`, `OUTPUT` or `MORE`."""
    lane: str
    rect: QRectF
    words: str
    size: str = ""


class SplitPicture(Picture):
    """Show a draft with `show_split`."""

    def __init__(self, look: Look) -> None:
        super().__init__("Where activations hop")
        self._look = look
        self._draft: Draft | None = None
        self.lanes: tuple[str, ...] = ()
        """Devices from left to right."""
        self.arrows: tuple[Arrow, ...] = ()
        """What is drawn between the blocks."""

    def show_split(self, draft: Draft | None, lanes: Sequence[str], arrows: Sequence[Arrow]) -> None:
        """Show these blocks in these lanes; devices of hops that have none get one."""
        hops = [arrow.hop for arrow in arrows if arrow.hop is not None]
        others = [device for hop in hops for device in (hop.source, hop.destination)]
        self._draft, self.arrows = draft, tuple(arrows)
        self.lanes = tuple(dict.fromkeys([*lanes, *others]))
        self.setMinimumSize(EDGE_PX * 2 + len(self.lanes) * LEAST_LANE_PX, self._height())
        self.setAccessibleDescription(
            "; ".join(arrow_words(arrow, draft) for arrow in arrows) if draft is not None else ""
        )
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(EDGE_PX * 2 + len(self.lanes) * LANE_PX, self.minimumHeight())

    def _height(self) -> int:
        boxes = self._placed(folded=True)
        return int(boxes[-1].rect.bottom()) + EDGE_PX if boxes else HEADER_PX

    def boxes(self) -> list[PlacedBox]:
        """Every block where it is painted: alone where all have room, else those of a row on one device together."""
        each = self._placed(folded=False)
        if each and each[-1].rect.bottom() > self.height():
            return self._placed(folded=True)
        return each

    def _placed(self, *, folded: bool) -> list[PlacedBox]:
        """From the top; the input and output where hops come from or go to them."""
        if self._draft is None:
            return []
        ends = {end for arrow in self.arrows for end in (arrow.before, arrow.after)}
        entry = next((arrow.hop.source for arrow in self.arrows if arrow.before == INPUT and arrow.hop is not None), "")
        leaving = next(
            (arrow.hop.destination for arrow in self.arrows if arrow.after == OUTPUT and arrow.hop is not None), ""
        )
        items = [(INPUT, entry, "input", "")] if INPUT in ends else []
        for run in runs(self._draft.devices, ends if folded else range(len(self._draft.devices))):
            blocks, device = [self._draft.blocks[place] for place in run], self._draft.devices[run[0]]
            words = shown_path(blocks[0], self._draft.blocks) if len(run) == 1 else f"{len(run)} more"
            held = bytes_text(sum(block.bytes for block in blocks), 1)
            items.append((run[0] if len(run) == 1 else MORE, device, words, held))
        items += [(OUTPUT, leaving, "output", "")] if OUTPUT in ends else []
        result: list[PlacedBox] = []
        y = HEADER_PX + 6.0
        for number, (place, device, words, held) in enumerate(items):
            if number:
                y += ARROW_GAP_PX if device != items[number - 1][1] else GAP_PX
            left = self._left(device)
            result.append(PlacedBox(place, device, QRectF(left, y, self._lane_px() - 10, BLOCK_PX), words, held))
            y += BLOCK_PX
        return result

    def _lane_px(self) -> float:
        room = (self.width() - 2 * EDGE_PX) / max(len(self.lanes), 1)
        return max(min(room, MOST_LANE_PX), LEAST_LANE_PX)

    def _left(self, device: str) -> float:
        return EDGE_PX + (self.lanes.index(device) if device in self.lanes else 0) * self._lane_px() + 5

    # --- painting

    def draw(self, painter: QPainter) -> None:
        for device in self.lanes:
            self._paint_lane(painter, device)
        boxes = self.boxes()
        for box in boxes:
            self._paint_box(painter, box)
        by_place = {box.place: box for box in boxes}
        for arrow in self.arrows:
            before, after = by_place.get(arrow.before), by_place.get(arrow.after)
            if before is not None and after is not None:
                self._paint_arrow(painter, arrow, before, after)

    def _paint_lane(self, painter: QPainter, device: str) -> None:
        left, width = self._left(device) - 4, self._lane_px() - 2
        index, simulated = self._look(device)
        chip = QRectF(left + 4.5, 5.5, chip_width(device), CHIP_PX - 1)
        paint_device(painter, chip, device, self._look)
        if simulated and width >= LANE_PX - 2:
            beside = QRectF(chip.right() + 6, chip.top(), 80, chip.height())
            draw_text(painter, beside, "simulated", "dim")
        line = device_pen(index, simulated=True)
        faint = QColor(line.color())
        faint.setAlphaF(0.35)
        line.setColor(faint)
        painter.setPen(line)
        middle = left + width / 2
        painter.drawLine(QPointF(middle, HEADER_PX + 2), QPointF(middle, self.height() - 4))

    def _paint_box(self, painter: QPainter, box: PlacedBox) -> None:
        index, _ = self._look(box.lane)
        colour = QColor(device_colour(index))
        painter.setBrush(current_theme().panel)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawRoundedRect(box.rect, 4, 4)
        inside = QColor(colour)
        inside.setAlphaF({INPUT: 0.0, OUTPUT: 0.0, MORE: 0.07}.get(box.place, 0.16))
        painter.setBrush(inside)
        painter.setPen(colour)
        painter.drawRoundedRect(box.rect, 4, 4)
        room = box.rect.adjusted(7, 0, -7, 0)
        if self._lane_px() >= LANE_PX:
            draw_text(painter, room, box.size, "dim", align=RIGHT)
            room.setRight(room.right() - text_width(box.size) - 8)
        draw_text(painter, room, box.words, "text", cut=Qt.TextElideMode.ElideLeft)  # its end tells most

    def _paint_arrow(self, painter: QPainter, arrow: Arrow, before: PlacedBox, after: PlacedBox) -> None:
        colour = QColor(current_theme().soft if arrow.hop is not None else current_theme().dim)
        pen = QPen(colour, 1.4)
        if arrow.hop is None:
            pen.setStyle(Qt.PenStyle.DashLine)
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        start, end = _ends(before.rect, after.rect)
        path = QPainterPath(start)
        bend = max(abs(end.y() - start.y()) / 2, 10.0)
        path.cubicTo(QPointF(start.x(), start.y() + bend), QPointF(end.x(), end.y() - bend), end)
        painter.drawPath(path)
        painter.setBrush(colour)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawPolygon(QPolygonF([end, end + QPointF(-4, -7), end + QPointF(4, -7)]))
        if arrow.hop is None:
            return
        words = _figures(arrow.hop)
        width = text_width(words) + 8
        centre = path.pointAtPercent(0.5)
        beside = centre.x() + 8 if centre.x() + 10 + width < self.width() else centre.x() - 8 - width
        left = beside if abs(end.x() - start.x()) < width else centre.x() - width / 2
        left = min(max(left, 2.0), self.width() - width - 2.0)
        where = QRectF(left, centre.y() - 7, width, 14)
        painter.setBrush(current_theme().panel)
        painter.drawRoundedRect(where, 3, 3)
        draw_text(painter, where, words, "soft", align=CENTRE)

    def tip_at(self, point: QPointF) -> str:
        """The block at this point, with the hops that begin and end there."""
        box = next((box for box in self.boxes() if box.rect.contains(point)), None)
        if box is None or self._draft is None:
            return ""
        lines = [f"{box.words}: {box.size} on {box.lane}" if box.size else box.words]
        if box.place >= 0 and self._draft.blocks[box.place].tied_with:
            lines.append(f"shares a tensor with {' and '.join(self._draft.blocks[box.place].tied_with)}")
        lines += [arrow_words(arrow, self._draft) for arrow in self.arrows if box.place in (arrow.before, arrow.after)]
        return "\n".join(lines)


def arrow_words(arrow: Arrow, draft: Draft | None) -> str:
    """One hop in words."""
    ends = {INPUT: "the input", OUTPUT: "the output"}
    before, after = (
        ends.get(end) or (shown_path(draft.blocks[end], draft.blocks) if draft is not None else "")
        for end in (arrow.before, arrow.after)
    )
    if arrow.hop is None:
        return f"from {before} to {after}: planned"
    return f"from {before} on {arrow.hop.source} to {after} on {arrow.hop.destination}: {_figures(arrow.hop)}"


def _figures(hop: Hop) -> str:
    size = bytes_text(hop.bytes, 1)
    if hop.seconds is None:
        return size
    return f"{size} · {seconds_text(hop.seconds)}{' sim.' if hop.simulated else ''}"


def _ends(before: QRectF, after: QRectF) -> tuple[QPointF, QPointF]:
    """From the lower edge of one box to the upper edge of the other, on the sides that face each other; upwards from
    side to side."""
    if after.left() > before.right():
        return QPointF(before.right() - 16, before.bottom()), QPointF(after.left() + 16, after.top())
    if after.right() < before.left():
        return QPointF(before.left() + 16, before.bottom()), QPointF(after.right() - 16, after.top())
    return QPointF(before.center().x(), before.bottom()), QPointF(after.center().x(), after.top())
