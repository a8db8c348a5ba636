"""Machine ▾ › Running here, Running on NAME: which scripts run, and one of them shown as a machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.far_machines import FarFake, MachinesFake, WayFake
from fakes.quiet_window import QuietWindow
from msgspec.structs import replace
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QMenu

from devexplorer.core.machines.greeting import Greeting
from devexplorer.core.machines.records import ListScripts, ScriptsFound
from devexplorer.core.machines.ssh.records import Prompt
from devexplorer.core.machines.window.routes import SshRoute
from devexplorer.core.observe.running import ScriptRoute
from devexplorer.gui.actions.palette import CommandPalette
from devexplorer.gui.machines.approach import AskDialog
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.observe.scripts import ACTION, LOOKING, NONE, RunningMenu, begin_with, scripts_of

ONE = Greeting(pid=11, name="jobs/train.py", folder="/home/ada", since_unix_s=1_000.0, torch="2.13.0")
SIMULATED = Greeting(
    pid=12, name="-m pkg.fit", folder="/home/ada", since_unix_s=2_000.0, torch="2.13.0", devices=("2x Tesla T4",)
)
RANKS = [
    replace(ONE, pid=20 + rank, name="ddp.py", since_unix_s=500.0 + rank, rank=rank, ranks=2, job="7")
    for rank in (1, 0)
]


class Desk:
    """A window, and the scripts that run."""

    def __init__(self, quiet: QuietWindow) -> None:
        self.quiet, self.window, self.context = quiet, quiet.window, quiet.window.context
        self.machines = MachinesFake(self.context)
        self.running: list[Greeting] = []
        self.room, self.scripts = room_of(self.context), scripts_of(self.context)

    @property
    def menu(self) -> RunningMenu:
        menu = self.window.actions_by_id[ACTION].menu()  # type: ignore[attr-defined]
        assert isinstance(menu, RunningMenu)
        return menu

    def lines(self, menu: QMenu | None = None) -> list[str]:
        return [line.text() for line in (menu or self.menu).actions() if line.isVisible()]

    def open(self) -> list[str]:
        """What the menu says at last."""
        self.menu.aboutToShow.emit()
        self.quiet.answered()
        return self.lines()

    def line(self, words: str) -> QAction:
        menus = [self.menu, *self.menu.findChildren(QMenu)]
        return next(line for menu in menus for line in menu.actions() if line.text().startswith(words))

    def show(self, script: Greeting) -> None:
        self.scripts.show(script, self.scripts.here)

    def machine(self, name: str) -> FarFake:
        machine = self.room.find(name)
        assert isinstance(machine, FarFake)
        return machine

    def connect(self, host: str, python: str) -> FarFake:
        """A host of ssh's is connected."""
        self.room.make_way = WayFake
        self.room.connect_to(host, python)
        self.arrive(host)
        return self.machine(host)

    def elsewhere(self) -> list[QMenu]:
        """Open the menu of machines; the menus of others in it."""
        menu = self.window.toolbar.buttons["machine"].menu()
        menu.aboutToShow.emit()
        self.quiet.answered()
        return [menu for menu in (line.menu() for line in menu.actions()) if isinstance(menu, RunningMenu)][1:]

    def arrive(self, name: str) -> None:
        self.machines.change(self.machine(name), state="connected")
        self.quiet.settle()

    @property
    def names(self) -> list[str]:
        return [machine.name for machine in self.room.machines]


@pytest.fixture
def desk(qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    quiet = QuietWindow(qapp, tmp_path)
    made = Desk(quiet)
    monkeypatch.setattr("devexplorer.core.observe.running.running", lambda: list(made.running))
    yield made
    quiet.close()


def test_the_menu_of_machines_has_those_that_run(desk: Desk) -> None:
    machine_menu = desk.window.toolbar.buttons["machine"].menu()
    machine_menu.aboutToShow.emit()
    assert desk.window.actions_by_id[ACTION] in machine_menu.actions()
    desk.quiet.answered()
    desk.menu.aboutToShow.emit()
    assert desk.lines() == [NONE], "it was looked for while the way to it opened"
    assert not desk.menu.actions()[0].isEnabled()
    desk.quiet.answered()
    desk.running = [ONE, SIMULATED, *RANKS]
    lines = desk.open()
    assert [line.partition("\t")[0] for line in lines] == ["ddp.py, 2 ranks", "train.py", "-m pkg.fit"]
    assert lines[1].partition("\t")[2].startswith("PyTorch 2.13.0, since ")
    assert "2x Tesla T4 (simulated), PyTorch 2.13.0" in lines[2]
    assert desk.line("train.py").toolTip() == "Process 11, started in /home/ada"
    ranks = desk.line("ddp.py").menu()
    assert isinstance(ranks, QMenu)
    assert [line.partition("\t")[0] for line in desk.lines(ranks)] == ["all ranks", "rank 0", "rank 1"]


def test_nothing_waits_and_no_line_moves_while_the_menu_is_open(desk: Desk) -> None:
    desk.running = [SIMULATED]
    desk.menu.aboutToShow.emit()
    assert desk.lines() == [LOOKING]
    desk.quiet.answered()
    first = desk.line("-m pkg.fit")
    desk.running = [ONE, SIMULATED]
    desk.scripts.look()
    desk.scripts.look()
    desk.quiet.answered()
    assert [line.partition("\t")[0] for line in desk.lines()] == ["-m pkg.fit", "train.py"], "the older one came later"
    desk.running = [ONE]
    desk.scripts.look()
    desk.quiet.answered()
    assert desk.line("-m pkg.fit") is first
    assert not first.isEnabled(), "it has ended"
    assert [line.partition("\t")[0] for line in desk.open()] == ["train.py"]


def test_one_click_shows_a_script_as_a_machine(desk: Desk) -> None:
    desk.running = [ONE]
    desk.open()
    desk.line("train.py").trigger()
    assert desk.names == ["this machine", "train.py"]
    (route,) = desk.machines.routes
    assert isinstance(route, ScriptRoute)
    assert route.pid == 11
    assert desk.window.banner.words.full_text == "Connecting to train.py…"
    assert desk.room.shown.is_here, "not before it is connected"
    desk.arrive("train.py")
    assert desk.room.shown.name == "train.py"
    assert desk.window.bottom_dock.in_front["explore"] == "script"
    assert not desk.window.banner.isVisible()
    assert desk.context.settings.machines == (), "it is no host that ssh could reach again"
    desk.room.show(desk.room.machines[0])
    desk.context.show_tab("doctor")
    desk.line("train.py").trigger()
    assert desk.room.shown.name == "train.py"
    assert desk.names == ["this machine", "train.py"]
    assert desk.window.bottom_dock.in_front["explore"] == "doctor", "the page is brought to the front once"


def test_scripts_of_one_name_are_numbered_and_ranks_named(desk: Desk) -> None:
    desk.running = [ONE, replace(ONE, pid=13), *RANKS]
    desk.open()
    for script in (ONE, replace(ONE, pid=13), RANKS[0]):
        desk.show(script)
    assert desk.names == ["this machine", "train.py", "train.py (2)", "ddp.py, rank 1"]
    desk.arrive("train.py")
    desk.machines.change(desk.machine("train.py"), state="lost", ended=True, reason="train.py has ended.")
    desk.show(ONE)
    assert desk.names[-1] == "train.py (3)", "another process can have the number of one that has ended"


def test_ranks_of_a_job_are_shown_as_one(desk: Desk) -> None:
    desk.running = [*RANKS]
    desk.open()
    desk.line("all ranks").trigger()
    desk.line("rank 0").trigger()
    desk.line("all ranks").trigger()
    assert desk.names == ["this machine", "ddp.py, 2 ranks", "ddp.py, rank 0"]
    routes = [route._words for route in desk.machines.routes if isinstance(route, ScriptRoute)]
    assert routes == [("20", "ranks"), ("20",)], "a host of its own"


def test_one_that_has_ended_meanwhile_is_not_listed_and_said(desk: Desk) -> None:
    desk.show(ONE)
    desk.machines.change(desk.machine("train.py"), state="lost", reason="process 11 has ended")
    assert desk.names == ["this machine"]
    assert desk.window.banner.words.full_text == "train.py: process 11 has ended."


def test_the_palette_offers_them_by_their_letters(desk: Desk) -> None:
    desk.window.actions_by_id[ACTION].trigger()
    desk.quiet.answered()
    assert desk.window.banner.words.full_text == f"{NONE}."
    desk.running = [*RANKS]
    desk.window.actions_by_id[ACTION].trigger()
    desk.quiet.answered()
    (palette,) = [one for one in desk.window.findChildren(CommandPalette) if one.isVisible()]
    assert [palette.list.topLevelItem(row).text(0) for row in (0, 1)] == ["ddp.py, rank 0", "ddp.py, rank 1"]
    palette.field.setText("rank 1")
    palette.field.returnPressed.emit()
    assert desk.names == ["this machine", "ddp.py, rank 1"]


def test_a_window_is_opened_on_a_script_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    live: list[bool] = []
    monkeypatch.setattr(desk.context.shown, "go_live", lambda: live.append(True))
    desk.running = [ONE]
    begin_with(desk.context, "11")
    assert desk.quiet.app.heartbeat is not None
    desk.quiet.app.heartbeat.stop()
    desk.quiet.answered()
    assert desk.names == ["this machine", "train.py"]
    assert live == [], "nothing is started on this machine"
    begin_with(desk.context, "12")
    desk.quiet.answered()
    assert live == [True]
    assert desk.window.banner.words.full_text == "The script of process 12 has ended."


def test_a_window_on_a_script_waits_for_its_answer(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens; on a busy machine its answer comes late."""
    answers: list[list[Greeting]] = [[], [ONE]]
    monkeypatch.setattr("devexplorer.core.observe.running.running", lambda: answers.pop(0))
    monkeypatch.setattr("devexplorer.core.observe.running._listening", lambda pid: socket.socket())
    monkeypatch.setattr("devexplorer.core.observe.running.WAIT_S", 0.0)
    begin_with(desk.context, "11")
    assert desk.quiet.app.heartbeat is not None
    desk.quiet.app.heartbeat.stop()
    desk.quiet.answered()
    assert desk.names == ["this machine", "train.py"]


def answer(machine: FarFake, *scripts: Greeting) -> None:
    """The host there says which run."""
    question, then, _ = [call for call in machine.calls if call[0] == ListScripts()][-1]
    assert question == ListScripts()
    then(ScriptsFound(scripts=scripts))


def test_other_machines_with_scripts_have_a_menu_of_their_own(desk: Desk) -> None:
    machine, other = desk.connect("gpu1", "/opt/python"), desk.connect("gpu2", "")
    desk.show(ONE)  # is asked for none
    desk.arrive("train.py")
    assert desk.elsewhere() == []
    assert not desk.machine("train.py").calls
    answer(other)
    answer(machine, SIMULATED, *RANKS)
    (menu,) = desk.elsewhere()
    assert menu.title() == "Running on gpu1"
    machine_menu = desk.window.toolbar.buttons["machine"].menu()
    lines = machine_menu.actions()
    assert lines.index(menu.menuAction()) == lines.index(desk.window.actions_by_id[ACTION]) + 1
    menu.aboutToShow.emit()
    assert [line.partition("\t")[0] for line in desk.lines(menu)] == ["ddp.py, 2 ranks", "-m pkg.fit"]
    desk.quiet.answered()
    (ranks,) = menu.findChildren(QMenu)
    ranks.actions()[0].trigger()
    assert desk.names[-1] == "ddp.py, 2 ranks on gpu1"
    assert desk.machines.routes[-1]._program[1:] == ("proxy", "20", "ranks")
    answer(machine)
    assert menu.menuAction() in machine_menu.actions()
    assert not menu.menuAction().isEnabled(), "they have ended"
    assert desk.elsewhere() == []
    answer(other, ONE)
    assert machine_menu.actions()[-1].text() == "Running on gpu2", "no line moves while the menu is open"
    desk.machines.change(other, state="reconnecting")
    assert desk.elsewhere() == [], "it cannot be asked now"


def test_a_script_of_another_machine_is_shown_through_an_ssh_of_its_own(desk: Desk) -> None:
    machine = desk.connect("gpu1", "/opt/python")
    desk.running = [ONE]
    desk.elsewhere()
    answer(machine, ONE)
    (menu,) = desk.elsewhere()
    menu.aboutToShow.emit()
    (line,) = [line for line in menu.actions() if line.isVisible()]
    line.trigger()
    assert desk.window.banner.words.full_text == "Connecting to train.py on gpu1…"
    way = desk.machines.routes[-1]
    assert isinstance(way, SshRoute)
    assert (way.host, way.python) == ("gpu1", "/opt/python")
    desk.show(ONE)
    assert desk.names == ["this machine", "gpu1", "train.py on gpu1", "train.py"], "another process of that number"
    desk.arrive("train.py on gpu1")
    assert desk.room.shown.name == "train.py on gpu1"
    assert desk.window.bottom_dock.in_front["explore"] == "script"
    assert [one.host for one in desk.context.settings.machines] == ["gpu1"], "what is remembered is the machine"
    line.trigger()
    assert len(desk.names) == 4


def test_ssh_asks_again_for_a_script_and_a_refusal_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    way = WayFake("gpu1")
    monkeypatch.setattr("devexplorer.core.observe.running.route_there", lambda *_, **__: way)
    desk.connect("gpu1", "")
    desk.scripts.show(ONE, "gpu1")
    way.say(Prompt(number=1, kind="password", text="password:"))
    desk.room._beat()
    (dialog,) = [one for one in desk.window.findChildren(AskDialog) if one.isVisible()]
    assert dialog.windowTitle() == "Log in to gpu1"
    dialog.reject()
    assert way.answers == [(1, None)]
    desk.machines.change(desk.machine("train.py on gpu1"), state="lost", reason="the login was cancelled")
    assert desk.names == ["this machine", "gpu1"]
    assert desk.window.banner.words.full_text == "train.py on gpu1: the login was cancelled."
