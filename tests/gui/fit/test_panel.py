"""The Fit tab: requests, refusals, and a plan for many cards."""

import pytest
from fakes.fit_pages import begun, ended, panel_for, planned, texts, type_into
from fakes.fits import BYTES, HELPS, fit, helped, report
from fakes.look_records import ENGINE, mlp, model, module_row, show, tensor_row
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.planner.records import FitSpec, PlanFit, planned_tensors
from devexplorer.core.records import Answer, Cancel, JobProgress, JobStarted, ObjectRemoved
from devexplorer.core.session.state import State
from devexplorer.gui.fit.page import AT_WORK, OLD, FitPanel
from devexplorer.gui.fit.rows import (
    BATCH,
    CAPACITY,
    CARD,
    ENERGY,
    FITS,
    MEMORY,
    RATE,
    STEP,
    TOTAL,
    fit_row,
    share_text,
    sizes,
)

LEFT = Qt.MouseButton.LeftButton
T4 = "Tesla T4"


def click(qtbot, button):
    qtbot.mouseClick(button, LEFT)


# --- the form


def test_it_asks_about_the_selected_model_on_every_card(qtbot, panel, sent):
    panel.set_selection(("mlp:hidden.weight",))
    type_into(qtbot, panel.form.batch_edit, "32")
    click(qtbot, panel.start_button)
    (command,) = sent
    assert command == PlanFit(
        target="mlp",
        spec=FitSpec(source="", batch=32, train=True, optimizer="adamw", options=False, patience_seconds=60.0),
    )


def test_a_typed_model_stays_when_the_selection_changes(qtbot, panel, sent):
    type_into(qtbot, panel.form.model_edit, "transformers:gpt2")
    panel.set_selection(("mlp",))
    panel.form.precision.choose(("bfloat16", None))
    type_into(qtbot, panel.form.cards_edit, "2x t4")
    click(qtbot, panel.start_button)
    (command,) = sent
    assert (command.target, command.spec.source, command.spec.dtype) == ("", "transformers:gpt2", "bfloat16")
    assert (command.spec.gpus, command.spec.options) == (("2x t4",), True)


def test_optimizer_and_checkpointing_are_about_training(qtbot, panel, sent):
    panel.set_selection(("mlp",))
    panel.form.options.checkpointing.setChecked(True)
    panel.form.train.click()
    assert not panel.form.optimizer.isEnabled()
    assert "training" in panel.form.options.checkpointing.toolTip()
    click(qtbot, panel.start_button)
    assert (sent[0].spec.train, sent[0].spec.checkpointing) == (False, False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda panel: panel.form.model_edit.clear(), "Choose a model"),
        (lambda panel: panel.form.model_edit.setText("net.py:Net"), "open the model first"),
        (lambda panel: panel.form.model_edit.setText("a:b:c d"), "cannot be the name"),
        (lambda panel: panel.form.batch_edit.setText("none"), "none"),
        (lambda panel: panel.form.cards_edit.setText("T5"), "There is no profile 'T5'"),
        (lambda panel: panel.form.inputs_edit.setText("4x"), "4x"),
    ],
)
def test_what_cannot_be_planned_is_said_before_it_is_asked(qtbot, panel, sent, change, words):
    panel.set_selection(("mlp",))
    change(panel)
    assert not panel.start_button.isEnabled()
    assert words in panel.hint.full_text
    click(qtbot, panel.start_button)
    assert sent == []


def test_a_plan_under_way_shows_how_far_it_is_and_can_be_stopped(qtbot, panel, state, sent):
    panel.set_selection(("mlp",))
    state.apply(
        JobStarted(request=9, title="planning mlp", time_unix_s=1.0, command=PlanFit(spec=FitSpec(source="mlp")))
    )
    state.apply(JobProgress(request=9, done=0.4, text="a step of mlp"))
    before = panel.start_button.geometry(), panel.form.inputs_edit.pos()
    panel.refresh()
    QApplication.processEvents()
    assert (panel.stop_button.geometry(), panel.form.inputs_edit.pos()) == before, "nothing moves"
    assert panel.hint.full_text == "a step of mlp  40 %"
    assert not panel.start_button.isEnabled()
    click(qtbot, panel.stop_button)
    assert sent == [Cancel(job=9)]


# --- the table


def test_every_card_has_a_row_with_its_figures(panel, state):
    planned(panel, state, report())
    assert texts(panel, CARD) == list(load_profiles())
    row = panel.table.rows[texts(panel, CARD).index(T4)]
    assert [row.cells[column].text for column in (TOTAL, CAPACITY, FITS, BATCH, STEP)] == [
        "17.55", "14.7", "✕ no", "0", "—",
    ]  # fmt: skip
    assert row.cells[FITS].tip.lower().startswith(fit(T4, 1).reason.lower())
    large = panel.table.rows[texts(panel, CARD).index("NVIDIA H100 80GB HBM3")]
    assert large.cells[FITS].text == "✓ yes"
    assert large.cells[STEP].text == "250 to 390 ms"
    assert large.cells[RATE].text == "20.5 to 32.0"
    assert large.cells[ENERGY].text == "0.293 to 0.457"
    assert "bound by compute" in large.cells[STEP].tip.lower()


def test_the_parts_of_the_bar_add_up_to_what_it_takes():
    assert sum(size for _, size in sizes(BYTES)) == BYTES.total
    cells = fit_row(fit(T4, 2 * BYTES.total, largest_batch=65536, at_least=True)).cells
    assert (cells[MEMORY].text, cells[BATCH].text) == ("50 %", "≥ 65,536")
    assert "optimizer state: 6.00 GiB" in cells[MEMORY].tip
    assert [share_text(*of) for of in ((15, 10), (5646, 1), (0, 1))] == ["150 %", "5,646 ×", "—"]


# --- what is shown


def test_a_plan_that_was_stopped_leaves_what_there_was(panel, state):
    begun(panel, state, request=6)
    assert panel.empty.sentence.text() == AT_WORK
    stopped = Answer(title="There is no plan", words="It was ended.", failed=True, cancelled=True)
    ended(panel, state, stopped, request=6)
    assert panel.is_empty
    assert panel.empty.sentence.text() == FitPanel.nothing
    planned(panel, state, report())
    begun(panel, state, request=9)
    ended(panel, state, stopped, request=9)
    assert not panel.caption.full_text.startswith("✕")
    assert panel.table.isVisible()


def test_the_line_above_the_table_says_what_was_planned(panel, state):
    done = report()
    planned(panel, state, done)
    fitting = sum(fit.fits for fit in done.fits)
    assert panel.caption.isVisible()
    assert panel.caption.full_text == (
        f"transformers:gpt2 fits {fitting} of {len(load_profiles())} cards (simulated): training with AdamW, batch 8,"
        " inputs 8x1024:int64"
    )
    begun(panel, state, request=9)
    assert not panel.caption.isVisible(), "how it goes stands there"
    assert panel.hint.isVisible()


def test_a_plan_of_a_model_that_has_changed_since_is_marked(panel, state):
    row = tensor_row("weight", 1, "cpu", requires_grad=True)
    whole = model("net", module_row("", 0, "Net", ("cpu",)), row)
    show(state, whole)
    done = report()
    planned(panel, state, replace(done, spec=replace(done.spec, tensors=planned_tensors(whole))), target="net")
    assert not panel.caption.full_text.startswith(OLD)
    for changed, old in (
        (replace(row, devices=("vgpu:0",)), False),
        (replace(row, requires_grad=False), True),
        (row, False),
        (replace(row, dtype="float16"), True),
    ):
        show(state, model("net", whole.rows[0], changed))
        panel.refresh()
        assert panel.caption.full_text.startswith(OLD) == old
    state.apply(ObjectRemoved(name="net"))
    panel.refresh()
    assert panel.caption.full_text.startswith(OLD)


def test_every_figure_says_that_it_is_simulated(panel, state):
    planned(panel, state, report())
    for row in panel.table.rows:
        assert all("imulated" in row.cells[column].tip for column in (MEMORY, TOTAL))
        assert all("imulated" in row.cells[column].tip or row.cells[column].text == "—" for column in (STEP, RATE))
    planned(panel, state, helped(), request=8)
    assert "(simulated)" in panel.details.helps.lines[0].takes.toolTip()
    assert "simulated" in panel.details.parts.numbers["parameters"].accessibleName()
    assert "simulated" in panel.details.accessibleName()


def test_a_plan_stays_and_a_recording_shows_nothing_of_it(panel, state, monkeypatch):
    planned(panel, state, report())
    monkeypatch.setattr(panel.table, "set_rows", lambda rows: pytest.fail("this is called at every event"))
    panel.refresh()
    monkeypatch.undo()
    aside = State()
    state.exchange(aside)
    panel.refresh()
    assert panel.is_empty
    assert not panel.caption.isVisible()
    state.exchange(aside)
    for _ in range(2):
        panel.refresh()
        assert panel.caption.isVisible()
        assert len(panel.table.rows) == len(load_profiles())
        state.done.clear()  # it keeps the newest only


def test_the_models_to_choose_from_are_those_of_the_workspace(qtbot, panel, state, sent):
    def offered():
        return [action.text() for action in panel.form.model_edit.menu.actions()]

    state.engine = replace(ENGINE, recipes={"mlp": "two layers"})
    show(state, replace(mlp(), name="classifier"))
    panel.refresh()
    assert offered()[:2] == ["mlp", "classifier"]
    panel.set_selection(("classifier:0",))
    assert panel.form.model_edit.text() == "classifier"
    state.apply(ObjectRemoved(name="classifier"))
    panel.refresh()
    assert (panel.form.model_edit.text(), "classifier" in offered()) == ("mlp", False), "the one that is left"
    type_into(qtbot, panel.form.model_edit, "classifier")
    assert not panel.start_button.isEnabled()
    assert "no model 'classifier'" in panel.hint.full_text
    next(action for action in panel.form.model_edit.menu.actions() if action.text() == "mlp").trigger()
    click(qtbot, panel.start_button)
    assert [command.target for command in sent if isinstance(command, PlanFit)] == ["mlp"]


@pytest.mark.parametrize("width", [686, 1100, 1264, 2540])
def test_the_names_of_the_cards_and_the_details_are_whole(qtbot, state, width):
    panel = panel_for(qtbot, state, width, 300)
    planned(panel, state, report())
    asked = replace(report().spec, gpus=(texts(panel, CARD)[0],), options=True)
    planned(panel, state, report(asked, HELPS), request=8)
    QApplication.processEvents()
    assert panel.width() == width
    table = panel.table
    assert table.columnWidth(CARD) >= table.fontMetrics().horizontalAdvance("GeForce RTX 3070 Laptop GPU") + 18
    assert table.horizontalScrollBar().maximum() == 0
    assert len(panel.details.helps.lines) == len(HELPS)
    assert panel.details.widget().width() <= panel.details.viewport().width()
    if width >= 1260:
        fields = panel._fields
        assert fields.heightForWidth(fields.width()) == fields.sizeHint().height(), "in one line"
        assert table.isColumnHidden(CAPACITY) == (width < 1420)
