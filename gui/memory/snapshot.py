"""An allocator snapshot to be browsed: by segment, where free blocks show as holes, and by place in the code. Main
thread."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QPlainTextEdit, QWidget

from devexplorer.core.records import AllocatorSnapshot
from devexplorer.core.session import State
from devexplorer.gui.memory.segment_map import MapDelegate, SegmentMap
from devexplorer.gui.memory.snapshot_rows import (
    BLOCK_COLUMNS,
    MOST_ROWS,
    SEGMENT_COLUMNS,
    STACK_COLUMNS,
    Finder,
    block_rows,
    segment_rows,
    stack_rows,
    summary,
)
from devexplorer.gui.widgets import (
    CPU,
    EDGE_PX,
    ElidedLabel,
    Role,
    font,
    hbox,
    holder,
    label,
    line_edit,
    splitter,
    tab_widget,
    vbox,
)
from devexplorer.gui.widgets.table import RowsModel, RowsTable

NO_STACKS = (
    "No lines of code: recording was off when these blocks were allocated. Turn on “Record "
    "stacks”, create the tensors again, and take another snapshot."
)


class SnapshotDialog(QDialog):
    """Shows `state.snapshot`; feed it with `refresh`. It stays while the main window is used."""

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
        self.segments = RowsModel(SEGMENT_COLUMNS)
        self.segment_table = RowsTable(self.segments, "Segments", [150, 60, 70, 96, 96, 104, 70])
        self.maps = MapDelegate(self.segments)
        self.segment_table.setItemDelegateForColumn(len(SEGMENT_COLUMNS) - 1, self.maps)
        self.map = SegmentMap()
        self.blocks = RowsModel(BLOCK_COLUMNS)
        self.block_table = RowsTable(self.blocks, "Blocks of the segment", [150, 96, 110, 140])
        self.stacks = RowsModel(STACK_COLUMNS)
        self.stack_table = RowsTable(self.stacks, "Places in the code", [96, 76, 76])
        self.frames = QPlainTextEdit(readOnly=True, lineWrapMode=QPlainTextEdit.LineWrapMode.NoWrap)
        self.frames.setProperty("look", "code")
        self.frames.setFont(font(Role.CODE))
        self.frames.setAccessibleName("Stack, innermost first")
        self.nothing = label(NO_STACKS, words="dim", wrap=True)
        self.more = label("", words="dim")
        self._lay_out()
        self.filter.textChanged.connect(self._filter)
        self.segment_table.selectionModel().selectionChanged.connect(lambda: self._show_segment())
        self.block_table.selectionModel().selectionChanged.connect(lambda: self._mark())
        self.stack_table.selectionModel().selectionChanged.connect(lambda: self._show_stack())
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
        snapshot = self._state.snapshot
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
        self.segments.set_rows(segment_rows(snapshot, segments))
        self.stacks.set_rows(stack_rows(snapshot, places))
        self.tabs.setTabText(0, f"By segment ({len(segments):,})")
        self.tabs.setTabText(1, f"By place in the code ({len(places):,})")
        hidden = max(len(segments), len(places)) > MOST_ROWS
        self.more.setText(f"Only the largest {MOST_ROWS} are listed; the filter finds the others." if hidden else "")
        self.more.setVisible(hidden)
        for table, model in ((self.segment_table, self.segments), (self.stack_table, self.stacks)):
            if table.selected_key is None and model.rows:
                table.selectRow(0)
        self._show_segment()
        self._show_stack()

    def _show_segment(self) -> None:
        key = self.segment_table.selected_key
        segment = self._shown.segments[key] if self._shown is not None and isinstance(key, int) else None
        self.map.show_segment(self._shown, segment)
        rows = [] if self._shown is None or segment is None else block_rows(self._shown, segment)
        self.blocks.set_rows(rows)

    def _mark(self) -> None:
        key = self.block_table.selected_key
        self.map.mark(key if isinstance(key, int) else -1)

    def _choose_block(self, block: int) -> None:
        for number, row in enumerate(self.blocks.rows):
            if row.key == block:
                self.block_table.selectRow(number)
                self.block_table.scrollTo(self.blocks.index(number, 0))

    def _show_stack(self) -> None:
        key = self.stack_table.selected_key
        frames = self._shown.stacks[key].frames if self._shown is not None and isinstance(key, int) else ()
        self.frames.setPlainText("\n".join(frames))
