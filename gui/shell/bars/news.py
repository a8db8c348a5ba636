"""What the window says by itself: long work that has ended, the latest error. Main thread only."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication

from devexplorer.core.records import Log
from devexplorer.core.session.under_way import LongJobs
from devexplorer.gui.actions import WindowContext

RECENT_S = 60.0
"""While a recording is shown, an older error is one of the recording: it is in the log, and is not announced
now."""


class News(QObject):
    """Call each method when that part of the state has changed."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context, self._state, self._banner = context, context.state, context.banner
        self.long_jobs = LongJobs(context.state)
        self._mentioned: Log | None = None
        """The error that the line in the status bar spoke of last."""
        context.machine_shown.connect(self._machine_shown)

    def jobs(self) -> None:
        """Commands began or ended."""
        if self._state.recording is None:
            ended = self.long_jobs.ended()
            if QApplication.activeWindow() is None:
                self._context.notifications.show(ended)

    def log(self) -> None:
        """There are lines in the log that were not there."""
        latest: Log | None = self._state.log[-1] if self._state.log else None
        if latest is None or latest is self._mentioned:
            return
        self._mentioned = latest
        if latest.level == "error" and (self._state.recording is None or time.time() - latest.time_unix_s < RECENT_S):
            self._banner.say((latest.text.splitlines() or ["Unknown error."])[0], error=True)

    def _machine_shown(self) -> None:
        """What is over on the machine that is shown now is no news."""
        self._mentioned = self._state.log[-1] if self._state.log else None
        self.long_jobs.forget()
