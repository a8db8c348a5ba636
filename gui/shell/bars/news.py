"""What the window says by itself: alarms, long work that has ended, the latest error. Main thread only."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication

from devexplorer.core.records import Log
from devexplorer.core.session.long_jobs import LongJobs
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.alerts.alarm_line import AlarmLine
from devexplorer.gui.alerts.notifications import Notifications
from devexplorer.gui.widgets import Banner

RECENT_S = 60.0
"""While a recording is shown, an older error is one of the recording: it is in the log, and is not announced
now."""


class News(QObject):
    """Call each method when that part of the state has changed."""

    def __init__(self, context: WindowContext, banner: Banner) -> None:
        super().__init__(context)
        self._context, self._state, self._banner = context, context.state, banner
        self._alarms = AlarmLine(context.state, banner)
        self.notifications = Notifications(context.window.windowIcon())
        self.long_jobs = LongJobs(context.state)
        self._mentioned: Log | None = None
        """The error that the line in the status bar spoke of last."""
        context.machine_shown.connect(self._machine_shown)

    def refresh_texts(self) -> None:
        """Live numbers in the line, once or twice a second."""
        self._alarms.refresh()

    def alerts(self) -> None:
        """Alarms came or went."""
        news = self._state.alerts.take_news()
        if self._state.recording is None:  # alarms of a recording are past
            self.notifications.on_desktop = self._context.settings.notifications
            self.notifications.tell(news)
        self._alarms.changed(news)

    def jobs(self) -> None:
        """Commands began or ended."""
        if self._state.recording is None:
            ended = self.long_jobs.ended()
            if QApplication.activeWindow() is None:
                self.notifications.on_desktop = self._context.settings.notifications
                self.notifications.show(ended)

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
        self._state.alerts.take_news()
        self._alarms.forget()
        self.long_jobs.forget()
