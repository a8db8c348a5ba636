"""Uncaught exceptions of any thread become one log event. Installed by the window; called on whatever
thread raised."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from devexplorer.core.base import Clock, typed_line
from devexplorer.core.records import EventSink, Log


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
