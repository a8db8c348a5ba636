"""The benchmark tab: refusals, requests, and how runs are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.host import hosted
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from devexplorer.core.benchmark.statistics import STOPPED_EARLY
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.feature import features
from devexplorer.core.records import (
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    DeviceInfo,
    DeviceSample,
    MatmulResult,
    MatmulSpec,
    Spread,
)
from devexplorer.core.scaling.kind import ScalingSpec
from devexplorer.core.session.journal import Run
from devexplorer.core.session.state import State
from devexplorer.core.sweep.kind import SweepSpec
from devexplorer.gui.benchmark.base_page import BenchPage
from devexplorer.gui.benchmark.page import BenchmarkPanel
from devexplorer.gui.widgets.table import Cell, Column, RowsModel, TableRow

NOW = 1_800_000_000.0
GIB = 1024**3
STATE = 14
"""Number of the column."""
LEFT = Qt.MouseButton.LeftButton


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
    return hosted(qtbot, lambda _: BenchmarkPanel(state, clock=lambda: NOW + 4), 1280, 160)


def start(state: State, number: int, device: str = "vgpu:0", datasheet: float | None = 65.0) -> None:
    spec = MatmulSpec(device=device, dtype="float16", m=512, n=256, k=128)
    simulated = device.startswith("vgpu")
    state.apply(BenchPreparing(run=number, spec=spec, simulated=simulated, datasheet_tflops=datasheet))
    state.apply(BenchStarted(run=number, time_unix_s=NOW))


def point(state: State, number: int, tflops: float) -> None:
    device = state.runs[number].spec.device
    state.apply(BenchPoint(run=number, device=device, time_unix_s=NOW + 1, tflops=tflops, iterations=10, seconds=0.05))


def end(state: State, number: int, *, stopped: bool = False, **more: Any) -> None:
    run = state.runs[number]
    result = MatmulResult(
        run=number, spec=run.spec, tflops=Spread(32.5, 31.0, 33.0), iterations=12345, blocks=20, seconds=1.25,
        stopped=stopped, simulated=run.simulated, datasheet_tflops=run.datasheet_tflops, **more,
    )  # fmt: skip
    state.apply(BenchEnded(run=number, time_unix_s=NOW + 2, result=result))


def shown_row(panel: BenchmarkPanel, number: int = 0) -> list[str]:
    panel.refresh()
    return [
        panel.matmul.table.rows_model.index(number, column).data()
        for column in range(panel.matmul.table.rows_model.columnCount())
    ]


def test_start_asks_for_one_specification_per_chosen_device(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    assert panel.matmul.devices.chosen == ("vgpu:0",)
    panel.matmul.devices.choose(["vgpu:1", "cpu", "cuda:7"])
    panel.matmul.dtype_edit.setText("half")
    panel.matmul.size_edit.setText("64x128x32")
    panel.matmul.seconds_edit.setText("2.5")

    with qtbot.waitSignal(panel.start_requested) as asked:
        qtbot.mouseClick(panel.matmul.start_button, Qt.MouseButton.LeftButton)

    [specs] = asked.args or []
    assert specs == tuple(
        MatmulSpec(device=device, dtype="float16", m=64, n=128, k=32, seconds=2.5) for device in ("cpu", "vgpu:1")
    )


def test_no_seconds_means_until_stopped(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    panel.matmul.seconds_edit.clear()
    with qtbot.waitSignal(panel.start_requested) as asked:
        qtbot.keyClick(panel.matmul.size_edit, Qt.Key.Key_Return)
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
def test_bad_input_is_answered_inline_and_nothing_is_sent(
    qtbot: QtBot, panel: BenchmarkPanel, field: str, text: str, said: str
) -> None:
    getattr(panel.matmul, field).setText(text)
    assert said in panel.matmul.message.full_text
    assert panel.matmul.message.isVisible()

    with qtbot.assertNotEmitted(panel.start_requested):
        panel.page.start()

    getattr(panel.matmul, field).setText({"dtype_edit": "float32", "size_edit": "1024", "seconds_edit": "10"}[field])
    assert not panel.matmul.message.isVisible()
    assert panel.matmul.hint.full_text == "12.00 MiB, 2.15 GFLOP per product"
    assert panel.matmul.hint.isVisible()


def test_devices_come_and_go_and_a_choice_is_kept(panel: BenchmarkPanel, state: State) -> None:
    panel.set_device("vgpu:1")
    assert {panel.pages[kind].devices.chosen for kind in ("matmul", "sweep")} == {("vgpu:1",)}, "its card is selected"
    panel.set_device("cpu")
    assert panel.matmul.devices.chosen == ("vgpu:0",)
    panel.matmul.devices.choose(["vgpu:1"])
    panel.set_device("vgpu:0")
    infos = [device.info for device in state.devices.values()]
    state.set_catalog(Catalog(devices=(infos[0], infos[2])))
    panel.refresh()
    assert panel.matmul.devices.chosen == ("vgpu:1",)

    state.set_catalog(Catalog(devices=(infos[0],)))
    panel.refresh()
    assert panel.matmul.devices.chosen == ("cpu",)


def test_clicks_and_space_in_the_menu_pick_several_devices(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    menu = panel.matmul.devices.menu()
    cpu, first, second = menu.actions()
    assert [action.data() for action in menu.actions()] == ["cpu", "vgpu:0", "vgpu:1"]
    assert "simulated" in first.text()

    with qtbot.assertNotEmitted(menu.aboutToHide):
        menu.setActiveAction(cpu)
        qtbot.mouseRelease(menu, Qt.MouseButton.LeftButton, pos=menu.actionGeometry(cpu).center())
        menu.setActiveAction(second)
        qtbot.keyClick(menu, Qt.Key.Key_Space)

    assert panel.matmul.devices.chosen == ("cpu", "vgpu:0", "vgpu:1")
    menu.setActiveAction(first)
    qtbot.keyClick(menu, Qt.Key.Key_Space)
    assert panel.matmul.devices.chosen == ("cpu", "vgpu:1")
    assert panel.matmul.devices.text() == "cpu, vgpu:1 ▾"


def test_a_run_is_followed_from_warming_up_to_done(panel: BenchmarkPanel, state: State) -> None:
    spec = MatmulSpec(device="vgpu:0", dtype="float16", m=512, n=256, k=128)
    state.apply(BenchPreparing(run=1, spec=spec, simulated=True))
    row = shown_row(panel)
    assert row[:5] == ["vgpu:0  simulated", "float16", "512×256×128", "live", "—"]
    assert row[STATE] == "warming up"

    start(state, 1)
    assert shown_row(panel)[STATE] == "running"

    point(state, 1, 30.0)
    row = shown_row(panel)
    assert (row[4], row[7], row[STATE]) == ("30.0 T", "46", "running")

    end(state, 1)
    row = shown_row(panel)
    assert row[4:8] == ["32.5 T", "31.0 T", "33.0 T", "50"]
    assert row[9:] == ["—", "—", "—", "12,345", "1.25", "done"]


def test_stopped_and_failed_runs_say_so(panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    point(state, 1, 30.0)
    end(state, 1, stopped=True)
    state.runs[2] = Run(2, MatmulSpec(device="cpu", dtype="float8_e4m3fn", m=8, n=8, k=8), ended=True, reason="no fp8")

    assert shown_row(panel, 0)[STATE] == "✕ failed: no fp8"
    assert shown_row(panel, 0)[7] == "—"
    assert shown_row(panel, 1)[STATE] == "stopped"


def test_a_new_run_is_on_top_and_the_selection_stays(panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    panel.refresh()
    panel.matmul.table.selectRow(0)
    start(state, 2, "vgpu:1")
    panel.refresh()

    assert panel.matmul.table.selected_key == 1
    assert [row.key for row in panel.matmul.table.rows] == [2, 1]


def test_the_form_has_modes_batches_transposition_and_a_flushed_cache(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    page = panel.matmul
    page.batch_edit.setText("8")
    page.mode.choose("sustained")
    assert page.seconds_edit.text() == "2"  # the one that was not typed
    menu = page.options.menu()
    for number in (1, 2):
        menu.popup(page.options.mapToGlobal(page.options.rect().bottomLeft()))
        qtbot.mouseClick(menu, LEFT, pos=menu.actionGeometry(menu.actions()[number]).center())
    assert page.options.text() == "Bᵀ flush ▾"

    with qtbot.waitSignal(panel.start_requested) as asked:
        qtbot.mouseClick(panel.matmul.start_button, LEFT)
    [(spec,)] = asked.args or []
    assert spec == MatmulSpec(
        device="vgpu:0", m=1024, n=1024, k=1024, batch=8, transpose_b=True, flush_cache=True, mode="sustained",
        seconds=2.0
    )  # fmt: skip
    assert page.hint.full_text == "96.00 MiB, 17.2 GFLOP per 8 products"


@pytest.mark.parametrize(
    ("mode", "seconds", "dtype", "size", "said"),
    [
        ("burst", "", "float32", "64", "a burst run needs its seconds"),
        ("live", "10", "float8_e4m3fn", "64", "Tesla T4 has no float8_e4m3fn unit"),
        ("live", "10", "complex64", "64", "the matmul benchmark does not measure complex64"),
        ("live", "10", "tf32", "64", "Tesla T4 has no tf32 unit"),
    ],
)
def test_what_the_device_or_the_mode_cannot_do_is_said(
    panel: BenchmarkPanel, mode: str, seconds: str, dtype: str, size: str, said: str
) -> None:  # fmt: skip
    panel.matmul.mode.choose(mode)
    panel.matmul.seconds_edit.setText(seconds)
    panel.matmul.dtype_edit.setText(dtype)
    panel.matmul.size_edit.setText(size)
    assert said in panel.matmul.message.full_text


def test_conditions_are_next_to_the_number(panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    state.runs[1].simulated = False  # readings and noise are those of a real card
    for second, clock in ((0.2, 1500), (0.6, 1300), (9.0, 300)):  # the last one is after the run
        reasons = ("SW power cap (the card draws what it may)",) if clock == 1300 else ("GPU idle",)
        state.apply(
            DeviceSample(
                device="vgpu:0", time_unix_s=NOW + second, sm_clock_mhz=clock, power_w=60.0 + second,
                temperature_c=50 + second,
                throttle_reasons=reasons,
            )
        )  # fmt: skip
        panel.refresh()
    point(state, 1, 30.0)
    end(state, 1, noise=0.083, drift=-0.021, parts_tflops=(33.0, 32.0))
    row = shown_row(panel)
    assert row[8:12] == ["noisy  8.3", "1,400", "60", "51"]
    assert row[STATE] == "done, drift −2.1 %, throttled by SW power cap"
    assert panel.matmul.table.rows[0].cells[4].tip == "Eight parts of the window: 33.0, 32.0 TFLOP/s"


def test_wrong_values_and_an_early_end_are_distinguished_from_a_stop(panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    end(state, 1, verified=False)
    start(state, 2)
    end(state, 2, stopped=True, failure="out of memory on vgpu:0")
    assert shown_row(panel, 0)[STATE] == "▲ ended early: out of memory on vgpu:0"
    assert shown_row(panel, 1)[STATE].startswith("✕ values are wrong")


def test_a_run_that_was_stopped_before_its_first_figure_has_not_failed(panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    state.apply(BenchEnded(run=1, time_unix_s=NOW + 2, result=None, reason=STOPPED_EARLY))
    panel.refresh()
    cell = panel.matmul.table.rows[0].cells[STATE]
    assert (cell.text, cell.colour) == (STOPPED_EARLY, "dim")


def test_a_simulated_run_is_not_called_quiet(panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    state.runs[1].simulated = True
    end(state, 1, noise=0.0)
    assert shown_row(panel)[8] == "—", "a model has no measured noise"


def test_what_was_multiplied_is_written_in_the_row(panel: BenchmarkPanel, state: State) -> None:
    spec = MatmulSpec(device="cpu", m=64, n=32, k=16, batch=4, transpose_a=True, flush_cache=True, mode="burst")
    state.apply(BenchPreparing(run=1, spec=spec, simulated=False))
    assert shown_row(panel)[2:4] == ["4 × 64×32×16  Aᵀ  flushed", "burst"]
    assert "A is stored as K×M" in panel.matmul.table.rows[0].cells[2].tip


def test_progress_and_the_time_left_are_shown_while_it_runs(panel: BenchmarkPanel, state: State) -> None:
    panel.refresh()
    assert not panel.matmul.progress.isVisible()
    start(state, 1)  # ten seconds, of which four are over
    panel.refresh()
    assert panel.matmul.progress.isVisible()
    assert panel.matmul.progress.value() == 400
    assert panel.matmul.hint.full_text == "vgpu:0, 6 s left"
    end(state, 1)
    panel.refresh()
    assert panel.matmul.hint.full_text == "12.00 MiB, 2.15 GFLOP per product"


def test_a_click_shows_another_kind_and_what_runs_has_a_dot(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    feature_of = {
        "Sweep": "sweep",
        "Bandwidth": "bandwidth",
        "Parallel": "scaling",
        "Model": "model_steps",
        "Allreduce": "allreduce",
        "Calibrate": "planner",
    }
    there = [title for title, feature in feature_of.items() if feature in features()]
    assert [choice.text() for choice in panel.rail.choices.values()] == ["Matmul", *there]
    qtbot.mouseClick(panel.rail.choices["sweep"], LEFT)
    assert panel.page is panel.pages["sweep"]
    assert panel.pages["sweep"].start_button.isVisible()
    assert not panel.matmul.start_button.isVisible()
    start(state, 1)
    panel.refresh()
    assert panel.rail.choices["matmul"].text() == "Matmul ●"
    assert panel.rail.choices["matmul"].accessibleName() == "Matmul, running"


def test_stopping_one_kind_leaves_the_others_alone(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    start(state, 1)
    spec = SweepSpec(device="vgpu:1", shapes=((8, 8, 8),))
    state.apply(BenchPreparing(run=2, spec=spec, simulated=True))
    panel.refresh()
    with qtbot.waitSignal(panel.stop_requested, check_params_cb=lambda run: run == 1):
        qtbot.mouseClick(panel.matmul.stop_button, LEFT)


def test_a_device_that_any_kind_of_run_uses_is_busy(panel: BenchmarkPanel, state: State, qtbot: QtBot) -> None:
    spec = ScalingSpec(devices=("vgpu:1", "vgpu:0"))
    state.apply(BenchPreparing(run=1, spec=spec, simulated=True))
    with qtbot.assertNotEmitted(panel.start_requested):
        panel.page.start()
    assert "running on vgpu:0 already" in panel.matmul.message.full_text


def test_stop_means_the_selected_run_or_all(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    assert not panel.matmul.stop_button.isEnabled()
    assert panel.matmul.stop_button.toolTip() == "No benchmark is running."
    start(state, 1)
    start(state, 2, "vgpu:1")
    panel.refresh()
    assert panel.matmul.stop_button.text() == "Stop all"
    with qtbot.waitSignal(panel.stop_requested, check_params_cb=lambda run: run is None):
        panel.matmul.stop_button.click()

    panel.matmul.table.selectRow(1)
    assert panel.matmul.stop_button.text() == "Stop"
    assert panel.matmul.stop_button.toolTip() == "Stop the selected run on vgpu:0"
    with qtbot.waitSignal(panel.stop_requested, check_params_cb=lambda run: run == 1):
        panel.matmul.stop_button.click()


def test_finished_runs_are_copied_as_the_command_line_prints_them(panel: BenchmarkPanel, state: State) -> None:
    panel.refresh()
    assert not panel.matmul.copy_button.isEnabled()
    start(state, 1)
    start(state, 2, "vgpu:1")
    end(state, 1)
    panel.refresh()
    panel.matmul.copy_button.click()

    document = json.loads(QGuiApplication.clipboard().text())
    assert (document["schema"], document["benchmark"]) == (1, "matmul")
    [run] = document["runs"]
    assert run["tflops"] == {"median": 32.5, "p20": 31.0, "p80": 33.0}
    assert (run["device"], run["shape"], run["simulated"]) == ("vgpu:0", [512, 256, 128], True)


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


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [("size_edit", "abc", "not a size"), ("batch_edit", "0", "above 0"), ("seconds_edit", "soon", "seconds")],
)
def test_start_cannot_be_clicked_over_input_that_is_wrong_and_says_why(
    qtbot: QtBot, panel: BenchmarkPanel, field: str, text: str, why: str
) -> None:
    page = panel.matmul
    edit = getattr(page, field)
    before = edit.text()
    assert page.start_button.isEnabled()
    edit.setFocus()
    edit.selectAll()
    qtbot.keyClicks(edit, text)
    assert not page.start_button.isEnabled()
    assert why in page.start_button.toolTip()
    with qtbot.assertNotEmitted(panel.start_requested):
        qtbot.mouseClick(page.start_button, LEFT)
    edit.selectAll()
    qtbot.keyClicks(edit, before)
    assert page.start_button.isEnabled()
    assert page.start_button.toolTip() == ""


def test_nothing_is_said_in_red_before_the_user_has_done_something(qtbot: QtBot) -> None:
    state = State()
    state.set_catalog(Catalog(devices=(DeviceInfo(id="cpu", kind="cpu", name="CPU", memory_total_bytes=1 << 34),)))
    panel = hosted(qtbot, lambda _: BenchmarkPanel(state, clock=lambda: NOW + 4), 1280, 160)
    for kind in ("matmul", "sweep", "bandwidth", "scaling", "model", "allreduce"):
        panel.show_page(kind)
        panel.refresh()
        page = next(page for page in panel.findChildren(BenchPage) if page.kind == kind)
        assert not page.message.isVisible(), kind
        assert page.start_button.isEnabled() or page.start_button.toolTip(), f"{kind}: disabled without a reason"
    panel.show_page("model")
    assert not panel.pages["model"].start_button.isEnabled(), "no model is chosen"
    qtbot.keyClicks(panel.pages["model"].batch_edit, "x")
    assert panel.pages["model"].message.isVisible()
