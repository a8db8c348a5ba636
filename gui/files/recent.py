"""The files that were opened last: their menu, their lines of the palette, and the button for the last workspace. Main
thread; whether they are still there is looked up on another one: a disk can be slow."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu

from devexplorer.core.files.records import FarFile, RecentFiles
from devexplorer.core.session import Change
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.widgets import EDGE_PX, why_not_live

if TYPE_CHECKING:
    from devexplorer.gui.actions.palette import PaletteChoice

MOST_RECENT = 10
SUFFIX = "devexplorer"
AGAIN_PX = 240
"""Width of the button for the newest workspace, at most."""
FOLDER_PX = 260
"""Of a folder in the menu: a wider menu would not fit beside that of the toolbar; the tooltip has all of it."""


class RecentFile(NamedTuple):
    """A file that was opened or saved."""

    path: Path
    machine: str = ""
    """Where it is; empty: on this one."""
    of: str = ""
    """The machine whose workspace it holds, where that is another one and the file is here."""


def recent_files(context: WindowContext) -> tuple[RecentFile, ...]:
    """Files of any kind that were opened or saved, the newest first."""
    files = []
    for one in context.settings.of_features.get("recent_files", ()):
        if isinstance(one, str):
            files.append(RecentFile(Path(one)))
        elif one.here:
            files.append(RecentFile(Path(one.path), of=one.machine))
        else:
            files.append(RecentFile(Path(one.path), one.machine))
    return tuple(files)


def remember_file(context: WindowContext, path: Path, here: bool = False, of: str = "") -> None:
    """A file of the machine shown was opened or saved; `here`: one of this machine, whichever is shown; `of`: one of
    this machine that holds the workspace of that one."""
    name = str(path)
    file: str | FarFile = FarFile(of, name, here=True) if of else name
    if not (of or here or context.far is None):
        file = FarFile(context.far.name, name)
    known: RecentFiles = context.settings.of_features.get("recent_files", ())
    context.remember(recent_files=(file, *(item for item in known if item != file))[:MOST_RECENT])


def choices(context: WindowContext) -> list[PaletteChoice]:
    """For the palette: what each is called, where it is, what opens it."""
    from devexplorer.gui.actions.palette import PaletteChoice  # when the palette is opened

    menu = context.window.findChild(RecentMenu)
    assert isinstance(menu, RecentMenu)
    found = []
    for file in recent_files(context):
        if not menu.is_missing(file):
            place = _place(file, str(file.path.parent))
            found.append(PaletteChoice(f"Open recent {file.path.name}", place, True, partial(menu.open, file)))
    return found


class RecentMenu(QMenu):
    """Filled whenever it is shown."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__("Open recent", context.window, toolTipsVisible=True)
        self._context = context
        self._missing: frozenset[Path] = frozenset()
        self._again = again = context.again
        """Opens the newest workspace; shown while there are no objects."""
        self._newest: RecentFile | None = None
        again.setMaximumWidth(AGAIN_PX)
        again.clicked.connect(self._open_newest)
        context.follow(Change.OBJECTS | Change.ENGINE, self._offer)
        context.settings_changed.connect(self._offer)
        context.file_used.connect(partial(remember_file, context))
        self.aboutToShow.connect(self._fill_and_look)
        self._fill()

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
                action.setEnabled(not self.is_missing(file))
                action.setToolTip(_place(file, str(file.path)))
                if self.is_missing(file):
                    action.setToolTip(f"{file.path} is not there any more.")

    def _open_newest(self) -> None:
        if self._newest is not None:
            self.open(self._newest)

    def _offer(self) -> None:
        """Bring the button up to date."""
        shown = "" if self._context.far is None else self._context.far.name
        known = (file for file in recent_files(self._context) if (file.machine or file.of) == shown)
        newest = next((file for file in known if file.path.name.endswith(SUFFIX) and not self.is_missing(file)), None)
        state = self._context.state
        self._again.setVisible(newest is not None and not state.objects and why_not_live(state) is None)
        if newest is not None and newest != self._newest:
            self._newest = newest
            words = f"Open {newest.path.name}"
            shown = self._again.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, AGAIN_PX - 2 * EDGE_PX)
            self._again.setText(shown.replace("&", "&&"))
            self._again.setAccessibleName(words)
            self._again.setToolTip(_place(newest, str(newest.path)))

    def is_missing(self, file: RecentFile) -> bool:
        """Whether it was not there when that was looked up last."""
        return not file.machine and file.path in self._missing

    def _fill(self) -> None:
        self.clear()
        files = recent_files(self._context)
        for file in files:
            home = str(file.path.parent)
            if not file.machine:
                home = home.replace(str(Path.home()), "~", 1)
            folder = self.fontMetrics().elidedText(_place(file, home), Qt.TextElideMode.ElideMiddle, FOLDER_PX)
            action = self.addAction(f"{file.path.name}\t{folder}".replace("&", "&&"), partial(self.open, file))
            action.setData(file)
        if files:
            self.addSeparator()
        self.addAction("Clear", partial(self._context.remember, recent_files=())).setEnabled(bool(files))
        self.show_missing(self._missing)

    def _fill_and_look(self) -> None:
        """Fill it, and see which files of this machine are still there."""
        self._fill()
        paths = [file.path for file in recent_files(self._context) if not file.machine]
        self._context.in_background(
            "recent", lambda: frozenset(path for path in paths if not os.path.exists(path)), self.show_missing
        )


def _place(file: RecentFile, path: str) -> str:
    """Where it is, with its machine, or the machine whose workspace it holds."""
    if file.machine:
        return f"{file.machine}: {path}"
    if file.of:
        return f"{path}, workspace of {file.of}"
    return path
