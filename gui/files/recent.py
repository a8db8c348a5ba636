"""The menu of the files that were opened last, and the button for the last workspace. Main thread; whether they are
still there is looked up elsewhere: a disk can be slow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QMenu, QPushButton

from devexplorer.gui.actions import WindowContext
from devexplorer.gui.files.workspace_file import SUFFIX
from devexplorer.gui.widgets import EDGE_PX, plain_tip, why_not_live

AGAIN_PX = 240
"""Width of the button for the newest workspace, at most."""
FOLDER_PX = 260
"""Of a folder in the menu: a wider menu would not fit beside that of the toolbar; the tooltip has all of it."""


class RecentMenu(QMenu):
    """Filled whenever it is shown; `Settings.recent_files` has the files, the newest first."""

    look_wanted = Signal(object)
    """Which of these files are missing (tuple of Path)? Whoever answers calls `show_missing`."""

    def __init__(self, context: WindowContext, again: QPushButton) -> None:
        """`again` opens the newest workspace; shown while there are no objects."""
        super().__init__("Open recent", context.window, toolTipsVisible=True)
        self._context = context
        self._missing: frozenset[Path] = frozenset()
        self._again = again
        self._newest: Path | None = None
        again.setMaximumWidth(AGAIN_PX)
        again.clicked.connect(self._open_newest)
        context.state_changed.connect(self._offer)
        self.aboutToShow.connect(self._fill)
        self._fill()

    def choices(self) -> list[tuple[str, str, Callable[[], None]]]:
        """For the palette: what it is called, where it is, what opens it."""
        return [
            (f"Open recent {path.name}", str(path.parent), partial(self.open, path))
            for path in self._context.recent_files
            if path not in self._missing
        ]

    def open(self, path: Path) -> None:
        """Open it by what it is."""
        self._context.files_chosen.emit([path])

    def show_missing(self, missing: frozenset[Path]) -> None:
        """These are not there."""
        self._missing = missing
        self._offer()
        for action in self.actions():
            path = action.data()
            if isinstance(path, str):
                there = Path(path) not in missing
                action.setEnabled(there)
                action.setToolTip(path if there else f"{path} is not there any more.")

    def _open_newest(self) -> None:
        if self._newest is not None:
            self.open(self._newest)

    def _offer(self) -> None:
        """Bring the button up to date."""
        known = self._context.settings.recent_files
        newest = next((name for name in known if name.endswith(SUFFIX) and Path(name) not in self._missing), None)
        state = self._context.state
        self._again.setVisible(newest is not None and not state.objects and why_not_live(state) is None)
        if newest is not None and newest != str(self._newest):
            self._newest = Path(newest)
            words = f"Open {self._newest.name}"
            shown = self._again.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, AGAIN_PX - 2 * EDGE_PX)
            self._again.setText(shown.replace("&", "&&"))
            self._again.setAccessibleName(words)
            self._again.setToolTip(plain_tip(newest))

    def _fill(self) -> None:
        self.clear()
        paths = self._context.recent_files
        for path in paths:
            folder = str(path.parent).replace(str(Path.home()), "~", 1)
            folder = self.fontMetrics().elidedText(folder, Qt.TextElideMode.ElideMiddle, FOLDER_PX)
            action = self.addAction(f"{path.name}\t{folder}".replace("&", "&&"), partial(self.open, path))
            action.setData(str(path))
        if paths:
            self.addSeparator()
        self.addAction("Clear", partial(self._context.save_settings, recent_files=())).setEnabled(bool(paths))
        self.show_missing(self._missing)
        self.look_wanted.emit(paths)
