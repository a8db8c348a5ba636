"""A machine that a window reaches over a link, and its history. Main thread; no Qt."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

from devexplorer.core.base import Clock
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
