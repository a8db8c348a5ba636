"""The chosen card of a plan in detail: its parts, what would help, and using it."""

from fakes.bench_runs import CPU, T4S
from fakes.fit_pages import begun, panel_for, planned, texts, type_into
from fakes.fits import HELPS, helped, report
from msgspec.structs import replace
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.gui.fit.rows import (
    CARD,
)

T4 = "Tesla T4"


def test_the_chosen_card_is_shown_in_detail(panel, state):
    planned(panel, state, report())
    panel.table.selectRow(texts(panel, CARD).index(T4))
    assert panel.details.title.text() == "Tesla T4, simulated"
    assert "largest part is optimizer state" in panel.details.verdict.text()
    assert panel.details.parts.numbers["activations"].text() == "5.00 GiB"
    assert panel.details.batch.text() == "No batch fits."
    assert "cuBLAS keeps a workspace" in panel.details.rests.text()


def test_the_parts_at_rest_are_beside_those_at_the_peak(qtbot, state):
    """At the peak there can be hardly a gradient; that says nothing about what stays. Where there is no room for a
    second column of numbers, they are in the tips."""
    panel = panel_for(qtbot, state, 2540)
    planned(panel, state, report())
    panel.table.selectRow(texts(panel, CARD).index(T4))
    parts = panel.details.parts
    assert parts.rests["gradients"].isVisible()
    assert (parts.numbers["gradients"].text(), parts.rests["gradients"].text()) == ("3.00 GiB", "4.00 GiB")
    assert [head.text() for head in parts.heads] == ["at the peak", "at rest"]
    assert "17.05 GiB (max_memory_allocated)" in panel.details.tools.text()
    assert "nvidia-smi 18.50 GiB" in panel.details.tools.text()
    narrow = panel_for(qtbot, state, 1260)
    planned(narrow, state, report())
    assert not narrow.details.parts.rests["gradients"].isVisible()
    assert "bytes at rest" in narrow.details.parts.numbers["gradients"].toolTip()


def test_what_would_help_is_asked_for_one_card_and_shown_beside_the_table(qtbot, panel, state, sent):
    planned(panel, state, report(), target="mlp")
    panel.table.selectRow(texts(panel, CARD).index(T4))
    panel.details.helps.ask_button.click()
    (asked,) = sent
    assert (asked.target, asked.spec.gpus, asked.spec.options) == ("mlp", (T4,), True)
    planned(panel, state, report(asked.spec, HELPS), request=8)
    assert len(panel.table.rows) == len(load_profiles())
    assert panel.table.selected_key == T4
    QApplication.processEvents()
    assert [line.title.isVisibleTo(panel.details) for line in panel.details.helps.lines] == [True, True]
    assert not panel.details.helps.ask_button.isVisibleTo(panel.details)
    panel.table.selectRow(len(panel.table.rows) - 1)
    assert panel.details.helps.lines == []
    assert panel.details.helps.ask_button.isVisibleTo(panel.details)


def test_the_cards_that_are_here_come_first_and_the_one_that_was_asked_about_is_chosen(panel, state):
    a100 = "NVIDIA A100-SXM4-80GB"
    state.set_catalog(Catalog((CPU, replace(T4S[0], name=a100), T4S[1])))
    planned(panel, state, report())
    assert texts(panel, CARD)[:3] == [T4, a100, next(name for name in load_profiles() if name not in (T4, a100))]
    assert [action.text() for action in panel.form.cards_edit.menu.actions()][:3] == ["every card", T4, a100]
    assert panel.table.selected_key == T4
    planned(panel, state, report(replace(report().spec, gpus=(a100,), options=True), HELPS), request=8)
    assert panel.table.selected_key == a100
    panel.table.selectRow(0)
    panel.refresh()
    assert panel.table.selected_key == T4, "chosen once, not at every event"


def test_a_help_can_be_used_at_once(qtbot, panel, state, sent):
    planned(panel, state, helped())
    type_into(qtbot, panel.form.model_edit, "lenet")  # the help is about the plan of the table all the same
    type_into(qtbot, panel.form.batch_edit, "nothing")
    first, second = panel.details.helps.lines
    assert not second.button.isVisibleTo(panel.details), "nothing in the form is about states of 8 bits"
    first.button.click()
    assert panel.form.options.checkpointing.isChecked()
    (asked,) = sent
    begun(panel, state, request=9)
    assert not panel.details.helps.lines[0].button.isEnabled(), "a plan is under way"
    assert not panel.views.curves.empty.button.isEnabled()
    assert (asked.spec.source, asked.spec.batch, asked.spec.gpus, asked.spec.checkpointing) == (
        "transformers:gpt2",
        8,
        (T4,),
        True,
    )


def test_where_nothing_helps_or_there_was_no_time_it_says_so(panel, state):
    planned(panel, state, helped(()))
    assert panel.details.helps.nothing.isVisible()
    assert not panel.details.helps.ask_button.isVisible()
    asked = replace(report().spec, gpus=(T4,), options=True)
    planned(panel, state, replace(report(asked, HELPS), untried=("SGD without momentum", "two cards")), request=8)
    assert panel.details.helps.nothing.text() == "Not calculated (time limit reached): SGD without momentum, two cards."
    assert panel.details.helps.nothing.isVisibleTo(panel.details)
    assert len(panel.details.helps.lines) == len(HELPS)


def test_return_on_a_card_asks_once_what_would_help(qtbot, panel, state, sent):
    planned(panel, state, report())
    panel.table.setFocus()
    qtbot.keyClick(panel.table, Qt.Key.Key_Down)
    qtbot.keyClick(panel.table, Qt.Key.Key_Return)
    (asked,) = sent
    name = texts(panel, CARD)[1]
    assert (asked.spec.gpus, asked.spec.options) == ((name,), True)
    planned(panel, state, report(asked.spec, HELPS), request=8)
    qtbot.keyClick(panel.table, Qt.Key.Key_Return)
    assert len(sent) == 1
