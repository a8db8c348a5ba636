"""What a plot that is only watched leaves out."""

from __future__ import annotations

from collections import Counter

import pytest
from fakes.host import hosted
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import DeviceInfo, DeviceSample
from devexplorer.core.session.state import State
from devexplorer.gui.plots.canvas import PlotCanvas
from devexplorer.gui.plots.curves import LiveCurve
from devexplorer.gui.plots.legend import LegendRow
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.plots.timeline_plot import TimelinePlot
from devexplorer.gui.timelines.slot import MetricPlot, ThroughputPlot

NOW = 1_790_000_000.0
CARDS = ("cuda:0", "cuda:1")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often what costs was done."""
    counted: Counter[str] = Counter()
    for kind, name in ((LegendRow, "choose_place"), (PlotCanvas, "show_lines"), (LiveCurve, "set_points")):
        original = getattr(kind, name)

        def call(*arguments: object, name: str = name, original: object = original) -> object:
            counted[name] += 1
            return original(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(kind, name, call)
    return counted


def state_of_cards() -> State:
    state = State()
    state.set_catalog(
        Catalog(
            devices=tuple(DeviceInfo(id=card, kind="nvml", name=card, memory_total_bytes=80 << 30) for card in CARDS)
        )
    )
    for second in range(60):
        read(state, NOW - 60 + second)
    return state


def read(state: State, time_s: float) -> None:
    for card in CARDS:
        state.apply(DeviceSample(device=card, time_unix_s=time_s, memory_used_bytes=int(time_s % 10 + 1) << 30))


def watch(plot: TimelinePlot, state: State, qtbot: QtBot, done: Counter[str]) -> None:
    """Ten seconds with a beat and a reading each half second, once everything has its place."""
    for moment in (NOW, NOW + 0.5, NOW + 1):
        plot.refresh(moment)
        qtbot.wait(0)  # header and axes find their sizes
    done.clear()
    for beat in range(20):
        read(state, NOW + 1.5 + beat / 2)
        plot.refresh(NOW + 1.5 + beat / 2)


def test_the_header_is_arranged_for_other_texts_only(qtbot: QtBot, done: Counter[str]) -> None:
    state = state_of_cards()
    plot = hosted(qtbot, lambda _: MetricPlot(state, TimeAxis()), 720, 232)
    watch(plot, state, qtbot, done)
    assert done["set_points"] >= 20, "the curves go on"
    assert done["choose_place"] == 0
    plot.set_title("Memory of both")
    plot.refresh(NOW + 20)
    assert done["choose_place"] > 0


def test_a_plot_without_curves_draws_nothing(qtbot: QtBot, done: Counter[str]) -> None:
    state = state_of_cards()
    plot = hosted(qtbot, lambda _: ThroughputPlot(state, TimeAxis()), 720, 232)
    watch(plot, state, qtbot, done)
    assert plot.is_empty
    assert not done
