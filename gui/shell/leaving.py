"""How the window ends without losing work: the user is asked, the system is not, and a crash leaves a copy. Main thread
only."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer

from devexplorer.core.records import SaveWorkspace

if TYPE_CHECKING:
    from devexplorer.core.session.autosave import Autosave, Found
    from devexplorer.core.session.session import Session
    from devexplorer.core.session.settings import Settings
    from devexplorer.gui.shell.app import App

LEAVE_SECONDS = 4.0
"""Deadline for the copy of unsaved work when the system ends the window."""


class Leaving:
    """`may_close` for the window, `leave` and `session_ends` for the system, `beat` after each beat."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.autosave: Autosave | None = None
        self.unasked = False
        """Whether the window closes without a question: the system ends it, or the tour runs."""
        self._found: Found | None = None
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

    def keep_copies(self, session: Session, folder: Path | None = None) -> None:
        """From now on keep a copy of unsaved work there, and offer the one of a window that crashed."""
        from devexplorer.core.session.autosave import Autosave, discard  # psutil: loaded behind the window

        app = self._app

        def remove(path: Path) -> None:
            app.background.ask("autosave", partial(discard, path), lambda _: None)

        def found(found: Found | None) -> None:
            self._found = found

        autosave = self.autosave = Autosave(
            lambda: app.shown.live_state, session.send_aside, app.put, remove, app.window.workspaces.layout, folder
        )
        app.background.ask("autosave", autosave.look, found)

    def make_way(self) -> None:
        """The user wants something of the engine."""
        if self.autosave is not None:
            self.autosave.make_way()

    def beat(self) -> None:
        """Copy what should be, offer what was found."""
        if self.autosave is None:
            return
        self.autosave.beat()
        if self._leave_by is not None and (time.monotonic() > self._leave_by or not self.autosave.copy()):
            self._exit()
        state = self._app.state
        shown = self._app.shown
        is_shown = shown.machine is shown.here and state.recording is None
        if self._found is not None and state.engine is not None and is_shown:
            self._app.window.unsaved_copy.offer(self._found, self.autosave)
            self._found = None

    def may_close(self) -> bool:
        """Whether nothing would be lost; else the user is asked."""
        if not self.unasked and self._app.window.context.others.keeps_open():
            return False
        shown = self._app.shown
        state = shown.live_state
        if self.unasked or not (state.unsaved_work or state.lost_anyway or state.running(SaveWorkspace)):
            return True
        self._app.show_this_machine()  # the question is about it
        return self._app.window.workspaces.may_close()

    def leave(self) -> None:
        """The system ends the process: unsaved work gets a copy first, which the next start offers. A second time: at
        once."""
        again, self.unasked = self.unasked, True
        if not again and self.autosave is not None and self.autosave.copy():
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
        if self.autosave is not None:
            self.autosave.copy()

    def end(self) -> None:
        """The window ends; a copy stays where nobody could be asked."""
        if self.autosave is not None:
            state = self._app.shown.live_state
            self.autosave.end(keep=state.engine is None or (self.unasked and state.unsaved_work))
