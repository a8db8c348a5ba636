"""Connecting to a machine: choosing it, steps, prompts word for word, failures that say what would help; machines are
remembered, and connected again only when asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from fakes.far_machines import CONNECTED, FarFake, MachinesFake, WayFake
from fakes.look_records import CPU, CUDA, ENGINE, VGPU, mlp
from fakes.quiet_window import QuietWindow
from msgspec.structs import replace
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QLineEdit, QMenu, QPushButton

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.machines.records import SaveCopy
from devexplorer.core.machines.ssh.records import ConnectionFailure, ConnectProgress, Prompt, Said, Withdrawn
from devexplorer.core.records import AddVirtual, BuildModel, Command, ObjectChanged, Steps
from devexplorer.core.session.settings import KnownMachine
from devexplorer.gui.actions.palette import CommandPalette
from devexplorer.gui.machines.actions import connect
from devexplorer.gui.machines.approach import AskDialog, ConnectDialog
from devexplorer.gui.machines.copies import CopyDialog
from devexplorer.gui.machines.room import VIRTUAL, MachineRoom, room_of

LEFT = Qt.MouseButton.LeftButton
D = TypeVar("D", bound=QDialog)
CONFIG = "Host gpu1 gpu2\n  User ada\nHost *.example\nHost login\n"
HOST_KEY = "The authenticity of host 'gpu1' can't be established.\nContinue (yes/no/[fingerprint])?"


class Desk:
    """A window whose machines and ways are fakes."""

    def __init__(self, quiet: QuietWindow) -> None:
        self.quiet, self.window, self.context = quiet, quiet.window, quiet.window.context
        self.room: MachineRoom = room_of(self.context)
        self.machines = MachinesFake(self.context)
        self.ways: list[WayFake] = []
        self.room.make_way = self._way

    def _way(self, host: str, python: str) -> WayFake:
        self.ways.append(WayFake("" if host == VIRTUAL else host, python))
        return self.ways[-1]

    def dialog(self, kind: type[D]) -> D:
        self.quiet.settle()
        return next(one for one in self.window.findChildren(kind) if one.isVisible())

    def has(self, kind: type[QDialog]) -> bool:
        self.quiet.settle()
        return any(one.isVisible() for one in self.window.findChildren(kind))

    def connect(self, host: str = "gpu1") -> ConnectDialog:
        """Open the dialog and begin with this host."""
        self.window.actions_by_id["connect"].trigger()
        dialog = self.dialog(ConnectDialog)
        dialog.host.setText(host)
        click(dialog.accept_button)
        return dialog

    def say(self, *reports: ConnectProgress | Prompt | Said | Withdrawn) -> None:
        """ssh reports; then a beat."""
        self.ways[-1].say(*reports)
        self.quiet.tell()

    def arrive(self, name: str = "gpu1") -> FarFake:
        """The connection is there."""
        machine = self.room.find(name)
        assert isinstance(machine, FarFake)
        self.machines.change(machine, state="connected", latency_s=CONNECTED.latency_s)
        self.quiet.tell()
        return machine


def click(button: QPushButton) -> None:
    assert button.isVisible()
    assert button.isEnabled()
    QTest.mouseClick(button, LEFT)


@pytest.fixture
def desk(qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(CONFIG)
    quiet = QuietWindow(qapp, tmp_path / "settings", VGPU)
    yield Desk(quiet)
    quiet.close()


def test_known_hosts_are_offered_and_typing_finds_them(desk: Desk) -> None:
    desk.context.save_settings(machines=(KnownMachine("ada@far", "/py"),))
    desk.window.actions_by_id["connect"].trigger()
    dialog = desk.dialog(ConnectDialog)
    desk.quiet.answered()
    rows = [tuple(cell.text for cell in row.cells) for row in dialog.table.rows]
    assert rows == [
        ("ada@far", "connected before"), ("gpu1", "~/.ssh/config"), ("gpu2", "~/.ssh/config"),
        ("login", "~/.ssh/config"),
    ]  # fmt: skip
    assert not dialog.accept_button.isEnabled()
    QTest.keyClicks(dialog.host, "gpu")
    assert [row.key for row in dialog.table.rows] == ["gpu1", "gpu2"]
    dialog.host.clear()
    dialog.table.selectRow(0)
    assert (dialog.host.text(), dialog.python.text()) == ("ada@far", "/py")
    assert dialog.message.text() == "Connects as 'ssh ada@far' does."
    for wrong, words in (("-oProxyCommand=x", "begins with a minus"), ("a b", "blanks")):
        dialog.host.setText(wrong)
        assert words in dialog.message.text()
        assert not dialog.accept_button.isEnabled()


def test_a_window_that_is_started_for_a_machine_begins_to_connect(desk: Desk) -> None:
    connect(desk.context, "ada@gpu1", "~/there/.venv")
    assert desk.dialog(ConnectDialog).host.text() == "ada@gpu1"
    assert [(way.host, way.python) for way in desk.ways] == [("ada@gpu1", "~/there/.venv")]


def test_the_python_that_was_chosen_there_is_used_again_and_another_can_be_named_after_a_failure(desk: Desk) -> None:
    desk.context.save_settings(machines=(KnownMachine("gpu1", "/py"),))
    dialog = connect(desk.context, "gpu1")
    assert [(way.host, way.python) for way in desk.ways] == [("gpu1", "/py")]
    desk.quiet.answered()
    assert dialog.message.text() == "", "hosts of ~/.ssh/config that are read meanwhile say nothing"
    desk.ways[-1].failure = ConnectionFailure(kind="no torch", host="gpu1", detail="/usr/bin/python3")
    desk.say()
    assert "--" not in dialog.view.failure.text(), "options are for the command line"
    assert "path of a Python" in dialog.view.help.text()
    assert dialog.back_button.text() == "Choose a Python"
    click(dialog.back_button)
    assert dialog.focusWidget() is dialog.python


def test_steps_prompts_and_then_the_machine_is_on_show(desk: Desk) -> None:
    dialog = desk.connect()
    view = dialog.view
    assert not dialog.host.isVisible()
    desk.say(ConnectProgress(step="connecting"), Said(text="Welcome to gpu1"))
    desk.say(Prompt(number=1, kind="host key", text=HOST_KEY))
    assert view.steps["connecting"].text() == "● Log in to gpu1"
    assert view.prompt.text.text() == HOST_KEY, "word for word"
    assert not view.prompt.field.isVisible()
    click(view.prompt.send_button)
    desk.say(Prompt(number=2, kind="password", text="<b>ada</b>@gpu1's password: "))
    assert view.prompt.text.text() == "<b>ada</b>@gpu1's password:", "never as markup"
    assert view.prompt.field.echoMode() == QLineEdit.EchoMode.Password
    QTest.keyClicks(view.prompt.field, "secret")
    QTest.keyClick(view.prompt.field, Qt.Key.Key_Return)
    assert desk.ways[-1].answers == [(1, "yes"), (2, "secret")]
    assert (view.prompt.field.text(), view.prompt.isVisible()) == ("", False), "nothing of it is kept"
    assert "not accepted" not in view.prompt.note.text()
    desk.say(Prompt(number=4, kind="password", text="<b>ada</b>@gpu1's password: "))
    assert view.prompt.note.text().startswith("The last answer was not accepted.")
    desk.say(Withdrawn(number=4))
    desk.say(Prompt(number=3, kind="notice", text="Touch the key"))
    assert view.prompt.isVisible()
    desk.say(Withdrawn(number=3), ConnectProgress(step="code", done=0.5, detail="2.9 MB"))
    assert view.steps["code"].text() == "● Copy DevExplorer's code: 2.9 MB"
    assert (view.steps["python"].text()[0], view.bar.value()) == ("✓", 500)
    click(view.details_button)
    assert view.details.toPlainText() == "Welcome to gpu1"
    machine = desk.arrive()
    assert not desk.has(ConnectDialog)
    assert desk.context.machine is machine, "shown once it is connected"
    assert desk.context.settings.machines == (KnownMachine("gpu1"),), "and remembered"


def test_cancel_refuses_what_is_asked_and_leaves_nothing(desk: Desk) -> None:
    dialog = desk.connect()
    desk.say(Prompt(number=7, kind="code", text="Verification code: "))
    click(dialog.cancel_button)
    assert desk.ways[-1].answers == [(7, None)]
    assert desk.room.others == ()
    assert desk.context.settings.machines == ()


def test_a_failure_says_what_would_help_and_can_be_tried_again(desk: Desk) -> None:
    dialog = desk.connect("gpu9")
    desk.say(ConnectProgress(step="connecting"))
    desk.ways[-1].failure = ConnectionFailure(kind="unknown host", host="gpu9")
    desk.say()
    assert dialog.view.failure.text() == ("gpu9 is not known: no such name in ~/.ssh/config or in the network.")
    assert dialog.view.help.text() == "Check the name, or add the machine to ~/.ssh/config."
    click(dialog.accept_button)
    assert [way.host for way in desk.ways] == ["gpu9", "gpu9"], "another attempt"
    desk.ways[-1].failure = ConnectionFailure(kind="denied", host="gpu9", detail="Permission denied (publickey)")
    desk.say(Said(text="debug"))
    click(dialog.back_button)
    assert desk.room.others == ()
    assert dialog.host.isVisible()
    dialog.host.setText("gpu1")
    click(dialog.accept_button)
    desk.arrive()
    assert not desk.has(ConnectDialog)


def test_a_machine_that_reconnects_may_ask_again(desk: Desk) -> None:
    desk.connect()
    machine = desk.arrive()
    desk.machines.change(machine, state="reconnecting", reason="the network is gone", retry_in_s=2.0)
    desk.say(Prompt(number=4, kind="passphrase", text="Enter passphrase for key: "))
    dialog = desk.dialog(AskDialog)
    assert dialog.windowTitle() == "Log in to gpu1"
    QTest.keyClicks(dialog.view.prompt.field, "x")
    click(dialog.view.prompt.send_button)
    assert desk.ways[-1].answers == [(4, "x")]
    desk.arrive()
    assert not desk.has(AskDialog), "nothing more to ask"


def test_remembered_machines_are_connected_on_request_only(desk: Desk) -> None:
    desk.context.save_settings(machines=(KnownMachine("gpu2", "/opt/py"),))
    assert desk.ways == []
    menu = desk.window.toolbar.buttons["machine"].menu()
    menu.aboutToShow.emit()
    again = next(action.menu() for action in menu.actions() if action.text() == "Connect again")
    again.actions()[0].trigger()
    assert [(way.host, way.python) for way in desk.ways] == [("gpu2", "/opt/py")]
    assert isinstance(desk.dialog(ConnectDialog), ConnectDialog)


def test_the_menu_and_the_list_switch_between_machines(desk: Desk) -> None:
    button, here = desk.window.toolbar.buttons["machine"], desk.context.machine
    assert button.accessibleName() == "Machine"
    desk.connect()
    gpu1 = desk.arrive()
    assert (button.text(), button.accessibleName()) == ("gpu1 ▾", "Machine: gpu1")
    desk.machines.change(gpu1, state="reconnecting", reason="no answer", retry_in_s=5.0)
    assert button.text() == "△ gpu1 ▾"
    assert button.toolTip().startswith("gpu1: Reconnecting. No answer. Next attempt in 5 s.")
    desk.window.actions_by_id["switch_machine"].trigger()
    palette = desk.dialog(CommandPalette)
    QTest.keyClicks(palette.field, "this")
    QTest.keyClick(palette.field, Qt.Key.Key_Return)
    assert desk.context.machine is here
    menu = button.menu()
    menu.aboutToShow.emit()
    lines = {action.text().split("\t")[0]: action for action in menu.actions()}
    assert lines["this machine"].isChecked()
    assert not lines["Disconnect"].isEnabled()
    lines["gpu1"].trigger()
    assert desk.context.machine is gpu1
    desk.machines.change(gpu1, state="connected", holder="ada on laptop")
    menu.aboutToShow.emit()
    next(action for action in menu.actions() if action.text() == "Take over").trigger()
    assert gpu1.calls == [("take_over",)]
    next(action for action in menu.actions() if action.text() == "Disconnect").trigger()
    assert (desk.room.others, desk.context.machine) == ((), here)


def test_the_page_lists_every_machine(desk: Desk) -> None:
    desk.context.save_settings(machines=(KnownMachine("gpu3"),))
    desk.connect("gpu2")
    gpu2 = desk.arrive("gpu2")
    gpu2.aside.set_catalog(Catalog((CPU, VGPU), ()))
    desk.context.show_tab("machines")
    page = desk.window.bottom_dock.page("machines")
    desk.room.show(desk.room.here)
    page.refresh()
    texts = {row.key: [cell.text for cell in row.cells] for row in page.table.rows}
    assert texts["this machine"][:3] == ["this machine", "● Here, shown", "Tesla T4, simulated"]
    assert texts["gpu2"][1:3] + texts["gpu2"][6:] == ["● Connected", "Tesla T4, simulated", "—", "12.3", "0.0", "0"]
    assert texts["gpu3"][:3] == ["gpu3", "○ Not connected", "—"]
    header = page.table.horizontalHeader()
    for order in (["gpu2", "gpu3", "this machine"], ["this machine", "gpu3", "gpu2"], ["this machine", "gpu2", "gpu3"]):
        QTest.mouseClick(header.viewport(), LEFT, pos=QPoint(header.sectionViewportPosition(0) + 20, 8))
        assert [row.key for row in page.table.rows] == order, "up, down, as it was"
    assert page.figures() is not None
    for key, lines in (
        ("gpu2", ["Show", "Disconnect", "Show as table…"]),
        ("gpu3", ["Reconnect", "Forget", "Show as table…"]),
    ):
        row = next(at for at, one in enumerate(page.table.rows) if one.key == key)
        place = page.table.visualRect(page.table.rows_model.index(row, 0)).center()
        QTest.mouseClick(page.table.viewport(), Qt.MouseButton.RightButton, pos=place)
        viewport = page.table.viewport()
        where = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, place, viewport.mapToGlobal(place))
        QApplication.sendEvent(viewport, where)
        (menu,) = page.findChildren(QMenu)
        assert [action.text() for action in menu.actions()][: len(lines)] == lines
        menu.close()
        desk.quiet.settle()
    page.table.select_key("gpu2")
    click(page.show_button)
    assert desk.context.machine is gpu2
    page.table.select_key("gpu3")
    click(page.forget_button)
    assert [one.host for one in desk.context.settings.machines] == ["gpu2"]


def test_copies_go_to_another_machine_where_there_is_one(desk: Desk) -> None:
    menu = desk.window.toolbar.buttons["copy"].menu()
    menu.aboutToShow.emit()
    assert not [action for action in menu.actions() if action.menu() is not None], "none while there is no other"
    desk.quiet.tell(ObjectChanged(snapshot=mlp()))
    desk.connect()
    gpu1 = desk.arrive()
    desk.window.objects.select("mlp")
    desk.context.machine.session = gpu1.session
    menu.aboutToShow.emit()
    (others,) = [action.menu() for action in menu.actions() if action.menu() is not None]
    assert [action.text() for action in others.actions()] == ["this machine"]
    assert not others.actions()[0].isEnabled(), "its session has not started"
    desk.machines.machines[0].session = gpu1.session
    menu.aboutToShow.emit()
    (others,) = [action.menu() for action in menu.actions() if action.menu() is not None]
    others.actions()[0].trigger()
    dialog = desk.dialog(CopyDialog)
    assert dialog.words.full_text == "mlp: saving on gpu1"
    question, _, failed = gpu1.calls[-1]
    assert question == SaveCopy(targets=("mlp",))
    failed("There is no space left on gpu1.")
    assert not desk.has(CopyDialog)
    assert desk.window.banner.words.full_text == "There is no space left on gpu1."
    desk.machines.machines[0].session = None


def test_virtual_gpus_beside_cards_are_shown_like_a_machine(desk: Desk) -> None:
    """Their engine is another than that of the cards: torch cannot train on both in one process."""
    sent: list[Command] = []
    room, context = desk.room, desk.context
    why = "this process can use cuda:0"
    desk.quiet.state.set_catalog(Catalog((CPU, CUDA), ()))
    assert not room.takes(AddVirtual(spec="2x Tesla T4")), "without cards the engine has them itself"
    desk.quiet.tell(replace(ENGINE, virtual_beside=why))
    assert not room.takes(BuildModel(recipe="mlp"))
    assert room.takes(Steps(commands=(AddVirtual(spec="2x Tesla T4"), BuildModel(recipe="mlp", device="vgpu:0"))))
    assert [machine.name for machine in room.machines] == ["this machine", VIRTUAL]
    assert room.shown.is_here, "not before it is connected"
    context.controller.send = sent.append  # type: ignore[method-assign]
    desk.arrive(VIRTUAL)
    assert room.shown.name == VIRTUAL
    desk.quiet.tell(replace(ENGINE, virtual_beside=None))
    assert [type(command) for command in sent] == [AddVirtual, BuildModel]
    assert context.settings.machines == (), "it is no host that ssh could reach again"
    assert not room.takes(AddVirtual(spec="NVIDIA A10")), "more of them are that engine's own"


def test_virtual_gpus_of_an_earlier_window_are_shown_as_they_are(desk: Desk) -> None:
    sent: list[Command] = []
    desk.quiet.tell(replace(ENGINE, virtual_beside="this process can use cuda:0"))
    desk.context.virtual_spec = "2x Tesla T4"
    desk.quiet.tell()
    desk.context.controller.send = sent.append  # type: ignore[method-assign]
    desk.arrive(VIRTUAL)
    desk.quiet.tell()
    assert (desk.room.shown.name, sent) == (VIRTUAL, []), "the window of this test lists virtual GPUs"


def test_an_engine_for_virtual_gpus_that_cannot_start_is_said_and_not_listed(desk: Desk) -> None:
    desk.quiet.tell(replace(ENGINE, virtual_beside="this process can use cuda:0"))
    assert desk.room.takes(AddVirtual(spec="2x Tesla T4"))
    machine = desk.room.find(VIRTUAL)
    assert isinstance(machine, FarFake)
    desk.machines.change(machine, state="lost", reason="the host could not be started")
    assert [one.name for one in desk.room.machines] == ["this machine"]
