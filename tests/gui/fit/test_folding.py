"""The form of Fit gives its room to the answer where it needs several lines, and comes back."""

import pytest
from fakes.fit_pages import begun, ended, panel_for, planned
from fakes.fits import report
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from devexplorer.core.records import Answer, Command
from devexplorer.gui.fit.rows import (
    CARD,
)

LEFT = Qt.MouseButton.LeftButton


def click(qtbot, button):
    qtbot.mouseClick(button, LEFT)


@pytest.mark.parametrize(("width", "height"), [(686, 260), (900, 108)])
def test_the_answer_is_in_sight_where_the_form_needs_several_lines(qtbot, state, width, height):
    """As the tab is in a window of 1366x768 and of 1000x650."""
    panel = panel_for(qtbot, state, width, height)
    panel.set_selection(("mlp",))
    assert not panel.is_folded, "there is no answer yet"
    assert panel.start_button.isVisible()
    planned(panel, state, report())
    QApplication.processEvents()
    assert panel.is_folded
    assert panel.minimumSizeHint().height() <= height, "nothing is below the fold"
    second = panel.table.visualRect(panel.table.rows_model.index(1, CARD))
    assert panel.table.viewport().rect().contains(second)
    assert panel.caption.isVisible()
    assert panel.views.tabs.x() - panel.caption.geometry().right() < 20, "it has all the room there is"
    assert panel.views.tabs.isVisible()


def test_the_form_comes_back_for_another_plan(qtbot, state):
    panel = panel_for(qtbot, state, 686, 260)
    sent: list[Command] = []
    panel.command_requested.connect(sent.append)
    panel.set_selection(("mlp",))
    planned(panel, state, report(), target="mlp")
    click(qtbot, panel.fold_button)
    assert not panel.is_folded
    assert panel.window().focusWidget() is panel.form.batch_edit
    qtbot.keyClicks(panel.form.batch_edit, "64")
    click(qtbot, panel.fold_button)
    assert panel.is_folded
    click(qtbot, panel.fold_button)
    qtbot.keyClick(panel.form.batch_edit, Qt.Key.Key_Return)
    (asked,) = sent
    assert asked.spec.batch == 64
    assert panel.is_folded
    begun(panel, state, request=9)
    assert panel.stop_button.isVisible()
    assert panel.hint.isVisible()
    failed = Answer(title="There is no plan", words="It has no parameters to train.", failed=True)
    ended(panel, state, failed, request=9)
    assert panel.caption.full_text.startswith("✕")
    assert not panel.is_folded, "what was wrong is in the form"
