"""The machines that a window knows, which of them it shows, and the history of each. Main thread; no Qt."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

from devexplorer.core.base import BadInput, Clock
from devexplorer.core.machines.records import (
    DeleteRuns,
    Done,
    ExportRuns,
    HistoryChanged,
    ImportRuns,
    ListRuns,
    Question,
    RunPage,
    TagRuns,
)
from devexplorer.core.machines.window.link import Link, Route
from devexplorer.core.machines.window.remote_session import RemoteSession
from devexplorer.core.machines.window.uplink import visible
from devexplorer.core.records import StoredRun
from devexplorer.core.session.machine import Machine

Say = Callable[[str, bool], None]
"""A sentence, and whether it says that something failed."""


class FarHistory:
    """The benchmark runs of another machine, with the interface of `StoreThread`: every answer comes at a later
    beat."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        session.on_history = self._changed
        self.on_change: Callable[[], None] = lambda: None
        self.on_notice: Say = lambda words, failed: None
        self.problem: str | None = None
        """What does not work there, in one line."""
        self._news = 0

    def deliver(self) -> int:
        """How much has come since the last call."""
        news, self._news = self._news, 0
        return news

    def request(
        self, kind: str | None, text: str, limit: int, show: Callable[[Sequence[StoredRun], int], None]
    ) -> None:
        """List the newest runs; `show` gets them and how many there are altogether."""

        def came(page: RunPage) -> None:
            show(page.runs, page.count)

        question = ListRuns(kind=kind, text=text, limit=limit)
        self._session.ask(question, came, lambda problem: self.on_notice(problem, True))

    def tag(self, tags: Sequence[tuple[int, tuple[str, ...]]], say: Say) -> None:
        """Give each of these runs its tags instead of those it has; `say` only what went wrong."""
        self._session.ask(TagRuns(tags=tuple(tags)), lambda _: None, lambda problem: say(problem, True))

    def delete(self, ids: Sequence[int], say: Say) -> None:
        """Forget runs for good."""
        self._ask(DeleteRuns(ids=tuple(ids)), say)

    def export(self, kind: str, path: PurePath, ids: Sequence[int], *, names: bool, say: Say) -> None:
        """Write a file on that machine."""
        self._ask(ExportRuns(kind=kind, path=str(path), ids=tuple(ids), names=names), say)

    def import_file(self, path: PurePath, say: Say) -> None:
        """Take over the runs of a JSON file of that machine."""
        self._ask(ImportRuns(path=str(path)), say)

    def _ask(self, question: Question, say: Say) -> None:
        def done(result: Done) -> None:
            say(result.words, False)

        self._session.ask(question, done, lambda problem: say(problem, True))

    def _changed(self, changed: HistoryChanged) -> None:
        self._news += 1
        self.problem = visible(changed.problem) or None
        self.on_change()


class FarMachine(Machine):
    """A machine behind a link: `session` has `reconnect`, `disconnect` and `take_over`."""

    session: RemoteSession  # type: ignore[assignment]  # what the window needs of one, it has
    history: FarHistory

    def __init__(self, name: str, route: Route, client: str = "", clock: Clock = time.time) -> None:
        super().__init__(name)
        self.aside.machine = name
        self.session = RemoteSession(name, route, client=client, clock=clock)
        self.history = self.session.listeners["history"] = FarHistory(self.session)

    @property
    def is_here(self) -> bool:
        """It is not."""
        return False

    @property
    def link(self) -> Link:
        """How the way there stands."""
        return self.session.link

    def now(self) -> float:
        """Stands still while nothing comes: what is shown is of that moment."""
        return self.session.now()

    @property
    def is_late(self) -> bool:
        """Whether what is shown is not of this moment."""
        return self.session.is_late

    def ask(self, question: Question, then: Callable[[Any], None]) -> None:
        """Ask the host; at a later beat `then` gets the result, or one sentence (str) that says why there is none."""
        self.session.ask(question, then, then)


class Machines:
    """`add` machines, `show` one of them, `remove` it. Remembering them is the window's (`Settings.machines`)."""

    def __init__(self, here: Machine, show: Callable[[Machine], None], changed: Callable[[], None]) -> None:
        """`show` puts a machine shown; `changed` is called when the list, what is shown, or the state of a link is
        another."""
        self.here = here
        self.machines: tuple[Machine, ...] = (here,)
        """In the order in which they were added, this machine first."""
        self.shown: Machine = here
        self._client = secrets.token_hex(16)
        self._show, self._changed = show, changed
        self._links: tuple[object, ...] = ()
        self._leaving: list[FarMachine] = []

    def add(self, name: str, route: Route) -> FarMachine:
        """Begin to connect to a machine; it is listed at once, and shown when `show` says so. Raises `BadInput` where
        the name is taken."""
        if self.find(name) is not None:
            raise BadInput(f"{name} is listed already")
        machine = FarMachine(name, route, self._client)
        self.machines = (*self.machines, machine)
        machine.session.start()
        self._changed()
        return machine

    @property
    def far(self) -> tuple[FarMachine, ...]:
        """All but this machine."""
        return tuple(machine for machine in self.machines if isinstance(machine, FarMachine))

    def find(self, name: str) -> Machine | None:
        """The machine of this name."""
        return next((machine for machine in self.machines if machine.name == name), None)

    def show(self, machine: Machine) -> None:
        """Put this one shown, in place of another or of a recording; the others go on unseen."""
        if machine not in self.machines:
            return
        before, self.shown = self.shown, machine
        self._show(machine)
        if machine is not before:
            self._changed()

    def remove(self, machine: FarMachine) -> None:
        """Disconnect and forget; this machine is shown where that one was."""
        if machine is self.shown:
            self.show(self.here)
        self.machines = tuple(other for other in self.machines if other is not machine)
        self._leaving = [gone for gone in (*self._leaving, machine) if not gone.session.close(0.0)]
        self._changed()

    def beat(self) -> None:
        """After each beat of the window."""
        for machine in self.far:
            machine.session.beat()
        links = tuple((machine.link.state, machine.link.holder) for machine in self.far)
        if links != self._links:
            self._links = links
            self._changed()

    def close(self, deadline_s: float) -> bool:
        """Disconnect from all; the hosts go on. False when a thread still runs at the deadline."""
        until = time.monotonic() + deadline_s
        sessions = [machine.session for machine in (*self.far, *self._leaving)]
        for session in sessions:
            session.close(0.0)
        ended = [session.close(max(until - time.monotonic(), 0.0)) for session in sessions]
        return all(ended)
