"""The Scaling page: requests, refusals and results."""

from __future__ import annotations

import json

import msgspec
import pytest
from fakes.bench_runs import A10S, CPU, NOW, T4S, begin, finish
from fakes.host import hosted
from fakes.look_records import ENGINE, state_with
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.scaling.kind import DeviceWall, ScalingResult, ScalingSpec
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
        page.empty.sentence.text() == "This compares two real or two virtual devices; there is only one of each here."
    )
    assert page.empty.button.text() == "Add two virtual GPUs"
    assert not page.message.isVisible()
    with qtbot.waitSignal(page.empty.chosen), qtbot.assertNotEmitted(panel.start_requested):
        qtbot.mouseClick(page.empty.button, LEFT)
    assert not page.start_button.isEnabled()
    assert "there is only one here" in page.start_button.toolTip()
    page.start()  # as by Enter in a field
    assert "add virtual GPUs to try it" in page.message.full_text
    state.set_catalog(Catalog(devices=(CPU, *T4S)))
    refreshed(panel)
    assert not page.message.isVisible()
    assert not page.empty.button.isVisible()


def test_finished_runs_are_copied_as_the_command_line_prints_them(
    qtbot: QtBot, panel: BenchmarkPanel, state: State
) -> None:
    panel.show_page("scaling")
    scaling = ScalingSpec(devices=BOTH)
    begin(state, 1, scaling, simulated=True)
    finish(state, 1, scaling_result(scaling))
    page = refreshed(panel).page
    qtbot.mouseClick(page.copy_button, LEFT)
    document = json.loads(QGuiApplication.clipboard().text())
    assert (document["schema"], document["benchmark"], len(document["runs"])) == (1, "scaling", 1)
