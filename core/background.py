"""Work of seconds that the window asks for (writing a file), each on a thread of its own. Started and joined on the main thread; no Qt."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from devexplorer.core.errors import DevExplorerError
from devexplorer.core.records.messages import Answer, Event


class Background:
    """`start` work whose end is an event for the mailbox."""

    def __init__(self, put: Callable[[Event], None], clock: Callable[[], float] = time.time) -> None:
        """`put` is called on the thread that did the work."""
        self._put, self._clock = put, clock
        self._threads: list[threading.Thread] = []

    def start(self, name: str, title: str, work: Callable[[], str]) -> None:
        """Do `work` on a thread of that name and put an `Answer`: what it returns, or the message of its `DevExplorerError`.

        Any other exception is a fault of ours and goes to `threading.excepthook`.
        """

        def run() -> None:
            try:
                words, failed = work(), False
            except DevExplorerError as error:
                words, failed = str(error), True
            self._put(Answer(title=title, words=words, failed=failed, time_unix_s=self._clock()))

        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, deadline_s: float) -> bool:
        """Wait for what still runs, so many seconds at most; whether all has ended."""
        end = time.monotonic() + deadline_s
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)
