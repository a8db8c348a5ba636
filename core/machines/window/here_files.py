"""Asks this machine what a far one is asked through its link: pieces of files, and copies of objects. Main thread; what
can wait for a disk is done on a thread of its own (`host-files`), and answered at a later beat.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from devexplorer.core.base import sentence
from devexplorer.core.machines.host.copies import Copies
from devexplorer.core.machines.host.files import FileWork
from devexplorer.core.machines.questions import Question
from devexplorer.core.machines.records import Result

if TYPE_CHECKING:
    from pathlib import Path

    from devexplorer.core.session.session import Session


class HereFiles:
    """`ask` as a `RemoteSession` does, `beat` often, `close` at the end."""

    def __init__(self, session: Session | None, folder: Path | None = None) -> None:
        """`session`: None where nothing of this machine is to be saved. `folder`: where files of copies are; None: in
        the user's cache."""
        self._work = FileWork()
        self._copies = Copies(session, folder)
        self._due: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def set_session(self, session: Session | None) -> None:
        """Objects of this one are saved from now on."""
        self._copies.session = session

    def ask(
        self, question: Question, then: Callable[[Result], None], failed: Callable[[str], None] = lambda problem: None
    ) -> None:
        """At a later beat `then` gets the result, or `failed` one sentence."""

        def reply(result: Result | None, problem: str) -> None:  # any thread
            if result is None:
                self._due.put(lambda: failed(sentence(problem)))
            else:
                self._due.put(lambda: then(result))

        if self._copies.takes(question):
            self._copies.ask(self._work, self._due.put, question, reply)
        else:
            self._work.ask(question, reply)

    def beat(self) -> None:
        """Give the answers that are there."""
        while True:
            try:
                due = self._due.get_nowait()
            except Empty:
                return
            due()

    def close(self, deadline_s: float = 1.0) -> bool:
        """Remove what was copied; False when a disk did not answer in time."""
        self._work.close()
        self._copies.close()
        return self._work.join(deadline_s)
