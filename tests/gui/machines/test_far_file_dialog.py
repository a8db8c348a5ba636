"""Files of another machine: folders arrive later, slow and failing ones too; a form knows whether a file is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.far_side import HOME, FarSideFake
from fakes.look_records import VGPU
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.machines.records import FileKindFound, FileKinds, FindModels, ModelFound, ModelsFound, Question
from devexplorer.gui.files.open_model import OpenModelDialog
from devexplorer.gui.files.tensor_files import LoadFileDialog, SaveFileDialog
from devexplorer.gui.forms.far_side import WantedPath
from devexplorer.gui.machines.side import FarFileDialog, Side

LEFT = Qt.MouseButton.LeftButton
Open = Callable[..., FarFileDialog]
PYTHON = "Python (*.py *.ipynb);;All files (*)"


@pytest.fixture
def side() -> FarSideFake:
    return FarSideFake()


@pytest.fixture
def opened(qtbot: QtBot, side: FarSideFake) -> Iterator[Open]:
    owner = QWidget()
    qtbot.addWidget(owner)

    def show(wanted: WantedPath = WantedPath.FILE, **more: Any) -> FarFileDialog:
        dialog = FarFileDialog(owner, "Open", side, wanted, **more)
        dialog.show()
        return dialog

    yield show
    owner.close()


def accepted(dialog: FarFileDialog) -> list[str]:
    """Click the button; the paths that were chosen."""
    got: list[list[Path]] = []
    dialog.chosen.connect(got.append)
    QTest.mouseClick(dialog.accept_button, LEFT)
    return [str(path) for path in got[0]]


def listed(dialog: FarFileDialog) -> list[str]:
    return [row.cells[0].text for row in dialog.table.rows]


def choose(dialog: FarFileDialog, *names: str) -> None:
    """Select these entries."""
    flags = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
    for number, row in enumerate(dialog.table.rows):
        if row.key in names:
            dialog.table.selectionModel().select(dialog.table.rows_model.index(number, 0), flags)


def double_click(dialog: FarFileDialog, name: str) -> None:
    choose(dialog, name)
    row = dialog.table.selected_rows[0]
    dialog.table.setCurrentIndex(dialog.table.rows_model.index(row, 0))
    where = dialog.table.visualRect(dialog.table.rows_model.index(row, 0)).center()
    QTest.mouseClick(dialog.table.viewport(), LEFT, pos=where)
    QTest.mouseDClick(dialog.table.viewport(), LEFT, pos=where)


def test_a_slow_folder_is_announced_and_the_last_one_asked_for_counts(opened: Open, side: FarSideFake) -> None:
    dialog = opened()
    assert (dialog.message.text(), listed(dialog)) == ("Reading ~ on gpu1…", [])
    assert not dialog.accept_button.isEnabled()
    dialog.path.setText("/home")
    QTest.keyClick(dialog.path, Qt.Key.Key_Return)
    late = side.asked.pop(0)
    side.answer()
    assert listed(dialog) == ["ada/"]
    side.asked.append(late)
    side.answer()
    assert (listed(dialog), dialog.path.text()) == (["ada/"], "/home"), "the answer to the earlier question came late"


def test_going_down_up_and_home_and_choosing_a_file(opened: Open, side: FarSideFake) -> None:
    dialog = opened()
    side.answer()
    assert (dialog.path.text(), listed(dialog)) == (HOME, ["models/", "net.py", "notes.txt"])
    double_click(dialog, "models")
    side.answer()
    assert listed(dialog) == ["old/", "large.safetensors", "small.pt", "strange?[31m.pt"], "no escape sequence"
    QTest.mouseClick(dialog.up_button, LEFT)
    side.answer()
    assert (dialog.path.text(), dialog.table.selected_key) == (HOME, "models"), "where one came from is selected"
    QTest.keyClick(dialog.table, Qt.Key.Key_Backspace)
    side.answer()
    assert dialog.path.text() == "/home"
    QTest.mouseClick(dialog.home_button, LEFT)
    side.answer()
    got: list[list[Path]] = []
    dialog.chosen.connect(got.append)
    double_click(dialog, "net.py")
    assert got == [[Path(HOME, "net.py")]]


def test_hidden_files_and_kinds(opened: Open, side: FarSideFake) -> None:
    dialog = opened(kinds=PYTHON)
    side.answer()
    assert listed(dialog) == ["models/", "net.py"]
    dialog.kind.setCurrentIndex(1)
    dialog.kind.activated.emit(1)
    QTest.mouseClick(dialog.hidden, LEFT)
    assert listed(dialog) == [".cache/", "models/", ".bashrc", "net.py", "notes.txt"]


def test_a_typed_path_may_be_a_file_or_nothing(opened: Open, side: FarSideFake) -> None:
    dialog = opened()
    side.answer()
    for typed, words in (("/home/ada/models/small.pt", "1 file, 100 B"), ("/nowhere/x", None), ("/root", None)):
        dialog.path.setText(typed)
        QTest.keyClick(dialog.path, Qt.Key.Key_Return)
        side.answer()
        assert dialog.message.text() == (words or f"On {side.name}: {typed}: no such file or directory.")
    assert dialog.table.selected_key is None or dialog.path.text() == "/root", "what was typed stays to be corrected"


def test_a_folder_that_is_too_large_says_so(opened: Open, side: FarSideFake) -> None:
    side.left_out = 7000
    dialog = opened()
    side.answer()
    assert dialog.message.text() == (
        "7,000 more entries of this folder are not listed: type the path of the file, then press Enter."
    )


def test_several_files(opened: Open, side: FarSideFake) -> None:
    dialog = opened(WantedPath.FILES, folder=f"{HOME}/models")
    side.answer()
    choose(dialog, "large.safetensors", "small.pt")
    assert dialog.message.text() == "2 files, 2.00 GiB"
    assert accepted(dialog) == [f"{HOME}/models/large.safetensors", f"{HOME}/models/small.pt"]


def test_saving_corrects_the_extension_and_asks_before_it_replaces(opened: Open, side: FarSideFake) -> None:
    formats = {"safetensors": "safetensors", "pt": "state dict"}
    dialog = opened(WantedPath.SAVE, folder=f"{HOME}/models", formats=formats, name="net.safetensors")
    assert dialog.windowTitle() == "Open on gpu1"
    side.answer()
    assert dialog.message.text() == "Saves to net.safetensors on gpu1."
    dialog.name.setText("large.pt")
    assert dialog.message.text() == "large.safetensors exists; tick the box to replace it."
    assert not dialog.accept_button.isEnabled()
    QTest.mouseClick(dialog.overwrite, LEFT)
    assert accepted(dialog) == [f"{HOME}/models/large.safetensors"]


# --- where they are used


@pytest.fixture
def far_window(qapp: QApplication, tmp_path: Path, side: FarSideFake) -> QuietWindow:
    quiet = QuietWindow(qapp, tmp_path / "settings", VGPU)
    context = quiet.window.context
    context.far = Side(context, side, context.others._files)
    return quiet


def dialog_of(quiet: QuietWindow, kind: type[QDialog]) -> QDialog:
    quiet.settle()
    return next(one for one in quiet.window.findChildren(kind) if one.isVisible())


def test_open_asks_which_machine(far_window: QuietWindow, side: FarSideFake) -> None:
    quiet = far_window

    def kinds(question: Question) -> FileKinds | ModelsFound:
        if isinstance(question, FindModels):
            return ModelsFound(models=(ModelFound("Net", True), ModelFound("Wide", True, ("width",))))
        return FileKinds(
            files=(FileKindFound(f"{HOME}/net.py", "model"), FileKindFound(f"{HOME}/run.devrec", "recording"))
        )

    side.others = kinds
    brought: list[Path] = []
    quiet.window.context.far.bring = lambda path, then: brought.append(path)
    quiet.window.actions_by_id["open"].trigger()
    dialog = dialog_of(quiet, FarFileDialog)
    assert isinstance(dialog, FarFileDialog)
    side.answer()
    choose(dialog, "net.py")
    QTest.mouseClick(dialog.accept_button, LEFT)
    side.answer()
    form = dialog_of(quiet, OpenModelDialog)
    assert isinstance(form, OpenModelDialog)
    side.answer()
    assert [row.key for row in form.table.rows] == ["Net", "Wide"]
    assert form.source() == (f"{HOME}/net.py:Net", HOME), "nothing of that path is looked for here"
    assert brought == [Path(HOME, "run.devrec")], "which this window reads itself"
    form.reject()
    quiet.window.actions_by_id["open"].trigger()
    dialog = dialog_of(quiet, FarFileDialog)
    assert isinstance(dialog, FarFileDialog)
    dialog.machine.setCurrentIndex(1)
    dialog.machine.activated.emit(1)
    here = dialog_of(quiet, QFileDialog)
    assert here.windowTitle() == "Open on this machine"
    here.reject()
    quiet.close()


def test_a_form_knows_what_is_there(far_window: QuietWindow, side: FarSideFake) -> None:
    quiet = far_window
    quiet.window.actions_by_id["load"].trigger()
    form = dialog_of(quiet, LoadFileDialog)
    assert isinstance(form, LoadFileDialog)
    form.file.edit.setText("~/models/none.pt")
    assert form.message.text() == "Looking for ~/models/none.pt on gpu1…"
    side.answer()
    assert form.message.text() == f"There is no file {HOME}/models/none.pt on gpu1."
    form.file.edit.setText("~/models/small.pt")
    assert (quiet.sent[-1].path, form.message.text()) == (  # type: ignore[attr-defined]
        f"{HOME}/models/small.pt",
        "The engine is looking into the file…",
    )
    QTest.mouseClick(form.file.button, LEFT)
    chooser = dialog_of(quiet, FarFileDialog)
    assert isinstance(chooser, FarFileDialog)
    side.answer()
    assert chooser.path.text() == f"{HOME}/models", "where the typed file is"
    choose(chooser, "large.safetensors")
    QTest.mouseClick(chooser.accept_button, LEFT)
    assert form.file.path == Path(HOME, "models", "large.safetensors")
    form.reject()
    dialog = SaveFileDialog(quiet.state, (), quiet.window)
    quiet.window.context.open_dialog(dialog)
    for typed, words in (
        ("~/models/large", "large.safetensors exists; tick the box to replace it. The file is replaced only after a"
         " complete write."),
        ("~/models/new", "Saves to new.safetensors; a file there is replaced only after a complete write."),
        ("~/none/new", "There is no folder ~/none."),
    ):  # fmt: skip
        dialog.file.edit.setText(typed)
        side.answer()
        assert dialog.message.text() == words
    dialog.reject()
    quiet.close()


def test_a_file_to_save_can_be_named_at_once(opened: Open, side: FarSideFake) -> None:
    dialog = opened(WantedPath.SAVE, formats={"devexplorer": "Workspaces"}, name="work.devexplorer")
    assert dialog.focusWidget() is dialog.name
    assert dialog.name.selectedText() == "work"
