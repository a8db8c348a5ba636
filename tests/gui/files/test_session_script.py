"""A session that was saved as a script, dropped on a window: it is repeated, after the question about code of the
user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hands import CTRL
from fakes.learner import Learner, learner_in
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from devexplorer.core.records import Remove
from devexplorer.gui.files.actions import files_of, save_session
from devexplorer.gui.files.questions import TrustDialog

pytestmark = pytest.mark.usefixtures("warm_processes")

NET = "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(20, 4)\n"


@pytest.fixture
def me(qapp: QApplication, tmp_path: Path) -> Iterator[Learner]:
    with learner_in(qapp, tmp_path, "2x Tesla T4") as learner:
        yield learner


def test_a_session_is_saved_opened_and_undone_as_one(me: Learner, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NET)
    me.build_model("mlp")
    me.point("mlp")
    me.press(Qt.Key.Key_1, CTRL)
    me.on("mlp", "vgpu:0")
    me.tensor(fill="rand:", shape="2x20")
    x = me.newest()
    me.point("mlp", x)
    me.press(Qt.Key.Key_F)
    me.until(lambda: any("run forward" in button.text() for button in me.window.inspector.offers.buttons), "refused")
    me.offer()
    me.until(lambda: me.where(x) == {"vgpu:0"} and not me.state.jobs, "moved and run")
    context = me.window.context
    dialog = files_of(me.window.context).opening._models.open(tmp_path / "mine.py")
    me.until(lambda: dialog.accept_button.isEnabled(), "its class was found")
    me.click(dialog.accept_button)
    me.until(lambda: "net" in me.state.objects and not me.state.jobs, "opened")
    script = tmp_path / "session.py"
    save_session(context, script)
    me.until(script.is_file, "saved")

    me.session.send(Remove(names=tuple(me.state.objects)))
    me.until(lambda: not me.state.objects and not me.state.jobs, "emptied")
    context.files_chosen.emit([script])
    question = me.dialog(TrustDialog)
    assert str(tmp_path / "mine.py") in question.words.text()
    me.click(question.cancel_button)
    me.until(lambda: not me.state.jobs)
    assert not me.state.objects, "nothing of it without a yes"

    context.files_chosen.emit([script])
    me.click(me.dialog(TrustDialog).accept_button)
    me.until(lambda: len(me.state.objects) == 3 and not me.state.jobs, "repeated")
    assert {name: me.where(name) for name in me.state.objects} == {"mlp": {"vgpu:0"}, x: {"vgpu:0"}, "net": {"cpu"}}
    assert me.state.usable_devices == ["cpu", "vgpu:0", "vgpu:1"], "the virtual GPUs that are here do"
    assert me.window.inspector.title.text() == "The session of session.py is repeated"
    me.press(Qt.Key.Key_Z, CTRL)
    me.until(lambda: not me.state.objects, "undone as one")


def test_a_session_that_does_not_fit_what_is_here_changes_nothing(me: Learner, tmp_path: Path) -> None:
    me.build_model("tied")
    me.build_model("mlp")
    script = tmp_path / "session.py"
    save_session(me.window.context, script)
    me.until(script.is_file, "saved")
    me.session.send(Remove(names=("tied",)))
    me.until(lambda: list(me.state.objects) == ["mlp"] and not me.state.jobs, "one removed")
    me.window.context.files_chosen.emit([script])
    inspector = me.window.inspector
    me.until(lambda: inspector.title.text() == "The session of session.py was not repeated", "refused")
    assert "It was step 2 of 2; what came before it was undone: nothing has changed." in inspector.words.text()
    assert list(me.state.objects) == ["mlp"]


def test_a_script_that_was_damaged_gets_one_line(me: Learner, tmp_path: Path) -> None:
    script = tmp_path / "session.py"
    script.write_text('"""A session of DevExplorer as Python.\n"""\nimport torch\n')
    me.window.context.files_chosen.emit([script])
    banner = me.window.banner
    me.until(banner.isVisible, "said")
    assert banner.words.full_text == "The file session.py has nothing that can be repeated here; run it with Python."
