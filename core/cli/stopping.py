"""Ctrl-C and the system's request to end, as something that a loop notices between two steps. Main thread.

A signal that raised would do so anywhere, also in the middle of a line that is being written. Here it only wakes up
`wait`; a second one ends the program the usual way, in case something hangs.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
USUAL: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""What they do in a program that does not inherit them as ignored, as one in the background of a script does."""


class Stopping:
    """Use as a context. `wait` returns early on a request to stop; `exit_code` is then the shell's."""

    def __init__(self) -> None:
        self._number = 0
        self._undo = ExitStack()
        self._woken: socket.socket | None = None

    @property
    def asked(self) -> bool:
        """Whether there was a request to stop."""
        return self._number != 0

    @property
    def exit_code(self) -> int:
        """128 and the signal's number as shells have it, 0 without a request."""
        return 128 + self._number if self._number else 0

    def __enter__(self) -> Stopping:
        if threading.current_thread() is not threading.main_thread():
            return (
                self  # signals are the main thread's: a test that runs a command on another one stops it by its count
            )
        woken, wake = socket.socketpair()
        for end in (woken, wake):
            end.setblocking(False)
            self._undo.callback(end.close)
        self._woken = woken
        self._undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False))
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number, usual in before.items():
            signal.signal(number, self._hear(before))
            self._undo.callback(signal.signal, number, usual)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def wait(self, seconds: float) -> bool:
        """Sleep until a request to stop; returns whether there was one."""
        until = time.monotonic() + seconds
        while not self.asked and (left := until - time.monotonic()) > 0:
            if self._woken is None:
                time.sleep(left)
            elif select.select([self._woken], [], [], left)[0]:
                self._woken.recv(4096)
        return self.asked

    def _hear(self, before: Mapping[signal.Signals, Any]) -> Callable[[int, FrameType | None], None]:
        def heard(number: int, _frame: FrameType | None) -> None:
            self._number = self._number or number
            for signal_number, usual in before.items():  # a second one of either kind ends the program
                signal.signal(signal_number, USUAL[signal_number] if usual is signal.SIG_IGN else usual)

        return heard
