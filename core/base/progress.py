"""Progress of a long job, and whether it was cancelled. Any thread; no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from devexplorer.core.base.errors import Cancelled


class Report(Protocol):
    """Gets the share that is done, 0 to 1, what is being done, and the part that it is done to, where it has one."""

    def __call__(self, done: float, text: str, part: str = "", /) -> None:
        """Take note of it."""


def no_report(done: float, text: str, part: str = "", /) -> None:
    """For callers that do not ask how far it is."""


class ProgressMonitor(NamedTuple):
    """How a long job reports its progress, and how it learns between two steps that it was cancelled."""

    report: Report = no_report
    """A part is named as commands address it: `name:path`."""
    cancelled: Callable[[], bool] = lambda: False

    def stop_if_cancelled(self, state: str) -> None:
        """Raise `Cancelled` when the user has cancelled; `state` says what that leaves."""
        if self.cancelled():
            raise Cancelled(f"cancelled; {state}")


NO_PROGRESS = ProgressMonitor()
"""For jobs that run unobserved and cannot be cancelled."""
