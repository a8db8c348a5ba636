"""Saves and opens allocator snapshots, and shows the latest in its own window. Main thread only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from PySide6.QtCore import QObject, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QDialog, QPlainTextEdit, QWidget

from devexplorer.core.base import MISSING, bytes_text, count_text
from devexplorer.core.memory.records import (
    AllocatorSnapshot,
    BlockRow,
    OpenSnapshot,
    SaveSnapshot,
    SegmentRow,
    StackRow,
)
from devexplorer.core.memory.state import MemoryState
from devexplorer.core.records import SentFrom
from devexplorer.core.session import Change, State
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.widgets import (
    CPU,
    EDGE_PX,
    Cell,
    Column,
    ElidedLabel,
    Index,
    Padded,
    Picture,
    Role,
    RowsModel,
    RowsTable,
    TableRow,
    code_text,
    current_theme,
    device_colour,
    hbox,
    holder,
    label,
    line_edit,
    numbers,
    splitter,
    tab_widget,
    vbox,
)

SNAPSHOTS = "Allocator snapshots"


def save_snapshot(context: WindowContext, device: str) -> None:
    """Ask where to save the snapshot of a device's allocator."""
    command = SaveSnapshot(device=device, path="")
    name = f"snapshot-{device.replace(':', '-')}.pickle"
    far = context.far
    context.save_file(
        f"Save the allocator snapshot of {device}", name, {"pickle": SNAPSHOTS},
        lambda path: context.controller.send(replace(command, path=str(path))),
        here=None if far is None else lambda path: far.save(path, command),
    )  # fmt: skip


def open_snapshot(context: WindowContext) -> None:
    """Ask which snapshot to read."""
    context.choose_files(
        "Open an allocator snapshot",
        f"{SNAPSHOTS} (*.pickle *.pkl);;All files (*)",
        lambda paths: open_file(context, paths[0], None),
    )


def open_file(context: WindowContext, path: Path, sent_from: SentFrom | None) -> None:
    """Read this one; `sent_from`: the file of another machine that it is a copy of."""
    context.controller.send(OpenSnapshot(path=str(path), sent_from=sent_from))


class SnapshotViewer(QObject):
    """Shows each snapshot once, in one window that stays beside the main one. Owned by the context."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self._dialog: SnapshotDialog | None = None
        self._shown: AllocatorSnapshot | None = None
        """A redraw of everything (a recording opened or closed, an engine lost) does not open it again."""
        context.follow(Change.LABORATORY, self._refresh)

    def _refresh(self) -> None:
        snapshot = self._context.state.part(MemoryState).snapshot
        if snapshot is None or snapshot is self._shown:
            return
        self._shown = snapshot
        if self._dialog is None:
            self._dialog = SnapshotDialog(self._context.state, self._context.window)
        self._dialog.refresh()
        self._dialog.show()
        self._dialog.raise_()


# An allocator snapshot to be browsed: by segment, where free blocks show as holes, and by place in the code.

MOST_ROWS = 500
"""Listed at once, the largest; the filter finds the others."""
CALLERS = 4
"""Frames that are named in a row: the innermost is often the same helper."""
SEGMENT_COLUMNS = (
    Column("address"),
    numbers("device", "As torch counts."),
    Column("pool", "small: requests up to 1 MiB"),
    numbers("size"),
    numbers("in use"),
    numbers("largest free", "The largest request that fits into this segment."),
    numbers("blocks"),
    Column("map", "Filled: in use. Empty: free. As long as the segment is large."),
)
BLOCK_COLUMNS = (
    Column("address"),
    numbers("size"),
    numbers("requested", "Before the allocator rounded it up."),
    Column("state"),
    Column("allocated at"),
)
STACK_COLUMNS = (
    numbers("size"),
    numbers("share", "Of all blocks in use whose line is known."),
    numbers("blocks"),
    Column("allocated at"),
)
STATES = {
    "active_allocated": "in use",
    "active_awaiting_free": "waiting for a stream",
    "active_pending_free": "waiting for a stream",
    "inactive": "free",
}
MAP_PX, SMALL_MAP_PX = 34, 12
LEAST_PX = 6
"""Of a small segment beside a large one."""
NO_STACKS = (
    "No lines of code: recording was off when these blocks were allocated. Turn on “Record "
    "stacks”, create the tensors again, and take another snapshot."
)


class Finder:
    """Which segments and which places hold all words of a filter; texts are made once for a snapshot."""

    def __init__(self, snapshot: AllocatorSnapshot) -> None:
        self._places = [" ".join(stack.frames).lower() for stack in snapshot.stacks]
        self._segments = [
            f"{segment.address:#x} {segment.pool} stream {segment.stream}".lower() for segment in snapshot.segments
        ]
        self._used = [{block.frame for block in segment.blocks if block.frame >= 0} for segment in snapshot.segments]

    def find(self, query: str) -> tuple[list[int], list[int]]:
        """Numbers of the segments and of the places that match."""
        words = query.lower().split()
        places = [index for index, place in enumerate(self._places) if all(word in place for word in words)]
        hit = set(places) if words else set()
        segments = [
            index
            for index, text in enumerate(self._segments)
            if all(word in text for word in words) or not hit.isdisjoint(self._used[index])
        ]
        return segments, places


def summary(snapshot: AllocatorSnapshot) -> str:
    """The whole snapshot in a line."""
    reserved = sum(segment.bytes for segment in snapshot.segments)
    allocated = sum(segment.allocated_bytes for segment in snapshot.segments)
    largest = max(map(largest_free, snapshot.segments), default=0)
    parts = [
        f"{bytes_text(reserved)} in {count_text(len(snapshot.segments), 'segment')}",
        f"{bytes_text(allocated)} in use",
        f"largest free block {bytes_text(largest)}",
    ]
    if snapshot.trace_entries:
        parts.append(count_text(snapshot.trace_entries, "recorded step"))
    if snapshot.cut:
        parts.append(f"{count_text(snapshot.cut, 'small block')} left out")
    return ", ".join(parts)


def largest_free(segment: SegmentRow) -> int:
    """Bytes of the largest free block of a segment."""
    return max((block.bytes for block in segment.blocks if block.state == "inactive"), default=0)


def segment_rows(snapshot: AllocatorSnapshot, numbers: Sequence[int]) -> list[TableRow]:
    """The largest of these segments, as many as are listed."""
    largest = sorted(numbers, key=lambda index: -snapshot.segments[index].bytes)[:MOST_ROWS]
    return [TableRow(index, _segment_cells(snapshot.segments[index])) for index in largest]


def _segment_cells(segment: SegmentRow) -> tuple[Cell, ...]:
    free = largest_free(segment)
    return (
        Cell(f"{segment.address:#x}"),
        Cell(str(segment.device), "dim"),
        Cell(segment.pool, "dim", f"stream {segment.stream}"),
        Cell(bytes_text(segment.bytes), tip=f"{segment.bytes:,} bytes"),
        Cell(bytes_text(segment.allocated_bytes), tip=f"{segment.allocated_bytes:,} bytes"),
        Cell(bytes_text(free), "dim", f"{free:,} bytes"),
        Cell(f"{len(segment.blocks):,}", "dim"),
        Cell(""),
    )


def block_rows(snapshot: AllocatorSnapshot, segment: SegmentRow) -> list[TableRow]:
    """The largest blocks of a segment, in the order of their addresses."""
    largest = sorted(range(len(segment.blocks)), key=lambda index: -segment.blocks[index].bytes)[:MOST_ROWS]
    return [TableRow(index, _block_cells(snapshot, segment.blocks[index])) for index in sorted(largest)]


def _block_cells(snapshot: AllocatorSnapshot, block: BlockRow) -> tuple[Cell, ...]:
    is_free = block.state == "inactive"
    return (
        Cell(f"{block.address:#x}", "dim" if is_free else ""),
        Cell(bytes_text(block.bytes), "dim" if is_free else "", f"{block.bytes:,} bytes"),
        Cell(MISSING if block.requested_bytes is None else f"{block.requested_bytes:,}", "dim"),
        Cell(STATES.get(block.state, block.state), "dim" if is_free else ""),
        _place(snapshot, block),
    )


def _place(snapshot: AllocatorSnapshot, block: BlockRow) -> Cell:
    if block.state == "inactive":
        return Cell("")
    if not 0 <= block.frame < len(snapshot.stacks):
        return Cell("not recorded", "dim", "Recording was off when this block was allocated.")
    frames = snapshot.stacks[block.frame].frames
    return Cell(frames[0] if frames else MISSING, tip="\n".join(frames))


def stack_rows(snapshot: AllocatorSnapshot, numbers: Sequence[int]) -> list[TableRow]:
    """The places, largest first as in the snapshot."""
    total = sum(stack.bytes for stack in snapshot.stacks)
    return [TableRow(index, _stack_cells(snapshot.stacks[index], total)) for index in numbers[:MOST_ROWS]]


def _stack_cells(stack: StackRow, total: int) -> tuple[Cell, ...]:
    return (
        Cell(bytes_text(stack.bytes), tip=f"{stack.bytes:,} bytes"),
        Cell(f"{100 * stack.bytes / total:.1f} %" if total else MISSING, "dim"),
        Cell(f"{stack.blocks:,}", "dim"),
        Cell(" ← ".join(stack.frames[:CALLERS]) or MISSING, tip="\n".join(stack.frames)),
    )


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


class SnapshotDialog(QDialog):
    """Shows the one that was opened last; feed it with `refresh`. It stays while the main window is used."""

    def __init__(self, state: State, parent: QWidget | None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Allocator snapshot")
        self._state = state
        self._shown: AllocatorSnapshot | None = None
        self._finder: Finder | None = None
        self.title = label("", Role.STRONG)
        self.facts = ElidedLabel(words="dim")
        self.filter = line_edit(
            placeholder="Filter by file, function, address, pool", name="Filter", width_px=240, clear=True
        )
        self.segment_table = RowsTable(SEGMENT_COLUMNS, "Segments", [150, 60, 70, 96, 96, 104, 70])
        self.maps = MapDelegate(self.segment_table.rows_model)
        self.segment_table.setItemDelegateForColumn(len(SEGMENT_COLUMNS) - 1, self.maps)
        self.map = SegmentMap()
        self.block_table = RowsTable(BLOCK_COLUMNS, "Blocks of the segment", [150, 96, 110, 140])
        self.stack_table = RowsTable(STACK_COLUMNS, "Places in the code", [96, 76, 76])
        self.frames = code_text("Stack, innermost first", lineWrapMode=QPlainTextEdit.LineWrapMode.NoWrap)
        self.nothing = label(NO_STACKS, words="dim", wrap=True)
        self.more = label("", words="dim")
        self._lay_out()
        self.filter.textChanged.connect(self._filter)
        self.segment_table.selected.connect(self._show_segment)
        self.block_table.selected.connect(self._mark)
        self.stack_table.selected.connect(self._show_stack)
        self.map.block_clicked.connect(self._choose_block)
        self.refresh()

    def _lay_out(self) -> None:
        head = hbox(self.title, (self.facts, 1), self.filter, spacing=EDGE_PX, margins=(EDGE_PX, EDGE_PX, EDGE_PX, 8))
        framed = hbox(self.map, margins=(EDGE_PX, 0, EDGE_PX, 0))
        below = holder(vbox(framed, (self.block_table, 1), margins=(0, 8, 0, 0)))
        by_segment = splitter(self.segment_table, below, sizes=[320, 240], orientation=Qt.Orientation.Vertical)
        self._by_place = splitter(self.stack_table, self.frames, sizes=[520, 420])
        self.nothing.setContentsMargins(EDGE_PX, EDGE_PX, EDGE_PX, EDGE_PX)
        places = holder(vbox(self.nothing, (self._by_place, 1)))
        self.tabs = tab_widget("Views of the snapshot")
        self.tabs.addTab(by_segment, "By segment")
        self.tabs.addTab(places, "By place in the code")
        self.more.setContentsMargins(EDGE_PX, 4, EDGE_PX, 6)
        vbox(head, (self.tabs, 1), self.more, spacing=0, parent=self)
        self.resize(1000, 660)

    def refresh(self) -> None:
        """Show the snapshot that was opened last."""
        snapshot = self._state.part(MemoryState).snapshot
        if snapshot is self._shown:
            return
        self._shown = snapshot
        if snapshot is None:
            return
        self._finder = Finder(snapshot)
        device = self._state.devices.get(snapshot.source)
        self.maps.device = self.map.device = CPU if device is None else device.colour
        self.maps.snapshot = snapshot
        self.maps.largest = max((segment.bytes for segment in snapshot.segments), default=1)
        self.title.setText(f"{snapshot.source}, simulated" if snapshot.simulated else snapshot.source)
        self.facts.set_full_text(summary(snapshot))
        self.nothing.setVisible(not snapshot.stacks)
        self._by_place.setVisible(bool(snapshot.stacks))
        self._filter()

    def _filter(self) -> None:
        snapshot, finder = self._shown, self._finder
        if snapshot is None or finder is None:
            return
        segments, places = finder.find(self.filter.text())
        self.segment_table.set_rows(segment_rows(snapshot, segments))
        self.stack_table.set_rows(stack_rows(snapshot, places))
        self.tabs.setTabText(0, f"By segment ({len(segments):,})")
        self.tabs.setTabText(1, f"By place in the code ({len(places):,})")
        hidden = max(len(segments), len(places)) > MOST_ROWS
        self.more.setText(f"Only the largest {MOST_ROWS} are listed; the filter finds the others." if hidden else "")
        self.more.setVisible(hidden)
        for table in (self.segment_table, self.stack_table):
            if table.selected_key is None and table.rows:
                table.selectRow(0)
        self._show_segment()
        self._show_stack()

    def _show_segment(self) -> None:
        key = self.segment_table.selected_key
        segment = self._shown.segments[key] if self._shown is not None and isinstance(key, int) else None
        self.map.show_segment(self._shown, segment)
        rows = [] if self._shown is None or segment is None else block_rows(self._shown, segment)
        self.block_table.set_rows(rows)

    def _mark(self) -> None:
        key = self.block_table.selected_key
        self.map.mark(key if isinstance(key, int) else -1)

    def _choose_block(self, block: int) -> None:
        for number, row in enumerate(self.block_table.rows):
            if row.key == block:
                self.block_table.selectRow(number)
                self.block_table.scrollTo(self.block_table.rows_model.index(number, 0))

    def _show_stack(self) -> None:
        key = self.stack_table.selected_key
        frames = self._shown.stacks[key].frames if self._shown is not None and isinstance(key, int) else ()
        self.frames.setPlainText("\n".join(frames))
