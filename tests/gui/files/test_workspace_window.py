"""What the window adds to a workspace file: its layout, and the question before code of a file's model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.hands import CTRL, Hands
from fakes.window import open_window
from msgspec.structs import replace
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit, QPushButton

from devexplorer.core.files.workspace_format import SavedDevice
from devexplorer.core.files.workspace_writing import collect, write
from devexplorer.gui.files.actions import files_of
from devexplorer.gui.files.open_model import OpenModelDialog
from devexplorer.gui.files.questions import SaveQuestion, TrustDialog
from devexplorer.gui.files.recent import remember_file

pytestmark = pytest.mark.usefixtures("warm_processes")

NET = """
from pathlib import Path
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        Path(__file__).with_name("ran").touch()
        self.first = nn.Linear(4, 3)

    def forward(self, x):
        return self.first(x)
"""

Start = Callable[..., Hands]


@pytest.fixture
def start(qapp: QApplication, tmp_path: Path) -> Iterator[Start]:
    windows: list[Hands] = []

    def make(virtual: str | None = "2x Tesla T4") -> Hands:
        windows.append(open_window(qapp, tmp_path / "settings", virtual, Hands))
        return windows[-1].ready()

    yield make
    for window in windows:
        window.end()


def save(hands: Hands, path: Path) -> None:
    hands.window.actions_by_id["save_workspace"].trigger()
    name = hands.dialog(QFileDialog).findChild(QLineEdit, "fileNameEdit")
    assert isinstance(name, QLineEdit)
    name.setText(str(path))
    QTest.keyClick(name, Qt.Key.Key_Return)
    hands.until(lambda: path.exists() and not hands.state.jobs, "saved")
    hands.until(lambda: "[*]" in hands.window.windowTitle() and path.name in hands.window.windowTitle(), "named")


def open_again(hands: Hands, path: Path) -> None:
    hands.menu(hands.window.toolbar.open_button, "Open recent", path.name)


def drag(hands: Hands, splitter: str, pixels: int) -> None:
    grip = hands.window.workbench.splitters[splitter].handle(1)
    middle = grip.rect().center()
    QTest.mousePress(grip, Qt.MouseButton.LeftButton, pos=middle)
    QTest.mouseMove(grip, middle + QPoint(0, pixels))
    QTest.mouseRelease(grip, Qt.MouseButton.LeftButton, pos=middle)


def test_a_file_brings_its_layout_with_it(start: Start, tmp_path: Path) -> None:
    hands, path = start(), tmp_path / "work.devexplorer"
    hands.build("mlp")
    bench = hands.window.workbench
    QTest.mouseClick(hands.window.rail.buttons["measure"], Qt.MouseButton.LeftButton)
    drag(hands, "measure rows", 40)
    QTest.mouseClick(hands.window.rail.buttons["monitor"], Qt.MouseButton.LeftButton)
    hands.click(bench.stack.add_button)
    bench.stack.slots[0].set_choice("temperature_c")
    plots, rows = bench.stack.choices, list(bench.splitters["measure rows"].kept)
    save(hands, path)

    hands.click(bench.stack.add_button)
    bench.stack.slots[0].set_choice("power_w")
    QTest.mouseClick(hands.window.rail.buttons["measure"], Qt.MouseButton.LeftButton)
    drag(hands, "measure rows", -90)
    QTest.mouseClick(hands.window.rail.buttons["explore"], Qt.MouseButton.LeftButton)
    hands.point("mlp")
    hands.press(Qt.Key.Key_Delete)
    hands.until(lambda: not hands.state.objects, "removed")
    assert list(bench.splitters["measure rows"].kept) != rows
    open_again(hands, path)
    hands.until(lambda: bench.layout_shown.name == "monitor", "arranged as it was")
    assert bench.stack.choices == plots
    assert list(bench.splitters["measure rows"].kept) == rows


def test_unsaved_work_is_replaced_only_when_asked(start: Start, tmp_path: Path) -> None:
    hands, path = start(), tmp_path / "work.devexplorer"
    hands.build("mlp")
    save(hands, path)
    hands.build("lenet")
    title, window = hands.window.inspector.title, hands.window

    def answer(do: Callable[[], object]) -> str:
        before = hands.state.answer
        do()
        hands.until(lambda: hands.state.answer is not before and not hands.state.jobs, "answered")
        return title.text()

    def question() -> SaveQuestion:
        return hands.dialog(SaveQuestion)

    open_again(hands, path)
    assert question().windowTitle() == "Save before opening work.devexplorer?"
    assert question().words.text() == "work.devexplorer does not have the latest changes."
    QTest.keyClick(question(), Qt.Key.Key_Escape)
    hands.until(lambda: files_of(window.context).workspaces._question is None, "Escape leaves everything as it is")
    assert set(hands.state.objects) == {"mlp", "lenet"}
    open_again(hands, path)
    assert answer(lambda: hands.click(question().discard_button)) == "work.devexplorer is open"
    assert set(hands.state.objects) == {"mlp"}
    assert answer(lambda: open_again(hands, path)) == "work.devexplorer is open"
    for there in ({"mlp"}, {"mlp", "lenet"}):
        undone = answer(lambda: hands.press(Qt.Key.Key_Z, CTRL))
        assert undone == "Undone: the opening of work.devexplorer"
        assert set(hands.state.objects) == there
        assert window.isWindowModified() is (len(there) == 2), "the file is that of before the opening, too"

    # a new workspace: nothing, no file, the same devices
    devices = hands.state.usable_devices
    first = path.read_bytes()
    hands.press(Qt.Key.Key_N, CTRL)
    assert question().windowTitle() == "Save before starting a new workspace?"
    hands.click(question().accept_button)
    hands.until(lambda: not hands.state.objects and not hands.state.jobs, "saved, then emptied")
    assert path.read_bytes() != first
    assert title.text() == "The workspace is new"
    assert window.inspector.words.text().startswith("2 objects removed. ")
    assert (window.windowTitle(), window.isWindowModified()) == ("DevExplorer[*]", False)
    assert hands.state.usable_devices == devices
    assert not window.actions_by_id["new_workspace"].isEnabled()
    assert answer(lambda: hands.press(Qt.Key.Key_Z, CTRL)) == "Undone: the new workspace"
    assert set(hands.state.objects) == {"mlp", "lenet"}
    assert (window.windowTitle(), window.isWindowModified()) == ("DevExplorer: work.devexplorer[*]", False)
    hands.menu(window.toolbar.open_button, "New workspace")
    hands.until(lambda: not hands.state.objects and not hands.state.jobs, "all is saved: nothing is asked")
    hands.engines[-1].kill()
    hands.until(lambda: title.text() == "The engine was restarted", "there was nothing to rebuild")
    assert not hands.state.objects, "the new workspace, rather than the one before"
    assert hands.state.usable_devices == devices
    assert (window.windowTitle(), window.isWindowModified()) == ("DevExplorer[*]", False)


def test_cards_that_are_missing_are_the_cpu_until_virtual_ones_are_chosen(start: Start, tmp_path: Path) -> None:
    hands, path = start(None), tmp_path / "work.devexplorer"
    hands.build("mlp")
    made = collect(hands.engines[-1].engine.workspace, "stamp", "")
    tensors = tuple(replace(tensor, device=f"cuda:{at % 2}") for at, tensor in enumerate(made.manifest.tensors))
    cards = tuple(SavedDevice(id=f"cuda:{at}", name="Tesla T4") for at in range(2))
    write(path, made._replace(manifest=replace(made.manifest, tensors=tensors, devices=cards)), lambda _: None)  # type: ignore[arg-type]
    remember_file(hands.window.context, path)
    open_again(hands, path)
    words = hands.window.inspector.words
    hands.until(lambda: "cuda:0 (Tesla T4) is not here: what was on it is on cpu." in words.text(), "said")
    assert hands.where("mlp") == {"cpu"}
    assert hands.state.usable_devices == ["cpu"]
    hands.take(hands.window.inspector.findChildren(QPushButton), "Use virtual GPUs for missing cards")
    hands.until(lambda: hands.where("mlp") == {"vgpu:0", "vgpu:1"} and not hands.state.jobs, "on virtual ones")
    assert "cuda:1 (Tesla T4) is not here: what was on it is on vgpu:1." in words.text()
    assert not hands.window.isWindowModified()


def test_the_code_of_a_model_from_a_file_runs_after_a_yes_even_in_a_trusted_folder(
    start: Start, tmp_path: Path
) -> None:
    folder, path = tmp_path / "mine", tmp_path / "work.devexplorer"
    folder.mkdir()
    (folder / "net.py").write_text(NET)
    hands = start()
    hands.menu(hands.window.toolbar.open_button, "Open a model…")
    dialog = hands.dialog(OpenModelDialog)
    hands.write(dialog.file.edit, str(folder / "net.py"))
    hands.write(dialog.factory, "Net")
    hands.click(dialog.accept_button)
    hands.until(lambda: "net" in hands.state.objects and not hands.state.jobs, "opened")
    hands.window.context.remember(trusted_folders=(str(folder),))
    hands.point("net")
    hands.press(Qt.Key.Key_1, CTRL)
    hands.on("net", "vgpu:0")
    save(hands, path)
    assert hands.window.context.settings.of_features["trusted_folders"] == (str(folder),)
    hands.end()
    (folder / "ran").unlink()

    again = start()
    open_again(again, path)
    question = again.dialog(TrustDialog)
    assert str(folder / "net.py") in question.words.text()
    assert not question.remember.isVisible(), "each model of a file is asked about"
    assert "each time, whatever the folder" in question.message.text()
    QTest.keyClick(question, Qt.Key.Key_Return)  # an Enter too many is a no
    again.until(lambda: not question.isVisible() and not again.state.jobs, "answered")
    assert again.where("net") == {"vgpu:0"}
    again.point("net")
    assert not again.window.isWindowModified()
    again.press(Qt.Key.Key_F)
    again.until(lambda: again.state.answer is not None and again.state.answer.failed, "there is no code")
    assert "without the code that runs it" in again.window.inspector.words.text()
    assert not (folder / "ran").exists()

    again.menu(again.window.toolbar.open_button, "Run its code…")
    again.click(again.dialog(TrustDialog).accept_button)
    again.until(lambda: again.state.objects["net"].stored is None and not again.state.jobs, "built")
    assert (folder / "ran").exists()
    assert again.where("net") == {"vgpu:0"}
    again.press(Qt.Key.Key_F)
    again.until(lambda: again.state.answer is not None and "ran" in again.state.answer.title, "forward")
    assert not again.window.isWindowModified(), "the file has all of it"
    again.press(Qt.Key.Key_Z, CTRL)
    again.until(lambda: again.state.objects["net"].stored is not None and not again.state.jobs, "without its code")
    assert not again.window.isWindowModified()
