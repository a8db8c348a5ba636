"""A page that is listed is a page of the Benchmark tab: a toy is chosen, started and followed like any other, and the
history lists it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.host import hosted
from fakes.toy_benchmark import register
from fakes.toy_benchmark_page import ToyPage
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.feature import offered_kinds
from devexplorer.core.records import Conditions, EngineDevices, Event, StartBenchmark, StoredRun
from devexplorer.core.session.state import State
from devexplorer.gui.benchmark.page import BenchmarkPanel
from devexplorer.gui.history.page import HistoryPanel
from devexplorer.gui.history.rows import history_row

DEADLINE_S = 30.0


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    register(monkeypatch)
    with LocalEngine(None) as engine:
        yield engine


def test_only_the_page_on_show_is_loaded(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in offered_kinds().items():
        if name != "matmul":
            monkeypatch.setattr(type(kind), "page", "nowhere:Page")
    panel = BenchmarkPanel(State())
    qtbot.addWidget(panel)
    assert panel.page is panel.matmul


def test_a_toy_is_measured_in_the_window_and_listed_in_the_history(qtbot: QtBot, engine: LocalEngine) -> None:
    state = State()

    def take(event: Event) -> None:
        if isinstance(event, EngineDevices):
            state.set_catalog(Catalog(devices=event.devices))
        state.apply(event)

    state.set_catalog(Catalog(devices=engine.engine.registry.infos()))
    panel = hosted(qtbot, lambda _: BenchmarkPanel(state), 1280, 260)
    qtbot.mouseClick(panel.rail.choices["toy"], Qt.MouseButton.LeftButton)
    page = panel.page
    assert isinstance(page, ToyPage)
    with qtbot.waitSignal(panel.start_requested) as started:
        qtbot.mouseClick(page.start_button, Qt.MouseButton.LeftButton)
    [spec] = started.args[0]
    number = engine.send(StartBenchmark(spec=spec))
    for event in engine.events(number, DEADLINE_S):
        take(event)
        panel.refresh()
    assert page.answer.text() == "3 rounds"
    result = state.runs[number].result
    assert result is not None
    history = hosted(qtbot, lambda _: HistoryPanel(state), 1280, 260)
    history.kind.choose("toy")
    assert history.kind.value == "toy"
    run = StoredRun(id=1, result=result, conditions=Conditions(started_unix_s=1.0, ended_unix_s=2.0, device="cpu"))
    cells = [cell.text for cell in history_row(run, state, 3.0).cells]
    assert cells[1:7] == ["toy", "cpu", "to 3", "—", "7.00", "samples/s"]
