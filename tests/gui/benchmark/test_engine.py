"""Each kind of benchmark from a click on Start to its result, with the real engine in this process and two virtual
cards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fakes.host import hosted
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.records import BenchSpec, BuildModel, EngineDevices, Event, StartBenchmark, StopBenchmark
from devexplorer.core.session.journal import Run
from devexplorer.core.session.state import State
from devexplorer.gui.benchmark.page import BenchmarkPanel

LEFT = Qt.MouseButton.LeftButton
DEADLINE_S = 30.0
Measure = Callable[..., Run]


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with LocalEngine("2x Tesla T4") as engine:
        yield engine
    if engine.engine.machine is not None:
        engine.engine.machine.reset()


@pytest.fixture
def state(engine: LocalEngine) -> State:
    state = State()
    for event in engine.run(BuildModel(recipe="mlp")):
        take(state, event)
    return state


def take(state: State, event: Event) -> None:
    if isinstance(event, EngineDevices):
        state.set_catalog(Catalog(devices=event.devices))
    state.apply(event)


@pytest.fixture
def panel(qtbot: QtBot, state: State) -> BenchmarkPanel:
    return hosted(qtbot, lambda _: BenchmarkPanel(state), 1280, 260)


@pytest.fixture
def measure(qtbot: QtBot, panel: BenchmarkPanel, state: State, engine: LocalEngine) -> Measure:
    """Click Start on a page and follow its run to the end, stopping it after so many shapes or copies where that is
    asked for."""

    def go(kind: str, stop_after: int | None = None) -> Run:
        qtbot.mouseClick(panel.rail.choices[kind], LEFT)
        asked: list[BenchSpec] = []
        panel.start_requested.connect(lambda specs: asked.extend(specs))
        qtbot.mouseClick(panel.page.start_button, LEFT)
        [spec] = asked
        number = engine.send(StartBenchmark(spec=spec))
        for event in engine.events(number, DEADLINE_S):
            take(state, event)
            panel.refresh()
            run = state.runs.get(number)  # the job begins before its run
            if stop_after is not None and run is not None and len(run.parts) == stop_after:
                engine.send(StopBenchmark(run=number))
                stop_after = None
        QApplication.processEvents()
        assert run is not None, state.answer
        assert run.result is not None, run.reason
        return run

    return go


def test_matmul(panel: BenchmarkPanel, measure: Measure) -> None:
    panel.matmul.size_edit.setText("256")
    panel.matmul.mode.choose("burst")
    panel.matmul.seconds_edit.setText("0.01")
    measure("matmul")
    cells = [cell.text for cell in panel.matmul.table.rows[0].cells]
    assert cells[:4] == ["vgpu:0  simulated", "float32", "256×256×256", "burst"]
    assert float(cells[4].split()[0]) > 0
    assert cells[14].startswith("done")


def test_a_sweep_that_is_stopped_and_resumed(qtbot: QtBot, panel: BenchmarkPanel, measure: Measure) -> None:
    panel.pages["sweep"].shapes_edit.setText("64:192:64x64:192:64x64")
    panel.pages["sweep"].seconds_edit.setText("0.05")
    stopped = measure("sweep", stop_after=2)
    summary = panel.pages["sweep"].summary
    assert summary.button.text().startswith("Resume, ")
    again: list[tuple[BenchSpec, ...]] = []
    panel.start_requested.connect(again.append)
    qtbot.mouseClick(summary.button, LEFT)
    [[spec]] = again
    assert spec.done == stopped.result.cells  # type: ignore[union-attr]
    assert 2 <= len(spec.done) < 9  # type: ignore[union-attr]


def test_a_sweep_fills_its_map(panel: BenchmarkPanel, measure: Measure) -> None:
    panel.pages["sweep"].shapes_edit.setText("64:192:64x64:192:64x64")
    panel.pages["sweep"].seconds_edit.setText("0.01")
    measure("sweep")
    heat = panel.pages["sweep"].map
    assert (heat.rows, heat.columns) == (("64", "128", "192"), ("64", "128", "192"))
    assert all(heat.colour_at((column, row)) is not None for column in range(3) for row in range(3))
    assert heat.best == (2, 2)  # the largest product: a launch costs the same for each
    assert panel.pages["sweep"].summary.facts.text() == "done, 9 of 9 shapes, simulated"


def test_bandwidth(panel: BenchmarkPanel, measure: Measure) -> None:
    panel.pages["bandwidth"].sizes_edit.setText("4K,1M")
    panel.pages["bandwidth"].seconds_edit.setText("0.01")
    panel.pages["bandwidth"].both_ways.click()
    measure("bandwidth")
    rows = {row.key: [cell.text for cell in row.cells[1:]] for row in panel.pages["bandwidth"].view.table.rows}
    assert set(rows) == {"cpu", "vgpu:0", "vgpu:1"}
    assert all(float(text) > 0 for row in rows.values() for text in row)
    assert [one.name for one in panel.pages["bandwidth"].view.curve.series] == ["pinned", "both ways at once"]
    assert "simulated" in panel.pages["bandwidth"].view.summary.facts.text()


def test_scaling(panel: BenchmarkPanel, measure: Measure) -> None:
    measure("scaling")
    first, second, both = panel.pages["scaling"].bars.bars
    assert first.seconds is not None
    assert both.seconds is not None
    assert second.seconds == pytest.approx(first.seconds)
    assert both.seconds == pytest.approx(2 * first.seconds, rel=0.05)
    assert panel.pages["scaling"].summary.headline.text().endswith("times as fast")


def test_model_steps(panel: BenchmarkPanel, measure: Measure) -> None:
    assert panel.pages["model"].target.currentText() == "mlp"
    panel.pages["model"].step.choose("sgd")
    panel.pages["model"].seconds_edit.setText("0.05")
    measure("model")
    cells = [cell.text for cell in panel.pages["model"].table.rows[0].cells]
    assert cells[:3] == ["mlp", "vgpu:0  simulated", "train with sgd, batch 8"]
    assert float(cells[3].replace(",", "")) > 0
    assert cells[11] == "done"
