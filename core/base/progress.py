"""Progress of a long job, and whether it was cancelled. Any thread; no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from devexplorer.core.base.errors import Cancelled


class ProgressMonitor(NamedTuple):
    """How a long job reports its progress, and how it learns between two steps that it was cancelled."""

    report: Callable[[float, str], None] = lambda done, text: None
    """Gets the share that is done, 0 to 1, and what is being done."""
    cancelled: Callable[[], bool] = lambda: False

    def stop_if_cancelled(self, state: str) -> None:
        """Raise `Cancelled` when the user has cancelled; `state` says what that leaves."""
        if self.cancelled():
            raise Cancelled(f"cancelled; {state}")


NO_PROGRESS = ProgressMonitor()
"""For jobs that run unobserved and cannot be cancelled."""
