"""What the window does beside its main thread: work that may wait for a disk, on background threads; and uncaught
exceptions of any thread become one log event. Started, joined and delivered on the main thread; no Qt."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TypeVar

from devexplorer.core.base import Clock, DevExplorerError, typed_line
from devexplorer.core.records import Answer, EventSink, Log

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


def install_hooks(put: EventSink, clock: Clock = time.time, *, process: str = "the window") -> Callable[[], None]:
    """Send uncaught exceptions of this process to `put`; returns a function that restores the hooks as they were.

    PySide calls `sys.excepthook` for an exception in a slot and continues: without this it would go unnoticed.
    """
    before = sys.excepthook, threading.excepthook

    def report(where: str, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, trace)).rstrip()
        about = kind.__name__ if error is None else typed_line(error)
        put(Log(level="error", text=f"unexpected error in {where}: {about}\n{text}", time_unix_s=clock()))

    def on_main(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            before[0](kind, error, trace)
        else:
            report(process, kind, error, trace)

    def on_thread(arguments: threading.ExceptHookArgs) -> None:
        name = arguments.thread.name if arguments.thread is not None else "a thread"
        report(f"thread {name}", arguments.exc_type, arguments.exc_value, arguments.exc_traceback)

    sys.excepthook, threading.excepthook = on_main, on_thread

    def restore() -> None:
        sys.excepthook, threading.excepthook = before

    return restore
