"""Users' models in the whole window, with the real engine: the confirmation before code runs, stored choices,
refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.hands import CTRL, SHIFT, Hands
from fakes.window import open_window
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog

from devexplorer.core.files.records import OpenModel
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.files.open_model import KINDS, OpenModelDialog

pytestmark = pytest.mark.usefixtures("warm_processes")

NETS = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("ran").touch()

def small():
    return nn.Linear(4, 3)
"""
HOSTILE = "import os\nos._exit(3)\n"
HANGING = "import time\nfrom pathlib import Path\nPath(__file__).with_name('ran').touch()\ntime.sleep(600)\n"

Start = Callable[..., Hands]


@pytest.fixture
def start(qapp: QApplication, tmp_path: Path) -> Iterator[Start]:
    windows: list[Hands] = []

    def make(virtual: str | None = None) -> Hands:
        windows.append(open_window(qapp, tmp_path / "settings", virtual, Hands))
        return windows[-1].ready()

    yield make
    for window in windows:
        window.end()


def _file(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "nets.py").write_text(text)
    return folder / "nets.py"


def _ask_for(hands: Hands, path: Path, factory: str = "small") -> str:
    """Fill in the dialog for a Python file and press Enter; returns what it said."""
    hands.menu(hands.window.toolbar.open_button, "Open a model…")
    dialog = hands.dialog(OpenModelDialog)
    hands.write(dialog.file.edit, str(path))
    hands.write(dialog.factory, factory)
    assert dialog.accept_button.isEnabled(), dialog.message.text()
    said = dialog.message.text()
    QTest.keyClick(dialog.factory, Qt.Key.Key_Return)
    return said


def _open_dialogs() -> list[QDialog]:
    return [one for one in QApplication.topLevelWidgets() if isinstance(one, QDialog) and one.isVisible()]


def test_the_dialog_says_what_runs_and_nothing_else_asks(start: Start, tmp_path: Path) -> None:
    path = _file(tmp_path / "mine", NETS)
    hands = start()
    said = _ask_for(hands, path)
    assert f"{path} is imported" in said
    assert "The code can do whatever you can do on this machine." in said
    hands.until(lambda: "small" in hands.state.objects and not hands.state.jobs, "opened")
    assert not _open_dialogs()
    assert path.with_name("ran").exists()
    assert hands.window.inspector.title.text() == "small is on cpu"

    path.write_text(f"{NETS}\n")
    hands.point("small")
    hands.menu(hands.window.toolbar.open_button, "Rebuild from its file")
    hands.until(lambda: "rebuilt" in hands.window.inspector.title.text(), "its code was allowed to run")
    assert not _open_dialogs()

    hands.press(Qt.Key.Key_O, CTRL | SHIFT)
    dialog = hands.dialog(OpenModelDialog)
    hands.pick(dialog.recent, f"{path}:small")
    hands.click(dialog.accept_button)
    hands.until(lambda: len(hands.state.objects) == 2, "opened again")
    hands.press(Qt.Key.Key_Z, CTRL)
    hands.until(lambda: len(hands.state.objects) == 1, "undone")
    hands.press(Qt.Key.Key_Z, CTRL | SHIFT)
    hands.until(lambda: len(hands.state.objects) == 2, "done again")

    hands.end()
    saved = SettingsFile(tmp_path / "settings").load()
    assert "trusted_folders" not in saved.of_features, "the next window asks before it runs the code again"
    assert saved.of_features["opened_models"] == (OpenModel(source=f"{path}:small", folder=str(path.parent)),)


OPTIONS = """
from torch import nn

def small(width=4):
    return nn.Linear(width, 3)

def other():
    return nn.Linear(1, 1)
"""


def test_a_recent_file_is_opened_with_what_was_chosen_before(start: Start, tmp_path: Path) -> None:
    path = _file(tmp_path / "mine", OPTIONS)
    hands = start("Tesla T4")
    hands.window.context.remember(trusted_folders=(str(path.parent),))
    hands.menu(hands.window.toolbar.open_button, "Open a model…")
    dialog = hands.dialog(OpenModelDialog)
    hands.write(dialog.file.edit, str(path))
    hands.write(dialog.factory, "small")
    hands.write(dialog.options, "width=6")
    hands.pick(dialog.device, "vgpu:0")
    hands.pick(dialog.dtype, "float16")
    hands.click(dialog.accept_button)
    hands.until(lambda: "small" in hands.state.objects and not hands.state.jobs, "opened")

    hands.menu(hands.window.toolbar.open_button, "Open recent", path.name)
    hands.until(lambda: bool(_open_dialogs()), "the dialog")
    again = hands.dialog(OpenModelDialog)
    hands.until(lambda: bool(again.table.rows), "looked into the file")
    assert (again.factory.text(), again.options.text()) == ("small", "width=6")
    assert again.table.selected_key == "small"
    hands.click(again.accept_button)
    hands.until(lambda: len(hands.state.objects) == 2 and not hands.state.jobs, "opened again")
    first, second = hands.state.objects.values()
    assert first.rows[0].dtype == second.rows[0].dtype
    assert first.bytes_by_device == second.bytes_by_device == {"vgpu:0": 42}


def test_the_class_that_was_meant_opens_with_one_click(start: Start, tmp_path: Path) -> None:
    path = _file(tmp_path / "mine", NETS)
    hands = start()
    _ask_for(hands, path, "smal")
    inspector = hands.window.inspector
    hands.until(lambda: inspector.title.text() == "No model was opened", "refused")
    assert "no class or function 'smal'" in inspector.words.text()
    [button] = inspector.offers.buttons
    assert button.text() == "Open small"
    hands.click(button)
    hands.until(lambda: "small" in hands.state.objects and not hands.state.jobs, "opened")
    assert not _open_dialogs()


def test_code_that_ends_its_process_costs_nothing_but_an_answer(start: Start, tmp_path: Path) -> None:
    hands = start()
    _ask_for(hands, _file(tmp_path / "hostile", HOSTILE))
    hands.until(lambda: hands.state.answer is not None and hands.state.answer.title == "No model was opened", "refused")
    assert hands.window.inspector.title.text() == "No model was opened"
    assert "exit code 3" in hands.window.inspector.words.text()
    assert hands.state.engine is not None
    assert not hands.state.objects
    hands.press(Qt.Key.Key_O, CTRL | SHIFT)
    again = hands.dialog(OpenModelDialog)
    assert again.recent.count() == 1, "what failed is not among the recent ones"
    assert again.source()[0].endswith("hostile/nets.py:small"), "but it is ready to be tried again when it is repaired"
    assert again.accept_button.isEnabled()


def test_code_that_hangs_is_cancelled_in_the_status_bar(start: Start, tmp_path: Path) -> None:
    hands = start()
    path = _file(tmp_path / "hanging", HANGING)
    _ask_for(hands, path)
    status = hands.window.status
    hands.until(
        lambda: hands.window.refresh_texts() or (path.with_name("ran").exists() and status.cancel.isVisible()),
        "it hangs",
    )
    assert status.job.full_text == "opening nets.py:small"
    hands.click(status.cancel)
    hands.until(lambda: not hands.state.jobs, "cancelled")
    assert hands.window.inspector.title.text() == "No model was opened"
    assert hands.window.inspector.words.text() == "Cancelled; no model was opened."
    assert not status.cancel.isVisible()


def test_a_configuration_of_transformers_is_opened_without_a_question(start: Start) -> None:
    pytest.importorskip("transformers")
    hands = start("2x Tesla T4")
    hands.menu(hands.window.toolbar.open_button, "Open a model…")
    dialog = hands.dialog(OpenModelDialog)
    hands.pick(dialog.kind, KINDS["transformers"])
    hands.write(dialog.type, "gpt2")
    hands.write(
        dialog.options, "n_layer=2 n_embd=32 n_head=2 vocab_size=100 n_positions=32 bos_token_id=0 eos_token_id=0"
    )
    hands.pick(dialog.device, "vgpu:1")
    hands.pick(dialog.dtype, "float16")
    hands.write(dialog.name, "tiny")
    hands.click(dialog.accept_button)
    assert not _open_dialogs()
    hands.until(lambda: "tiny" in hands.state.objects and not hands.state.jobs, "opened")
    assert hands.where("tiny") == {"vgpu:1"}
    assert hands.state.objects["tiny"].rows[0].dtype == "float16"
    hands.point("tiny")
    hands.press(Qt.Key.Key_F)
    hands.until(lambda: hands.state.answer is not None and "ran" in hands.state.answer.title, "forward")
