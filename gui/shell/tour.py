"""The main job, unattended, by real clicks in the real window: build, move, measure, watch. Main thread, one step at a
time.

The guide leads, and what it points at is clicked; so each step has happened when the guide says so. A step that does
not come true in its time ends the tour with exit code 1 and a sentence, and so does a user who leaves the path. Nothing
is called behind the window's back.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu, QPushButton, QToolButton, QTreeView, QWidget

from devexplorer.gui.shell.guide import TOUR, GuideStep
from devexplorer.gui.widgets import current_theme

if TYPE_CHECKING:
    from devexplorer.gui.shell.app import App

POLL_MS = 50
LOOK_SECONDS = 3.0
"""For what there is to look at: a piece of curve, clear of the right edge in the picture."""
STEP_SECONDS = 90.0
"""For a step to come true."""


class Tour(QObject):
    """`start` after the window is shown; `ended` is called with what failed (None: every step happened); `report` gives
    the exit code."""

    SIZE_PX = (1440, 900)

    def __init__(self, app: App, screenshots: Path | None, ended: Callable[[str | None], None]) -> None:
        super().__init__(app.window)
        self._app, self._folder, self._ended = app, screenshots, ended
        self._guide, self._theme = app.window.guide, current_theme().name
        self._done: list[str] = []
        self._failed: str | None = "the window was closed before the tour had ended"
        self._at: tuple[GuideStep | None, QWidget | None] = (None, None)
        """The step, and what it points at."""
        self._since = self._began = 0.0
        """When the tour came to what is pointed at, and to the step."""
        self._has_clicked = False
        self._words = ""
        """What the guide said of it."""
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._poll)
        self._next: Callable[[], None] = self._begin

    def start(self) -> None:
        """Begin."""
        self._since = self._began = time.monotonic()
        self._timer.start(POLL_MS)

    def report(self) -> int:
        """Say how it went; 0 only if every step happened."""
        for words in self._done:
            print(f"done  {words}")
        if self._failed is not None:
            print(f"devexplorer tour: {self._failed}", file=sys.stderr)
            return 1
        return 0

    # --- one step after the other
    # --------------------------------------------------------------------------------------

    def _poll(self) -> None:
        self._next()
        if self._timer.isActive() and time.monotonic() - self._began > STEP_SECONDS:
            answer, step = self._app.state.answer, self._at[0]
            said = f"; the window says: {answer.title}. {answer.words}" if answer is not None and answer.failed else ""
            title = "the engine is ready" if step is None else self._guide.words
            self._end(f"this did not happen within {STEP_SECONDS:.0f} s: {title}{said}")

    def _has_looked(self) -> bool:
        return time.monotonic() - self._since > LOOK_SECONDS

    def _begin(self) -> None:
        """Wait for the engine, and for a piece of curve."""
        if self._app.state.engine is not None and self._app.state.usable_devices and self._has_looked():
            self._picture("1-start")
            self._guide.start(TOUR)
            self._next = self._go_on

    def _go_on(self) -> None:
        """Click what the guide points at, once, and wait for the guide to point at something else."""
        step, control = self._guide.step, self._guide.control
        before = self._at[0]
        if step is not before and before is not None:
            if self._guide.path is None and before is not TOUR.steps[-1]:
                self._end("the tour was left before its end")
                return
            self._done.append(self._words)
            self._picture(before.picture)
        if step is None:
            self._since = self._began = time.monotonic()
            self._app.window.actions_by_id["theme"].trigger()
            self._next = self._at_other_theme
            return
        if (step, control) != self._at:
            now = time.monotonic()
            self._began = self._began if step is before else now
            self._at, self._since, self._has_clicked = (step, control), now, False
            self._words = self._guide.words
        if self._has_clicked or control is None:
            return
        if step.done is not None or self._guide.is_elsewhere:
            self._has_clicked = True
            self._click(control)
        elif self._has_looked() and (step.seen is None or step.seen(self._app.window)):
            self._has_clicked = True
            self._click(self._guide.callout.next_button)

    def _at_other_theme(self) -> None:
        if self._has_looked() and current_theme().name != self._theme:
            self._picture("6-other-theme")
            while current_theme().name != self._theme:
                self._app.window.actions_by_id["theme"].trigger()
            self._done.append("Changed the theme, and back")
            self._end(None)

    def _end(self, failed: str | None) -> None:
        self._timer.stop()
        self._failed = failed
        if failed is not None and self._folder is not None and os.path.isdir(self._folder):
            self._app.window.grab().save(str(self._folder / "tour-failed.png"))
        self._guide.leave()
        self._ended(failed)

    # --- clicking and looking
    # ------------------------------------------------------------------------------------------

    def _click(self, control: QWidget) -> None:
        """Choose the line of a menu, the first row of a tree, or press a button."""
        menu = control.menu() if isinstance(control, QPushButton | QToolButton) else None
        if menu is not None:
            QTimer.singleShot(POLL_MS, self, lambda: self._choose(menu))  # it runs an event loop of its own
        if isinstance(control, QTreeView):
            where = control.visualRect(control.model().index(0, 0)).center()
            QTest.mouseClick(control.viewport(), Qt.MouseButton.LeftButton, pos=where)
        else:
            QTest.mouseClick(control, Qt.MouseButton.LeftButton)

    def _choose(self, menu: QMenu) -> None:
        line = self._guide.line
        for action in menu.actions():
            if action.text().startswith(line):
                QTest.mouseClick(menu, Qt.MouseButton.LeftButton, pos=menu.actionGeometry(action).center())
                return
        menu.close()
        self._end(f"the menu has no “{line}”")

    def _picture(self, name: str) -> None:
        if self._folder is None or not name:
            return
        assert self._app.heartbeat is not None
        self._app.heartbeat.tick()  # what is in the picture is what was checked
        self._app.window.refresh_texts()
        path = self._folder / f"tour-{name}.png"
        self._guide.hide()
        saved = self._app.window.grab().save(str(path))
        self._guide.look()
        if not saved:
            self._end(f"the picture {path} could not be saved")
