"""The benchmark tab: what it refuses, what it asks for, what it shows of the runs."""

from __future__ import annotations

import json

import pytest
from fakes.host import hosted
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records.benchmark import BenchPoint, MatmulResult, MatmulSpec, Spread
from devexplorer.core.records.devices import DeviceInfo, DeviceSample
from devexplorer.core.records.messages import BenchEnded, BenchPreparing, BenchStarted
from devexplorer.core.state import Run, State
from devexplorer.gui.item_models.rows import Cell, Column, RowsModel, TableRow
from devexplorer.gui.panels.benchmark import BenchmarkPanel
from devexplorer.gui.theme import DARK, LIGHT

NOW = 1_800_000_000.0
GIB = 1024**3


@pytest.fixture
def state() -> State:
    state = State()
    cpu = DeviceInfo(id="cpu", kind="cpu", name="a processor", memory_total_bytes=64 * GIB, memory_used_bytes=4 * GIB)
    cards = [
        DeviceInfo(
            id=f"vgpu:{index}", kind="virtual", name="Tesla T4", memory_total_bytes=15 * GIB, memory_used_bytes=0,
            simulated=True,
        )
        for index in range(2)
    ]  # fmt: skip
    broken = DeviceInfo(id="nvml:3", kind="nvml", name="old card", usable=False, reason="too old for this torch")
    state.set_catalog(Catalog(devices=(cpu, *cards, broken)))
    return state


@pytest.fixture
def panel(qtbot: QtBot, state: State) -> BenchmarkPanel:
    return hosted(qtbot, lambda host: BenchmarkPanel(state, DARK, host), 1280, 160)


def start(state: State, number: int, device: str = "vgpu:0", datasheet: float | None = 65.0) -> None:
    spec = MatmulSpec(device=device, dtype="float16", m=512, n=256, k=128)
    simulated = device.startswith("vgpu")
    state.apply(BenchPreparing(run=number, spec=spec, simulated=simulated, datasheet_tflops=datasheet))
    state.apply(BenchStarted(run=number, time_unix_s=NOW))


def point(state: State, number: int, tflops: float) -> None:
    device = state.runs[number].spec.device
    state.apply(BenchPoint(run=number, device=device, time_unix_s=NOW + 1, tflops=tflops, iterations=10, seconds=0.05))


def end(state: State, number: int, *, stopped: bool = False) -> None:
    run = state.runs[number]
    result = MatmulResult(
        run=number, spec=run.spec, tflops=Spread(32.5, 31.0, 33.0), iterations=12345, blocks=20, seconds=1.25,
        stopped=stopped, simulated=run.simulated, datasheet_tflops=run.datasheet_tflops,
    )  # fmt: skip
    state.apply(BenchEnded(run=number, time_unix_s=NOW + 2, result=result))


def shown_row(panel: BenchmarkPanel, number: int = 0) -> list[str]:
    panel.refresh()
    return [panel.model.index(number, column).data() for column in range(panel.model.columnCount())]


def test_start_asks_for_one_specification_per_chosen_device(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    assert panel.devices.chosen == ("vgpu:0",)
    panel.devices.choose(["vgpu:1", "cpu", "cuda:7"])
    panel.dtype_edit.setText("half")
    panel.size_edit.setText("64x128x32")
    panel.seconds_edit.setText("2.5")

    with qtbot.waitSignal(panel.start_requested) as asked:
        qtbot.mouseClick(panel.start_button, Qt.MouseButton.LeftButton)

    [specs] = asked.args or []
    assert specs == tuple(MatmulSpec(device=device, dtype="float16", m=64, n=128, k=32, seconds=2.5) for device in ("cpu", "vgpu:1"))


def test_no_seconds_means_until_stopped(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    panel.seconds_edit.clear()
    with qtbot.waitSignal(panel.start_requested) as asked:
        qtbot.keyClick(panel.size_edit, Qt.Key.Key_Return)
    [(spec,)] = asked.args or []
    assert spec.seconds is None


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("dtype_edit", "floaty", "there is no dtype 'floaty'"),
        ("size_edit", "0", "at least 1"),
        ("size_edit", "-4", "at least 1"),
        ("size_edit", "many", "is not a size"),
        ("size_edit", "64x64", "is not a size"),
        ("size_edit", "", "is not a size"),
        ("size_edit", "100000", "needs 111.76 GiB on vgpu:0, and 15.00 GiB are free"),
        ("seconds_edit", "0", "above 0"),
        ("seconds_edit", "soon", "is not a number of seconds"),
    ],
)
def test_bad_input_is_answered_inline_and_nothing_is_sent(qtbot: QtBot, panel: BenchmarkPanel, field: str, text: str, said: str) -> None:
    getattr(panel, field).setText(text)
    assert said in panel.message.text()
    assert panel.message.isVisible()

    with qtbot.assertNotEmitted(panel.start_requested):
        panel.start()

    getattr(panel, field).setText({"dtype_edit": "float32", "size_edit": "1024", "seconds_edit": "10"}[field])
    assert not panel.message.isVisible()
    assert panel.hint.text() == "12.00 MiB, 2.15 GFLOP per product"


def test_everything_that_is_wrong_is_said_at_once(panel: BenchmarkPanel) -> None:
    panel.dtype_edit.setText("floaty")
    panel.size_edit.setText("0")
    panel.seconds_edit.setText("-1")
    assert all(words in panel.message.text() for words in ("'floaty'", "side of 0", "-1 seconds"))


def test_memory_that_was_freed_makes_room_again(panel: BenchmarkPanel, state: State) -> None:
    state.apply(DeviceSample(device="vgpu:0", time_unix_s=NOW, memory_used_bytes=15 * GIB - 1))
    panel.size_edit.setText("2048")
    assert "1 B are free" in panel.message.text()

    state.apply(DeviceSample(device="vgpu:0", time_unix_s=NOW + 1, memory_used_bytes=0))
    panel.refresh()
    assert not panel.message.isVisible()


def test_a_device_that_is_measured_already_is_refused_only_when_asked_again(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    panel.refresh()
    assert not panel.message.isVisible()

    with qtbot.assertNotEmitted(panel.start_requested):
        panel.start()
    assert "running on vgpu:0 already" in panel.message.text()


def test_devices_come_and_go_and_a_choice_is_kept(panel: BenchmarkPanel, state: State) -> None:
    panel.devices.choose(["vgpu:1"])
    infos = [device.info for device in state.devices.values()]
    state.set_catalog(Catalog(devices=(infos[0], infos[2])))
    panel.refresh()
    assert panel.devices.chosen == ("vgpu:1",)

    state.set_catalog(Catalog(devices=(infos[0],)))
    panel.refresh()
    assert panel.devices.chosen == ("cpu",)


def test_clicks_and_space_in_the_menu_pick_several_devices(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    menu = panel.devices.menu()
    cpu, first, second = menu.actions()
    assert [action.data() for action in menu.actions()] == ["cpu", "vgpu:0", "vgpu:1"]
    assert "simulated" in first.text()

    with qtbot.assertNotEmitted(menu.aboutToHide):
        menu.setActiveAction(cpu)
        qtbot.mouseRelease(menu, Qt.MouseButton.LeftButton, pos=menu.actionGeometry(cpu).center())
        menu.setActiveAction(second)
        qtbot.keyClick(menu, Qt.Key.Key_Space)

    assert panel.devices.chosen == ("cpu", "vgpu:0", "vgpu:1")
    menu.setActiveAction(first)
    qtbot.keyClick(menu, Qt.Key.Key_Space)
    assert panel.devices.chosen == ("cpu", "vgpu:1")
    assert panel.devices.text() == "cpu, vgpu:1 ▾"


def test_a_run_is_followed_from_warming_up_to_done(panel: BenchmarkPanel, state: State) -> None:
    spec = MatmulSpec(device="vgpu:0", dtype="float16", m=512, n=256, k=128)
    state.apply(BenchPreparing(run=1, spec=spec, simulated=True))
    row = shown_row(panel)
    assert row[:4] == ["vgpu:0  simulated", "float16", "512×256×128", "—"]
    assert row[-1] == "warming up"

    start(state, 1)
    assert shown_row(panel)[-1] == "running"

    point(state, 1, 30.0)
    row = shown_row(panel)
    assert (row[3], row[6], row[-1]) == ("30.0", "46", "running")

    end(state, 1)
    assert shown_row(panel)[3:] == ["32.5", "31.0", "33.0", "50", "12,345", "1.25", "done"]


def test_stopped_and_failed_runs_say_so(panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    point(state, 1, 30.0)
    end(state, 1, stopped=True)
    state.runs[2] = Run(2, MatmulSpec(device="cpu", dtype="float8_e4m3fn", m=8, n=8, k=8), ended=True, reason="no fp8")

    assert shown_row(panel, 0)[-1] == "failed: no fp8"
    assert shown_row(panel, 0)[6] == "—"
    assert shown_row(panel, 1)[-1] == "stopped"


def test_a_new_run_stands_on_top_and_the_selection_stays(panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    panel.refresh()
    panel.table.selectRow(0)
    start(state, 2, "vgpu:1")
    panel.refresh()

    assert panel.table.selected_key == 1
    assert [row.key for row in panel.model.rows] == [2, 1]


def test_stop_means_the_selected_run_or_all(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    assert not panel.stop_button.isEnabled()
    assert panel.stop_button.toolTip() == "No benchmark is running."
    start(state, 1)
    start(state, 2, "vgpu:1")
    panel.refresh()
    assert panel.stop_button.text() == "Stop all"
    with qtbot.waitSignal(panel.stop_requested, check_params_cb=lambda run: run is None):
        panel.stop_button.click()

    panel.table.selectRow(1)
    assert panel.stop_button.text() == "Stop vgpu:0"
    with qtbot.waitSignal(panel.stop_requested, check_params_cb=lambda run: run == 1):
        panel.stop_button.click()


def test_finished_runs_are_copied_as_the_command_line_prints_them(panel: BenchmarkPanel, state: State) -> None:
    panel.refresh()
    assert not panel.copy_button.isEnabled()
    start(state, 1)
    start(state, 2, "vgpu:1")
    end(state, 1)
    panel.refresh()
    panel.copy_button.click()

    document = json.loads(QGuiApplication.clipboard().text())
    assert (document["schema"], document["benchmark"]) == (1, "matmul")
    [run] = document["runs"]
    assert run["tflops"] == {"median": 32.5, "p20": 31.0, "p80": 33.0}
    assert (run["device"], run["shape"], run["simulated"]) == ("vgpu:0", [512, 256, 128], True)


def test_another_theme_recolours_the_rows(panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    panel.refresh()
    panel.set_theme(LIGHT)
    colour = panel.model.index(0, 0).data(Qt.ItemDataRole.ForegroundRole)
    assert colour.name() == LIGHT.devices[0].lower()


def test_every_field_has_a_name(panel: BenchmarkPanel) -> None:
    for widget in (panel.devices, panel.dtype_edit, panel.size_edit, panel.seconds_edit, panel.table):
        assert widget.accessibleName()


def test_the_rows_model_keeps_qts_rules(qtmodeltester: ModelTester) -> None:
    model = RowsModel([Column("a"), Column("b", is_number=True)])
    qtmodeltester.check(model)

    def rows(*keys: str, text: str = "x") -> list[TableRow]:
        return [TableRow(key, (Cell(key), Cell(text))) for key in keys]

    changes = []
    model.dataChanged.connect(lambda first, last: changes.append((first.row(), last.row())))
    for content in (rows("b"), rows("a", "b"), rows("c"), rows("c", "d"), []):
        model.set_rows(content)
        qtmodeltester.check(model)
        assert model.rows == content
    model.set_rows(rows("a", "b"))
    changes.clear()
    model.set_rows([*rows("a"), *rows("b", text="y")])
    assert changes == [(1, 1)]
