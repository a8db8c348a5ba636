"""The history of benchmark runs on the machine at the far end of a link, with the interface of `StoreThread`. Main
thread; every answer comes at a later beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from devexplorer.core.machines.questions import DeleteRuns, ExportRuns, ImportRuns, ListRuns, Question, TagRuns
from devexplorer.core.machines.records import Done, HistoryChanged, RunPage
from devexplorer.core.machines.window.remote_session import RemoteSession
from devexplorer.core.machines.window.untrusted import visible
from devexplorer.core.records import StoredRun

Say = Callable[[str, bool], None]
"""A sentence, and whether it says that something failed."""


class FarHistory:
    """Ask, and `deliver` at every beat."""

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
