"""Draws a segment: its blocks side by side, as wide as they are large, free ones empty. Main thread."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPen

from devexplorer.core.base import bytes_text
from devexplorer.core.records import AllocatorSnapshot, SegmentRow
from devexplorer.gui.memory.snapshot_rows import STATES
from devexplorer.gui.widgets import CPU, Picture, current_theme, device_colour
from devexplorer.gui.widgets.table import Index, Padded, RowsModel

MAP_PX, SMALL_MAP_PX = 34, 12
LEAST_PX = 6
"""Of a small segment beside a large one."""


def spans(segment: SegmentRow, width: float) -> list[tuple[float, float]]:
    """Left edge and width in pixels of each block; what lies outside of the segment is cut off."""
    scale = width / max(segment.bytes, 1)
    result = []
    for block in segment.blocks:
        left = min(max((block.address - segment.address) * scale, 0.0), width)
        result.append((left, min(block.bytes * scale, width - left)))
    return result


def paint_segment(painter: QPainter, segment: SegmentRow, where: QRectF, device: int, marked: int = -1) -> None:
    """Fill `where`: blocks in use in the device's colour, those that wait for a stream lighter, free ones empty."""
    painter.fillRect(where, current_theme().bar_free)
    colour = QColor(device_colour(device))
    waiting = QColor(colour)
    waiting.setAlphaF(0.5)
    gaps = where.height() > SMALL_MAP_PX
    for block, (left, width) in zip(segment.blocks, spans(segment, where.width()), strict=True):
        if block.state == "inactive":
            continue
        gap = 1.0 if gaps and width > 3 else 0.0
        box = QRectF(where.left() + left, where.top(), max(width - gap, 0.75), where.height())
        painter.fillRect(box, colour if block.state == "active_allocated" else waiting)
    if 0 <= marked < len(segment.blocks):
        left, width = spans(segment, where.width())[marked]
        painter.setPen(QPen(QColor(current_theme().text), 2))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(QRectF(where.left() + left + 1, where.top() + 1, max(width - 2, 2), where.height() - 2))


class MapDelegate(Padded):
    """The map in a cell of the table of segments, as long as the segment is large."""

    def __init__(self, model: RowsModel) -> None:
        super().__init__()
        self._model = model
        self.device = CPU
        self.snapshot: AllocatorSnapshot | None = None
        self.largest = 1

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        key = self._model.rows[index.row()].key
        if self.snapshot is None or not isinstance(key, int):
            return True
        segment = self.snapshot.segments[key]
        room = QRectF(cell).adjusted(0, 0, -12, 0)
        width = max(room.width() * segment.bytes / self.largest, LEAST_PX)
        box = QRectF(room.left(), room.center().y() - SMALL_MAP_PX / 2, width, SMALL_MAP_PX)
        paint_segment(painter, segment, box, self.device)
        return True


class SegmentMap(Picture):
    """One segment, large. The tooltip names a block, a click chooses it."""

    smooth = False

    block_clicked = Signal(int)
    """Number of the block in its segment."""

    def __init__(self) -> None:
        super().__init__("Blocks of the segment")
        self.device = CPU
        self._snapshot: AllocatorSnapshot | None = None
        self._segment: SegmentRow | None = None
        self._marked = -1
        self.setFixedHeight(MAP_PX)

    def show_segment(self, snapshot: AllocatorSnapshot | None, segment: SegmentRow | None) -> None:
        """Draw this one."""
        self._snapshot, self._segment, self._marked = snapshot, segment, -1
        count = 0 if segment is None else sum(block.state == "inactive" for block in segment.blocks)
        self.setAccessibleDescription("" if segment is None else f"{len(segment.blocks)} blocks, {count} of them free")
        self.update()

    def mark(self, block: int) -> None:
        """Put a frame round a block."""
        self._marked = block
        self.update()

    def block_at(self, x: float) -> int:
        """Number of the block below `x` pixels from the left; -1 where none is."""
        if self._segment is None:
            return -1
        blocks = enumerate(spans(self._segment, self.width()))
        return next((number for number, (left, width) in blocks if left <= x < left + max(width, 1.0)), -1)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        block = self.block_at(event.position().x())
        if block >= 0:
            self.block_clicked.emit(block)

    def tip_at(self, point: QPointF) -> str:
        """What is known about the block there."""
        number = self.block_at(point.x())
        if self._segment is None or self._snapshot is None:
            return ""
        if number < 0:
            return "A block that was left out, because there were too many."
        block = self._segment.blocks[number]
        lines = [f"{bytes_text(block.bytes)} {STATES.get(block.state, block.state)} at {block.address:#x}"]
        if 0 <= block.frame < len(self._snapshot.stacks):
            lines += self._snapshot.stacks[block.frame].frames[:12]
        return "\n".join(lines)

    def draw(self, painter: QPainter) -> None:
        if self._segment is not None:
            paint_segment(painter, self._segment, QRectF(self.rect()), self.device, self._marked)
