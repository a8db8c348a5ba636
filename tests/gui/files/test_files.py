"""Files in the whole window, with the real engine: save, load, checkpoint, the session as Python; refusals appear in
the dialog."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fakes.hands import CTRL, SHIFT, Hands
from fakes.window import open_window
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QDialog, QFileDialog, QLineEdit

from devexplorer.gui.files.actions import save_session
from devexplorer.gui.files.tensor_files import CheckpointDialog, LoadFileDialog, SaveFileDialog


@pytest.fixture
def hands(qapp: QApplication, tmp_path: Path) -> Iterator[Hands]:
    window = open_window(qapp, tmp_path / "settings", "2x Tesla T4", Hands)
    yield window.ready()
    window.end()


def _file_menu(hands: Hands, words: str) -> None:
    hands.menu(hands.window.toolbar.open_button, words)


def _closed(hands: Hands) -> None:
    hands.until(
        lambda: not [one for one in QApplication.topLevelWidgets() if isinstance(one, QDialog) and one.isVisible()],
        "closed",
    )
    hands.until(lambda: not hands.state.jobs, "done")


def _title(hands: Hands) -> str:
    return hands.window.inspector.title.text()


def test_a_model_is_saved_and_comes_back_tensor_by_tensor(hands: Hands, tmp_path: Path) -> None:
    hands.build("mlp")
    hands.point("mlp")
    hands.press(Qt.Key.Key_S, CTRL | SHIFT)
    saving = hands.dialog(SaveFileDialog)
    assert saving.focusWidget() is saving.file.edit
    hands.write(saving.file.edit, str(tmp_path / "mine"))
    QTest.keyClick(saving.file.edit, Qt.Key.Key_Return)
    _closed(hands)
    hands.until((tmp_path / "mine.safetensors").exists)
    assert "saved" in _title(hands)

    _file_menu(hands, "Load tensors…")
    loading = hands.dialog(LoadFileDialog)
    hands.write(loading.file.edit, str(tmp_path / "mine.safetensors"))
    hands.until(lambda: loading.table.rows, "looked into")
    row = next(number for number, row in enumerate(loading.table.rows) if row.cells[0].text.endswith("0.weight"))
    cell = loading.table.visualRect(loading.table.rows_model.index(row, 0)).center()
    QTest.mouseClick(loading.table.viewport(), Qt.MouseButton.LeftButton, pos=cell)
    assert loading.message.text().startswith("Loads 1 tensor of 4, 20.00 KiB.")
    hands.pick(loading.device, "vgpu:0")
    hands.write(loading.name, "w")
    hands.click(loading.accept_button)
    _closed(hands)
    hands.until(lambda: "w" in hands.state.objects, "loaded")
    assert hands.where("w") == {"vgpu:0"}
    hands.press(Qt.Key.Key_Z, CTRL)
    hands.until(lambda: "w" not in hands.state.objects, "undone")


def test_a_file_that_is_refused_says_why_in_the_dialog_and_another_can_be_named(hands: Hands, tmp_path: Path) -> None:
    (tmp_path / "bad.pt").write_bytes(b"PK\x03\x04 nothing")
    torch.save({"a": torch.zeros(3)}, tmp_path / "good.pt")
    _file_menu(hands, "Load tensors…")
    dialog = hands.dialog(LoadFileDialog)
    hands.write(dialog.file.edit, str(tmp_path / "bad.pt"))
    hands.until(lambda: "damaged" in dialog.message.text(), "refused")
    assert not dialog.accept_button.isEnabled()
    assert "damaged" in dialog.accept_button.toolTip()
    for _ in range(2):
        hands.write(dialog.file.edit, str(tmp_path / "missing.pt"))
        assert "There is no file" in dialog.message.text()
        hands.write(dialog.file.edit, str(tmp_path / "good.pt"))
        hands.until(lambda: dialog.accept_button.isEnabled(), "looked into, the second time too")
    assert dialog.message.text().startswith("Loads its one tensor, 12 B.")
    hands.click(dialog.accept_button)
    _closed(hands)
    hands.until(lambda: "a" in hands.state.objects)


def test_a_checkpoint_is_compared_then_loaded_without_its_prefix(hands: Hands, tmp_path: Path) -> None:
    hands.build("mlp")
    model = hands.engines[-1].engine.workspace.get("mlp")
    wanted = {f"module.{key}": torch.full_like(value, 0.5) for key, value in model.state_dict().items()}
    torch.save(wanted, tmp_path / "c.pt")
    hands.point("mlp")
    _file_menu(hands, "Load a checkpoint…")
    dialog = hands.dialog(CheckpointDialog)
    hands.write(dialog.file.edit, str(tmp_path / "c.pt"))
    hands.until(lambda: dialog.suggestion.isVisible(), "compared")
    assert not dialog.accept_button.isEnabled()
    assert "No key matches" in dialog.message.text()
    hands.click(dialog.suggestion)
    hands.until(lambda: dialog.accept_button.isEnabled(), "compared again")
    assert dialog.strip.text() == "module."
    hands.click(dialog.accept_button)
    _closed(hands)
    hands.until(lambda: all(bool((value == 0.5).all()) for value in model.state_dict().values()), "loaded")
    hands.press(Qt.Key.Key_Z, CTRL)
    hands.until(lambda: not any(bool((value == 0.5).all()) for value in model.state_dict().values()), "undone")


def test_the_session_grows_shrinks_with_undo_and_is_written(hands: Hands, tmp_path: Path) -> None:
    hands.page("Session")
    page = hands.window.bottom_dock.page("session")
    assert not page.save_button.isEnabled()
    assert page.save_button.toolTip() == "Nothing was done yet."
    hands.build("mlp")
    hands.until(lambda: len(page.table.rows) == 1, "one action")
    assert page.words.text().startswith("1 action.")
    hands.point("mlp")
    hands.press(Qt.Key.Key_1, CTRL)
    hands.until(lambda: len(page.table.rows) == 2, "two actions")
    hands.press(Qt.Key.Key_Z, CTRL)
    hands.until(lambda: len(page.table.rows) == 1, "the move was undone")
    assert "vgpu:0" not in page.text.toPlainText().partition("# mlp")[2]
    hands.press(Qt.Key.Key_Z, CTRL | SHIFT)
    hands.until(lambda: len(page.table.rows) == 2, "and done again")

    QGuiApplication.clipboard().clear()
    hands.click(page.copy_button)
    copied = QGuiApplication.clipboard().text()
    compile(copied, "session.py", "exec")
    assert copied == page.text.toPlainText()

    for name in ("session.py", "session.ipynb"):
        hands.click(page.save_button)
        system = hands.dialog(QFileDialog)
        field = system.findChild(QLineEdit, "fileNameEdit")
        field.setText(str(tmp_path / name))
        QTest.keyClick(field, Qt.Key.Key_Return)
        hands.until(lambda: name in hands.window.inspector.words.text(), "said")  # noqa: B023 - called at once
    assert (tmp_path / "session.py").read_text().startswith(f"{copied}\n# Commands for DevExplorer")
    assert json.loads((tmp_path / "session.ipynb").read_text())["nbformat"] == 4


def test_the_kind_of_file_decides_how_it_ends(hands: Hands, tmp_path: Path) -> None:
    hands.build("mlp")
    hands.page("Session")
    hands.click(hands.window.bottom_dock.page("session").save_button)
    system = hands.dialog(QFileDialog)
    kinds = system.findChild(QComboBox, "fileTypeCombo")
    field = system.findChild(QLineEdit, "fileNameEdit")
    assert field.text() == "session.py"
    hands.pick(kinds, "Jupyter")
    kinds.activated.emit(kinds.currentIndex())
    assert field.text() == "session.ipynb"
    field.setText(str(tmp_path / "mine"))
    QTest.keyClick(field, Qt.Key.Key_Return)
    hands.until((tmp_path / "mine.ipynb").exists, "written as what was chosen")


def test_a_session_that_cannot_be_written_says_why(hands: Hands, tmp_path: Path) -> None:
    hands.build("mlp")
    save_session(hands.window.context, tmp_path / "nowhere" / "session.py")
    hands.until(lambda: "could not be written" in hands.window.inspector.words.text(), "said")
