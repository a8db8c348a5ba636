"""What a window has for files: they are opened and saved, and work is not lost with it. Main thread only."""

from __future__ import annotations

from PySide6.QtCore import QObject

from devexplorer.gui.actions import WindowContext
from devexplorer.gui.files.models import ModelOpener
from devexplorer.gui.files.opening import Opening
from devexplorer.gui.files.recent import RecentMenu
from devexplorer.gui.files.unsaved_copy import UnsavedCopy
from devexplorer.gui.files.workspace_file import WorkspaceFiles


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
