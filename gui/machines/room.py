"""The machines of this window, as menus, dialogs and the page see them: which there are, which is shown, connecting,
reconnecting, remembering. Main thread.

What others need (`core.machines.window`) is loaded with the first of them; until then there is this one.
"""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject, Signal

from devexplorer.core.base import BadInput
from devexplorer.core.records import AddVirtual, Command, Move
from devexplorer.core.session import Change
from devexplorer.core.session.journal import steps_of
from devexplorer.core.session.settings import KnownMachine
from devexplorer.gui.actions import WindowContext

if TYPE_CHECKING:
    from devexplorer.core.machines.window.file_copying import End, HereFiles
    from devexplorer.core.machines.window.link import Route
    from devexplorer.core.machines.window.machines import FarMachine
    from devexplorer.core.session.machine import Machine
    from devexplorer.gui.machines.approach import Approach

MOST_KNOWN = 30
VIRTUAL = "virtual GPUs (simulated)"
"""The name of the engine with virtual GPUs beside this machine's cards."""


class MachineRoom(QObject):
    """`changed` when the list, what is shown, or the state of a link is another. One for each window: `room_of`."""

    changed = Signal()
    asked = Signal(object)
    """On the way to a machine that has no dialog, ssh waits for the user (`Approach`)."""
    beaten = Signal()
    """After each beat of the window, once another machine was asked for."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self.context = context
        self._this: Machine | None = None
        """This one; None: nothing else was added, so it is shown."""
        self.others: tuple[FarMachine, ...] = ()
        """Those behind a link, in the order in which they were added."""
        self.on_first: Callable[[], None]
        """Called before the first of the others is added; this and the next are set by who follows the machines."""
        self.on_change: Callable[[], None]
        """Called when the list, what is shown, or the state of a link is another; `follow` afterwards."""
        self.put_shown: Callable[[Machine], object] = lambda machine: context.shown.show(machine)
        """Puts a machine shown, in place of another or of a recording."""
        self.make_machine: Callable[[str, Route, str], FarMachine] = _far_machine
        self.make_way: Callable[[str, str], Route] = _way
        """The way to a host, with this Python there."""
        self._client = secrets.token_hex(16)
        self._links: tuple[object, ...] = ()
        self._leaving: list[FarMachine] = []
        self._approaches: dict[str, Approach] = {}
        """How each of the others is reached, by its name."""
        self._first: set[str] = set()
        """Those that were never connected yet: shown once they are, gone if they cannot be."""
        self._pythons: dict[str, str] = {}
        self._beside: Command | None = None
        """What is to be done with virtual GPUs beside the cards, once their engine is shown."""
        self._here: HereFiles | None = None
        """Answers for this machine; made with the first copy."""
        context.follow(Change.ENGINE, self._add_first)
        context.machines_changed.connect(self.follow)

    # --- what there is

    @property
    def here(self) -> Machine:
        """This one."""
        return self._this or self.context.machine

    @property
    def machines(self) -> tuple[Machine, ...]:
        """This one first."""
        return (self.here, *self.others)

    @property
    def shown(self) -> Machine:
        """The one that is shown."""
        return self.context.machine

    @property
    def known(self) -> tuple[KnownMachine, ...]:
        """Machines that were connected before and are not now, the newest first."""
        names = {machine.name for machine in self.machines}
        return tuple(one for one in self.context.settings.machines if one.host not in names)

    def python_of(self, host: str) -> str:
        """What was chosen for the engine there, now or formerly; empty: nothing."""
        known = {one.host: one.python for one in self.context.settings.machines}
        return self._pythons.get(host) or known.get(host, "")

    def is_host(self, name: str) -> bool:
        """Whether another machine is a host of ssh's itself, which has a dialog while it is first connected."""
        return self._approaches[name].way.host == name

    def find(self, name: str) -> Machine | None:
        """The machine of this name."""
        return next((machine for machine in self.machines if machine.name == name), None)

    def end_of(self, machine: Machine) -> End:
        """Who answers for the files of a machine."""
        from devexplorer.core.machines.window.file_copying import (
            End,  # with the first copy
            HereFiles,
        )

        for far in self.others:
            if far is machine:
                return End(far.name, far.session.ask)
        if self._here is None:
            self._here = HereFiles(machine.session)
        self._here.set_session(machine.session)
        return End(machine.name, self._here.ask, platform.node())

    # --- what can be done

    def show(self, machine: Machine) -> None:
        """Put this one shown; the others go on unseen."""
        if machine in self.machines:
            before = self.shown
            self.put_shown(machine)
            if machine is not before:
                self.on_change()

    def connect_to(self, host: str, python: str = "") -> Approach:
        """Begin to connect to a machine; it appears once it is connected. Raises `BadInput`."""
        self._pythons[host] = python
        return self.join(host, self.make_way(host, python))

    def join(self, name: str, way: Route) -> Approach:
        """The same by this way. Raises `BadInput`."""
        from devexplorer.gui.machines.approach import Approach  # with the first connection

        approach = Approach(way, self)
        approach.name = name
        self.add(name, way)
        self._approaches[name] = approach
        self._first.add(name)
        approach.asked.connect(partial(self._pass_on, name))
        return approach

    def add(self, name: str, way: Route) -> FarMachine:
        """List a machine and begin to connect to it. Raises `BadInput` where the name is taken."""
        if self.find(name) is not None:
            raise BadInput(f"{name} is listed already")
        if self._this is None:
            self._this = self.context.machine
            self.on_first()
            self.context.beaten.connect(self._beat)
        machine = self.make_machine(name, way, self._client)
        self.others = (*self.others, machine)
        machine.session.start()
        self.on_change()
        return machine

    def takes(self, command: Command) -> bool:
        """Whether a command for this machine makes virtual GPUs beside its cards. Then it is carried out in an engine
        of their own, which is listed and shown like another machine."""
        engine = self.context.state.engine
        if not self.shown.is_here or engine is None or engine.virtual_beside is None:
            return False
        if not isinstance(steps_of(command)[0], AddVirtual):
            return False
        self._beside = command
        machine = self.find(VIRTUAL)
        if machine is None:
            self.connect_to(VIRTUAL)
        else:
            self.reconnect(VIRTUAL)
            self.show(machine)
        return True

    def _carry_out_beside(self, command: Command) -> None:
        """What of it makes sense there; GPUs only where there are none yet, from an earlier window."""
        there = any(device.info.simulated for device in self.context.state.devices.values())
        steps = [step for step in steps_of(command) if not isinstance(step, Move)]  # what it would move is not there
        for step in steps:
            if not (there and isinstance(step, AddVirtual)):
                self.context.controller.send(replace(step, request=0))
        self.context.hint(
            "Virtual GPUs have an engine of their own beside the cards: PyTorch cannot train on both in one process."
        )

    def reconnect(self, name: str) -> None:
        """Try again now; a machine that is only remembered is connected again."""
        for machine in self.others:
            if machine.name == name:
                self._approaches[name].begin()
                machine.session.reconnect()

    def leave(self, machine: Machine) -> None:
        """End the connection and take the machine off the list; what runs there goes on."""
        if machine is self.shown:
            self.show(self.here)
        for other in self.others:
            if other is machine:
                self._leaving = [gone for gone in (*self._leaving, other) if not gone.session.close(0.0)]
        self.others = tuple(other for other in self.others if other is not machine)
        self._first.discard(machine.name)
        approach = self._approaches.pop(machine.name, None)
        if approach is not None:
            approach.deleteLater()
        self.on_change()

    def give_up(self, approach: Approach) -> None:
        """The user does not want this connection any more."""
        machine = self.find(approach.way.host)
        if machine is not None:
            self.leave(machine)

    def take_over(self) -> None:
        """This window wants to control the machine shown."""
        for machine in self.others:
            if machine is self.shown:
                machine.session.take_over()

    def forget(self, host: str) -> None:
        """Do not offer it any more."""
        rest = tuple(one for one in self.context.settings.machines if one.host != host)
        self.context.save_settings(machines=rest)
        self.changed.emit()

    # --- as time goes by

    def _pass_on(self, name: str) -> None:
        if name not in self._first or not self.is_host(name):  # whose dialog is open
            self.asked.emit(self._approaches[name])

    def _add_first(self) -> None:
        """The virtual GPUs that the window was started with; without CUDA cards the engine has them already."""
        if self.context.virtual_spec and self.context.state.engine is not None:
            self.takes(AddVirtual(spec=self.context.virtual_spec))
            self.context.virtual_spec = None

    def _beat(self) -> None:
        """Take what ssh has said and asked, and what the disk of this machine has answered."""
        for machine in self.others:
            machine.session.beat()
        links = tuple((machine.link.state, machine.link.holder) for machine in self.others)
        if links != self._links:
            self._links = links
            self.on_change()
        for approach in tuple(self._approaches.values()):
            approach.beat()
        if self._here is not None:
            self._here.beat()
        if (command := self._beside) is not None and self.shown.name == VIRTUAL and self.context.state.engine:
            self._beside = None
            self._carry_out_beside(command)
        self.beaten.emit()

    def close(self, deadline_s: float) -> None:
        """End the connections, and remove what was copied to this machine; what runs on others goes on."""
        until = time.monotonic() + deadline_s
        sessions = [machine.session for machine in (*self.others, *self._leaving)]
        for session in sessions:
            session.close(0.0)
        for session in sessions:
            session.close(max(until - time.monotonic(), 0.0))
        if self._here is not None:
            self._here.close(deadline_s)

    def follow(self) -> None:
        """The list, what is shown, or the state of a link is another."""
        for machine in self.others:
            state = machine.link.state
            if machine.name in self._first and state == "connected":
                self._first.discard(machine.name)
                if self.is_host(machine.name):
                    self._remember(machine.name)
                self.show(machine)
            elif machine.name in self._first and state == "lost" and not self.is_host(machine.name):
                self.context.hint(f"{machine.name}: {machine.link.reason}.")  # there is no dialog
                self._beside = None
                self.leave(machine)
        self.changed.emit()

    def _remember(self, host: str) -> None:
        one = KnownMachine(host, self._pythons.get(host, ""))
        rest = (other for other in self.context.settings.machines if other.host != host)
        self.context.save_settings(machines=(one, *rest)[:MOST_KNOWN])


def room_of(context: WindowContext) -> MachineRoom:
    """The machines of this window."""
    return context.findChild(MachineRoom) or MachineRoom(context)


def _way(host: str, python: str) -> Route:
    if host == VIRTUAL:
        from devexplorer.core.machines.window.routes import virtual_route  # with the first of them

        return virtual_route()
    from devexplorer.core.machines.window.routes import SshRoute  # with the first connection

    return SshRoute(host, python)


def _far_machine(name: str, way: Route, client: str) -> FarMachine:
    from devexplorer.core.machines.window.machines import FarMachine  # with the first of them

    return FarMachine(name, way, client)
