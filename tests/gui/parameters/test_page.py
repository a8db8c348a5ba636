"""The page of values: what is small is looked at by itself; statistics, histogram and gradient."""

from __future__ import annotations

import msgspec
import pytest
from fakes.look_records import CPU, ENGINE, VGPU, mlp, show, state_with
from PySide6.QtCore import QPointF, Qt
from pytestqt.qtbot import QtBot

from devexplorer.core.parameters.records import Describe, Values, ValuesDescribed
from devexplorer.core.records import ObjectChanged, ObjectRemoved
from devexplorer.core.session.state import State
from devexplorer.gui.parameters import page
from devexplorer.gui.parameters.page import ValuesPanel
from devexplorer.gui.widgets.theme import LIGHT, set_theme

LEFT = Qt.MouseButton.LeftButton
TARGET = "mlp:hidden.weight"


def values(**changed: object) -> Values:
    fields: dict[str, object] = {
        "target": TARGET, "shape": (256, 20), "dtype": "float32", "device": "cpu", "elements": 5120, "simulated": False,
        "mean": 0.5,
        "std": 0.25, "minimum": 0.0, "maximum": 1.0, "norm": 40.0, "counts": (1, 3, 0, 4), "low": 0.0, "high": 1.0,
        "first": "[[0.1]]",
    }  # fmt: skip
    return Values(**(fields | changed))  # type: ignore[arg-type]


@pytest.fixture
def state() -> State:
    state = state_with(CPU, VGPU)
    state.apply(ENGINE)
    show(state, mlp())
    return state


@pytest.fixture
def panel(qtbot: QtBot, state: State) -> ValuesPanel:
    panel = ValuesPanel(state)
    qtbot.addWidget(panel)
    panel.resize(1200, 300)
    panel.show()
    return panel


def described(panel: ValuesPanel, state: State, found: Values, before: Values | None = None) -> None:
    panel.set_selection((TARGET,))
    state.apply(ValuesDescribed(values=found, before=before))
    panel.refresh()


def facts(panel: ValuesPanel) -> dict[str, str]:
    return {fact.label: fact.value for fact in panel.facts.facts}


def test_a_small_tensor_is_looked_at_once_it_can_be_seen_and_again_when_it_has_changed(
    panel: ValuesPanel, state: State, qtbot: QtBot
):
    state.apply(ENGINE)
    panel.hide()
    with qtbot.assertNotEmitted(panel.command_requested):
        panel.set_selection((TARGET,))
    with qtbot.waitSignal(panel.command_requested) as sent:
        panel.show()
    assert sent.args == [Describe(target=TARGET, quiet=True)]
    with qtbot.assertNotEmitted(panel.command_requested):  # it has no values: not again and again
        panel.refresh()
    described(panel, state, values())
    changed = msgspec.structs.replace(state.objects["mlp"], training=not state.objects["mlp"].training)
    state.apply(ObjectChanged(snapshot=changed))
    with qtbot.waitSignal(panel.command_requested):
        panel.refresh()


def test_a_large_tensor_is_not_looked_at_until_the_button_is_clicked(
    panel: ValuesPanel, state: State, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
):
    state.apply(ENGINE)
    monkeypatch.setattr(page, "AT_ONCE", 1)
    with qtbot.assertNotEmitted(panel.command_requested):
        panel.set_selection((TARGET,))
    assert panel.empty.isVisible()
    assert TARGET in panel.empty.sentence.text()
    with qtbot.waitSignal(panel.command_requested) as sent:
        qtbot.mouseClick(panel.empty.button, LEFT)
    assert sent.args == [Describe(target=TARGET)]


@pytest.mark.parametrize("selection", [(), ("mlp",), (TARGET, "mlp:hidden.bias")])
def test_what_is_no_single_tensor_gets_a_sentence_and_no_button(panel: ValuesPanel, selection: tuple[str, ...]):
    panel.set_selection(selection)
    assert panel.empty.sentence.text().startswith("Select one tensor")
    assert not panel.empty.button.isVisible()


def test_statistics_are_next_to_the_histogram(panel: ValuesPanel, state: State):
    described(panel, state, values(nans=2))
    assert panel.histogram.isVisible()
    assert facts(panel)["mean"] == "0.5"
    assert facts(panel)["NaN, Inf"] == "▲ 2, 0"
    assert panel.first.text() == "[[0.1]]"


def test_a_narrow_page_shows_fewer_columns_of_the_first_values(panel: ValuesPanel, state: State):
    row = "  ".join(["-0.02031"] * 8)
    described(panel, state, values(first=f"at [0]:\n{row}\n{row}"))
    panel.resize(1400, 200)
    assert panel.first.text() == f"at [0]:\n{row}\n{row}"
    panel.resize(760, 200)
    _, line, other = panel.first.text().splitlines()
    assert line == other
    assert 1 <= line.count("-0.02031") < 8
    assert line.endswith("-0.02031  …")
    assert panel.first.fontMetrics().horizontalAdvance(line) <= panel.first.width()


def test_simulated_values_say_so(panel: ValuesPanel, state: State):
    described(panel, state, values(device="vgpu:0", simulated=True))
    assert facts(panel)["computed in"].endswith("(simulated)")


def test_a_bar_tells_its_edges_and_its_count(panel: ValuesPanel, state: State):
    described(panel, state, values())
    histogram = panel.histogram
    histogram.repaint()
    width = histogram.width()
    assert histogram.tip_at(QPointF(width * 0.95, 0)) == "4 values from 0.75 to 1"
    assert histogram.tip_at(QPointF(width * 0.3, 0)) == "3 values from 0.25 to 0.5"
    assert histogram.tip_at(QPointF(-5, 0)) == ""


def test_before_and_after_share_one_axis(panel: ValuesPanel, state: State):
    described(panel, state, values(), before=values(low=-3.0, high=0.5))
    assert panel.histogram.span == (-3.0, 1.0)
    set_theme(LIGHT)
    panel.histogram.repaint()


def test_the_gradient_is_a_tick_away(panel: ValuesPanel, state: State):
    described(panel, state, values())
    assert not panel.gradient.isVisible()
    state.apply(ValuesDescribed(values=values(gradient=values(mean=-7.0))))
    panel.refresh()
    panel.gradient.setChecked(True)
    assert facts(panel)["mean"] == "-7"


def test_the_row_of_a_gradient_shows_its_values(panel: ValuesPanel, qtbot: QtBot, state: State):
    show(state, mlp(gradients=True))
    gradient = f"{TARGET}.grad"
    panel.set_selection((gradient,))
    with qtbot.waitSignal(panel.command_requested) as sent:
        qtbot.mouseClick(panel.empty.button, LEFT)
    assert sent.args == [Describe(target=gradient)]
    state.apply(ValuesDescribed(values=values(target=gradient, mean=-7.0)))
    panel.refresh()
    assert (panel.title.full_text, facts(panel)["mean"]) == (gradient, "-7")


def test_values_without_an_order_have_no_histogram(panel: ValuesPanel, state: State):
    described(panel, state, values(counts=(), mean=None))
    assert not panel.histogram.isVisible()
    assert panel.none.isVisible()
    assert facts(panel)["mean"] == "—"


def test_all_values_the_same_still_make_a_bar(panel: ValuesPanel, state: State):
    described(panel, state, values(counts=(8,), low=2.0, high=2.0))
    panel.histogram.repaint()
    assert panel.histogram.span == (1.5, 2.5)


def test_what_is_gone_is_not_shown_any_more(panel: ValuesPanel, state: State):
    panel.set_selection((TARGET,))
    state.apply(ObjectRemoved(name="mlp"))
    panel.set_selection(())
    assert panel.empty.isVisible()


def test_a_sample_says_so_and_every_element_is_one_click(panel: ValuesPanel, state: State, qtbot: QtBot):
    described(panel, state, values(sampled=4096))
    assert "from a sample of 4,096" in panel.sample.full_text
    assert facts(panel)["from a sample of"] == "4,096"  # where there is no room for the words
    with qtbot.waitSignal(panel.command_requested) as sent:
        qtbot.mouseClick(panel.exact, LEFT)
    assert sent.args == [Describe(target=TARGET, exact=True)]
