"""The history for the window: a thread of its own (`history`) reads and writes, so that the window never waits for a
disk. No torch, no Qt.

Every method returns at once. Requests are carried out in the order of the calls; what comes of them is told by
`deliver()`, which the heartbeat calls, so that callbacks run on the main thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from devexplorer.core.base import DevExplorerError, count_text, sentence
from devexplorer.core.feature import Listener
from devexplorer.core.history.export import write_csv, write_json
from devexplorer.core.history.file import SideRow
from devexplorer.core.history.filter import Filter
from devexplorer.core.history.importing import import_file
from devexplorer.core.history.report import write_report
from devexplorer.core.history.store import FILE, Store
from devexplorer.core.records import BenchResult, Conditions, StoredRun

if TYPE_CHECKING:
    from devexplorer.core.session.session import Session

T = TypeVar("T")
Say = Callable[[str, bool], None]
"""A sentence, and whether it says that something failed."""
_WRITERS = {"json": write_json, "csv": write_csv, "html": write_report}


def _said(say: Say, message: str) -> None:
    say(message, False)


class StoreThread(Listener):
    """Ask, and `deliver` at every beat; `close` at the end. Runs of the session that end are kept.

    `on_change`: lists are out of date. `on_notice`: something happened by itself (the file is locked, was
    damaged). Both are called by `deliver`, as every callback is.
    """

    def __init__(
        self,
        session: Session,
        make: Callable[[], Store] | None = None,
        *,
        on_change: Callable[[], None] = lambda: None,
        on_notice: Say = lambda _words, _failed: None,
    ) -> None:
        """`make` is called on the thread, with the first request."""
        super().__init__(session)
        session.on_run.append(self.add)
        self._make = make or self._open
        self.on_change, self.on_notice = on_change, on_notice
        self.problem: str | None = None
        """What does not work now, in one line, as of the last `deliver`."""
        self._requests: SimpleQueue[tuple[Callable[[Store], None], Say] | None] = SimpleQueue()
        self._replies: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def start(self) -> None:
        """The file is opened with the first request."""
        if self._thread.ident is None:
            self._thread.start()

    def deliver(self) -> int:
        """Run the callbacks of finished requests; returns how many there were."""
        count = len(self._replies)
        for _ in range(count):
            self._replies.popleft()()
        return count

    def close(self, deadline_s: float = 2.5) -> bool:
        """Carry out what was asked for and let go of the file; False when that took too long. What is ready then can
        still be delivered."""
        self._requests.put(None)
        if self._thread.ident is not None:
            self._thread.join(deadline_s)
        return not self._thread.is_alive()

    # --- requests ----------------------------------------------------------------------------------------------------

    def add(
        self,
        result: BenchResult,
        conditions: Conditions,
        done: Callable[[StoredRun], None] = lambda run: None,
    ) -> None:
        """Keep a run; `done` gets it."""
        self._ask(lambda store: store.add(result, conditions), done, changes=True)

    def add_row(self, table: str, row: SideRow) -> None:
        """Keep a record of a feature."""
        self._ask(lambda store: store.add_row(table, row), lambda number: None)

    def rows(self, table: str, show: Callable[[Sequence[SideRow]], None], say: Say | None = None) -> None:
        """The latest records of a feature, the oldest of them first."""
        self._ask(lambda store: store.rows(table), show, say)

    def request(
        self,
        kind: str | None,
        text: str,
        limit: int,
        show: Callable[[Sequence[StoredRun], int], None],
        say: Say | None = None,
    ) -> None:
        """List the newest runs that a `Filter` finds; `show` gets them and how many there are altogether, `say` what
        went wrong."""
        wanted = Filter(kind=kind, text=text)

        def work(store: Store) -> tuple[Sequence[StoredRun], int]:
            runs = store.runs(wanted, limit=limit)
            if store.unreadable:
                count = count_text(store.unreadable, "run")
                self._notice(f"{count} of the history cannot be read by this version, and not listed.", True)
            return runs, store.count(wanted)

        self._ask(work, lambda page: show(*page), say)

    def tag(
        self, tags: Sequence[tuple[int, tuple[str, ...]]], say: Say, done: Callable[[], None] = lambda: None
    ) -> None:
        """Give each of these runs its tags instead of those it has; `say` only what went wrong."""
        pairs = tuple(tags)

        def work(store: Store) -> None:
            for number, wanted in pairs:
                store.tag(number, wanted)

        self._ask(work, lambda _: done(), say, changes=True)

    def delete(self, ids: Sequence[int], say: Say) -> None:
        """Forget runs for good."""
        numbers = tuple(ids)
        self._ask(
            lambda store: f"{count_text(store.delete(numbers), 'run')} deleted from the history.",
            partial(_said, say),
            say,
            changes=True,
        )

    def export(self, kind: str, path: Path, ids: Sequence[int], *, names: bool, say: Say) -> None:
        """Write a file, `kind` is `csv`, `json` or `html`. `names`: also of the host and of other people's
        processes."""
        numbers = tuple(ids)

        def work(store: Store) -> str:
            return _WRITERS[kind](path, [store.get(number) for number in numbers], names=names)

        self._ask(work, partial(_said, say), say)

    def import_file(self, path: Path, say: Say) -> None:
        """Take over the runs of a JSON file."""
        self._ask(lambda store: import_file(path, store), partial(_said, say), say, changes=True)

    def _ask(
        self,
        work: Callable[[Store], T],
        show: Callable[[T], None],
        say: Say | None = None,
        *,
        changes: bool = False,
    ) -> None:
        """Have `work` done on the thread; `show` gets what it returns, `say` what goes wrong (None: `on_notice`)."""

        def request(store: Store) -> None:
            try:
                self._reply(partial(show, work(store)))
            finally:
                if changes:
                    self._reply(lambda: self.on_change())

        self.start()
        self._requests.put((request, say or (lambda message, failed: self.on_notice(message, failed))))

    # --- on the thread -----------------------------------------------------------------------------------------------

    def _open(self) -> Store:
        folder = self.session.data_folder
        return Store(None if folder is None else folder / FILE)

    def _reply(self, callback: Callable[[], None]) -> None:
        self._replies.append(callback)

    def _notice(self, message: str, failed: bool) -> None:
        self._reply(lambda: self.on_notice(message, failed))

    def _run(self) -> None:
        store = self._make()
        try:
            while (asked := self._requests.get()) is not None:
                work, say = asked
                self._carry_out(store, partial(work, store), say)
        finally:
            self._carry_out(store, store.close, self.on_notice)

    def _carry_out(self, store: Store, work: Callable[[], None], say: Say) -> None:
        """Do it, and have what it says for people, and what the store has to say, told on the main thread."""
        try:
            work()
        except DevExplorerError as error:
            self._reply(partial(say, sentence(str(error)), True))
        except Exception as error:  # a fault of ours: it is reported as one, and the next run is kept all the same
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            )
            self._reply(partial(say, f"The history could not do that ({type(error).__name__}: {error}).", True))
        for message in store.notices():
            self._notice(message, True)
        self._reply(partial(self._standing, store.problem))

    def _standing(self, problem: str | None) -> None:
        self.problem = problem
