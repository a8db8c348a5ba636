"""The Scaling page and the Model page: requests, refusals and results."""

from __future__ import annotations

import json

import msgspec
import pytest
from fakes.bench_runs import A10S, CPU, NOW, T4S, begin, finish, point, spread
from fakes.host import hosted
from fakes.look_records import ENGINE, mlp, show, state_with
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import DeviceWall, ModelResult, ModelSpec, ScalingResult, ScalingSpec
from devexplorer.core.session.state import State
from devexplorer.gui.benchmark.page import BenchmarkPanel
from devexplorer.gui.charts.wall_bars import BARS

LEFT = Qt.MouseButton.LeftButton
BOTH = ("vgpu:0", "vgpu:1")
STATE = 11
"""Number of the column in the table of models."""


@pytest.fixture
def state() -> State:
    state = state_with(CPU, *T4S)
    state.apply(msgspec.structs.replace(ENGINE, recipes={"mlp": "a perceptron", "lenet": "LeNet-5"}))
    return state


@pytest.fixture
def panel(qtbot: QtBot, state: State) -> BenchmarkPanel:
    return panel_for(qtbot, state)


def panel_for(qtbot: QtBot, state: State) -> BenchmarkPanel:
    return hosted(qtbot, lambda _: BenchmarkPanel(state, clock=lambda: NOW + 4), 1280, 260)


def refreshed(panel: BenchmarkPanel) -> BenchmarkPanel:
    panel.refresh()
    QApplication.processEvents()
    return panel


# --- scaling ---------------------------------------------------------------------------------------------------------


def scaling_result(spec: ScalingSpec, parallel: float | None = 0.34, sequential: float | None = 0.86) -> ScalingResult:
    walls = tuple(DeviceWall(name, 0.34 - at / 100) for at, name in enumerate(spec.devices))
    return ScalingResult(
        run=1, spec=spec, stopped=sequential is None, simulated=True, seconds=1.2, parallel_seconds=parallel,
        sequential_seconds=sequential,
        walls=walls,
    )  # fmt: skip


def test_scaling_asks_for_the_tutorials_job_on_two_cards(qtbot: QtBot, panel: BenchmarkPanel) -> None:
    qtbot.mouseClick(panel.rail.choices["scaling"], LEFT)
    assert panel.pages["scaling"].devices.chosen == BOTH
    with qtbot.waitSignal(panel.start_requested) as asked:
        qtbot.mouseClick(panel.pages["scaling"].start_button, LEFT)
    assert asked.args == [(ScalingSpec(devices=BOTH, size=1000, iterations=1000),)]
    assert panel.pages["scaling"].hint.full_text == "2 jobs of 2.00 TFLOP, at once and one after the other"


def test_the_tutorials_times_are_bars_and_words(panel: BenchmarkPanel, state: State) -> None:
    panel.show_page("scaling")
    spec = ScalingSpec(devices=BOTH)
    begin(state, 1, spec, simulated=True)
    finish(state, 1, scaling_result(spec))
    page = refreshed(panel).pages["scaling"]
    assert page.summary.headline.text() == "2.53 times as fast"
    assert (
        page.summary.words.text()
        == "1,000 products of 1000×1000 in float32 for each of 2 jobs: 340 ms at once against 860 ms one after the"
        " other. "
        "Efficiency 126 % of what 2 devices can give."
    )
    assert page.summary.facts.text() == "done, simulated"
    assert [(bar.name, bar.seconds, bar.jobs, bar.simulated) for bar in page.bars.bars] == [
        ("vgpu:0", 0.34, 1, True),
        ("vgpu:1", 0.33, 1, True),
        ("vgpu:0", 0.86, 2, True),
    ]
    cells = [page.bars.visualRect(page.bars.rows_model.index(row, BARS)) for row in range(3)]
    first, second, both = (page.bars.box(row, cell) for row, cell in enumerate(cells))
    assert first.width() / both.width() == pytest.approx(0.34 / 0.86)
    assert first.left() == second.left() == both.left()
    assert both.right() < page.bars.viewport().width()
    row = [cell.text for cell in page.bars.rows_model.rows[2].cells]
    assert row == ["one after the other", "vgpu:0 simulated", "860 ms", ""]


def test_a_speed_up_that_cannot_be_is_marked_with_its_cause(panel: BenchmarkPanel, state: State) -> None:
    panel.show_page("scaling")
    spec = ScalingSpec(devices=BOTH)
    begin(state, 1, spec, simulated=True)
    finish(state, 1, scaling_result(spec, sequential=82.3))
    page = refreshed(panel).pages["scaling"]
    assert page.summary.headline.text() == "242 times as fast, unreliable"
    assert "vgpu:0 took 121.0 times as long for a job when nothing else ran" in page.summary.words.text()


def test_a_scaling_that_was_stopped_says_what_is_missing(panel: BenchmarkPanel, state: State) -> None:
    panel.show_page("scaling")
    spec = ScalingSpec(devices=BOTH)
    begin(state, 1, spec, simulated=True)
    page = refreshed(panel).pages["scaling"]
    assert page.summary.headline.text() == "Nothing is measured yet."
    assert page.bars.bars[0].missing == "not measured yet"
    finish(state, 1, scaling_result(spec, sequential=None))
    refreshed(panel)
    assert page.summary.headline.text() == "Stopped before both parts were measured."
    assert page.summary.words.text().endswith(": 340 ms at once.")
    assert [bar.seconds for bar in page.bars.bars] == [0.34, 0.33, None]
    assert page.bars.box(2, page.bars.rect()).width() == 0
    assert page.bars.rows_model.rows[2].cells[2].text == "not measured"


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("size_edit", "64x64x32", "scaling multiplies square matrices, not 64×64×32; write one number"),
        ("size_edit", "0", "every side must be at least 1"),
        ("size_edit", "100000", "needs 111.76 GiB on vgpu:0"),
        ("iterations_edit", "0", "products per job '0' is not a whole number above 0"),
        ("dtype_edit", "floaty", "there is no dtype 'floaty'"),
    ],
)
def test_bad_input_for_scaling_is_answered_in_one_line(
    qtbot: QtBot, panel: BenchmarkPanel, field: str, text: str, said: str
) -> None:
    panel.show_page("scaling")
    getattr(panel.pages["scaling"], field).setText(text)
    assert said in panel.pages["scaling"].message.full_text
    with qtbot.assertNotEmitted(panel.start_requested):
        qtbot.mouseClick(panel.pages["scaling"].start_button, LEFT)


def test_scaling_needs_two_devices_of_one_kind(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, state_with(CPU, *A10S, *T4S))
    assert panel.pages["scaling"].devices.chosen == ("cuda:0", "cuda:1")
    panel.pages["scaling"].devices.choose(["cuda:0"])
    assert "scaling needs two devices or more" in panel.pages["scaling"].message.full_text
    panel.pages["scaling"].devices.choose(["cuda:0", "vgpu:0"])
    assert "cuda:0 is real and vgpu:0 simulated" in panel.pages["scaling"].message.full_text


def test_with_the_cpu_alone_virtual_gpus_are_offered(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    state.set_catalog(Catalog(devices=(CPU,)))
    panel.show_page("scaling")
    page = refreshed(panel).pages["scaling"]
    assert (
        page.empty.sentence.text()
        == "Scaling compares two real or two virtual devices; there is only one of each here."
    )
    assert page.empty.button.text() == "Add two virtual GPUs"
    assert not page.message.isVisible()
    with qtbot.waitSignal(panel.virtual_offered), qtbot.assertNotEmitted(panel.start_requested):
        qtbot.mouseClick(page.empty.button, LEFT)
    assert not page.start_button.isEnabled()
    assert "there is only one here" in page.start_button.toolTip()
    page.start()  # as by Enter in a field
    assert "add virtual GPUs to try it" in page.message.full_text
    state.set_catalog(Catalog(devices=(CPU, *T4S)))
    refreshed(panel)
    assert not page.message.isVisible()
    assert not page.empty.button.isVisible()


# --- models ----------------------------------------------------------------------------------------------------------


def test_models_of_the_workspace_come_before_sample_models(panel: BenchmarkPanel, state: State) -> None:
    panel.show_page("model")
    target = refreshed(panel).pages["model"].target
    assert [target.itemText(at) for at in range(target.count())] == ["mlp", "lenet"]
    show(state, mlp("my-net"))
    refreshed(panel)
    assert [target.itemText(at) for at in range(target.count())] == ["my-net", "mlp", "lenet"]
    assert target.currentText() == "mlp"  # what was chosen stays


def test_steps_of_a_model_are_asked_for(qtbot: QtBot, panel: BenchmarkPanel, state: State) -> None:
    qtbot.mouseClick(panel.rail.choices["model"], LEFT)
    page = panel.pages["model"]
    page.devices.choose(["cpu", "vgpu:1"])
    page.target.lineEdit().selectAll()
    qtbot.keyClicks(page.target, "lenet")
    page.batch_edit.setText("32")
    page.step.choose("adamw")
    page.autocast.choose("bfloat16")
    with qtbot.waitSignal(panel.start_requested) as asked:
        qtbot.mouseClick(page.start_button, LEFT)
    [specs] = asked.args or []
    assert specs == tuple(
        ModelSpec(target="lenet", device=name, batch=32, train=True, optimizer="adamw", autocast="bfloat16")
        for name in ("cpu", "vgpu:1")
    )
    assert page.hint.full_text == "lenet, train with adamw, batch 32, autocast bfloat16"


@pytest.mark.parametrize(
    ("target", "batch", "said"),
    [
        ("", "8", "no model is named"),
        ("nope", "8", "there is no model 'nope'; there are mlp, lenet, or package.module:factory"),
        ("mlp", "0", "batch '0' is not a whole number above 0"),
    ],
)
def test_bad_input_for_a_model_is_answered_in_one_line(
    qtbot: QtBot, panel: BenchmarkPanel, target: str, batch: str, said: str
) -> None:  # fmt: skip
    panel.show_page("model")
    panel.pages["model"].target.setCurrentText(target)
    panel.pages["model"].batch_edit.setText(batch)
    assert said in panel.pages["model"].message.full_text
    with qtbot.assertNotEmitted(panel.start_requested):
        qtbot.mouseClick(panel.pages["model"].start_button, LEFT)


def test_a_factory_is_left_to_the_engine_and_compiling_for_no_chip_is_refused(panel: BenchmarkPanel) -> None:
    panel.show_page("model")
    panel.pages["model"].target.setCurrentText("package.module:factory")
    assert panel.pages["model"].specs()[0].target == "package.module:factory"
    panel.pages["model"].compiled.click()
    assert "behind vgpu:0 there is none; measure without it" in panel.pages["model"].message.full_text


def test_a_run_of_steps_is_a_row_from_running_to_done(panel: BenchmarkPanel, state: State) -> None:
    panel.show_page("model")
    spec = ModelSpec(target="lenet", device="vgpu:0", batch=32, train=True, optimizer="adam", compiled=True)
    begin(state, 1, spec, simulated=True)
    point(state, 1, samples_per_s=900.0, tflops=1.5)
    row = [cell.text for cell in refreshed(panel).pages["model"].model.rows[0].cells]
    assert row == [
        "lenet",
        "vgpu:0  simulated",
        "train with adam, batch 32, compiled",
        "900",
        *["—"] * 3,
        "1.50 T",
        "—",
        "—",
        "—",
        "running",
    ]
    assert panel.pages["model"].hint.full_text == "vgpu:0, 1 s left"

    result = ModelResult(
        run=1, spec=spec, stopped=False, simulated=True, seconds=5.0, iterations=120, samples_per_s=spread(1000.0),
        step_seconds=spread(0.032), tflops=spread(2.0), peak_memory_bytes=3 << 20,
    )  # fmt: skip
    finish(state, 1, result)
    row = [cell.text for cell in refreshed(panel).pages["model"].model.rows[0].cells]
    assert row[3:] == ["1,000", "980", "1,020", "32.0", "2.00 T", "3.0", "120", "5.00", "done"]


def test_what_is_not_counted_is_a_dash_with_a_reason(panel: BenchmarkPanel, state: State) -> None:
    panel.show_page("model")
    spec = ModelSpec(target="mlp", device="cpu")
    begin(state, 1, spec)
    result = ModelResult(
        run=1, spec=spec, stopped=True, simulated=False, seconds=5.0, samples_per_s=spread(1000.0),
        step_seconds=spread(0.032),
        failure="out of memory on cpu",
    )  # fmt: skip
    finish(state, 1, result)
    cells = refreshed(panel).pages["model"].model.rows[0].cells
    assert (cells[7].text, cells[7].tip) == ("—", "torch.utils.flop_counter cannot count this model")
    assert (cells[8].text, cells[8].tip) == ("—", "the memory of this device is not tracked")
    assert cells[STATE].text == "▲ ended early: out of memory on cpu"


@pytest.mark.parametrize("kind", ["scaling", "model"])
def test_finished_runs_are_copied_as_the_command_line_prints_them(
    qtbot: QtBot, panel: BenchmarkPanel, state: State, kind: str
) -> None:  # fmt: skip
    panel.show_page(kind)
    if kind == "scaling":
        scaling = ScalingSpec(devices=BOTH)
        begin(state, 1, scaling, simulated=True)
        finish(state, 1, scaling_result(scaling))
    else:
        model = ModelSpec(target="mlp", device="cpu")
        begin(state, 1, model)
        result = ModelResult(
            run=1,
            spec=model,
            stopped=False,
            simulated=False,
            seconds=5.0,
            samples_per_s=spread(1000.0),
            step_seconds=spread(0.03),
        )
        finish(state, 1, result)
    page = refreshed(panel).page
    qtbot.mouseClick(page.copy_button, LEFT)
    document = json.loads(QGuiApplication.clipboard().text())
    assert (document["schema"], document["benchmark"], len(document["runs"])) == (1, kind, 1)
