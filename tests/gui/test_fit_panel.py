"""The Fit tab: what its form asks for, why it cannot, and how a plan for many cards is shown."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from fakes.bench_runs import CPU, T4S
from fakes.fits import BYTES, HELPS, fit, report
from fakes.host import hosted
from fakes.look_records import ENGINE, mlp, show, state_with
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from devexplorer.core.records.messages import Answer, Cancel, Command, JobEnded, JobProgress, JobStarted
from devexplorer.core.records.planner import FitPlanned, FitReport, FitSpec, PlanFit
from devexplorer.core.state import State
from devexplorer.core.virtual.profiles import load_profiles
from devexplorer.gui.item_models.fit_rows import BATCH, CAPACITY, CARD, COLUMNS, FITS, MEMORY, RATE, STEP, TOTAL, fit_rows, sizes
from devexplorer.gui.panels.fit import FitPanel
from devexplorer.gui.panels.fit_bars import part_colour
from devexplorer.gui.plots.shades import contrast
from devexplorer.gui.theme import DARK, LIGHT, THEMES

LEFT = Qt.MouseButton.LeftButton
T4 = "Tesla T4"


@pytest.fixture
def state() -> State:
    state = state_with(CPU, *T4S)
    state.apply(ENGINE)
    show(state, mlp())
    return state


@pytest.fixture
def sent() -> list[Command]:
    return []


@pytest.fixture
def panel(qtbot: QtBot, state: State, sent: list[Command]) -> FitPanel:
    made = hosted(qtbot, lambda host: FitPanel(state, DARK), 1264, 300)
    made.command_requested.connect(sent.append)
    return made


def click(qtbot: QtBot, button: QPushButton) -> None:
    qtbot.mouseClick(button, LEFT)


def type_into(qtbot: QtBot, field, text: str) -> None:
    field.clear()
    qtbot.keyClicks(field, text)


def planned(panel: FitPanel, state: State, found: FitReport, *, target: str = "", request: int = 7) -> None:
    """What an engine sends about a plan."""
    state.apply(JobStarted(request=request, title="planning", time_unix_s=1.0, command=PlanFit(spec=found.spec, target=target)))
    state.apply(FitPlanned(request=request, target=target, report=found))
    state.apply(Answer(request=request, title="planned", words="all cards"))
    state.apply(JobEnded(request=request, ok=True, time_unix_s=2.0))
    panel.refresh()


def texts(panel: FitPanel, column: int) -> list[str]:
    return [row.cells[column].text for row in panel.rows_model.rows]


# --- the form


def test_it_asks_about_the_selected_model_on_every_card(qtbot, panel, sent):
    panel.set_selection(("mlp:hidden.weight",))
    type_into(qtbot, panel.batch_edit, "32")
    click(qtbot, panel.run_button)
    (command,) = sent
    assert command == PlanFit(target="mlp", spec=FitSpec(source="", batch=32, train=True, optimizer="adamw", options=False))


def test_a_typed_model_stays_when_the_selection_changes(qtbot, panel, sent):
    type_into(qtbot, panel.model_edit, "transformers:gpt2")
    panel.set_selection(("mlp",))
    panel.dtype.choose("bfloat16")
    type_into(qtbot, panel.cards_edit, "2x t4")
    click(qtbot, panel.run_button)
    (command,) = sent
    assert (command.target, command.spec.source, command.spec.dtype) == ("", "transformers:gpt2", "bfloat16")
    assert (command.spec.gpus, command.spec.options) == (("2x t4",), True)


def test_optimizer_and_checkpointing_are_about_training(qtbot, panel, sent):
    panel.set_selection(("mlp",))
    panel.checkpointing.setChecked(True)
    panel.train.click()
    assert not panel.optimizer.isEnabled()
    assert "training" in panel.checkpointing.toolTip()
    click(qtbot, panel.run_button)
    assert (sent[0].spec.train, sent[0].spec.checkpointing) == (False, False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda panel: panel.model_edit.clear(), "Choose a model"),
        (lambda panel: panel.model_edit.setText("net.py:Net"), "open the model first"),
        (lambda panel: panel.model_edit.setText("a:b:c d"), "cannot be the name"),
        (lambda panel: panel.batch_edit.setText("none"), "none"),
        (lambda panel: panel.cards_edit.setText("T5"), "There is no profile 'T5'"),
        (lambda panel: panel.inputs_edit.setText("4x"), "4x"),
        (lambda panel: (panel.dtype.choose("float16"), panel.autocast.choose("bfloat16")), "Autocast is for models in float32"),
    ],
)
def test_what_cannot_be_planned_is_said_before_it_is_asked(qtbot, panel, sent, change, words):
    panel.set_selection(("mlp",))
    change(panel)
    assert not panel.run_button.isEnabled()
    assert words in panel.hint.full_text
    click(qtbot, panel.run_button)
    assert sent == []


def test_a_plan_under_way_shows_how_far_it_is_and_can_be_stopped(qtbot, panel, state, sent):
    panel.set_selection(("mlp",))
    state.apply(JobStarted(request=9, title="planning mlp", time_unix_s=1.0, command=PlanFit(spec=FitSpec(source="mlp"))))
    state.apply(JobProgress(request=9, done=0.4, text="a step of mlp"))
    panel.refresh()
    assert panel.hint.full_text == "a step of mlp  40 %"
    assert not panel.run_button.isEnabled()
    click(qtbot, panel.stop_button)
    assert sent == [Cancel(job=9)]


# --- the table


def test_every_card_has_a_row_with_its_figures(panel, state):
    planned(panel, state, report())
    assert texts(panel, CARD) == list(load_profiles())
    row = panel.rows_model.rows[texts(panel, CARD).index(T4)]
    assert [row.cells[column].text for column in (TOTAL, CAPACITY, FITS, BATCH, STEP)] == [
        "17.55 GiB", "15.0 GiB", "✕ does not fit", "0", "—",
    ]  # fmt: skip
    assert row.cells[FITS].tip == fit(T4, 1).reason
    large = panel.rows_model.rows[texts(panel, CARD).index("NVIDIA H100 80GB HBM3")]
    assert large.cells[FITS].text == "✓ fits"
    assert large.cells[RATE].text == "25.8"


def test_the_parts_of_the_bar_add_up_to_what_it_takes():
    assert sum(size for _, size in sizes(BYTES)) == BYTES.total
    cells = fit_rows((fit(T4, 2 * BYTES.total),), DARK)[0].cells
    assert cells[MEMORY].text == "50 %"
    assert "optimizer state: 6.00 GiB" in cells[MEMORY].tip


def test_times_say_that_they_are_simulated():
    assert all("Simulated" in COLUMNS[column].title for column in (STEP, RATE))


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_neighbouring_parts_can_be_told_apart_in_grey(theme):
    keys = ["parameters", "gradients", "optimizer", "activations", "buffers"]
    for one, other in itertools.pairwise(keys):
        assert contrast(part_colour(one, theme), part_colour(other, theme)) > 1.2


def test_a_search_that_ended_at_its_limit_says_so():
    cells = fit_rows((fit(T4, 1 << 40, largest_batch=65536, at_least=True),), DARK)[0].cells
    assert cells[BATCH].text == "≥ 65,536"


# --- one card


def test_the_chosen_card_is_shown_in_detail(panel, state):
    planned(panel, state, report())
    panel.table.selectRow(texts(panel, CARD).index(T4))
    assert panel.details.title.text() == "Tesla T4, simulated"
    assert "largest part is optimizer state" in panel.details.verdict.text()
    assert panel.details._parts.numbers["activations"].text() == "5.00 GiB"
    assert "cuBLAS keeps a workspace" in panel.details.rests.text()


def test_what_would_help_is_asked_for_one_card_and_shown_beside_the_table(qtbot, panel, state, sent):
    planned(panel, state, report())
    panel.table.selectRow(texts(panel, CARD).index(T4))
    click(qtbot, panel.details.helps_button)
    (asked,) = sent
    assert (asked.spec.gpus, asked.spec.options, asked.spec.source) == ((T4,), True, "transformers:gpt2")
    planned(panel, state, report(asked.spec, HELPS), request=8)
    assert len(panel.rows_model.rows) == len(load_profiles())
    assert panel.table.selected_key == T4
    assert [row.isVisibleTo(panel.details) for row in panel.details.rows] == [True, True]
    assert not panel.details.helps_button.isVisibleTo(panel.details)
    panel.table.selectRow(len(panel.rows_model.rows) - 1)
    assert panel.details.rows == []
    assert panel.details.helps_button.isVisibleTo(panel.details)


def test_a_help_can_be_used_at_once(qtbot, panel, state, sent):
    panel.model_edit.setText("transformers:gpt2")
    planned(panel, state, report(msgspec.structs.replace(report().spec, gpus=(T4,), options=True), HELPS))
    first, second = panel.details.rows
    assert not second.button.isVisibleTo(panel.details), "nothing in the form is about states of 8 bits"
    click(qtbot, first.button)
    assert panel.checkpointing.isChecked()
    assert sent[-1].spec.checkpointing


def test_another_plan_takes_the_place_of_the_table(panel, state):
    planned(panel, state, report())
    other = msgspec.structs.replace(report().spec, batch=16, gpus=(T4,), options=True)
    planned(panel, state, report(other, HELPS), request=8)
    assert texts(panel, CARD) == [T4]


def test_a_plan_that_failed_says_why(panel, state):
    state.apply(JobStarted(request=7, title="planning", time_unix_s=1.0, command=PlanFit(spec=FitSpec(source="x"))))
    state.apply(Answer(request=7, title="There is no plan", words="There is no sample model 'x'.", failed=True))
    state.apply(JobEnded(request=7, ok=False, time_unix_s=2.0))
    panel.refresh()
    assert panel.answer.isVisibleTo(panel)
    assert "no sample model" in panel.answer.words.text()


@pytest.mark.parametrize("theme", [DARK, LIGHT])
def test_it_is_painted_in_both_themes(panel, state, theme):
    planned(panel, state, report())
    panel.set_theme(theme)
    assert not panel.table.grab().toImage().isNull()
