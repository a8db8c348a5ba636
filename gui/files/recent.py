"""The menu of the files that were opened last, and the button for the last workspace. Main thread; whether they are
still there is looked up elsewhere: a disk can be slow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QMenu, QPushButton

from devexplorer.gui.actions import WindowContext
from devexplorer.gui.actions.context import RecentFile
from devexplorer.gui.files.workspace_file import SUFFIX
from devexplorer.gui.widgets import EDGE_PX, why_not_live

AGAIN_PX = 240
"""Width of the button for the newest workspace, at most."""
FOLDER_PX = 260
"""Of a folder in the menu: a wider menu would not fit beside that of the toolbar; the tooltip has all of it."""


class RecentMenu(QMenu):
    """Filled whenever it is shown; `Settings.recent_files` has the files, the newest first."""

    look_wanted = Signal(object)
    """Which of these files of this machine are missing (tuple of Path)? Whoever answers calls `show_missing`."""

    def __init__(self, context: WindowContext, again: QPushButton) -> None:
        """`again` opens the newest workspace; shown while there are no objects."""
        super().__init__("Open recent", context.window, toolTipsVisible=True)
        self._context = context
        self._missing: frozenset[Path] = frozenset()
        self._again = again
        self._newest: RecentFile | None = None
        again.setMaximumWidth(AGAIN_PX)
        again.clicked.connect(self._open_newest)
        context.state_changed.connect(self._offer)
        context.settings_changed.connect(self._offer)
        self.aboutToShow.connect(self._fill)
        self._fill()

    def choices(self) -> list[tuple[str, str, Callable[[], None]]]:
        """For the palette: what it is called, where it is, what opens it."""
        return [
            (f"Open recent {file.path.name}", _place(file, str(file.path.parent)), partial(self.open, file))
            for file in self._context.recent_files
            if not self._is_missing(file)
        ]

    def open(self, file: RecentFile) -> None:
        """Open it by what it is, on its machine."""
        context = self._context
        name = file.machine or file.of
        if not name:
            context.files_chosen.emit([file.path])
            return
        if (machine := context.others.connected(name)) is None:
            what = f"is on {name}" if file.machine else f"holds the workspace of {name}"
            context.hint(
                f"{file.path.name} {what}, which is not connected: choose it in the menu Machine, then open the file."
            )
            return
        context.others.show(machine)
        (context.far_files_chosen if file.machine else context.files_chosen).emit([file.path])

    def show_missing(self, missing: frozenset[Path]) -> None:
        """These are not there."""
        self._missing = missing
        self._offer()
        for action in self.actions():
            file = action.data()
            if isinstance(file, RecentFile):
                there = not self._is_missing(file)
                action.setEnabled(there)
                action.setToolTip(_place(file, str(file.path)) if there else f"{file.path} is not there any more.")

    def _open_newest(self) -> None:
        if self._newest is not None:
            self.open(self._newest)

    def _offer(self) -> None:
        """Bring the button up to date."""
        shown = "" if self._context.far is None else self._context.far.name
        known = (file for file in self._context.recent_files if (file.machine or file.of) == shown)
        newest = next((file for file in known if file.path.name.endswith(SUFFIX) and not self._is_missing(file)), None)
        state = self._context.state
        self._again.setVisible(newest is not None and not state.objects and why_not_live(state) is None)
        if newest is not None and newest != self._newest:
            self._newest = newest
            words = f"Open {newest.path.name}"
            shown = self._again.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, AGAIN_PX - 2 * EDGE_PX)
            self._again.setText(shown.replace("&", "&&"))
            self._again.setAccessibleName(words)
            self._again.setToolTip(_place(newest, str(newest.path)))

    def _is_missing(self, file: RecentFile) -> bool:
        return not file.machine and file.path in self._missing

    def _fill(self) -> None:
        self.clear()
        files = self._context.recent_files
        for file in files:
            home = (
                str(file.path.parent).replace(str(Path.home()), "~", 1) if not file.machine else str(file.path.parent)
            )
            folder = self.fontMetrics().elidedText(_place(file, home), Qt.TextElideMode.ElideMiddle, FOLDER_PX)
            action = self.addAction(f"{file.path.name}\t{folder}".replace("&", "&&"), partial(self.open, file))
            action.setData(file)
        if files:
            self.addSeparator()
        self.addAction("Clear", partial(self._context.save_settings, recent_files=())).setEnabled(bool(files))
        self.show_missing(self._missing)
        self.look_wanted.emit(tuple(file.path for file in files if not file.machine))


def _place(file: RecentFile, path: str) -> str:
    """Where it is, with its machine, or the machine whose workspace it holds."""
    if file.machine:
        return f"{file.machine}: {path}"
    if file.of:
        return f"{path}, workspace of {file.of}"
    return path
