"""The Learn page: icons of steps; continuing, restarting; unchanged widgets are kept."""

from __future__ import annotations

import msgspec
import pytest
from fakes.look_records import CPU, ENGINE, VGPU, state_with
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.learn.course import EXERCISES
from devexplorer.core.records import Command, JobEnded, JobStarted, NewTensor, SetThreads, Undo
from devexplorer.core.session.state import State
from devexplorer.gui.learn.page import PAUSED, WRONG, LearnPanel
from devexplorer.gui.widgets.theme import LIGHT, set_theme

LEFT, Key = Qt.MouseButton.LeftButton, Qt.Key
IDS = [one.id for one in EXERCISES]


@pytest.fixture
def state() -> State:
    state = state_with(CPU, VGPU)
    state.apply(ENGINE)
    return state


def shown(qtbot: QtBot, state: State, *learned: str) -> LearnPanel:
    panel = LearnPanel(state)
    panel.set_learned(learned)
    qtbot.addWidget(panel)
    panel.resize(1264, 274)
    panel.show()
    panel.refresh()
    return panel


@pytest.fixture
def panel(qtbot: QtBot, state: State) -> LearnPanel:
    return shown(qtbot, state)


def end(panel: LearnPanel, *commands: Command) -> None:
    """Let commands succeed."""
    state = panel._state
    for command in commands:
        request = state.done_count + 1
        state.apply(JobStarted(request=request, title="", time_unix_s=0.0, command=command))
        state.apply(JobEnded(request=request, ok=True, time_unix_s=0.0))
    panel.refresh()


def signs(panel: LearnPanel) -> list[str]:
    """The icon of each step: its text, or the name of a drawing."""
    return [
        f"{row.sign.text()}{'' if row.sign.pixmap().isNull() else '◆'} {row.sign.accessibleName()}"
        for row in panel.rows
    ]


def drawing(panel: LearnPanel) -> QImage:
    """The shape of the first step's sign, without its colour."""
    return panel.rows[0].sign.pixmap().toImage().convertToFormat(QImage.Format.Format_Alpha8)


def listed(panel: LearnPanel, exercise_id: str) -> str:
    return panel.table.rows[IDS.index(exercise_id)].cells[0].text


def test_done_now_and_later_have_different_signs(panel: LearnPanel) -> None:
    panel.choose("new-tensor")
    assert signs(panel) == ["◆ now", "2 later", "3 later"]
    arrow = drawing(panel)
    end(panel, NewTensor(fill="ones"))
    assert signs(panel) == ["◆ done", "◆ now", "3 later"]
    assert drawing(panel) != arrow, "a tick and an arrow, in whatever colour"
    assert [row.how.isHidden() for row in panel.rows] == [True, False, True]
    assert [(row.now.isHidden(), row.other.isHidden()) for row in panel.rows] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert listed(panel, "new-tensor") == "1/3"


def test_nothing_is_made_again_while_nothing_changes(panel: LearnPanel) -> None:
    panel.choose("new-tensor")
    rows = list(panel.rows)
    end(panel, Undo(), Undo())
    assert panel.rows == rows
    end(panel, NewTensor(fill="ones"))
    set_theme(LIGHT)
    assert panel.rows == rows, "a step that is done changes its looks only"


def test_enter_answers_the_last_step_and_goes_on_to_the_next_exercise(panel: LearnPanel) -> None:
    panel.choose("this-machine")
    panel.answer.setFocus()
    QTest.keyClicks(panel.answer, str(len(panel._state.usable_devices)))
    QTest.keyClick(panel.answer, Key.Key_Return)
    assert panel.next.hasFocus()
    QTest.keyClick(panel.next, Key.Key_Return)
    assert panel.course.exercise.id != "this-machine"


def test_a_text_that_is_being_typed_stays(panel: LearnPanel) -> None:
    panel.choose("this-machine")
    QTest.keyClicks(panel.answer, "1")
    end(panel, Undo())
    set_theme(LIGHT)
    assert panel.answer.text() == "1"


def test_a_wrong_answer_can_be_put_right(panel: LearnPanel) -> None:
    QTest.keyClicks(panel.answer, "7")
    QTest.keyClick(panel.answer, Key.Key_Return)
    assert panel.wrong.text() == WRONG
    assert panel.wrong.text().startswith("✕"), "not by its colour alone"
    QTest.keyClick(panel.answer, Key.Key_Backspace)
    assert panel.wrong.text() == ""
    QTest.keyClicks(panel.answer, "2")
    QTest.keyClick(panel.answer, Key.Key_Return)
    assert not panel.answer.isVisible()
    assert panel.answer.text() == "", "the next question has its own answer"
    assert panel.note.text() == "Done."
    assert panel.learned == ("this-machine",)
    assert listed(panel, "this-machine") == "✓"


def test_no_answer_at_all_is_not_wrong(panel: LearnPanel) -> None:
    QTest.keyClicks(panel.answer, "  ")
    QTest.keyClick(panel.answer, Key.Key_Return)
    assert panel.wrong.text() == ""


def test_it_is_used_by_the_keyboard_alone(qtbot: QtBot, panel: LearnPanel) -> None:
    panel.activateWindow()
    panel.table.setFocus()
    QTest.keyClick(panel.table, Key.Key_Down)
    assert panel.course.exercise.id == IDS[1]
    QTest.keyClick(panel.table, Key.Key_Up)
    QTest.keyClick(panel.table, Key.Key_Return)
    qtbot.waitUntil(panel.answer.hasFocus)
    QTest.keyClicks(panel.answer, "2")
    QTest.keyClick(panel.answer, Key.Key_Return)
    panel.next.setFocus()
    QTest.keyClick(panel.next, Key.Key_Space)
    assert panel.course.exercise.id == IDS[1]
    assert panel.table.selected_key == IDS[1]


def test_an_exercise_continues_where_it_was_left(panel: LearnPanel) -> None:
    panel.choose("new-tensor")
    end(panel, NewTensor(fill="ones"))
    panel.choose("threads")
    end(panel, NewTensor(fill="text", text="[1]"))
    panel.choose("new-tensor")
    assert signs(panel) == ["◆ done", "◆ now", "3 later"]
    end(panel)
    assert panel.course.at == 1, "what was done meanwhile was for another exercise"
    end(panel, NewTensor(fill="text", text="[1]"))
    assert panel.course.at == 2


def test_an_exercise_is_begun_again_and_stays_done(panel: LearnPanel) -> None:
    panel.choose("dtype")
    assert not panel.again.isVisible(), "it has only begun"
    panel.learned = ("dtype",)
    end(panel, NewTensor(fill="randn"))
    QTest.mouseClick(panel.again, LEFT)
    assert signs(panel) == ["◆ now", "2 later", "3 later"]
    assert listed(panel, "dtype") == "✓"


def test_the_next_exercise_is_one_that_is_not_done(qtbot: QtBot, state: State) -> None:
    panel = shown(qtbot, state, *[one for one in IDS if one not in ("this-machine", "vgg")])
    told: list[object] = []
    panel.learned_changed.connect(told.append)
    QTest.keyClicks(panel.answer, "two")
    QTest.keyClick(panel.answer, Key.Key_Return)
    assert told == [tuple(one for one in IDS if one != "vgg")]
    QTest.mouseClick(panel.next, LEFT)
    assert panel.course.exercise.id == "vgg"


def test_after_the_last_one_there_is_no_next(qtbot: QtBot, state: State) -> None:
    panel = shown(qtbot, state, *IDS[1:])
    QTest.keyClicks(panel.answer, "2")
    QTest.keyClick(panel.answer, Key.Key_Return)
    assert not panel.next.isVisible()
    assert panel.note.text() == "Done, and with it all exercises."
    assert panel.progress.text() == f"{len(IDS)} of {len(IDS)} done"


def test_an_exercise_that_was_done_before_can_be_done_once_more_without_being_told_again(
    qtbot: QtBot, state: State
) -> None:
    panel = shown(qtbot, state, "threads")
    told: list[object] = []
    panel.learned_changed.connect(told.append)
    panel.choose("threads")
    end(panel, SetThreads(threads=1))
    QTest.keyClicks(panel.answer, "16")
    QTest.keyClick(panel.answer, Key.Key_Return)
    end(panel, SetThreads(threads=4))
    assert panel.course.finished
    assert told == []


@pytest.mark.parametrize(("reason", "offered"), [(None, True), ("this torch cannot have them", False)])
def test_virtual_gpus_are_offered_where_they_help(qtbot: QtBot, reason: str | None, offered: bool) -> None:
    state = state_with(CPU)
    panel = shown(qtbot, state)
    panel.choose("several")
    assert not panel.needs.isVisible(), "unknown before there is an engine"
    state.apply(msgspec.structs.replace(ENGINE, virtual_unavailable=reason))
    panel.refresh()
    assert panel.needs.isVisible() == offered
    panel.choose("dtype")
    assert not panel.needs.isVisible(), "one device is enough"
    panel.choose("several")
    if offered:
        with qtbot.waitSignal(panel.virtual_offered):
            QTest.mouseClick(panel.needs, LEFT)
    state.set_catalog(Catalog((CPU, VGPU), ()))
    panel.refresh()
    assert not panel.needs.isVisible()


def test_a_recording_pauses_the_exercise(panel: LearnPanel) -> None:
    panel.choose("dtype")
    panel._state.recording = "a.devrec"
    end(panel, NewTensor(fill="randn"))
    assert panel.course.at == 0
    assert panel.note.text() == PAUSED
    panel._state.recording = None
    panel.refresh()
    assert not panel.note.isVisible()


def test_on_a_low_page_the_present_step_is_scrolled_into_sight(qtbot: QtBot, panel: LearnPanel) -> None:
    panel.resize(900, 100)
    panel.choose("several")

    def in_sight(part: QWidget | None = None) -> bool:
        part = part or panel.rows[panel.course.at]
        top = part.mapTo(panel.area.viewport(), QPoint(0, 0)).y()
        return top >= 0 and top + part.height() <= panel.area.viewport().height()

    qtbot.waitUntil(in_sight)
    end(panel, NewTensor(), NewTensor())
    assert panel.course.at == 1
    qtbot.waitUntil(in_sight)

    panel.choose("this-machine")
    qtbot.waitUntil(lambda: in_sight(panel.answer))
