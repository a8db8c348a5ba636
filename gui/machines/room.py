"""The machines of this window, as menus, dialogs and the page see them: which there are, which is shown, connecting,
reconnecting, remembering. Main thread.

The list itself is `core.machines.window.machines`, which is loaded with the first other machine; until then there
is this one.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject, Signal

from devexplorer.core.records import AddVirtual, Command, Move
from devexplorer.core.session import Change
from devexplorer.core.session.journal import steps_of
from devexplorer.core.session.settings import KnownMachine
from devexplorer.gui.actions import WindowContext

if TYPE_CHECKING:
    from devexplorer.core.machines.window.file_copying import End, HereFiles
    from devexplorer.core.machines.window.link import Route
    from devexplorer.core.machines.window.machines import FarMachine, Machines
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
        self.make_register: Callable[[], Machines]
        """Set by who follows the machines."""
        self.make_way: Callable[[str, str], Route] = _way
        """The way to a host, with this Python there."""
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

    @cached_property
    def register(self) -> Machines:
        """The list of machines; what it needs is loaded when the first of the others is asked for."""
        self.context.beaten.connect(self._beat)
        return self.make_register()

    @property
    def made(self) -> Machines | None:
        """None: nothing was connected yet."""
        return vars(self).get("register")

    @property
    def machines(self) -> tuple[Machine, ...]:
        """This one first."""
        return (self.context.machine,) if self.made is None else self.made.machines

    @property
    def shown(self) -> Machine:
        """The one that is shown."""
        return self.context.machine

    @property
    def others(self) -> tuple[FarMachine, ...]:
        """Those behind a link."""
        return () if self.made is None else self.made.far

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
        """Put this one shown."""
        if self.made is not None:
            self.made.show(machine)

    def connect_to(self, host: str, python: str = "") -> Approach:
        """Begin to connect to a machine; it appears once it is connected. Raises `BadInput`."""
        self._pythons[host] = python
        return self.join(host, self.make_way(host, python))

    def join(self, name: str, way: Route) -> Approach:
        """The same by this way. Raises `BadInput`."""
        from devexplorer.gui.machines.approach import Approach  # with the first connection

        approach = Approach(way, self)
        self.register.add(name, way)
        approach.name = name
        self._approaches[name] = approach
        self._first.add(name)
        approach.asked.connect(partial(self._pass_on, name))
        return approach

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
        for other in self.others:
            if other is machine and self.made is not None:
                self._first.discard(machine.name)
                self.made.remove(other)
                self._approaches.pop(machine.name).deleteLater()

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
        for approach in tuple(self._approaches.values()):
            approach.beat()
        if self._here is not None:
            self._here.beat()
        if (command := self._beside) is not None and self.shown.name == VIRTUAL and self.context.state.engine:
            self._beside = None
            self._carry_out_beside(command)
        self.beaten.emit()

    def close(self, deadline_s: float) -> None:
        """Remove what was copied to this machine."""
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
