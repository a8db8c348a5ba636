"""Runs the window's work that may wait for a disk on background threads. Started, joined and delivered on the main
thread; no Qt."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from devexplorer.core.base import Clock, DevExplorerError
from devexplorer.core.records import Answer, EventSink

T = TypeVar("T")


class Background:
    """`start` work whose end is an event for the mailbox, or `ask` for a result that `deliver` hands over at a beat."""

    def __init__(self, put: EventSink, clock: Clock = time.time) -> None:
        """`put` is called on the thread that did the work."""
        self._put, self._clock = put, clock
        self._threads: list[threading.Thread] = []
        self._results: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def start(self, name: str, title: str, work: Callable[[], str]) -> None:
        """Do `work` on a thread of that name and put an `Answer`: what it returns, or the message of its
        `DevExplorerError`.

        Any other exception is a bug and goes to `threading.excepthook`.
        """

        def run() -> None:
            try:
                words, failed = work(), False
            except DevExplorerError as error:
                words, failed = str(error), True
            self._put(Answer(title=title, words=words, failed=failed, time_unix_s=self._clock()))

        self._run(name, run)

    def ask(self, name: str, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do `work`, which raises nothing, on a thread of that name; `deliver` calls `then` with what it returned."""
        self._run(name, lambda: self._results.put(partial(then, work())))

    def deliver(self) -> None:
        """Deliver the finished results in order of completion. Called by the heartbeat."""
        for _ in range(self._results.qsize()):  # a result may ask for more work: that waits for the next beat
            try:
                result = self._results.get_nowait()
            except Empty:  # a nested beat delivered it
                return
            result()

    def join(self, deadline_s: float) -> bool:
        """Wait for running work up to the deadline; returns whether all has ended."""
        end = time.monotonic() + deadline_s
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, name: str, run: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
