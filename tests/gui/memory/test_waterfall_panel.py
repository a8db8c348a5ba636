"""The memory breakdown: every part with its bytes, objects and processes, the driver's and torch's figures, before and
after."""

from __future__ import annotations

import msgspec
import pytest
from fakes.host import hosted
from fakes.look_records import CPU, CUDA, ENGINE, GIB, MIB, VGPU, state_with
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QFileDialog, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.memory.records import OpenSnapshot, RecordAllocator, ReleaseCache
from devexplorer.core.records import AllocatorSample, Command, DeviceSample, EngineLost, ObjectUse, ProcessUse
from devexplorer.core.session.settings import Settings
from devexplorer.core.session.state import State
from devexplorer.gui.actions import Controller, WindowContext
from devexplorer.gui.memory.page import MemoryKey, MemoryPanel
from devexplorer.gui.widgets.theme import LIGHT, set_theme

PROCESSES = (
    ProcessUse(1, "python", 2 * GIB + 400 * MIB, "me"),
    ProcessUse(90, "Xorg", 120 * MIB, "root", "/usr/lib/xorg/Xorg :0"),
    ProcessUse(4711, "python", 3 * GIB, "ann", "python train.py"),
)
CARD = AllocatorSample(
    device="cuda:0",
    time_unix_s=1.0,
    allocated_bytes=GIB,
    reserved_bytes=2 * GIB,
    workspace_bytes=900 * MIB,
    objects=(ObjectUse("vgg", 600 * MIB), ObjectUse("lenet", 200 * MIB)),
    largest_free_block_bytes=512 * MIB,
    segments=14,
)
VIRTUAL = AllocatorSample(
    device="vgpu:0",
    time_unix_s=1.0,
    allocated_bytes=4 * MIB,
    reserved_bytes=20 * MIB,
    context_bytes=400 * MIB,
    workspace_bytes=4 * MIB,
    objects=(ObjectUse("x", 4 * MIB),),
    simulated=True,
)


@pytest.fixture
def state() -> State:
    state = state_with(CPU, CUDA, VGPU)
    state.apply(ENGINE)
    state.apply(CARD)
    state.apply(
        DeviceSample(
            device="cuda:0",
            time_unix_s=1.0,
            memory_used_bytes=6 * GIB,
            memory_reserved_bytes=GIB // 2,
            memory_total_bytes=24 * GIB,
            processes=PROCESSES,
        )
    )
    state.apply(CARD)
    state.apply(VIRTUAL)
    state.apply(
        DeviceSample(
            device="vgpu:0", time_unix_s=1.0, memory_used_bytes=420 * MIB, memory_total_bytes=16 * GIB, simulated=True
        )
    )
    return state


def panel_of(qtbot: QtBot, state: State, width: int = 1400, height: int = 300) -> MemoryPanel:
    def make(host: QWidget) -> MemoryPanel:
        def send(command: Command) -> int:
            sent.append(command)
            return len(sent)

        controller = Controller(state, send, selection=tuple, say=str)
        return MemoryPanel(WindowContext(host, state, controller, Settings(), str))

    sent: list[Command] = []
    panel = hosted(qtbot, make, width, height)
    qtbot.__dict__["sent"] = sent
    return panel


def texts(panel: MemoryPanel, column: int = 1) -> dict[object, str]:
    return {row.key: row.cells[column].text for row in panel.table.rows_model.rows}


def click_row(qtbot: QtBot, panel: MemoryPanel, key: MemoryKey) -> None:
    number = [row.key for row in panel.table.rows_model.rows].index(key)
    panel.table.scrollTo(panel.table.rows_model.index(number, 0))
    where = panel.table.visualRect(panel.table.rows_model.index(number, 0)).center()
    qtbot.mouseClick(panel.table.viewport(), Qt.MouseButton.LeftButton, pos=where)


def test_every_part_has_its_bytes_and_they_add_up_to_the_total(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    assert panel.device_id == "cuda:0", "the first card, not the CPU"
    exact = {
        key: int(text.replace(",", ""))
        for key, text in texts(panel, 2).items()
        if isinstance(key, MemoryKey) and not key.child
    }
    total = exact.pop(MemoryKey(""))
    assert exact == {
        MemoryKey("workspace"): 900 * MIB,
        MemoryKey("other_allocated"): 124 * MIB,
        MemoryKey("cached"): GIB,
        MemoryKey("context"): 400 * MIB,
        MemoryKey("other_processes"): 4 * GIB - 400 * MIB,
        MemoryKey("driver"): GIB // 2,
        MemoryKey("free"): 18 * GIB - GIB // 2,
    }
    assert sum(exact.values()) == total == 24 * GIB
    assert (panel.number.text(), panel.of.full_text) == ("6.00 GiB", "of 24.00 GiB in use")


def test_each_part_says_what_it_is_in_its_row_and_its_tooltip(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    words = texts(panel, 4)
    assert words[MemoryKey("cached")].startswith("largest free block 512.00 MiB, 14 segments")
    model = panel.table.rows_model
    for number, row in enumerate(model.rows):
        assert isinstance(row.key, MemoryKey)
        if row.key.part and not row.key.child:
            told = model.data(model.index(number, 0), Qt.ItemDataRole.ToolTipRole)
            assert row.cells[0].text in told
            assert f"{row.cells[2].text} bytes" in told
    cached = next(row for row in model.rows if row.key == MemoryKey("cached"))
    assert "“Release cache” returns" in cached.cells[0].tip


def test_objects_are_below_the_workspace_and_processes_below_the_others(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state, height=500)
    shown = texts(panel)
    assert [shown[MemoryKey("workspace", name)] for name in ("vgg", "lenet", "…")] == [
        "600.00 MiB",
        "200.00 MiB",
        "100.00 MiB",
    ]
    assert MemoryKey("other_processes", "4711") not in shown
    click_row(qtbot, panel, MemoryKey("other_processes"))
    shown = texts(panel)
    assert shown[MemoryKey("other_processes", "4711")] == "3.00 GiB"
    assert shown[MemoryKey("other_processes", "90")] == "120.00 MiB"
    assert MemoryKey("other_processes", "1") not in shown, "the engine itself is no other process"
    assert texts(panel, 4)[MemoryKey("other_processes", "4711")] == "python train.py"
    click_row(qtbot, panel, MemoryKey("workspace"))
    assert MemoryKey("workspace", "vgg") not in texts(panel)


def test_rows_open_and_close_with_the_keyboard(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    panel.table.select_part("other_processes")
    qtbot.keyClick(panel.table, Qt.Key.Key_Right)
    assert MemoryKey("other_processes", "90") in texts(panel)
    panel.table.select_part("other_processes")
    qtbot.keyClick(panel.table, Qt.Key.Key_Left)
    assert MemoryKey("other_processes", "90") not in texts(panel)


def test_a_click_on_the_bar_chooses_the_row_of_the_part(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    qtbot.mouseClick(panel.bar, Qt.MouseButton.LeftButton, pos=QPoint(panel.bar.width() // 2, 5))
    assert panel.table.selected_key == MemoryKey("free")
    qtbot.mouseClick(panel.bar, Qt.MouseButton.LeftButton, pos=QPoint(2, 5))
    assert panel.table.selected_key == MemoryKey("workspace")


def test_the_counts_of_nvidia_smi_and_torch_are_side_by_side_with_the_reason(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    rows = [[one.text() for one in labels] for labels in panel.side.views._rows]
    assert rows == [
        ["nvidia-smi, the whole card", "6.00 GiB"],
        ["nvidia-smi, this process", "2.39 GiB"],
        ["torch, reserved", "2.00 GiB"],
        ["torch, allocated", "1.00 GiB"],
        ["tensors of named objects", "900.00 MiB"],
    ]
    assert "400.00 MiB of CUDA context and libraries (freed when its process ends)" in panel.side.why.text()


def test_what_is_simulated_says_so_in_a_small_window_too(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state, width=920)
    panel.show_device("vgpu:0")
    QApplication.processEvents()
    assert panel.chooser.width() >= panel.chooser.sizeHint().width()
    assert panel.of.text() == panel.of.full_text == "of 16.00 GiB in use, simulated"
    assert "assumed for virtual GPUs" in texts(panel, 4)[MemoryKey("context")]
    assert panel.side.why.text().startswith("A real card's nvidia-smi would report 420.00 MiB")
    names = ("workspace", "other_allocated", "cached", "context", "other_processes", "free")
    keys = [MemoryKey(name) for name in names]
    parts = [int(text.replace(",", "")) for key, text in texts(panel, 2).items() if key in keys]
    assert sum(parts) == 16 * GIB


def test_the_cpu_is_explained_instead_of_split(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    panel.show_device("cpu")
    assert [row.key for row in panel.table.rows_model.rows] == [MemoryKey("used"), MemoryKey("free"), MemoryKey("")]
    assert "no context and no caching allocator" in panel.side.why.text()
    assert not panel.release.isEnabled()
    assert panel.release.toolTip() == "This engine has no memory on this device."


def test_what_is_not_known_is_a_dash(qtbot: QtBot, state: State) -> None:
    state.apply(DeviceSample(device="cuda:0", time_unix_s=2.0))
    panel = panel_of(qtbot, state)
    assert texts(panel)[MemoryKey("free")] == "—"
    assert texts(panel)[MemoryKey("other_processes")] == "—"
    assert panel.number.text() == "—"


def test_releasing_shows_before_and_after(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    qtbot.mouseClick(panel.release, Qt.MouseButton.LeftButton)
    assert qtbot.__dict__["sent"] == [ReleaseCache(device="cuda:0")]
    state.apply(msgspec.structs.replace(CARD, reserved_bytes=GIB, largest_free_block_bytes=0))
    panel.refresh()
    rows = {labels[0].text(): [one.text() for one in labels[1:]] for labels in panel.side.changed._rows}
    assert panel.side.changed_title.text() == "Before and after releasing the cache of cuda:0"
    assert rows["reserved"] == ["2.00 GiB", "1.00 GiB", "−1.00 GiB"]
    assert rows["cached"] == ["1.00 GiB", "0 B", "−1.00 GiB"]
    assert rows["context"] == ["400.00 MiB", "400.00 MiB", "0 B"]
    panel.show_device("vgpu:0")
    assert not panel.side.compares, "nothing was released there"
    panel.show_device("cuda:0")
    qtbot.mouseClick(panel.side.hide_button, Qt.MouseButton.LeftButton)
    assert not panel.side.changed.isVisible()
    assert not panel.release.isEnabled()
    assert panel.release.toolTip() == "Nothing is cached there now."


def test_restarting_the_engine_shows_before_and_after_and_nothing_in_between(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    panel.show_device("vgpu:0")
    with qtbot.waitSignal(panel._context.restart_requested):
        qtbot.mouseClick(panel.restart, Qt.MouseButton.LeftButton)
    state.apply(EngineLost(reason="ended", will_restart=True, time_unix_s=2.0))
    panel.refresh()

    def rows() -> dict[str, list[str]]:
        return {labels[0].text(): [one.text() for one in labels[1:]] for labels in panel.side.changed._rows}

    assert rows()["in use"] == ["420.00 MiB", "—", "—"]
    state.apply(ENGINE)
    state.apply(
        msgspec.structs.replace(
            VIRTUAL, allocated_bytes=0, reserved_bytes=0, context_bytes=0, workspace_bytes=0, objects=()
        )
    )
    panel.refresh()
    assert rows()["in use"] == ["420.00 MiB", "0 B", "−420.00 MiB"]
    assert rows()["context"] == ["400.00 MiB", "0 B", "−400.00 MiB"]


def test_the_buttons_ask_and_say_why_they_cannot(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    qtbot.mouseClick(panel.record, Qt.MouseButton.LeftButton)
    panel.browse.trigger()
    assert qtbot.__dict__["sent"] == [RecordAllocator(on=True), OpenSnapshot(device="cuda:0")]
    for action, title in (
        (panel.save, "Save the allocator snapshot of cuda:0"),
        (panel.open, "Open an allocator snapshot"),
    ):
        action.trigger()
        [dialog] = panel.window().findChildren(QFileDialog)
        assert dialog.windowTitle() == title
        dialog.close()
        qtbot.waitUntil(lambda: not panel.window().findChildren(QFileDialog))
    state.apply(EngineLost(reason="ended", will_restart=True, time_unix_s=2.0))
    panel.refresh()
    assert not panel.record.isChecked(), "a new engine does not record"
    assert not any(one.isEnabled() for one in (panel.release, panel.record, panel.browse, panel.save, panel.open))
    assert panel.record.toolTip() == "The engine is not ready yet."
    assert panel.restart.isEnabled()


def test_the_chosen_device_stays_when_the_list_changes(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    panel.show_device("vgpu:0")
    gone = state_with(CPU)
    panel._state = gone
    panel.refresh()
    assert panel.device_id == "cpu"
    panel._state = state
    panel.refresh()
    assert panel.device_id in ("cuda:0", "vgpu:0", "cpu")


@pytest.mark.parametrize("height", [148, 320])
def test_it_works_in_little_room_and_in_both_themes(qtbot: QtBot, state: State, height: int) -> None:
    panel = panel_of(qtbot, state, 900, height)
    assert panel.minimumSizeHint().width() <= 900
    assert panel.height() == height
    before = panel.grab().toImage()
    set_theme(LIGHT)
    assert panel.grab().toImage() != before
    click_row(qtbot, panel, MemoryKey("free"))
    assert panel.table.selected_key == MemoryKey("free")


def test_without_devices_it_is_empty(qtbot: QtBot) -> None:
    panel = panel_of(qtbot, State())
    assert panel.device_id == ""
    assert panel.table.rows_model.rows == []
