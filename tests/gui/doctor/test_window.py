"""The doctor in the whole window, with the real engine: the button, the key, the menu, the page, the tree, the line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.diagnoses import some
from fakes.doctor_models import PLAIN_TENSOR
from fakes.hands import Hands
from fakes.window import open_window
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QPushButton

from devexplorer.core.files.records import OpenModel
from devexplorer.core.records import AddVirtual, Check, Checked
from devexplorer.core.session.state import Change
from devexplorer.gui.doctor.finding import FINDING, PLACE, PatchDialog
from devexplorer.gui.doctor.page import DoctorPanel
from devexplorer.gui.files.questions import TrustDialog
from devexplorer.gui.objects.item_model import BADGES_ROLE, FINDING_ROLE
from devexplorer.gui.shell.bars.menus import context_menu

pytestmark = pytest.mark.usefixtures("warm_processes")

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


def toolbar_button(hands: Hands, action: str) -> QPushButton:
    return hands.window.toolbar.buttons[action]


def opened_menu(hands: Hands) -> QMenu:
    window = hands.window
    return context_menu(window, window.controller, window.specs, window.actions_by_id, window.context.others.offer)


def told(hands: Hands, name: str) -> None:
    """Deliver a diagnosis of a model."""
    hands.state.apply(Checked(target=name, diagnosis=some(name)))
    hands.window.refresh(Change.LABORATORY, 0.0)


def checked(hands: Hands, name: str) -> DoctorPanel:
    hands.until(lambda: name in hands.state.diagnoses and not hands.state.jobs, f"{name} checked")
    return hands.window.bottom_dock.page("doctor")


def test_check_finds_the_line_of_a_list_of_layers(start: Start) -> None:
    hands = start("Tesla T4")
    hands.build("list-pitfall")
    hands.select("list-pitfall")
    hands.click(toolbar_button(hands, "check"))
    assert hands.tab_shown == "Doctor"
    panel = checked(hands, "list-pitfall")
    assert panel.model.rows, hands.state.answer
    found = hands.state.diagnoses["list-pitfall"].problems
    number = next(at for at, one in enumerate(found) if one.rule == "unregistered-module")
    row = next(at for at, line in enumerate(panel.model.rows) if line.key == (FINDING, number))
    where = panel.table.visualRect(panel.model.index(row, PLACE)).center()
    QTest.mouseClick(panel.table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    QTest.mouseDClick(panel.table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert Path(found[number].file).name == "blocks.py"
    assert panel.finding.source.line == found[number].line
    assert "self.layers = [" in panel.finding.source.marked
    targets = hands.window.objects.selected_targets()
    assert len(targets) == 1
    assert targets[0].startswith("list-pitfall")
    badges = hands.window.objects.model.index_of("list-pitfall").data(BADGES_ROLE)
    assert badges[0].error
    assert {device for row in hands.state.objects["list-pitfall"].rows for device in row.devices} == {
        "cpu"
    }  # nothing was moved here


def test_a_double_click_in_the_tree_shows_the_line(start: Start) -> None:
    hands = start("Tesla T4")
    hands.build("mlp")
    told(hands, "mlp")
    tree = hands.window.objects.tree
    tree.expandAll()
    index = hands.window.objects.model.finding_index("mlp", 0)
    assert index.data(FINDING_ROLE) is not None
    QApplication.processEvents()  # the panel has its size
    tree.scrollTo(index)
    where = tree.visualRect(index).center()
    assert tree.indexAt(where) == index, "in sight"
    QTest.mouseClick(tree.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert tree.currentIndex() == tree.indexAt(where) == index, "it stays where it is"
    QTest.mouseDClick(tree.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert hands.tab_shown == "Doctor"
    assert hands.window.bottom_dock.page("doctor").finding.source.line == 6


def test_check_has_a_key_a_line_in_the_menu_and_says_why_not(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = start("Tesla T4")
    action = hands.window.actions_by_id["check"]
    assert not action.isEnabled()
    assert action.toolTip() == "Select an object in the list first."
    hands.build("mlp")
    assert action.isEnabled()
    menu = opened_menu(hands)
    assert action in menu.actions()
    menu.close()
    sent: list[object] = []
    monkeypatch.setattr(hands.app.session, "send", lambda command: sent.append(command) or 1)
    panel = hands.window.bottom_dock.page("doctor")
    panel.command_requested.connect(sent.append)
    hands.select("mlp")
    hands.key(Qt.Key.Key_C)
    assert hands.tab_shown == "Doctor"
    assert Check(target="mlp", device="vgpu:0") in sent


def test_a_patch_is_shown_applied_and_checked_again(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(PLAIN_TENSOR)
    hands = start("Tesla T4")
    hands.session.send(OpenModel(source=f"{file}:Net", folder=str(tmp_path), inputs="2x8"))
    hands.until(lambda: "net" in hands.state.objects and not hands.state.jobs, "opened")
    hands.select("net")
    hands.click(toolbar_button(hands, "check"))
    panel = checked(hands, "net")
    hands.click(panel.finding.apply_button)
    dialog = hands.dialog(PatchDialog)
    assert '+        self.register_buffer("scale", torch.ones(4))' in dialog.patch.toPlainText().splitlines()
    assert "net.py.orig" in dialog.message.text()
    hands.click(dialog.cancel_button)
    assert file.read_text() == PLAIN_TENSOR

    hands.click(panel.finding.apply_button)
    hands.click(hands.dialog(PatchDialog).accept_button)
    inspector = hands.window.inspector
    hands.until(lambda: inspector.title.text() == "net.py was changed", "applied")
    assert file.with_name("net.py.orig").read_text() == PLAIN_TENSOR
    assert "register_buffer" in file.read_text()
    rebuild, check = inspector.offers.buttons
    assert (rebuild.text(), rebuild.property("look")) == ("Rebuild net from net.py", "primary")
    assert check.text() == "Check net again"
    hands.session.send(AddVirtual(spec="1x Tesla T4"))
    hands.until(lambda: not inspector.offers.buttons, "the answer is about the new card")
    assert [button.text() for button in inspector.ways.buttons] == ["Check net again", "Rebuild net from net.py"]
    hands.click(inspector.ways.buttons[0])
    hands.until(lambda: hands.state.diagnoses["net"].clean and not hands.state.jobs, "clean")
    badges = hands.window.objects.model.index_of("net").data(BADGES_ROLE)
    assert [badge.words for badge in badges if badge.warning][:1] == ["previous code"]
    assert "net here still uses the previous code" in inspector.words.text()

    hands.select("net")
    menu = opened_menu(hands)
    assert hands.window.actions_by_id["rebuild"] in menu.actions()
    menu.close()
    hands.click(inspector.offers.buttons[0])
    question = hands.dialog(TrustDialog)
    assert str(file) in question.words.text()
    hands.click(question.cancel_button)
    assert hands.state.objects["net"].outdated == (str(file),)
    hands.menu(hands.window.toolbar.open_button, "Rebuild from its file")
    hands.click(hands.dialog(TrustDialog).accept_button)
    hands.until(lambda: not hands.state.objects["net"].outdated and not hands.state.jobs, "rebuilt")
    assert inspector.title.text() == "net was rebuilt from net.py"
    assert hands.state.diagnoses["net"].clean, "it was checked as the file is: not again"
    assert panel.old.text() == "", "it was checked as the file is"
    assert inspector.ways.buttons == []
    badges = hands.window.objects.model.index_of("net").data(BADGES_ROLE)
    assert "previous code" not in [badge.words for badge in badges]
    hands.press(Qt.Key.Key_F)
    hands.until(lambda: hands.state.answer is not None and "ran" in hands.state.answer.title, "forward")


def test_a_check_that_is_shown_is_made_again_when_its_model_is_rebuilt(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(PLAIN_TENSOR)
    hands = start("Tesla T4")
    hands.window.context.remember(trusted_folders=(str(tmp_path),))
    hands.session.send(OpenModel(source=f"{file}:Net", folder=str(tmp_path), inputs="2x8"))
    hands.until(lambda: "net" in hands.state.objects and not hands.state.jobs, "opened")
    hands.select("net")
    hands.click(toolbar_button(hands, "check"))
    panel = checked(hands, "net")
    hands.click(panel.finding.apply_button)
    hands.click(hands.dialog(PatchDialog).accept_button)
    inspector = hands.window.inspector
    hands.until(lambda: inspector.title.text() == "net.py was changed", "applied")
    hands.click(inspector.offers.buttons[0])
    hands.until(lambda: hands.state.diagnoses["net"].clean and not hands.state.jobs, "rebuilt, and checked again")
    assert hands.tab_shown == "Doctor"
    assert panel.verdict.text().startswith("No problem")
    assert inspector.title.text() == "net was rebuilt from net.py", "the answer to what was asked for stays"

    hands.window.bottom_dock.show_page("values")
    file.write_text(PLAIN_TENSOR)
    hands.menu(hands.window.toolbar.open_button, "Rebuild from its file")
    hands.until(lambda: hands.state.diagnoses["net"].outdated and not hands.state.jobs, "rebuilt")
    assert not hands.state.diagnoses["net"].problems, "no check, where none is shown"


BROKEN = PLAIN_TENSOR.replace("nn.Linear(8, 4)", "nn.Linear(9, 4)")


def test_a_failed_forward_offers_to_rebuild_the_model_of_a_file_that_was_edited(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(BROKEN)
    hands = start()
    hands.build("mlp")
    hands.select("mlp")
    action = hands.window.actions_by_id["rebuild"]
    assert (action.isEnabled(), action.toolTip()) == (False, "This model was not opened from a Python file or module.")
    hands.window.context.remember(trusted_folders=(str(tmp_path),))
    hands.session.send(OpenModel(source=f"{file}:Net", folder=str(tmp_path), inputs="2x8"))
    hands.until(lambda: "net" in hands.state.objects and not hands.state.jobs, "opened")
    hands.select("net")
    assert action.isEnabled()
    hands.press(Qt.Key.Key_F)
    hands.until(lambda: hands.state.answer is not None and hands.state.answer.failed, "failed")
    assert not hands.window.inspector.offers.buttons
    file.write_text(PLAIN_TENSOR + "\n# mended\n")
    hands.press(Qt.Key.Key_F)
    buttons = hands.window.inspector.offers.buttons
    hands.until(lambda: len(hands.window.inspector.offers.buttons) == 1 and not hands.state.jobs, "failed again")
    [button] = hands.window.inspector.offers.buttons
    assert button not in buttons
    assert button.text() == "Rebuild net from net.py"
    hands.click(button)  # the folder is trusted: no question
    hands.until(lambda: hands.state.answer is not None and "was rebuilt" in hands.state.answer.title, "rebuilt")
    assert "1 tensor with initial values: layer.weight" in hands.window.inspector.words.text()
    hands.press(Qt.Key.Key_F)
    hands.until(lambda: hands.state.answer is not None and "ran" in hands.state.answer.title, "forward")
