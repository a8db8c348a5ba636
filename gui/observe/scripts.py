"""The scripts of this user that run: Machine ▾ › Running here lists those of this machine, Running on NAME those of
another one that is connected; either shows one as a machine. Main thread; the sockets of this machine are asked on the
thread `scripts`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import localtime, strftime
from typing import TYPE_CHECKING, cast

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from devexplorer.core.base import BadInput, count_text, sentence
from devexplorer.core.machines.window.link import link_of
from devexplorer.core.observe.live import ScriptState, keep
from devexplorer.core.observe.records import RunReport, WhatHolds
from devexplorer.core.records import SentFrom
from devexplorer.core.session import State
from devexplorer.core.session.machine import Machine
from devexplorer.gui.actions import ASK, MACHINE, ActionSpec, WindowContext
from devexplorer.gui.history.room import history_of
from devexplorer.gui.history.tab import TAB as HISTORY
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.observe.tab import TAB
from devexplorer.gui.widgets.panel import is_only_shown, why_not_live

if TYPE_CHECKING:
    from devexplorer.core.machines.greeting import Greeting
    from devexplorer.gui.shell.main_window import MainWindow

NONE = "No script of yours runs. Start one with: devexplorer run train.py"
LOOKING = "Looking for scripts…"
ACTION = "running_here"


def scripts_of(context: WindowContext) -> RunningScripts:
    """Those of this window."""
    return context.findChild(RunningScripts) or RunningScripts(context)


def actions(context: WindowContext) -> list[ActionSpec]:
    """Running scripts, and what can be asked of them as well."""
    rows = context.selection.rows

    def why_no_holders() -> str | None:
        if (reason := why_no_question(context.state)) is not None:
            return reason
        return None if len(rows()) == 1 else "Select one tensor, or one part of a model."

    def ask_holders() -> None:
        ((target, _),) = rows()
        context.controller.send(WhatHolds(target=target))

    tooltip = "Scripts of yours that run on this machine under devexplorer run"
    return [
        ActionSpec(ACTION, "Running here", tooltip, scripts_of(context).choose, menu=MACHINE),
        ActionSpec("held_by", "What keeps it alive?", "The references that keep the selected object in memory",
                   ask_holders, why_no_holders, menu=ASK),
    ]  # fmt: skip


def why_no_question(state: State) -> str | None:
    """Why nothing can be asked now; a running script can be, though it is only shown."""
    return None if is_only_shown(state) else why_not_live(state)


def begin(context: WindowContext) -> None:
    """In the menu it is a menu of its own, filled while the way to it opens."""
    scripts, window = scripts_of(context), cast("MainWindow", context.window)
    window.actions_by_id[ACTION].setMenu(RunningMenu(scripts, window, scripts.here))
    menu = window.toolbar.buttons["machine"].menu()
    elsewhere: dict[str, RunningMenu] = {}

    def add(before: QAction | None = None) -> None:
        """Before that line; while the menu is open behind the last one, so that none moves."""
        for name, known in scripts.known.items():
            if name == scripts.here:
                continue
            if name not in elsewhere:
                elsewhere[name] = RunningMenu(scripts, window, name)
            line = elsewhere[name].menuAction()
            line.setEnabled(bool(known))
            if known and line not in menu.actions():
                menu.insertAction(before, line)  # type: ignore[arg-type]  # Qt takes none

    def opened() -> None:
        scripts.look()
        lines = menu.actions()
        add(lines[lines.index(window.actions_by_id[ACTION]) + 1])

    menu.aboutToShow.connect(opened)
    scripts.changed.connect(add)


def begin_with(context: WindowContext, pid: str) -> None:
    """A window that was opened on the script of this process."""
    from devexplorer.core.observe.running import checked_script

    def look() -> Greeting | None:
        try:
            return checked_script(pid)  # on a busy machine the script answers late
        except BadInput:
            return None

    def found(script: Greeting | None) -> None:
        if script is not None:
            scripts_of(context).show(script, scripts_of(context).here)
        else:
            context.shown.show(context.shown.here)
            context.banner.say(f"The script of process {pid} has ended.")

    context.shown.follow_all()  # the heart beats, also for nothing
    context.in_background("scripts", look, found)


def open_report(context: WindowContext, path: Path, _sent_from: SentFrom | None) -> None:
    """Keep the run of a report in the history, and show it there."""
    from devexplorer.core.observe.compare import read_report

    def read() -> RunReport | str:
        try:
            return read_report(path)
        except BadInput as error:
            return sentence(str(error))

    def found(report: RunReport | str) -> None:
        here = context.shown.here
        if isinstance(report, str):
            context.banner.say(report, error=True)
            return
        if here.session is None or history_of(context).source is not here.session.listener("history"):
            context.shown.show(here)
        assert here.session is not None, "it is shown"
        keep(here.session, report, lambda run: HISTORY.show(context).show_run(run.id))

    context.in_background("report", read, found)


def since_words(script: Greeting) -> str:
    """What tells it from others of its name."""
    parts = [*(f"{spec} (simulated)" for spec in script.devices), f"PyTorch {script.torch}"]
    return ", ".join((*parts, f"since {strftime('%H:%M', localtime(script.since_unix_s))}"))


class RunningScripts(QObject):
    """`look`, then `changed`; `show` one."""

    changed = Signal()

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context, self._room = context, room_of(context)
        self.here = context.machine.name
        self.known: dict[str, Sequence[Greeting]] = {}
        """Of each machine that has answered, by its name."""
        self._waiting: list[Callable[[], None]] | None = None
        """What is done once they are known; None: nobody looks now."""
        self._names: dict[tuple[str, int, bool], str] = {}
        """What they are called as machines, by where they run, their processes, and whether with all ranks."""
        self._new: set[str] = set()
        """Those that were not shown yet."""
        self._running: set[str] = set()
        """Those of this machine that have not ended, as far as is known."""
        context.machine_shown.connect(self._shown)
        context.beaten.connect(self._keep_ended)

    def look(self, then: Callable[[], None] = lambda: None) -> None:
        """Ask which there are; at a later beat they are known."""
        from devexplorer.core.machines.records import ListScripts, ScriptsFound
        from devexplorer.core.observe.running import running

        def found(name: str, answer: ScriptsFound) -> None:
            self.known[name] = answer.scripts
            self.changed.emit()

        if self._waiting is not None:
            self._waiting.append(then)
            return
        self._waiting = [then]
        self._context.stirred.emit()
        self._context.in_background("scripts", running, self._found)
        hosts = [machine for machine in self._room.others if machine.link.live and self._room.is_host(machine.name)]
        listed = {self.here, *(machine.name for machine in hosts)}
        self.known = {name: known for name, known in self.known.items() if name in listed}
        for machine in hosts:
            machine.session.ask(ListScripts(), partial(found, machine.name))

    def _found(self, found: Sequence[Greeting]) -> None:
        self.known[self.here], waiting, self._waiting = found, self._waiting or [], None
        self.changed.emit()
        for then in waiting:
            then()

    def jobs(self, machine: str) -> dict[str, list[Greeting]]:
        """Those of a machine, ranks of one job together."""
        jobs: dict[str, list[Greeting]] = {}
        for script in sorted(self.known.get(machine, ()), key=lambda script: script.rank or 0):
            jobs.setdefault(script.job or str(script.pid), []).append(script)
        return dict(sorted(jobs.items(), key=lambda job: min(script.since_unix_s for script in job[1])))

    def show(self, script: Greeting, where: str, job: str = "") -> None:
        """Show it as a machine; `where`: the name of the one that it runs on; `job`: with all ranks of its job, which
        is called so."""
        from devexplorer.core.observe.running import ScriptRoute, route_there, short_name

        ranks, is_here = bool(job), where == self.here
        key = where, script.pid, ranks
        machine = self._room.find(self._names.get(key, ""))
        link = link_of(machine)
        if machine is not None and link is not None and not link.ended:
            self._room.show(machine)
            return
        called = job or short_name(script)
        if not is_here:
            called = f"{called} on {where}"
        name, number = called, 1
        while self._room.find(name) is not None:
            number += 1
            name = f"{called} ({number})"
        self._names[key] = name
        self._new.add(name)
        self._context.banner.say(f"Connecting to {name}…", passing=True, about=ACTION)
        if is_here:
            self._room.join(name, ScriptRoute(script.pid, ranks=ranks))
            self._running.add(name)
        else:
            self._room.join(name, route_there(script.pid, where, self._room.python_of(where), ranks=ranks))
        machine, runs_on = self._room.find(name), self._room.find(where)
        if machine is None or machine.session is None or runs_on is None or runs_on.session is None:
            return
        machine.session.listeners["history"] = runs_on.session.listener("history")

    def _keep_ended(self) -> None:
        """The host has kept the runs of scripts that ended; the history of this window is to know of them."""
        if not self._running:
            return
        shown = self._context.shown
        for machine in shown.machines:
            is_shown = machine is shown.machine and shown.instead is None
            ended = (self._context.state if is_shown else machine.aside).part(ScriptState).ended
            if ended is not None and machine.name in self._running:
                self._running.discard(machine.name)
                if shown.here.session is not None:
                    keep(shown.here.session, ended.report)

    def _shown(self, machine: Machine) -> None:
        if machine.name in self._new:
            self._new.discard(machine.name)
            if self._context.banner.about == ACTION:
                self._context.banner.clear()
            TAB.show(self._context)

    def choose(self) -> None:
        """Choose one by its first letters."""
        self.look(self._offer)

    def _offer(self) -> None:
        from devexplorer.core.observe.running import short_name
        from devexplorer.gui.actions.palette import CommandPalette, PaletteChoice  # when it is asked for

        choices = [
            PaletteChoice(
                short_name(script), since_words(script), True, partial(self.show, script, self.here), script.folder
            )
            for job in self.jobs(self.here).values()
            for script in job
        ]
        if choices:
            self._context.open_dialog(CommandPalette(choices, self._context.window, "Running here", "Which script?"))
        else:
            self._context.hint(f"{NONE}.")


class RunningMenu(QMenu):
    """Those of one machine: what is known at once; while it is open lines are added below, and none moves."""

    def __init__(self, scripts: RunningScripts, window: MainWindow, machine: str) -> None:
        super().__init__(f"Running on {machine}".replace("&", "&&"), window)
        self.setToolTipsVisible(True)
        self._scripts, self._machine = scripts, machine
        self._lines: dict[str, QAction] = {}
        """By the job."""
        self._words: QAction | None = None
        self.aboutToShow.connect(self._open)
        scripts.changed.connect(self._follow)

    def _open(self) -> None:
        self.clear()
        self._lines = {}
        self._words = self.addAction("")
        self._words.setEnabled(False)
        self._scripts.look()
        self._follow()

    def _follow(self) -> None:
        if self._words is None:  # it was never opened
            return
        jobs = self._scripts.jobs(self._machine)
        for key, line in self._lines.items():
            line.setEnabled(key in jobs)
        for key, job in jobs.items():
            if key not in self._lines:
                self._lines[key] = self._add(job)
        self._words.setVisible(not self._lines)
        self._words.setText(NONE if self._machine in self._scripts.known else LOOKING)

    def _add(self, job: Sequence[Greeting]) -> QAction:
        from devexplorer.core.observe.running import short_name

        first = job[0]
        if len(job) == 1:
            return self._line(self, short_name(first), first)
        whole = short_name(first).removesuffix(f", rank {first.rank}")
        called = f"{whole}, {count_text(len(job), 'rank')}"
        menu = self.addMenu(called.replace("&", "&&"))
        line = menu.addAction("all ranks", partial(self._scripts.show, first, self._machine, called))
        line.setToolTip(f"Models and steps of rank {first.rank}, virtual GPUs of all")
        for script in job:
            self._line(menu, f"rank {script.rank}", script)
        return menu.menuAction()

    def _line(self, menu: QMenu, words: str, script: Greeting) -> QAction:
        show = partial(self._scripts.show, script, self._machine)
        line = menu.addAction(f"{words}\t{since_words(script)}".replace("&", "&&"), show)
        line.setToolTip(f"Process {script.pid}, started in {script.folder}")
        return line
