"""Browsing an allocator snapshot: segments with their holes, blocks, source lines, a filter over both."""

from __future__ import annotations

import pytest
from fakes.look_records import CPU, ENGINE, VGPU, state_with
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from devexplorer.core.memory.records import AllocatorSnapshot, BlockRow, SegmentRow, SnapshotOpened, StackRow
from devexplorer.core.session.state import State
from devexplorer.gui.memory.snapshot_files import MOST_ROWS, SnapshotDialog, spans
from devexplorer.gui.widgets.theme import DARK, LIGHT, set_theme

MIB = 1 << 20
LARGE = SegmentRow(
    0,
    1 << 40,
    20 * MIB,
    10 * MIB,
    "large",
    0,
    (
        BlockRow(1 << 40, 5 * MIB, 5 * MIB - 7, "active_allocated", 0),
        BlockRow((1 << 40) + 5 * MIB, 10 * MIB, None, "inactive"),
        BlockRow((1 << 40) + 15 * MIB, 5 * MIB, 4 * MIB, "active_allocated", 1),
    ),
)
SMALL = SegmentRow(0, 1 << 41, 2 * MIB, MIB, "small", 3, (BlockRow(1 << 41, MIB, MIB, "active_allocated"),))
SNAPSHOT = AllocatorSnapshot(
    source="vgpu:0",
    segments=(SMALL, LARGE),
    stacks=(
        StackRow(("train.py:12 forward", "module.py:9 call", "main.py:3 <module>"), 5 * MIB, 1),
        StackRow(("data.py:7 collate", "main.py:3 <module>"), 5 * MIB, 1),
    ),
    trace_entries=7,
    simulated=True,
)


@pytest.fixture
def state() -> State:
    state = state_with(CPU, VGPU)
    state.apply(ENGINE)
    state.apply(SnapshotOpened(snapshot=SNAPSHOT))
    return state


def panel_of(qtbot: QtBot, state: State) -> SnapshotDialog:
    dialog = SnapshotDialog(state, None)
    qtbot.addWidget(dialog)
    dialog.resize(1000, 640)
    dialog.show()
    return dialog


def test_segments_are_sorted_by_size_with_what_fits_into_them(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    assert [[cell.text for cell in row.cells[:-1]] for row in panel.segment_table.rows] == [
        ["0x10000000000", "0", "large", "20.00 MiB", "10.00 MiB", "10.00 MiB", "3"],
        ["0x20000000000", "0", "small", "2.00 MiB", "1.00 MiB", "0 B", "1"],
    ]
    assert panel.title.text() == "vgpu:0, simulated"
    assert (
        panel.facts.full_text
        == "22.00 MiB in 2 segments, 11.00 MiB in use, largest free block 10.00 MiB, 7 recorded steps"
    )


def test_the_blocks_of_the_selected_segment_are_drawn_and_listed(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    assert [row.cells[3].text for row in panel.block_table.rows] == ["in use", "free", "in use"]
    assert [row.cells[4].text for row in panel.block_table.rows] == ["train.py:12 forward", "", "data.py:7 collate"]
    image = panel.map.grab().toImage()
    middle = image.height() // 2
    colour = QColor(DARK.devices[0])
    assert image.pixelColor(image.width() // 8, middle) == colour
    assert image.pixelColor(image.width() // 2, middle) == QColor(DARK.bar_free), "the hole is to be seen"
    assert image.pixelColor(image.width() * 7 // 8, middle) == colour
    where = panel.segment_table.visualRect(panel.segment_table.rows_model.index(1, 0)).center()
    qtbot.mouseClick(panel.segment_table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert [row.cells[4].text for row in panel.block_table.rows] == ["not recorded"]


def test_a_click_on_a_block_of_the_map_selects_its_row_and_frames_it(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    before = panel.map.grab().toImage()
    qtbot.mouseClick(panel.map, Qt.MouseButton.LeftButton, pos=QPoint(panel.map.width() // 2, 10))
    assert panel.block_table.selected_key == 1
    assert panel.map.grab().toImage() != before
    lines = panel.map.tip_at(QPointF(2.0, 0.0)).splitlines()
    assert lines[:2] == ["5.00 MiB in use at 0x10000000000", "train.py:12 forward"]


def test_places_in_the_code_show_their_whole_stack(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    panel.tabs.setCurrentIndex(1)
    assert [[cell.text for cell in row.cells] for row in panel.stack_table.rows] == [
        ["5.00 MiB", "50.0 %", "1", "train.py:12 forward ← module.py:9 call ← main.py:3 <module>"],
        ["5.00 MiB", "50.0 %", "1", "data.py:7 collate ← main.py:3 <module>"],
    ]
    where = panel.stack_table.visualRect(panel.stack_table.rows_model.index(1, 0)).center()
    qtbot.mouseClick(panel.stack_table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert panel.frames.toPlainText() == "data.py:7 collate\nmain.py:3 <module>"


def test_the_filter_finds_segments_by_what_they_are_and_by_who_asked_for_their_blocks(
    qtbot: QtBot, state: State
) -> None:
    panel = panel_of(qtbot, state)
    for text, segments, places in (
        ("collate data", [1], [1]),
        ("SMALL", [0], []),
        ("0x2", [0], []),
        ("nothing like it", [], []),
        ("", [1, 0], [0, 1]),
    ):
        panel.filter.clear()
        qtbot.keyClicks(panel.filter, text)
        assert ([row.key for row in panel.segment_table.rows], [row.key for row in panel.stack_table.rows]) == (
            segments,
            places,
        )
    assert panel.tabs.tabText(0) == "By segment (2)"


def test_a_filter_without_a_match_shows_no_blocks(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    qtbot.keyClicks(panel.filter, "zzz")
    assert panel.block_table.rows == []
    assert panel.frames.toPlainText() == ""
    assert panel.map.block_at(5) == -1


def test_without_recorded_stacks_it_says_how_to_get_them(qtbot: QtBot, state: State) -> None:
    state.apply(SnapshotOpened(snapshot=AllocatorSnapshot(source="old.pickle", segments=(SMALL,))))
    panel = panel_of(qtbot, state)
    panel.tabs.setCurrentIndex(1)
    assert panel.nothing.isVisible()
    assert "Record stacks" in panel.nothing.text()
    assert not panel.stack_table.isVisible()


def test_many_segments_are_listed_largest_first_and_the_rest_is_found_by_the_filter(qtbot: QtBot, state: State) -> None:
    many = tuple(SegmentRow(0, at << 21, (at + 1) << 10, 0, "large") for at in range(MOST_ROWS + 200))
    state.apply(SnapshotOpened(snapshot=AllocatorSnapshot(source="big.pickle", segments=many, cut=3)))
    panel = panel_of(qtbot, state)
    assert len(panel.segment_table.rows) == MOST_ROWS
    assert panel.segment_table.rows[0].key == MOST_ROWS + 199
    assert panel.more.isVisible()
    assert "3 small blocks left out" in panel.facts.full_text
    qtbot.keyClicks(panel.filter, hex(701 << 20))
    assert panel.segment_table.rows == []
    panel.filter.clear()
    qtbot.keyClicks(panel.filter, hex(77 << 21))
    assert [row.key for row in panel.segment_table.rows] == [77], "which is none of the largest"


def test_a_segment_that_contradicts_itself_is_drawn_within_its_frame() -> None:
    wrong = SegmentRow(
        0,
        4096,
        1000,
        0,
        "large",
        0,
        (BlockRow(0, 500, None, "inactive"), BlockRow(4596, 10**15, 5, "active_allocated")),
    )
    assert spans(wrong, 100.0) == [(0.0, 50.0), (50.0, 50.0)]
    assert spans(SegmentRow(0, 0, 0, 0, "large", 0, (BlockRow(0, 5, None, "inactive"),)), 100.0) == [(0.0, 100.0)]


def test_the_dialog_follows_a_new_snapshot_and_the_theme(qtbot: QtBot, state: State) -> None:
    dialog = SnapshotDialog(state, None)
    qtbot.addWidget(dialog)
    dialog.show()
    before = dialog.grab().toImage()
    set_theme(LIGHT)
    assert dialog.grab().toImage() != before
    state.apply(SnapshotOpened(snapshot=AllocatorSnapshot(source="<b>other</b>.pickle", segments=(SMALL,))))
    dialog.refresh()
    assert dialog.title.text() == "<b>other</b>.pickle", "shown as it is, never as markup"


def test_without_a_snapshot_it_is_empty(qtbot: QtBot) -> None:
    panel = panel_of(qtbot, State())
    assert panel.segment_table.rows == []
