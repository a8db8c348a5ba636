"""Files of the machine that the window shows, when that is another one: what is known about them so far. Main thread;
nothing waits, what is not known is asked for.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from shiboken6 import isValid

from devexplorer.core.machines.questions import ListFolder
from devexplorer.core.machines.records import Folder
from devexplorer.gui.forms.far_side import FarSide, Found


class FarFiles(QObject):
    """Asks for the folder of a path when that is first looked at, and keeps the answer as long as its field exists."""

    listed = Signal()
    """More is known."""

    def __init__(self, side: FarSide, parent: QObject) -> None:
        super().__init__(parent)
        self.side = side
        self._folders: dict[str, Folder | str | None] = {}
        """What was asked for; None: not answered yet."""

    def look(self, path: Path) -> Found:
        """What is at `path`, as far as it is known."""
        if path == path.parent or path.name in ("~", ".", ".."):
            return Found("folder", f"{path} is a folder; choose a file in it.")
        known = self._known(path.parent)
        if known is None:
            return Found("unknown", f"Looking for {path} on {self.side.name}…")
        if isinstance(known, str):
            return Found("nothing", f"On {self.side.name}: {known}")
        entry = next((entry for entry in known.entries if entry.name == path.name), None)
        if entry is not None:
            return (
                Found("folder", f"{path} is a folder; choose a file in it.") if entry.is_folder else Found("file", "")
            )
        if known.left_out:  # whoever opens it will see
            return Found("file", "")
        return Found("nothing", f"There is no file {path} on {self.side.name}.")

    def has_folder(self, path: Path) -> bool:
        """Whether this folder can be listed, as far as it is known."""
        return not isinstance(self._known(path), str)

    def whole(self, path: Path) -> Path:
        """The path from the root on, once it is known."""
        known = self._folders.get(str(path.parent))
        return Path(known.path, path.name) if isinstance(known, Folder) else path

    def _known(self, folder: Path) -> Folder | str | None:
        """What is known about a folder, which is asked for the first time."""
        name = str(folder)
        if name not in self._folders:
            self._folders[name] = None
            self.side.ask(ListFolder(path=name), partial(self._take, name))
        return self._folders[name]

    def _take(self, folder: str, answer: Folder | str) -> None:
        if isValid(self):  # its dialog can have been closed since
            self._folders[folder] = answer
            self.listed.emit()
