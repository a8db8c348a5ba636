"""Other machines for tests of the window's parts: a list of them without links, and a way to one that says what the
test wants."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.machines.records import Question
from devexplorer.core.machines.ssh.records import ConnectionFailure, Report
from devexplorer.core.machines.window.link import Link
from devexplorer.core.records import DeviceInfo
from devexplorer.core.session.machine import Machine
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.machines.room import room_of

CONNECTED = Link(
    state="connected", since_unix_s=0.0, latency_s=0.0123, received_bytes_s=17_400.0, sent_bytes_s=800.0,
    reading_age_s=0.1, machine="gpu1.example.org", devexplorer="0.9.0", python="/opt/torch/bin/python",
)  # fmt: skip


class SessionFake:
    """Keeps what it was asked for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[Any] = []
        self.listeners: dict[str, Any] = {}

    def __getattr__(self, method: str) -> Callable[..., None]:
        return lambda *values, **named: self.calls.append((method, *values))

    def listener(self, _feature: str) -> SimpleNamespace:
        """Of a feature that has heard nothing."""
        return SimpleNamespace(deliver=lambda: False)

    def ask(
        self, question: Question, then: Callable[[Any], None], failed: Callable[[str], None] = lambda problem: None
    ) -> None:
        self.calls.append((question, then, failed))


class FarFake(Machine):
    """`change` its link."""

    def __init__(self, name: str, *infos: DeviceInfo, link: Link = CONNECTED) -> None:
        super().__init__(name)
        self.session = SessionFake(name)  # type: ignore[assignment]
        self.now_link = link
        self.aside.set_catalog(Catalog(infos, ()))

    @property
    def is_here(self) -> bool:
        return False

    @property
    def link(self) -> Link:
        return self.now_link

    @property
    def calls(self) -> list[Any]:
        return self.session.calls  # type: ignore[union-attr]


class MachinesFake:
    """As `core.machines.window.machines.Machines`, in place of the window's."""

    def __init__(self, context: WindowContext) -> None:
        self._context, self._room = context, room_of(context)
        self.machines: tuple[Machine, ...] = (context.machine,)
        self.routes: list[Any] = []
        self._room.make_register = lambda: self  # type: ignore[assignment,return-value]

    @property
    def far(self) -> tuple[Machine, ...]:
        return tuple(machine for machine in self.machines if not machine.is_here)

    def add(self, name: str, route: Any) -> FarFake:
        self.routes.append(route)
        machine = FarFake(name, link=Link(state="connecting", since_unix_s=0.0))
        self.machines = (*self.machines, machine)
        self._room.follow()
        return machine

    def change(self, machine: FarFake, **link: Any) -> None:
        """Its link is another now."""
        machine.now_link = msgspec.structs.replace(machine.now_link, **link)
        self._room.follow()

    def close(self, deadline_s: float) -> bool:
        return True

    def show(self, machine: Machine) -> None:
        self._context.machine = machine
        self._context.machine_shown.emit(machine)
        self._room.follow()

    def remove(self, machine: Machine) -> None:
        if machine is self._context.machine:
            self.show(self.machines[0])
        self.machines = tuple(other for other in self.machines if other is not machine)
        self._room.follow()


class WayFake:
    """`say` what ssh reports; `answers` has what the user answered."""

    def __init__(self, host: str, python: str = "") -> None:
        self.host, self.python = host, python
        self.failure: ConnectionFailure | None = None
        self._reports: list[Report] = []
        self.answers: list[tuple[int, str | None]] = []

    def say(self, *reports: Report) -> None:
        self._reports.extend(reports)

    def reports(self) -> list[Report]:
        reports, self._reports = self._reports, []
        return reports

    def answer(self, number: int, text: str | None) -> None:
        self.answers.append((number, text))

    def open(self) -> object:
        raise AssertionError("no test connects")

    def cancel(self) -> None:
        pass
