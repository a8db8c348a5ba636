"""Offers the copy of unsaved work that a session has left which was not closed. Main thread only."""

from __future__ import annotations

from time import localtime, strftime
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from devexplorer.core.records import OpenWorkspace
from devexplorer.core.session import Change
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.widgets import Banner

if TYPE_CHECKING:
    from devexplorer.core.session.autosave import Autosave, Found

ABOUT = "unsaved work"
"""What the line in the status bar is about while it offers the copy."""


class UnsavedCopy(QObject):
    """`offer` a copy; it stays where it is until it was opened, or is discarded."""

    def __init__(self, context: WindowContext, banner: Banner) -> None:
        super().__init__(context)
        self._context, self._banner = context, banner
        self._autosave: Autosave | None = None
        self.found: Found | None = None
        """The copy, until it was opened or discarded."""
        banner.action_chosen.connect(lambda about: self.restore() if about == ABOUT else None)
        banner.dismissed.connect(lambda about: self.discard() if about == ABOUT else None)
        context.state_changed.connect(self._follow)

    def offer(self, found: Found, autosave: Autosave) -> None:
        """Say that there is a copy."""
        self._autosave, self.found = autosave, found
        when = strftime("%Y-%m-%d %H:%M", localtime(found.saved_unix_s))
        self._banner.say(
            f"The last session ended unexpectedly. A copy of its unsaved work was kept at {when}.",
            about=ABOUT, action="Restore", dismiss="Discard",
        )  # fmt: skip

    def why_none(self) -> str | None:
        """Reason when there is nothing to restore."""
        why = None if self.found is not None else "There is no copy of unsaved work."
        if why is None and not self._context.machine.is_here:
            why = "The copy is of this machine: show this machine first."
        return self._context.controller.why_no_engine() or why

    def restore(self) -> None:
        """Open the copy. Where that fails, the action in the menu File tries again."""
        if (why := self.why_none()) is not None and self.found is not None:
            self._context.hint(why)
        elif self.found is not None:
            self._hide()
            self._context.controller.send(OpenWorkspace(path=str(self.found.path), copy=True))

    def discard(self) -> None:
        """Remove the copy."""
        if self.found is not None and self._autosave is not None:
            self._autosave.remove(self.found.path)
            self.found = None

    def _hide(self) -> None:
        if self._banner.about == ABOUT:
            self._banner.clear()

    def _follow(self, changes: Change) -> None:
        event = self._context.state.workspace_file
        if not changes & Change.LABORATORY or event is None or self.found is None or self._autosave is None:
            return
        again = event.again
        if event.opened and isinstance(again, OpenWorkspace) and again.path == str(self.found.path):
            self._hide()
            self._autosave.restored, self.found = self.found.path, None
