"""The Model page: requests, refusals and results."""

from __future__ import annotations

import json

import msgspec
import pytest
from fakes.bench_runs import CPU, NOW, T4S, begin, finish, point, spread
from fakes.host import hosted
from fakes.look_records import ENGINE, mlp, show, state_with
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.model_steps.kind import ModelResult, ModelSpec
from devexplorer.core.session.state import State
from devexplorer.gui.benchmark.page import BenchmarkPanel

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
    row = [cell.text for cell in refreshed(panel).pages["model"].table.rows[0].cells]
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
    row = [cell.text for cell in refreshed(panel).pages["model"].table.rows[0].cells]
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
    cells = refreshed(panel).pages["model"].table.rows[0].cells
    assert (cells[7].text, cells[7].tip) == ("—", "torch.utils.flop_counter cannot count this model")
    assert (cells[8].text, cells[8].tip) == ("—", "the memory of this device is not tracked")
    assert cells[STATE].text == "▲ ended early: out of memory on cpu"


def test_finished_runs_are_copied_as_the_command_line_prints_them(
    qtbot: QtBot, panel: BenchmarkPanel, state: State
) -> None:
    panel.show_page("model")
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
    assert (document["schema"], document["benchmark"], len(document["runs"])) == (1, "model", 1)
