"""The Experiments tab: requests, refusals, the latest answer, bars and curves."""

from __future__ import annotations

import msgspec
import pytest
from fakes.bench_runs import CPU, T4S
from fakes.host import hosted
from fakes.look_records import ENGINE, mlp, module_row, show, state_with, tensor, tensor_row
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot

from devexplorer.core.experiments.records import (
    Ask,
    Crossover,
    CrossoverMeasured,
    CrossoverPoint,
    Replicate,
    TimeWork,
    WorkTimed,
)
from devexplorer.core.records import (
    AddVirtual,
    Answer,
    Cancel,
    Command,
    Event,
    Fact,
    JobEnded,
    JobProgress,
    JobStarted,
    Offer,
)
from devexplorer.core.session.state import State
from devexplorer.gui.charts.wall_bars import GROUP, NAME
from devexplorer.gui.experiments.page import ExperimentsPanel
from devexplorer.gui.widgets.theme import DARK, LIGHT, device_colour, set_theme

LEFT = Qt.MouseButton.LeftButton
BOTH = ("vgpu:0", "vgpu:1")


@pytest.fixture
def state() -> State:
    state = state_with(CPU, *T4S)
    state.apply(ENGINE)
    show(state, mlp(), tensor("x"))
    return state


@pytest.fixture
def sent() -> list[Command]:
    return []


@pytest.fixture
def panel(qtbot: QtBot, state: State, sent: list[Command]) -> ExperimentsPanel:
    return panel_for(qtbot, state, sent)


def panel_for(qtbot: QtBot, state: State, sent: list[Command]) -> ExperimentsPanel:
    made = hosted(qtbot, lambda _: ExperimentsPanel(state), 1264, 300)
    made.command_requested.connect(sent.append)
    return made


def click(qtbot: QtBot, button: QPushButton) -> None:
    qtbot.mouseClick(button, LEFT)


def carried_out(
    state: State, command: Command, answer: Answer, *events: Event, ok: bool = True, request: int = 7
) -> None:
    """What an engine sends about a command."""
    state.apply(JobStarted(request=request, title="at it", time_unix_s=1.0, command=command))
    for event in events:
        state.apply(msgspec.structs.replace(event, request=request))
    state.apply(msgspec.structs.replace(answer, request=request))
    state.apply(JobEnded(request=request, ok=ok, time_unix_s=2.0))


# --- the side navigation


def test_the_rail_chooses_the_experiment(qtbot: QtBot, panel: ExperimentsPanel) -> None:
    assert panel.page is panel.ask
    for title, page in panel.pages.items():
        click(qtbot, panel.rail.choices[title])
        assert panel.page is page
        assert page.is_empty
        assert page.empty.sentence.isVisible()
        assert page.empty.sentence.text()


def test_the_rail_marks_what_runs(qtbot: QtBot, panel: ExperimentsPanel, state: State) -> None:
    state.apply(JobStarted(request=3, title="comparing", time_unix_s=1.0, command=Crossover(device="vgpu:0")))
    panel.refresh()
    assert panel.rail.choices["Crossover"].text() == "Crossover ●"
    state.apply(JobEnded(request=3, ok=True, time_unix_s=2.0))
    panel.refresh()
    assert panel.rail.choices["Crossover"].text() == "Crossover"


# --- asking -----------------------------------------------------------------------------------------------------------


def test_the_selected_parameter_is_asked(qtbot: QtBot, panel: ExperimentsPanel, sent: list[Command]) -> None:
    panel.set_selection(("mlp:hidden.weight",))
    page = panel.ask
    assert page.target.full_text == "mlp:hidden.weight"
    page.question.setFocus()
    page.question.setCurrentIndex(page.question.findText("Can it become a NumPy array?"))
    click(qtbot, page.start_button)
    assert sent == [Ask(target="mlp:hidden.weight", question="numpy")]


def test_a_module_is_asked_for_its_type_and_no_array(
    qtbot: QtBot, panel: ExperimentsPanel, sent: list[Command]
) -> None:
    panel.set_selection(("mlp",))
    page = panel.ask
    click(qtbot, page.start_button)
    assert sent == [Ask(target="mlp", question="type")]
    page.question.choose("numpy")
    assert not page.start_button.isEnabled()
    assert "a question for a tensor" in page.start_button.toolTip()
    assert "a question for a tensor" in page.hint.full_text


@pytest.mark.parametrize("targets", [(), ("mlp", "x"), ("gone",), ("odd:hidden.weight.grad",), ("odd:list[0]",)])
def test_without_one_thing_that_can_be_asked_the_button_says_what_to_select(
    panel: ExperimentsPanel, state: State, targets: tuple[str, ...]
) -> None:
    rows = (
        module_row("", 0, "MLP", ("cpu",), 2),
        tensor_row("hidden.weight.grad", 1, kind="gradient"),
        tensor_row("list[0]", 1, kind="tensor", registered=False),
    )
    show(state, msgspec.structs.replace(mlp("odd"), rows=rows))
    panel.set_selection(targets)
    assert not panel.ask.start_button.isEnabled()
    assert panel.ask.start_button.toolTip().startswith("Select")


def test_the_answer_is_shown_with_its_facts_and_its_offers(
    qtbot: QtBot, panel: ExperimentsPanel, state: State, sent: list[Command]
) -> None:
    offer = Offer("Ask for .cpu().numpy() instead", Ask(target="x", question="cpu-numpy"))
    answer = Answer(
        title="x.numpy() raises TypeError",
        words="<b>why</b>",
        facts=(Fact("device", "vgpu:0"),),
        failed=True,
        offers=(offer,),
    )
    carried_out(state, Ask(target="x", question="numpy"), answer)
    panel.refresh()
    page = panel.ask
    assert not page.is_empty
    assert page.answer.title.text() == "✕ x.numpy() raises TypeError"
    assert page.answer.words.text() == "<b>why</b>"
    assert page.answer.words.textFormat() is Qt.TextFormat.PlainText
    assert page.facts.facts == answer.facts
    (button,) = page.answer.offers.buttons
    click(qtbot, button)
    assert sent == [offer.command]

    carried_out(state, offer.command, Answer(title="x as a NumPy array", words="A copy."), request=8)
    panel.refresh()
    assert page.answer.title.text() == "x as a NumPy array"
    assert page.answer.offers.buttons == []


def test_answers_of_other_commands_are_not_shown_here(panel: ExperimentsPanel, state: State) -> None:
    carried_out(state, AddVirtual(spec="T4"), Answer(title="vgpu:2 is here", words="."))
    panel.refresh()
    assert all(page.is_empty for page in panel.pages.values())


# --- replicas ---------------------------------------------------------------------------------------------------------


def test_the_selected_model_is_replicated_over_the_checked_devices(
    qtbot: QtBot, panel: ExperimentsPanel, sent: list[Command]
) -> None:
    click(qtbot, panel.rail.choices["Replicate"])
    page = panel.replicate
    panel.set_selection(("mlp:hidden",))
    assert page.devices.chosen == BOTH
    click(qtbot, page.start_button)
    page.input.choose("x")
    menu = page.devices.menu()
    assert menu is not None
    menu.actions()[0].trigger()  # the CPU as well
    click(qtbot, page.start_button)
    assert sent == [
        Replicate(target="mlp:hidden", devices=BOTH),
        Replicate(target="mlp:hidden", devices=("cpu", *BOTH), input="x"),
    ]


def test_two_devices_and_a_model_are_needed(panel: ExperimentsPanel) -> None:
    page = panel.replicate
    panel.set_selection(("x",))
    page.devices.choose(["vgpu:1"])
    assert not page.start_button.isEnabled()
    assert page.start_button.toolTip() == "Select one model, or one part of a model. Choose at least two devices"
    panel.set_selection(("mlp",))
    assert page.start_button.toolTip() == "Choose at least two devices"
    page.devices.choose(["vgpu:1", "cpu"])
    assert page.start_button.isEnabled()


def test_on_one_device_virtual_gpus_are_offered(qtbot: QtBot, sent: list[Command]) -> None:
    state = state_with(CPU)
    state.apply(ENGINE)
    show(state, mlp())
    panel = panel_for(qtbot, state, sent)
    panel.set_selection(("mlp",))
    for page in (panel.replicate, panel.crossover):
        click(qtbot, panel.rail.choices[page.title])
        assert not page.start_button.isEnabled()
        assert "add virtual GPUs" in page.start_button.toolTip()
        assert page.empty.button.isVisible()
        click(qtbot, page.empty.button)
    assert sent == [AddVirtual(spec="2x Tesla T4")] * 2
    assert not panel.time_work.empty.button.isVisibleTo(panel.time_work)


# --- timing -----------------------------------------------------------------------------------------------------------


def test_work_is_timed_on_the_chosen_device(qtbot: QtBot, panel: ExperimentsPanel, sent: list[Command]) -> None:
    click(qtbot, panel.rail.choices["Timing"])
    page = panel.time_work
    assert page.device.currentText() == "vgpu:0 (simulated)"
    page.size_edit.selectAll()
    qtbot.keyClicks(page.size_edit, "500")
    page.iterations_edit.selectAll()
    qtbot.keyClicks(page.iterations_edit, "20")
    qtbot.keyClick(page.iterations_edit, Qt.Key.Key_Return)
    page.device.choose("cpu")
    click(qtbot, page.start_button)
    assert sent == [TimeWork(device="vgpu:0", size=500, iterations=20), TimeWork(device="cpu", size=500, iterations=20)]


def test_everything_that_is_wrong_with_the_form_is_said(
    qtbot: QtBot, panel: ExperimentsPanel, sent: list[Command]
) -> None:
    page = panel.time_work
    page.size_edit.setText("big")
    page.iterations_edit.setText("0")
    assert not page.start_button.isEnabled()
    for reason in ("Size 'big' is not a whole number", "Products '0' is not a whole number"):
        assert reason in page.start_button.toolTip()
    qtbot.keyClick(page.size_edit, Qt.Key.Key_Return)
    assert sent == []


def test_both_times_are_bars_of_the_device(panel: ExperimentsPanel, state: State) -> None:
    work = WorkTimed(
        device="vgpu:1", size=1000, iterations=10, launched_seconds=4e-5, finished_seconds=2.9e-3, simulated=True
    )
    carried_out(state, TimeWork(device="vgpu:1"), Answer(title="40 µs without, 2.9 ms with", words="Why."), work)
    panel.refresh()
    without, with_ = panel.time_work.bars.bars
    assert (without.seconds, with_.seconds) == (4e-5, 2.9e-3)
    assert without.group == "10 products of 1000×1000 on vgpu:1"
    assert {bar.colour for bar in (without, with_)} == {state.devices["vgpu:1"].colour}
    assert without.simulated
    table = panel.time_work.bars
    table.resize(450, 200)  # its room beside the answer in a small window
    table.show()
    assert table.columnWidth(NAME) >= table.fontMetrics().horizontalAdvance("unsynchronised simulated")
    assert table.isColumnHidden(GROUP)  # the answer names the job
    set_theme(LIGHT)
    assert panel.time_work.answer.title.text() == "40 µs without, 2.9 ms with"


# --- crossover --------------------------------------------------------------------------------------------------------


def measured(*seconds: tuple[int, float, float, float], simulated: bool = True) -> CrossoverMeasured:
    points = tuple(
        CrossoverPoint(size=size, cpu_seconds=cpu, device_seconds=device, device_with_copies_seconds=copies)
        for size, cpu, device, copies in seconds
    )
    return CrossoverMeasured(device="vgpu:0", simulated=simulated, points=points)


USUAL = measured((16, 1e-6, 4e-6, 2e-5), (64, 7e-6, 5e-6, 3e-5), (256, 3e-4, 9e-6, 9e-5))


def compared(panel: ExperimentsPanel, state: State, what: CrossoverMeasured) -> None:
    carried_out(state, Crossover(device="vgpu:0"), Answer(title="vgpu:0 overtakes", words="Where."), what)
    panel.show_page("Crossover")
    panel.refresh()
    QApplication.processEvents()


def test_the_device_is_compared_with_the_cpu(qtbot: QtBot, panel: ExperimentsPanel, sent: list[Command]) -> None:
    click(qtbot, panel.rail.choices["Crossover"])
    page = panel.crossover
    assert [page.device.itemText(at) for at in range(page.device.count())] == [
        "vgpu:0 (simulated)",
        "vgpu:1 (simulated)",
    ]
    page.largest.choose(256)
    click(qtbot, page.start_button)
    assert sent == [Crossover(device="vgpu:0", sizes=(16, 32, 64, 128, 256))]


def test_a_run_can_be_stopped_and_says_how_far_it_is(
    qtbot: QtBot, panel: ExperimentsPanel, state: State, sent: list[Command]
) -> None:
    page = panel.crossover
    panel.show_page("Crossover")
    state.apply(
        JobStarted(
            request=5, title="comparing vgpu:0 with the CPU", time_unix_s=1.0, command=Crossover(device="vgpu:0")
        )
    )
    state.apply(JobProgress(request=5, done=0.5, text="size 128"))
    panel.refresh()
    assert not page.start_button.isEnabled()
    assert page.hint.full_text == "size 128  50 %"
    click(qtbot, page.stop_button)
    assert sent == [Cancel(job=5)]
    state.apply(JobEnded(request=5, ok=False, time_unix_s=2.0))
    panel.refresh()
    assert page.start_button.isEnabled()
    assert not page.stop_button.isVisible()


def test_three_curves_in_the_colours_of_their_devices_and_lines_where_it_overtakes(
    panel: ExperimentsPanel, state: State
) -> None:
    compared(panel, state, USUAL)
    plot = panel.crossover.plot
    assert [(curve.name, curve.simulated) for curve in plot.series] == [
        ("cpu", False),
        ("vgpu:0", True),
        ("with copies", True),
    ]
    plot.resize(330, 150)
    assert "with copies" in plot.key.text()  # in a second line
    pens = [line.opts["pen"] for line in plot.curves]
    device = device_colour(state.devices["vgpu:0"].colour)
    assert [pen.color().name().upper() for pen in pens] == [DARK.cpu, device, device]
    assert [pen.style() is Qt.PenStyle.SolidLine for pen in pens] == [True, False, False]
    assert pens[1].dashPattern() != pens[2].dashPattern()
    assert all(pen.isCosmetic() and pen.widthF() == 1 for pen in pens)
    xs, ys = plot.curves[1].getData()
    assert [round(10**x) for x in xs] == [16, 64, 256]
    assert [10**y for y in ys] == pytest.approx([4e-6, 5e-6, 9e-6])
    assert [label.text for label in plot.canvas.lines.labels] == ["overtakes from 64", "with copies from 256"]
    assert "vgpu:0: at most 9 µs, at 256" in plot.accessibleDescription()
    shown = plot.figures()
    assert shown is not None
    assert shown.columns == ("n", "cpu, s", "vgpu:0 simulated, s", "with copies simulated, s")
    assert [float(row[2]) for row in shown.rows] == [4e-6, 5e-6, 9e-6]


def test_where_it_does_not_overtake_there_is_no_line(panel: ExperimentsPanel, state: State) -> None:
    compared(panel, state, measured((16, 1e-6, 4e-6, 2e-5), (64, 7e-6, 5e-6, 3e-5)))
    plot = panel.crossover.plot
    assert [label.text for label in plot.canvas.lines.labels] == ["overtakes from 64"]
    compared(panel, state, measured((16, 1e-6, 4e-6, 2e-5), (64, 1e-6, 5e-6, 3e-5)))
    assert plot.canvas.lines.labels == []
    compared(panel, state, measured((16, 1e-6, 4e-6, 2e-5), (64, 7e-5, 5e-6, 3e-5)))
    assert [label.text for label in plot.canvas.lines.labels] == ["overtakes, with copies too"]


def test_the_labels_where_it_overtakes_are_above_the_curves(panel: ExperimentsPanel, state: State) -> None:
    compared(
        panel,
        state,
        measured((16, 1e-6, 4e-6, 2e-5), (64, 7e-6, 5e-6, 3e-5), (128, 6e-5, 6e-6, 4e-5), (256, 3e-4, 9e-6, 9e-5)),
    )
    plot = panel.crossover.plot
    for size in ((700, 260), (420, 150)):
        plot.setFixedSize(*size)
        QApplication.processEvents()
        first, second = plot.canvas.lines.labels
        assert (first.text, second.text) == ("overtakes from 64", "with copies from 128")
        assert not first.rect.intersects(second.rect)
        for label in (first, second):
            shown = plot.canvas.lines.mapRectToScene(label.rect)
            assert plot.canvas.sceneRect().contains(shown)
            box = plot.canvas.view
            assert shown.bottom() <= box.mapRectToScene(box.boundingRect()).top(), "no label lies on a curve"


def test_every_size_and_decade_has_its_text(panel: ExperimentsPanel, state: State) -> None:
    compared(panel, state, USUAL)
    plot = panel.crossover.plot
    assert [text for _, text in plot.canvas.bottom.ticks] == ["16", "64", "256"]
    assert [text for _, text in plot.canvas.left.ticks] == ["1 µs", "10 µs", "100 µs", "1 ms"]
    set_theme(LIGHT)
    assert plot.curves[0].opts["pen"].color().name().upper() == LIGHT.cpu
    panel.resize(500, 200)
    QApplication.processEvents()
    assert plot.width() <= 500, "the key asks for no room"


def test_the_pointer_shows_the_figures_of_the_nearest_size(panel: ExperimentsPanel, state: State) -> None:
    compared(panel, state, USUAL)
    plot = panel.crossover.plot
    at, none = QPointF(plot.canvas.width() - 30, plot.canvas.height() / 2), Qt.MouseButton.NoButton
    viewport, keys = plot.canvas.viewport(), Qt.KeyboardModifier.NoModifier
    QApplication.sendEvent(viewport, QMouseEvent(QEvent.Type.MouseMove, at, viewport.mapToGlobal(at), none, none, keys))
    box = plot.readout.box
    assert box.isVisible()
    for words in ("256", "300 µs", "vgpu:0 simulated", "9 µs", "90 µs"):
        assert words in box.text()
    QApplication.sendEvent(plot, QEvent(QEvent.Type.Leave))
    assert not box.isVisible()


# --- without anything to do -----------------------------------------------------------------------------------------


def test_without_an_engine_and_in_a_recording_nothing_can_be_asked_for(panel: ExperimentsPanel, state: State) -> None:
    panel.set_selection(("mlp",))
    offer = Offer("Add virtual GPUs", AddVirtual(spec="T4"))
    carried_out(
        state,
        Replicate(target="mlp", devices=BOTH),
        Answer(title="No", words=".", failed=True, offers=(offer,)),
        ok=False,
    )
    state.engine = None
    panel.refresh()
    for page in panel.pages.values():
        assert not page.start_button.isEnabled()
        assert page.start_button.toolTip() == "The engine is not ready yet."
    assert not panel.replicate.answer.offers.buttons[0].isEnabled()
    state.engine, state.recording = ENGINE, "Recording of yesterday"
    panel.refresh()
    for page in panel.pages.values():
        assert page.start_button.toolTip() == "This is a recording: nothing in it can be changed."
    state.recording = None
    panel.refresh()
    assert panel.replicate.start_button.isEnabled()
    assert panel.replicate.answer.offers.buttons[0].isEnabled()
