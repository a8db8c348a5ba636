"""The other machines of a window: the button with their menu; adds them to what goes on behind it, and says how the
link of the one shown stands. Main thread only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, cast

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QFrame

from devexplorer.core.machines.window.link import link_of
from devexplorer.core.machines.window.words import (
    age_text,
    alarm_words,
    link_words,
    old_text,
    rates_words,
    state_words,
    why,
)
from devexplorer.core.session.machine import Machine
from devexplorer.gui.actions import MACHINE, OtherMachines, WindowContext, fill_menu, refresh
from devexplorer.gui.machines.actions import reconnect
from devexplorer.gui.machines.copies import Copies
from devexplorer.gui.machines.file_copies import FileCopies
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.widgets import ElidedLabel, Sign, hbox, push_button, show_text

if TYPE_CHECKING:
    from PySide6.QtWidgets import QMenu

    from devexplorer.core.machines.window.link import Link
    from devexplorer.core.machines.window.machines import FarMachine, Machines
    from devexplorer.core.records import Command
    from devexplorer.gui.forms.far_side import FarSide
    from devexplorer.gui.machines.side import Side
    from devexplorer.gui.shell.main_window import MainWindow


ALONE = "Machine"
NAME_PX = 132
"""Of the name of the machine shown, at most."""
TIP = "The machine that this window shows: connect to others, switch between them (Ctrl+Shift+M)"
MOST_KNOWN = 8


class MachineMenu(QObject):
    """Adds the button, fills its menu whenever that is opened, and has it name the machine shown."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._context, self._toolbar = window.context, window.toolbar
        self._button = self._toolbar.add_machine_button()
        # the pages first
        self._specs = sorted((spec for spec in window.specs if spec.menu == MACHINE), key=lambda spec: bool(spec.key))
        self._actions = window.actions_by_id
        self._room = room_of(window.context)
        self._button.menu().aboutToShow.connect(self._fill)
        self._room.changed.connect(self._name)
        self._name()
        self._fill()

    def _name(self) -> None:
        """Say which machine is shown once there are several."""
        shown, several = self._room.shown, len(self._room.machines) > 1
        name = shown.name[:1].upper() + shown.name[1:] if shown.is_here else shown.name
        link = link_of(shown)
        sign = "" if link is None or (link.live and not link.watching) else f"{state_words(link)[0]} "
        others = (machine for machine in self._room.machines if machine is not shown)
        alarmed = [f"{machine.name}: {alarm_words(machine.aside)}" for machine in others if alarm_words(machine.aside)]
        words = ALONE
        if several:
            words = f"{sign}{name}{' ✕' if alarmed else ''}"
        short = self._button.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, NAME_PX)
        self._toolbar.name_machine(f"{short} ▾".replace("&", "&&"), several)
        spoken = ", ".join((f"Machine: {shown.name}", *alarmed))
        self._button.setAccessibleName(spoken if several else ALONE)
        state = "" if link is None else f"{shown.name}: {state_words(link)[2:]}. {why(link)}".rstrip()
        self._button.setToolTip("\n".join(filter(None, (state, *alarmed, TIP))))

    def _fill(self) -> None:
        menu = self._button.menu()
        menu.clear()
        group = QActionGroup(menu)
        for machine in self._room.machines:
            link = link_of(machine)
            state = "" if link is None else state_words(link)
            age = "" if link is None or link.live else age_text(link.reading_age_s)
            now = self._context.state if machine is self._room.shown else machine.aside
            about = ", ".join(filter(None, (state, age and f"readings {age} old", alarm_words(now))))
            line = menu.addAction(f"{machine.name}\t{about}".replace("&", "&&"), partial(self._room.show, machine))
            line.setCheckable(True)
            line.setChecked(machine is self._room.shown)
            line.setActionGroup(group)
            line.setToolTip(why(link))
        known = self._room.known[:MOST_KNOWN]
        if known:
            again = menu.addMenu("Connect again")
            for one in known:
                again.addAction(one.host.replace("&", "&&"), partial(reconnect, self._context, one.host))
        menu.addSeparator()
        refresh(self._specs, self._actions)
        fill_menu(menu, MACHINE, self._specs, self._actions)


HEIGHT_PX = 36


class MachineBar(QFrame):
    """`show_link` at each beat; hidden while all is well."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.setAccessibleName("Machine")
        self.setFixedHeight(HEIGHT_PX)
        self._act: Callable[[], None] = lambda: None
        self._sign = Sign("warning", "warning")
        self.words = ElidedLabel()
        self.button = push_button("Try now", lambda: self._act())
        hbox(self._sign, (self.words, 1), self.button, margins=(12, 0, 8, 0), parent=self)
        self.hide()

    def show_link(self, machine: FarMachine | None) -> None:
        """What is to be said about the machine shown; None: it is this one."""
        words, button, self._act = ("", "", lambda: None) if machine is None else _told(machine)
        self.words.set_full_text(words)
        show_text(self.button, button)
        if self.isHidden() == bool(words):
            self.setVisible(bool(words))


def _told(machine: FarMachine) -> tuple[str, str, Callable[[], None]]:
    link, session = machine.link, machine.session
    name, reason = machine.name, f": {link.reason.rstrip('.')}" if link.reason else ""
    age = moment_words(link, machine.now())
    match link.state:
        case "connecting":
            return f"Connecting to {name}…", "Cancel", session.disconnect
        case "reconnecting":
            wait = f" The next attempt is in {link.retry_in_s:.0f} s." if link.retry_in_s else ""
            return f"Reconnecting to {name}{reason}.{wait} {age}".rstrip(), "Try now", session.reconnect
        case "lost":
            return f"Not connected to {name}{reason}. {age}".rstrip(), "Connect", session.reconnect
        case "connected" if machine.is_late:
            return f"Nothing comes from {name}. {age}", "Connect again", session.reconnect
    if link.holder is not None:
        return link.watching_words(name), "Take over", session.take_over
    return "", "", lambda: None


def moment_words(link: Link, shown_unix_s: float) -> str:
    """Of what moment the readings shown are."""
    if link.reading_age_s is None:
        return ""
    moment = datetime.fromtimestamp(shown_unix_s).time().isoformat("seconds")
    return f"Showing readings from {moment}, {old_text(link.reading_age_s)} ago."


class MachinesOfWindow(OtherMachines):
    """Besides the menu, what the first of them loads is made with it: the bar, how each is asked."""

    def __init__(self, context: WindowContext) -> None:
        self._context = context
        window = self._window = cast("MainWindow", context.window)
        self._room = room_of(window.context)
        self._room.make_register = self._make
        self._files = FileCopies(window.context)
        self._copies = Copies(window.context)
        window.hidden_changed.connect(self.set_hidden)
        MachineMenu(window)
        self._sides: dict[Machine, Side] = {}
        self._hidden = False
        self.bar: MachineBar

    def _make(self) -> Machines:
        from devexplorer.core.machines.window.machines import Machines  # with the first of them

        self.bar = MachineBar()
        self._context.add_bar(self.bar)
        return Machines(self._context.machine, self._context.shown.show, self._changed)

    def _changed(self) -> None:
        from devexplorer.gui.machines.side import Side

        self._sides = {
            machine: self._sides.get(machine) or Side(self._context, machine, self._files)
            for machine in self._room.others
        }
        self._context.shown.set_machines(self._room.machines)
        self.set_hidden(self._hidden)
        self._context.machines_changed.emit()

    # --- what the window asks

    def side(self, machine: Machine) -> FarSide | None:
        return self._sides.get(machine)

    def connected(self, name: str) -> Machine | None:
        return next((machine for machine in self._room.others if machine.name == name and machine.link.live), None)

    def show(self, machine: Machine) -> None:
        self._room.show(machine)

    def takes(self, command: Command) -> bool:
        return self._room.takes(command)

    def offer(self, menu: QMenu) -> None:
        self._copies.offer(menu)

    def keeps_open(self) -> bool:
        return self._files.keeps_open()

    def set_hidden(self, hidden: bool) -> None:
        """Of machines that are not looked at a reading a second is enough."""
        self._hidden = hidden
        for machine in self._room.others:
            machine.session.set_hidden(hidden or machine is not self._context.machine)

    def beat(self) -> None:
        """Keep the links, and say what is not as it looks."""
        if (machines := self._room.made) is None:
            return
        machines.beat()
        context, window = self._context, self._window
        replays = context.shown.instead is not None
        far = next((one for one in machines.far if one is context.machine and not replays), None)
        self.bar.show_link(far)
        link = far.link if far is not None and far.is_late else None
        age = ("", "")
        if link is not None and link.reading_age_s is not None:
            age = f"{old_text(link.reading_age_s)} ago", moment_words(link, context.now())
        context.age = age[0]
        for panel in (window.devices, window.workbench):
            panel.set_age(*age)
        words = ("", "") if far is None else (f"{far.name}: {link_words(far.link)}", rates_words(far.link))
        window.status.show_machine(far, *words, self._instead_of_engine(), age[0])
        window.axis.set_still(replays or link is not None, age[0])

    def _instead_of_engine(self) -> str:
        """What the status bar says while no engine starts: this window has none here, or a host is not reached yet."""
        shown = self._context.machine
        for machine in self._room.others if shown.session is None else (shown,):
            if (link := link_of(machine)) is not None and link.state == "connecting":
                return f"connecting to {machine.name}"
        return "engine: not started" if shown.session is None else ""

    def close(self, deadline_s: float) -> None:
        """End the connections; what runs there goes on."""
        if self._room.made is not None:
            self._room.made.close(deadline_s)
        self._room.close(deadline_s)


def begin(context: WindowContext) -> None:
    """The window can show other machines."""
    context.others = MachinesOfWindow(context)
