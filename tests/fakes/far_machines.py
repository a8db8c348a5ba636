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
        if method in ("start", "beat", "close"):  # whatever is asked for
            return lambda *values: None
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
    """Has the window's room make fakes, and nothing follow them."""

    def __init__(self, context: WindowContext) -> None:
        self._context, self._room = context, room_of(context)
        self.routes: list[Any] = []
        self._room.on_first = lambda: None
        self._room.on_change = self._room.follow
        self._room.put_shown = self._put
        self._room.make_machine = self._make  # type: ignore[assignment]

    @property
    def machines(self) -> tuple[Machine, ...]:
        return self._room.machines

    def list(self, machine: Machine) -> None:
        """It is there, without having been connected."""
        self._room.others = (*self._room.others, machine)  # type: ignore[assignment]

    def change(self, machine: FarFake, **link: Any) -> None:
        """Its link is another now."""
        machine.now_link = msgspec.structs.replace(machine.now_link, **link)
        self._room.follow()

    def _make(self, name: str, route: Any, _client: str) -> FarFake:
        self.routes.append(route)
        return FarFake(name, link=Link(state="connecting", since_unix_s=0.0))

    def _put(self, machine: Machine) -> None:
        self._context.machine = machine
        self._context.machine_shown.emit(machine)


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
