"""How the window ends without losing work: the user is asked, the system is not, and a crash leaves a copy. Main thread
only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer

if TYPE_CHECKING:
    from devexplorer.core.session.settings import Settings
    from devexplorer.gui.shell.app import App

LEAVE_SECONDS = 4.0
"""Deadline for the copy of unsaved work when the system ends the window."""


class Leaving:
    """`may_close` for the window, `leave` and `session_ends` for the system, `beat` after each beat."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.unasked = False
        """Whether the window closes without a question: the system ends it, or the tour runs."""
        self._leave_by: float | None = None
        app.window.context.settings_changed.connect(self._save_settings)

    def _save_settings(self, settings: Settings) -> None:
        """At once: a window that crashes must not forget what was chosen in it."""
        app = self._app

        def written(problem: str | None) -> None:
            if problem is not None:
                app.window.say(problem)

        app.settings_file.keep(settings)
        app.background.ask("settings", app.settings_file.write, written)

    def beat(self) -> None:
        """End the window once the copy is made that it waits for."""
        work = self._app.window.context.work
        work.beat()
        if self._leave_by is not None and (time.monotonic() > self._leave_by or not work.copy()):
            self._exit()

    def may_close(self) -> bool:
        """Whether nothing would be lost; else the user is asked."""
        context = self._app.window.context
        return self.unasked or (not context.others.keeps_open() and context.work.may_close())

    def leave(self) -> None:
        """The system ends the process: unsaved work gets a copy first, which the next start offers. A second time: at
        once."""
        again, self.unasked = self.unasked, True
        if not again and self._app.window.context.work.copy():
            self._leave_by = time.monotonic() + LEAVE_SECONDS
        else:
            self._exit()

    def _exit(self) -> None:
        """End in a turn of the event loop of its own: before the loop runs `exit` would do nothing, and a signal can
        come in the middle of anything, of a session that is being started, say."""
        QTimer.singleShot(0, self._app.qt, self._app.qt.exit)  # `App.stop` runs inside

    def session_ends(self) -> None:
        """The desktop's session ends, and closes the window soon."""
        self.unasked = True
        self._app.window.context.work.copy()

    def end(self) -> None:
        """The window ends; a copy stays where nobody could be asked."""
        self._app.window.context.work.end(unasked=self.unasked)
