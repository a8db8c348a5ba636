"""The list of processes."""

from __future__ import annotations

import msgspec
import pytest
from fakes.host import hosted
from fakes.look_records import CPU, ENGINE, GIB, VGPU, server_card
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import DeviceDetails, DeviceSample, Problem, ProcessUse
from devexplorer.core.session.state import State
from devexplorer.gui.devices.processes import COLUMNS, ProcessesPanel

TITLES = [column.title for column in COLUMNS]
TRAIN = ProcessUse(
    pid=8,
    name="python",
    memory_bytes=3 * 2**29,
    user="ada",
    command="python train.py",
    kind="compute",
    utilization_percent=93.0,
)
XORG = ProcessUse(pid=7, name="Xorg", memory_bytes=2**20, user="root", command="/usr/lib/Xorg :0", kind="graphics")
STRANGER = ProcessUse(pid=9)


@pytest.fixture
def state() -> State:
    state = State()
    state.set_catalog(Catalog(devices=(CPU, server_card(0), server_card(1))))
    use(state, "cuda:0", XORG, STRANGER, TRAIN)
    use(state, "cuda:1", XORG)
    return state


def use(state: State, device: str, *processes: ProcessUse, used: int | None = None) -> None:
    state.apply(DeviceSample(device=device, time_unix_s=1.0, memory_used_bytes=used, processes=processes))


def shown_by(qtbot: QtBot, state: State) -> ProcessesPanel:
    return hosted(qtbot, lambda _: ProcessesPanel(state), 1200, 300)


def texts(panel: ProcessesPanel) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in panel.table.rows]


def column(panel: ProcessesPanel, title: str) -> list[str]:
    return [row[TITLES.index(title)] for row in texts(panel)]


def click_header(qtbot: QtBot, panel: ProcessesPanel, title: str) -> None:
    header = panel.table.horizontalHeader()
    x = header.sectionViewportPosition(TITLES.index(title)) + 10
    qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(x, 10))


def test_processes_are_listed_per_device_largest_first(qtbot: QtBot, state: State) -> None:
    panel = shown_by(qtbot, state)
    assert texts(panel) == [
        ["cuda:0", "8", "ada", "python", "compute", "1,536.0", "93", *"————", "python train.py"],
        ["cuda:0", "7", "root", "Xorg", "graphics", "1.0", "—", *"————", "/usr/lib/Xorg :0"],
        ["cuda:0", "9", *"——————————"],
        ["cuda:1", "7", "root", "Xorg", "graphics", "1.0", "—", *"————", "/usr/lib/Xorg :0"],
    ]
    assert sum(isinstance(row.key, tuple) for row in panel.table.rows) == 4
    assert all(cell.tip for cell in panel.table.rows[2].cells if cell.text == "—")


def test_the_windows_own_engine_is_marked(qtbot: QtBot, state: State) -> None:
    state.apply(msgspec.structs.replace(ENGINE, pid=8))
    panel = shown_by(qtbot, state)
    assert column(panel, "name")[0] == "python, this engine"
    assert sum("this engine" in name for name in column(panel, "name")) == 1


def test_a_click_on_a_column_sorts_by_it_and_what_is_not_known_stays_last(qtbot: QtBot, state: State) -> None:
    panel = shown_by(qtbot, state)
    click_header(qtbot, panel, "pid")
    assert column(panel, "pid") == ["7", "7", "8", "9"]
    click_header(qtbot, panel, "pid")
    assert column(panel, "pid") == ["9", "8", "7", "7"]
    assert panel.table.rows_model.headerData(TITLES.index("pid"), Qt.Orientation.Horizontal) == "pid ↓"
    click_header(qtbot, panel, "name")
    assert column(panel, "name") == ["python", "Xorg", "Xorg", "—"]
    click_header(qtbot, panel, "name")
    assert column(panel, "name") == ["Xorg", "Xorg", "python", "—"]
    click_header(qtbot, panel, "device")
    click_header(qtbot, panel, "device")
    assert column(panel, "device") == ["cuda:1", "cuda:0", "cuda:0", "cuda:0"]


def test_the_chosen_process_stays_chosen_when_the_order_changes(qtbot: QtBot, state: State) -> None:
    panel = shown_by(qtbot, state)
    panel.table.selectRow(0)
    assert panel.table.selected_key == ("cuda:0", 8)
    click_header(qtbot, panel, "user")
    click_header(qtbot, panel, "user")
    assert panel.table.selected_key == ("cuda:0", 8)
    qtbot.keyClick(panel.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QApplication.clipboard().text().split("\t")[1] == "8"


def test_processes_that_cannot_be_seen_are_no_zero(qtbot: QtBot, state: State) -> None:
    reason = "this container hides other processes"
    state.problems = (Problem(reason=reason, device="cuda:0", field="processes"),)
    state.apply(DeviceDetails(device="cuda:1", time_unix_s=1.0, missing={"processes": "WSL does not tell"}))
    for name in ("cuda:0", "cuda:1"):
        state.apply(DeviceSample(device=name, time_unix_s=1.0, processes=None))
    panel = shown_by(qtbot, state)
    assert column(panel, "command line") == [
        f"not visible from here: {reason}",
        "not visible from here: WSL does not tell",
    ]
    assert column(panel, "MiB") == ["—", "—"]
    assert sum(isinstance(row.key, tuple) for row in panel.table.rows) == 0


def test_a_full_card_without_a_process_is_not_called_unused(qtbot: QtBot, state: State) -> None:
    use(state, "cuda:0", used=9 * GIB)
    use(state, "cuda:1", used=2**20)
    panel = shown_by(qtbot, state)
    [only] = texts(panel)
    assert only[0] == "cuda:0"
    assert only[-1].startswith("not visible from here: 9.00 GiB are in use")
    assert sum(isinstance(row.key, tuple) for row in panel.table.rows) == 0


def test_why_memory_or_share_are_not_known_is_in_the_tooltip(qtbot: QtBot, state: State) -> None:
    missing = {"process_utilization": "the driver is too old"}
    state.apply(DeviceDetails(device="cuda:0", time_unix_s=1.0, missing=missing))
    panel = shown_by(qtbot, state)
    assert panel.table.rows[1].cells[TITLES.index("GPU %")].tip == "not visible from here: the driver is too old"


def test_nothing_to_list_is_said_in_a_sentence(qtbot: QtBot, state: State) -> None:
    state.set_catalog(Catalog(devices=(CPU, VGPU)))
    panel = shown_by(qtbot, state)
    assert "No physical GPU" in panel.nothing.text()
    state.set_catalog(Catalog(devices=(server_card(0),)))
    use(state, "cuda:0")
    panel.refresh()
    assert panel.nothing.text() == "No process uses a GPU now."
    assert texts(panel) == []


def test_what_a_process_uses_of_the_machine(qtbot: QtBot, state: State) -> None:
    busy = msgspec.structs.replace(
        TRAIN, memory_utilization_percent=41.0, cpu_percent=163.2, host_memory_bytes=5 << 30, running_s=90_061.0
    )
    use(state, "cuda:0", STRANGER, busy)
    panel = shown_by(qtbot, state)
    row = [column(panel, title)[0] for title in ("BW %", "CPU %", "host MiB", "running")]
    assert row == ["41", "163", "5,120", "1 day, 1:01:01"]
    assert [column(panel, title)[1] for title in ("BW %", "CPU %", "host MiB", "running")] == ["—"] * 4
