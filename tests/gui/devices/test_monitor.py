"""The table of the layout Monitor: every device with its figures, sorted when a title is clicked and only then."""

from __future__ import annotations

import msgspec
import pytest
from fakes.host import hosted
from fakes.look_records import CPU, CUDA, VGPU
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.feature import FeatureState, Trouble
from devexplorer.core.records import DeviceSample, Problem, ProcessUse
from devexplorer.core.session.journal import Progress, UnderWay
from devexplorer.core.session.state import State
from devexplorer.gui.devices.monitor import COLUMNS, MonitorPanel

REASON = "this torch (2.13.0) is a CPU build: it cannot use CUDA devices"
NOW = 1_800_000_000.0
TITLES = [column.title for column in COLUMNS]
CARDS = [f"nvml:{at}" for at in range(8)]
LEFT = Qt.MouseButton.LeftButton
CELSIUS = [60.0, 9.0, 101.0, 55.5, 70.0, 71.0, 72.0, 73.0]


def read(state: State, second: float = 0, celsius: list[float] = CELSIUS) -> None:
    """A reading of every card; nvml:3 is at its power cap, and nvml:7 says nothing of its fan."""
    for at, name in enumerate(CARDS):
        state.apply(
            DeviceSample(
                device=name,
                time_unix_s=NOW + second,
                memory_used_bytes=(at + 1) << 30,
                memory_total_bytes=80 << 30,
                utilization_percent=10.0 * at,
                power_w=300 + at,
                power_cap_w=700,
                temperature_c=celsius[at],
                sm_clock_mhz=1980,
                memory_clock_mhz=3201,
                fan_percent=None if at == 7 else 40,
                throttle_reasons=("power cap (the limit is reached)",) if at == 3 else (),
                processes=tuple(ProcessUse(pid=pid) for pid in range(at)),
            )
        )


class Hot(FeatureState):
    """A feature that finds one card too hot."""

    def troubles(self) -> list[Trouble]:
        return [Trouble("nvml:2", "Temperature 101 °C", "nvml:2: temperature 101 °C")]


@pytest.fixture
def state() -> State:
    state = State()
    cards = [
        msgspec.structs.replace(CUDA, id=name, kind="nvml", nvml_index=at, name="NVIDIA H100 80GB HBM3")
        for at, name in enumerate(CARDS)
    ]
    state.set_catalog(Catalog((CPU, *cards), (Problem(REASON, field="cuda"),)))
    read(state)
    return state


def panel_of(qtbot: QtBot, state: State, width: int = 1204, height: int = 274) -> MonitorPanel:
    return hosted(qtbot, lambda _: MonitorPanel(state), width, height)


def column(panel: MonitorPanel, title: str) -> list[str]:
    return [row.cells[TITLES.index(title)].text for row in panel.table.rows]


def tip(panel: MonitorPanel, device: str, title: str) -> str:
    return next(row for row in panel.table.rows if row.key == device).cells[TITLES.index(title)].tip


def order(panel: MonitorPanel) -> list[object]:
    return [row.key for row in panel.table.rows]


def place(panel: MonitorPanel, device: str) -> QPoint:
    return panel.table.visualRect(panel.table.rows_model.index(order(panel).index(device), 1)).center()


def click(panel: MonitorPanel, title: str) -> None:
    header = panel.table.horizontalHeader()
    x = header.sectionViewportPosition(TITLES.index(title)) + 20
    QTest.mouseClick(header.viewport(), LEFT, pos=QPoint(x, header.height() // 2))


def test_every_device_is_one_row_with_its_figures(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    assert order(panel) == ["cpu", *CARDS]
    assert panel.table.verticalScrollBar().maximum() == 0
    row = next(row for row in panel.table.rows if row.key == "nvml:3")
    assert dict(zip(TITLES, (cell.text for cell in row.cells), strict=True)) == {
        "device": "nvml:3",
        "name": "H100 80GB HBM3",
        "util %": "30",
        "memory GiB": "4.00 / 80.0",
        "°C": "56",
        "power W": "303 / 700",
        "SM MHz": "1,980",
        "mem MHz": "3,201",
        "fan %": "40",
        "throttled": "power cap",
        "processes": "3",
        "status": "",
    }
    assert set(column(panel, "throttled")) == {"—", "no", "power cap"}
    assert panel._subtitle.text() == REASON, "what concerns the whole machine is said once"


def test_what_is_not_known_is_a_dash_that_says_why(qtbot: QtBot, state: State) -> None:
    state.set_catalog(Catalog((CPU, *(d.info for d in state.devices.values() if d.info.kind == "nvml"), VGPU), ()))
    state.apply(DeviceSample(device="vgpu:0", time_unix_s=NOW, temperature_c=32.0, simulated=True))
    panel = panel_of(qtbot, state, 1300)
    assert column(panel, "fan %")[-2:] == ["—", "—"]
    assert tip(panel, "nvml:7", "fan %") == "Not reported by the driver."
    assert tip(panel, "vgpu:0", "fan %") == "Not modelled for a virtual GPU."
    assert tip(panel, "cpu", "power W") == "A CPU has none, or the system does not tell it."
    assert column(panel, "device")[-1] == "vgpu:0 simulated"


def test_a_click_on_a_title_sorts_by_number_and_nothing_else_does(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    click(panel, "°C")
    upwards = ["nvml:1", "nvml:3", "nvml:0", "nvml:4", "nvml:5", "nvml:6", "nvml:7", "nvml:2", "cpu"]
    assert order(panel) == upwards, "9 before 55.5 before 101; what is not known comes last"
    for second in range(1, 4):
        read(state, second, CELSIUS[::-1])
        panel.refresh_texts()
    assert order(panel) == upwards, "rows stay where they are while values change"
    click(panel, "°C")
    assert order(panel) == ["nvml:5", "nvml:0", "nvml:1", "nvml:2", "nvml:3", "nvml:7", "nvml:4", "nvml:6", "cpu"]
    assert panel.table.rows_model.headerData(TITLES.index("°C"), Qt.Orientation.Horizontal) == "°C ↓"
    click(panel, "°C")
    assert order(panel) == ["cpu", *CARDS], "a third click: as the devices are listed"


@pytest.mark.parametrize(
    ("title", "first", "last"),
    [
        ("device", "cpu", "nvml:7"),
        ("name", "cpu", "nvml:7"),
        ("util %", "nvml:0", "cpu"),
        ("memory GiB", "nvml:0", "nvml:7"),
        ("power W", "nvml:0", "cpu"),
        ("fan %", "nvml:0", "nvml:7"),
        ("processes", "nvml:0", "cpu"),
        ("status", "nvml:2", "nvml:7"),
    ],
)
def test_every_column_sorts(qtbot: QtBot, state: State, title: str, first: str, last: str) -> None:
    state.take_parts([Hot(state.objects)])
    panel = panel_of(qtbot, state, 1500)
    click(panel, title)
    assert (order(panel)[0], order(panel)[-1]) == (first, last)


def test_a_device_is_chosen_with_mouse_or_keyboard_and_stays_chosen(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    chosen: list[object] = []
    opened: list[object] = []
    panel.selected.connect(chosen.append)
    panel.opened.connect(lambda: opened.append(panel.chosen))
    panel.choose("nvml:2")
    assert (panel.table.selected_key, chosen) == ("nvml:2", []), "chosen elsewhere"
    QTest.mouseClick(panel.table.viewport(), LEFT, pos=place(panel, "nvml:5"))
    assert set(chosen) == {"nvml:5"}
    panel.table.setFocus()
    QTest.keyClick(panel.table, Qt.Key.Key_Down)
    assert chosen[-1] == "nvml:6"
    assert opened == []
    QTest.keyClick(panel.table, Qt.Key.Key_Return)
    QTest.mouseDClick(panel.table.viewport(), LEFT, pos=place(panel, "nvml:6"))
    assert set(opened) == {"nvml:6"}
    count = len(chosen)
    click(panel, "°C")
    assert panel.table.selected_key == "nvml:6"
    assert len(chosen) == count


def test_alerts_and_work_of_a_device_stand_in_its_row(qtbot: QtBot, state: State) -> None:
    panel = panel_of(qtbot, state)
    panel.show_progress(
        UnderWay({}, {"nvml:1": Progress("measuring", 0.25, "matmul"), "nvml:2": Progress("m", 0.5, "")})
    )
    state.take_parts([Hot(state.objects)])
    panel.refresh_texts()
    assert column(panel, "status")[1:5] == ["", "measuring 25 %", "✕ Temperature 101 °C", ""]


@pytest.mark.parametrize("count", [1, 2, 8, 16])
def test_it_asks_for_no_more_height_than_its_rows_have(qtbot: QtBot, count: int) -> None:
    state = State()
    state.set_catalog(Catalog((CPU, *(msgspec.structs.replace(VGPU, id=f"vgpu:{at}") for at in range(count))), ()))
    panel = panel_of(qtbot, state)
    needed: list[int] = []
    panel.needs.connect(needed.append)
    panel.refresh_devices()
    for height, fits in ((needed[-1], True), (needed[-1] - 12, False)):
        panel.resize(1204, height)
        QApplication.processEvents()
        assert (panel.table.verticalScrollBar().maximum() == 0) == fits
    state.set_catalog(Catalog((CPU,), ()))
    panel.refresh_texts()
    assert order(panel) == ["cpu"]
