"""What a window has for files: they are opened and saved, and work is not lost with it. Main thread only."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import localtime, strftime
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from devexplorer.core.files.records import OpenWorkspace, SaveWorkspace
from devexplorer.core.files.state import FilesState
from devexplorer.core.session import Change
from devexplorer.gui.actions import WindowContext, WorkKeeper
from devexplorer.gui.files.models import ModelOpener
from devexplorer.gui.files.opening import Opening
from devexplorer.gui.files.recent import RecentMenu
from devexplorer.gui.files.workspace_file import WorkspaceFiles

if TYPE_CHECKING:
    from devexplorer.core.files.autosave import Autosave, Found
    from devexplorer.core.session.session import Session


class FilesOfWindow(QObject):
    """Its parts; `files_of` a context has them."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self.models = ModelOpener(context)
        self.workspaces = WorkspaceFiles(context)
        self.opening = Opening(context, self.models, self.workspaces)
        self.copy = context.work = UnsavedCopy(context, self.workspaces)
        self.recent = RecentMenu(context)


def files_of(context: WindowContext) -> FilesOfWindow:
    """Those of this window."""
    found = context.findChild(FilesOfWindow)
    return found if isinstance(found, FilesOfWindow) else FilesOfWindow(context)


def begin(context: WindowContext) -> None:
    """The window takes files, and lists the last ones in its menu."""
    context.window.setAcceptDrops(True)  # what is dragged within the window is for the device cards
    save = next(action for action in context.file_menu.actions() if action.objectName() == "save_workspace")
    context.file_menu.insertMenu(save, files_of(context).recent)


# Keeps a copy of unsaved work for the case that the window crashes, offers the one that a crashed window has left,
# and asks before work is lost. Main thread only; the engine writes the copy.

ABOUT = "unsaved work"
"""What the line in the status bar is about while it offers the copy."""


class UnsavedCopy(QObject, WorkKeeper):
    """`offer` a copy; it stays where it is until it was opened, or is discarded."""

    def __init__(self, context: WindowContext, workspaces: WorkspaceFiles) -> None:
        super().__init__(context)
        self._context, self._workspaces = context, workspaces
        self.autosave: Autosave | None = None
        self._left: Found | None = None
        """The copy, until it is offered."""
        self.found: Found | None = None
        """The copy, until it was opened or discarded."""
        context.banner.action_chosen.connect(lambda about: self.restore() if about == ABOUT else None)
        context.banner.dismissed.connect(lambda about: self.discard() if about == ABOUT else None)
        context.state_changed.connect(self._follow)

    def keep_copies(self, session: Session, folder: Path | None = None) -> None:
        from devexplorer.core.files.autosave import Autosave, discard  # psutil: loaded behind the window

        context = self._context

        def remove(path: Path) -> None:
            context.in_background("autosave", partial(discard, path), lambda _: None)

        def found(found: Found | None) -> None:
            self._left = found

        self.autosave = Autosave(
            lambda: context.shown.live_state,
            session.send_aside,
            session.put,
            remove,
            self._workspaces.layout,
            folder,
        )
        context.in_background("autosave", self.autosave.look, found)

    def make_way(self) -> None:
        if self.autosave is not None:
            self.autosave.make_way()

    def beat(self) -> None:
        """Copy what should be, offer what was found."""
        if self.autosave is None:
            return
        self.autosave.beat()
        state = self._context.state
        is_shown = self._context.machine.is_here and state.recording is None
        if self._left is not None and state.engine is not None and is_shown:
            self.offer(self._left)
            self._left = None

    def copy(self) -> bool:
        return self.autosave is not None and self.autosave.copy()

    def may_close(self) -> bool:
        shown = self._context.shown
        state, files = shown.live_state, shown.live_state.part(FilesState)
        if not (files.unsaved_work or files.lost_anyway or state.running(SaveWorkspace)):
            return True
        self._context.others.show(shown.here)  # the question is about it
        shown.back()
        return self._workspaces.may_close()

    def end(self, *, unasked: bool) -> None:
        if self.autosave is not None:
            state = self._context.shown.live_state
            unsaved = state.part(FilesState).unsaved_work
            self.autosave.end(keep=state.engine is None or (unasked and unsaved))

    # --- the copy that was left

    def offer(self, found: Found) -> None:
        """Say that there is a copy."""
        self.found = found
        when = strftime("%Y-%m-%d %H:%M", localtime(found.saved_unix_s))
        self._context.banner.say(
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
        if self.found is not None and self.autosave is not None:
            self.autosave.remove(self.found.path)
            self.found = None

    def _hide(self) -> None:
        if self._context.banner.about == ABOUT:
            self._context.banner.clear()

    def _follow(self, changes: Change) -> None:
        event = self._context.state.part(FilesState).workspace_file
        if not changes & Change.LABORATORY or event is None or self.found is None or self.autosave is None:
            return
        again = event.again
        if event.opened and isinstance(again, OpenWorkspace) and again.path == str(self.found.path):
            self._hide()
            self.autosave.restored, self.found = self.found.path, None
