"""Values, initial values, ties, flags, optimizers and modes by keys and menus in the whole window, with the real
engine; all undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import recordings
from fakes.hands import CTRL, SHIFT, Hands
from fakes.window import open_window
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu

from devexplorer.core.parameters.state import ValuesState
from devexplorer.core.records import Row
from devexplorer.gui.parameters.dialogs import RULES, EditElementDialog, InitialiseDialog
from devexplorer.gui.recording.actions import replaying_of

HIDDEN = "mlp:0.weight"


@pytest.fixture
def hands(qapp: QApplication, tmp_path: Path) -> Iterator[Hands]:
    window = open_window(qapp, tmp_path / "settings", "2x Tesla T4", Hands)
    yield window.ready()
    window.end()


def _row(hands: Hands, target: str) -> Row:
    name, _, path = target.partition(":")
    return next(row for row in hands.state.objects[name].rows if row.path == path)


def _facts(hands: Hands) -> dict[str, str]:
    return {fact.label: fact.value for fact in hands.window.bottom_dock.page("values").facts.facts}


def _said(hands: Hands, words: str) -> None:
    hands.until(lambda: words in hands.window.inspector.title.text() and not hands.state.jobs, words)


def _undo(hands: Hands) -> None:
    before = hands.state.answer
    hands.press(Qt.Key.Key_Z, CTRL)
    hands.until(lambda: hands.state.answer is not before and not hands.state.jobs, "undone")
    assert "Undone" in hands.window.inspector.title.text()


def _redo(hands: Hands) -> None:
    before = hands.state.answer
    hands.press(Qt.Key.Key_Z, CTRL | SHIFT)
    hands.until(lambda: hands.state.answer is not before and not hands.state.jobs, "done again")
    assert "Undone" not in hands.window.inspector.title.text()


def _choose(menu: QMenu, *words: str) -> None:
    """Go to each line in turn by the keys, and press Enter on it."""
    for word in words:
        action = next(one for one in menu.actions() if one.text() == word)
        assert action.isEnabled(), action.toolTip()
        while menu.activeAction() is not action:
            QTest.keyClick(menu, Qt.Key.Key_Down)
        QTest.keyClick(menu, Qt.Key.Key_Return)
        menu = action.menu()


def _context(hands: Hands, *words: str) -> None:
    """A line of the context menu of the selection."""
    hands.window.objects.context_menu_requested.emit(QPoint(10, 10))
    _choose(next(one for one in QApplication.topLevelWidgets() if isinstance(one, QMenu) and one.isVisible()), *words)


def test_values_are_viewed_drawn_again_and_edited(hands: Hands) -> None:
    hands.build("mlp")
    hands.point(HIDDEN)
    hands.press(Qt.Key.Key_V)
    page = hands.window.bottom_dock.page("values")
    hands.until(lambda: page.title.full_text == HIDDEN, "described")
    assert page.isVisible()
    before = _facts(hands)
    assert not page.old.isVisible()

    hands.click(page.initialise)
    dialog = hands.dialog(InitialiseDialog)
    hands.pick(dialog.rule, RULES["constant"].words)
    hands.write(dialog.numbers["value"], "0.25")
    QTest.keyClick(dialog.numbers["value"], Qt.Key.Key_Return)
    hands.until(lambda: _facts(hands)["mean"] == "0.25", "initialised")
    found = hands.state.part(ValuesState).values[HIDDEN]
    assert found.before is not None
    assert f"{found.before.mean:.6g}" == before["mean"]

    hands.click(page.edit)
    edit = hands.dialog(EditElementDialog)
    hands.write(edit.value, "7")
    QTest.keyClick(edit.value, Qt.Key.Key_Return)
    hands.until(lambda: _facts(hands)["max"] == "7", "looked again")
    assert not page.old.isVisible()

    for expected in ("0.25", before["max"]):
        _undo(hands)
        hands.until(lambda: _facts(hands)["max"] == expected, "undone")  # noqa: B023 - called at once
    _redo(hands)
    _redo(hands)
    hands.until(lambda: _facts(hands)["max"] == "7", "done again")


def test_parameters_are_frozen_and_tied_by_menu_and_taken_back_by_key(hands: Hands) -> None:
    hands.build("mlp")
    hands.point(HIDDEN)
    _context(hands, "Parameters", "Freeze")
    hands.until(lambda: not _row(hands, HIDDEN).requires_grad, "frozen")
    _undo(hands)
    assert _row(hands, HIDDEN).requires_grad
    _redo(hands)
    assert not _row(hands, HIDDEN).requires_grad
    _context(hands, "Parameters", "Unfreeze")
    hands.until(lambda: _row(hands, HIDDEN).requires_grad, "unfrozen")

    hands.build("transformer")
    one, other = (f"transformer:encoder.layers.{layer}.norm1.weight" for layer in (0, 1))
    hands.point(one, other)
    (tie,) = hands.window.inspector.ways.buttons
    assert tie.text() == "Tie encoder.layers.1.norm1.weight to encoder.layers.0.norm1.weight"
    hands.click(tie)
    hands.until(lambda: _row(hands, other).tied_to is not None, "tied")
    hands.point(other)
    _context(hands, "Parameters", "Untie")
    hands.until(lambda: _row(hands, other).tied_to is None, "untied")
    _undo(hands)
    assert _row(hands, other).tied_to == one.partition(":")[2]
    _redo(hands)
    assert _row(hands, other).tied_to is None


def test_an_optimizer_steps_moves_after_its_parameters_and_goes(hands: Hands) -> None:
    hands.build("mlp")
    hands.point("mlp")
    actions = hands.window.actions_by_id
    assert actions["train_step"].toolTip() == "Give the model an optimizer first."
    _context(hands, "Mode and optimizer", "Optimizer: Adam")
    _said(hands, "mlp has an optimizer: Adam")
    _context(hands, "Mode and optimizer", "Training step")
    _said(hands, "mlp made a step")
    assert any(row.kind == "state" for row in hands.state.objects["mlp"].rows)
    _context(hands, "Mode and optimizer", "Evaluation mode")
    hands.until(lambda: hands.state.objects["mlp"].training is False, "evaluation mode")
    _context(hands, "Parameters", "Clear gradients")
    hands.until(lambda: not any(row.kind == "gradient" for row in hands.state.objects["mlp"].rows), "cleared")
    _undo(hands)
    assert any(row.kind == "gradient" for row in hands.state.objects["mlp"].rows)
    _undo(hands)
    assert hands.state.objects["mlp"].training is True
    _undo(hands)
    assert not any(row.kind == "state" for row in hands.state.objects["mlp"].rows)
    _redo(hands)
    assert any(row.kind == "state" for row in hands.state.objects["mlp"].rows)
    hands.press(Qt.Key.Key_1, CTRL)
    _said(hands, "mlp is now on vgpu:0")
    _context(hands, "Mode and optimizer", "Move optimizer state")
    done = ("Nothing had to move", "The optimizer state of mlp followed its parameters")
    hands.until(lambda: hands.window.inspector.title.text() in done)
    assert {row.devices for row in hands.state.objects["mlp"].rows if row.kind == "state" and row.bytes > 8} == {
        ("vgpu:0",)
    }
    _context(hands, "Mode and optimizer", "No optimizer")
    _said(hands, "mlp no longer has an optimizer")


def test_a_model_is_asked_and_split_by_the_menu(hands: Hands) -> None:
    hands.build("mlp")
    hands.point("mlp")
    _context(hands, "Ask", "Where is it, and what is where in it?")
    hands.until(
        lambda: hands.state.answer is not None and not hands.state.jobs and hands.state.answer.subject == "mlp",
        "answered",
    )
    assert hands.window.inspector.words.text()
    _context(hands, "Split", "Insert hops")
    hands.until(lambda: hands.state.objects["mlp"].hops, "hops")
    assert hands.window.actions_by_id["insert_hops"].toolTip() == "Its parts fetch what they are given already."
    _context(hands, "Split", "Join on one device")
    hands.until(lambda: not hands.state.objects["mlp"].hops, "joined")
    _context(hands, "Split", "Split over devices…")
    hands.until(lambda: hands.tab_shown == "Split", "the page")


REASONS = {
    "open_model": None,
    "load": None,
    "checkpoint": "Select an object in the list first.",
    "save": "Select an object in the list first.",
    "save_all": "The workspace is empty.",
    "values": "Select an object in the list first.",
    "initialise": "Select an object in the list first.",
    "tie": "Select an object in the list first.",
    "train_step": "Select an object in the list first.",
    "split": "Select an object in the list first.",
    "page learn": None,
    "page session": None,
}


def test_what_cannot_be_done_says_why(hands: Hands) -> None:
    for feature in ("files", "learn", "split"):
        pytest.importorskip(f"devexplorer.gui.{feature}")
    actions = hands.window.actions_by_id

    def reasons() -> dict[str, str | None]:
        return {name: None if actions[name].isEnabled() else actions[name].toolTip() for name in REASONS}

    assert reasons() == REASONS
    hands.build("mlp")
    hands.build("lenet")
    hands.point("mlp", "lenet")
    found = reasons()
    assert found["save"] is None
    assert found["checkpoint"] == found["split"] == found["train_step"] == "Select one model, or something in it."
    assert found["values"] == "Select one tensor, parameter or buffer with values."
    assert found["initialise"] == "Select one thing only."
    assert found["tie"] == "Select two parameters of one model (hold Ctrl and click)."
    hands.point(HIDDEN)
    found = reasons()
    assert [name for name, reason in found.items() if reason is not None] == ["tie", "train_step"]
    assert found["train_step"] == "Give the model an optimizer first."
    assert actions["untie"].toolTip() == "Select one parameter that is tied to another."
    assert actions["unfreeze"].toolTip() == "Every selected parameter is trainable already."


def test_nothing_of_it_can_be_done_in_a_recording(hands: Hands, tmp_path: Path) -> None:
    hands.build("mlp")
    hands.point(HIDDEN)
    hands.press(Qt.Key.Key_V)
    page = hands.window.bottom_dock.page("values")
    hands.until(lambda: page.title.full_text == HIDDEN, "described")
    replaying_of(hands.window.context).open(recordings.write(tmp_path / "a.devx"))
    hands.until(lambda: hands.state.recording is not None, "the recording is shown")
    enabled = {
        "open", "replay", "pause", "table", "filter", "theme", "quit", "words", "enlarge", "fold", "detach",
        "reset_layout", "unfold",
        "next_panel", "last_panel", "connect", "switch_machine", "fleet_simulate", "fleet_hosts", "fleet_cluster",
        "report", "running_here",
    }  # fmt: skip
    enabled |= {name for name in hands.window.actions_by_id if name.startswith(("page ", "layout ", "export "))}
    other_reasons = {"stop", "record", "stop_recording", "reconnect", "disconnect", "take_over"}
    other_reasons |= {"fleet_check", "fleet_report"}
    for name, action in hands.window.actions_by_id.items():
        assert action.isEnabled() == (name in enabled), name
        if name not in enabled | other_reasons:
            assert action.toolTip() == "This is a recording: nothing in it can be changed.", name
    hands.app.shown.go_live = lambda: None
    hands.window.context.shown.back()
