"""The dialogs of the laboratory by real clicks and keys: each reports errors and sends the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.look_records import CPU, ENGINE, VGPU, show, state_with, tensor
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from devexplorer.core.files.records import (
    CheckpointCompared,
    CheckpointComparison,
    FileContents,
    FileEntry,
    FileListed,
    KeyMismatch,
    LoadCheckpoint,
    OpenModel,
    Save,
)
from devexplorer.core.isolation.model_source import describe
from devexplorer.core.parameters.records import Initialise
from devexplorer.core.records import Row
from devexplorer.core.session.state import State
from devexplorer.gui.files.open_model import KINDS, OpenModelDialog
from devexplorer.gui.files.questions import TrustDialog
from devexplorer.gui.files.tensor_files import CheckpointDialog, LoadFileDialog, SaveFileDialog
from devexplorer.gui.parameters.dialogs import RULES, InitialiseDialog

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def state() -> State:
    state = state_with(CPU, VGPU)
    state.apply(ENGINE)
    show(state, tensor("x"))
    return state


# --- opening a model


@pytest.fixture
def opening(qtbot: QtBot, state: State) -> OpenModelDialog:
    dialog = OpenModelDialog(state)
    qtbot.addWidget(dialog)
    dialog.show()
    return dialog


def test_what_cannot_be_opened_is_said_before_anything_is_sent(opening: OpenModelDialog, qtbot: QtBot):
    opening.kind.setCurrentIndex(list(KINDS).index("module"))
    qtbot.keyClicks(opening.module, "not a module")
    qtbot.keyClicks(opening.factory, "make")
    assert not opening.accept_button.isEnabled()
    assert "not a module" in opening.message.text()
    opening.module.setText("json")
    qtbot.keyClicks(opening.name, "x")
    assert "there is a 'x' already" in opening.message.text().lower()


def test_something_opened_before_needs_one_choice(qtbot: QtBot, state: State):
    before = OpenModel(
        source="nets:make?width=8&depth=2", folder="/somewhere", device="vgpu:0", dtype="float16", seed=7, inputs="2x8"
    )
    gone = OpenModel(source="torchvision:resnet50", device="vgpu:9")
    dialog = OpenModelDialog(state, (before, gone))
    qtbot.addWidget(dialog)
    dialog.show()
    assert dialog.recent.currentText() == "choose a recent model"
    dialog.recent.setFocus()
    qtbot.keyClick(dialog.recent, Qt.Key.Key_Down)
    assert (dialog.kind.isVisible(), dialog.factory.text(), dialog.options.text()) == (True, "make", "width=8 depth=2")
    with qtbot.waitSignal(dialog.command_requested) as sent:
        qtbot.mouseClick(dialog.accept_button, LEFT)
    assert sent.args == [before]
    qtbot.keyClick(dialog.recent, Qt.Key.Key_Down)
    assert (dialog.vision.text(), dialog.device.currentText()) == ("resnet50", "vgpu:0"), "a device that is gone"


@pytest.mark.parametrize("remember", [True, False, None])
def test_the_question_says_what_would_run_and_carries_the_answer(qtbot: QtBot, tmp_path: Path, remember: bool | None):
    (tmp_path / "nets.py").write_text("def make(): ...\n")
    dialog = TrustDialog(describe(f"{tmp_path}/nets.py:make"))
    qtbot.addWidget(dialog)
    dialog.show()
    answers: list[object] = []
    dialog.allowed.connect(answers.append)
    assert "nets.py" in dialog.words.text()
    dialog.remember.setChecked(bool(remember))
    qtbot.mouseClick(dialog.cancel_button if remember is None else dialog.accept_button, LEFT)
    expected = []
    if remember is not None:
        expected = [remember]
    assert answers == expected, "without a yes nothing is allowed"


# --- saving


def test_a_file_that_exists_is_replaced_only_when_that_was_ticked(qtbot: QtBot, state: State, tmp_path: Path):
    dialog = SaveFileDialog(state, ("x",))
    qtbot.addWidget(dialog)
    dialog.show()
    (tmp_path / "x.safetensors").write_bytes(b"old")
    dialog.file.set_path(str(tmp_path / "x"))  # the suffix is added
    assert "exists" in dialog.message.text()
    assert not dialog.accept_button.isEnabled()
    dialog.overwrite.setChecked(True)
    with qtbot.waitSignal(dialog.command_requested) as sent:
        qtbot.mouseClick(dialog.accept_button, LEFT)
    assert sent.args == [Save(targets=("x",), path=str(tmp_path / "x.safetensors"), overwrite=True)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "Choose"),
        ("missing/x", "There is no folder"),
        ("x.pt", "The format is .safetensors: name it x.safetensors"),
        (".", "is a folder"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_named(qtbot: QtBot, state: State, tmp_path: Path, name: str, said: str):
    dialog = SaveFileDialog(state, ())
    qtbot.addWidget(dialog)
    if name:
        dialog.file.set_path(str(tmp_path / name))
    assert said in dialog.message.text()
    assert not dialog.accept_button.isEnabled()


def test_a_file_is_chosen_in_the_systems_own_dialog(qtbot: QtBot, state: State, tmp_path: Path):
    dialog = SaveFileDialog(state, ())
    qtbot.addWidget(dialog)
    dialog.show()
    qtbot.mouseClick(dialog.file.button, LEFT)
    system = dialog.file.findChild(QFileDialog)
    assert system is not None
    system.fileSelected.emit(str(tmp_path / "all.safetensors"))
    assert dialog.file.path == tmp_path / "all.safetensors"
    system.close()


# --- loading


def listed(path: Path) -> FileListed:
    entries = (FileEntry("a", (2, 3), "float32", 24), FileEntry("b", (5,), "int64", 40))
    return FileListed(
        contents=FileContents(path=str(path), form="safetensors", entries=entries, bytes=64, count=2, saved_on="cuda:1")
    )


def test_what_was_known_of_a_file_before_is_not_taken_for_what_is_in_it_now(qtbot: QtBot, state: State, tmp_path: Path):
    path = tmp_path / "two.safetensors"
    path.write_bytes(b"?")
    state.apply(listed(path))
    dialog = LoadFileDialog(state)
    qtbot.addWidget(dialog)
    dialog.file.set_path(str(path))
    dialog.refresh()
    assert not dialog.table.rows
    state.apply(listed(path))
    dialog.refresh()
    assert len(dialog.table.rows) == 2


# --- checkpoints


def compared(path: Path, strip: str = "", **differences: object) -> CheckpointCompared:
    fields: dict[str, object] = {"missing": (), "unexpected": (), "mismatched": ()} | differences
    counts = {f"{name}_count": len(fields[name]) for name in ("missing", "unexpected", "mismatched")}  # type: ignore[arg-type]
    return CheckpointCompared(
        comparison=CheckpointComparison(target="net", path=str(path), strip=strip, matching=3, **fields, **counts)
    )  # type: ignore[arg-type]


@pytest.fixture
def checkpoint(qtbot: QtBot, state: State, tmp_path: Path) -> CheckpointDialog:
    (tmp_path / "net.pt").write_bytes(b"?")
    dialog = CheckpointDialog(state, "net")
    qtbot.addWidget(dialog)
    dialog.show()
    dialog.file.set_path(str(tmp_path / "net.pt"))
    return dialog


def test_keys_that_do_not_match_are_listed_and_need_a_tick(
    checkpoint: CheckpointDialog, qtbot: QtBot, state: State, tmp_path: Path
):
    different = KeyMismatch("c", (2,), (3,))
    state.apply(compared(tmp_path / "net.pt", missing=("a",), unexpected=("b",), mismatched=(different,)))
    checkpoint.refresh()
    assert [[cell.text for cell in row.cells] for row in checkpoint.table.rows] == [
        ["c", "other shape", "2", "3"],
        ["a", "missing", "yes", "no"],
        ["b", "unexpected", "no", "yes"],
    ]
    assert not checkpoint.accept_button.isEnabled()
    checkpoint.partial.setChecked(True)
    with qtbot.waitSignal(checkpoint.command_requested) as sent:
        qtbot.mouseClick(checkpoint.accept_button, LEFT)
    assert sent.args == [LoadCheckpoint(target="net", path=str(tmp_path / "net.pt"), partial=True)]


# --- initial values


@pytest.fixture
def weight() -> Row:
    return Row(
        path="0.weight",
        name="weight",
        kind="parameter",
        type="Parameter",
        depth=2,
        shape=(2, 3),
        dtype="float32",
        devices=("cpu",),
    )


def test_a_rule_has_its_own_numbers(qtbot: QtBot, weight: Row):
    dialog = InitialiseDialog("net:0.weight", weight)
    qtbot.addWidget(dialog)
    dialog.show()
    assert [name for name, field in dialog.numbers.items() if field.isVisible()] == ["mean", "std"]
    dialog.rule.setCurrentIndex(list(RULES).index("piecewise"))
    assert [name for name, field in dialog.numbers.items() if field.isVisible()] == ["low", "high", "threshold"]
    dialog.numbers["low"].setText("-1")
    with qtbot.waitSignal(dialog.command_requested) as sent:
        qtbot.mouseClick(dialog.accept_button, LEFT)
    options = {"low": -1.0, "high": 10.0, "threshold": 5.0}
    assert sent.args == [Initialise(target="net:0.weight", rule="piecewise", options=options)]


def test_a_number_that_is_none_is_named_and_nothing_is_sent(qtbot: QtBot, weight: Row):
    dialog = InitialiseDialog("net:0.weight", weight)
    qtbot.addWidget(dialog)
    dialog.show()
    dialog.numbers["std"].setText("much")
    with qtbot.assertNotEmitted(dialog.command_requested):
        qtbot.mouseClick(dialog.accept_button, LEFT)
    assert "deviation" in dialog.message.text()


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        ("package.module:make", "/somewhere"),
        ("transformers:gpt2?n_layer=2&n_embd=64", ""),
        ("torchvision:resnet50", ""),
        ("transformers:llama", ""),
    ],
)
def test_the_fields_can_be_filled_from_a_source(opening: OpenModelDialog, source: str, folder: str):
    opening.show_choices(
        OpenModel(source="somewhere/nets.py:other", folder="somewhere")
    )  # what was there before is replaced
    opening.show_choices(OpenModel(source=source, folder=folder))
    assert opening.source() == (source, folder)
