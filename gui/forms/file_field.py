"""A line for the path of a file, with a button that opens a dialog to choose one: the system's, or that of the machine
that the window shows. Main thread; nothing blocks."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QFileDialog, QSizePolicy, QWidget

from devexplorer.gui.forms.dropped_files import dropped_files
from devexplorer.gui.forms.far_side import THIS_MACHINE, CopiedFile, FarSide, FoundPath, KnownFiles, WantedPath
from devexplorer.gui.forms.save_dialog import SaveDialog
from devexplorer.gui.widgets import hbox, line_edit, push_button

if TYPE_CHECKING:
    from devexplorer.core.records import SentFrom


class FileField(QWidget):
    """`changed` is emitted at every edit; `path` is None while the field is empty. Takes a file that is dropped on
    it."""

    changed = Signal()

    def __init__(
        self,
        title: str,
        kinds: str,
        *,
        save: Callable[[], Mapping[str, str]] | None = None,
        folder: bool = False,
    ) -> None:
        """`kinds` as Qt writes them: `Tensors (*.safetensors *.pt)`. `save`: the formats to save in now, as
        `SaveDialog` takes them."""
        super().__init__()
        self._title, self._kinds, self._save, self._folder = title, kinds, save, folder
        self.suggested = "untitled"
        """The name of a new file, without its extension."""
        self.edit = line_edit(name=title, placeholder="path")
        self.edit.textChanged.connect(self.changed)
        self._side: FarSide | None = None
        """The machine that the window shows, when that is another one."""
        self._far: KnownFiles | None = None
        """Its files."""
        self._sent: CopiedFile | None = None
        self.button = push_button("Choose…", self._choose, name=f"Choose: {title}")
        self.button.setAutoDefault(False)
        hbox((self.edit, 1), self.button, parent=self)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)  # the rows below it stay
        self.setFocusProxy(self.edit)
        self.setAcceptDrops(True)

    def set_side(self, side: FarSide | None) -> None:
        """The file is one of that machine; None: of this one."""
        self._side = side
        self._far = None if side is None else side.files(self, self.changed.emit)
        self.setAcceptDrops(side is None)  # files that are dragged are of this machine
        self.changed.emit()

    def set_sent(self, file: CopiedFile) -> None:
        """The file is this copy of one of another machine, whose path is shown."""
        self._sent = file
        self.edit.setText(f"{file.origin.path} on this machine")
        self.edit.setReadOnly(True)
        self.button.hide()

    @property
    def sent_from(self) -> SentFrom | None:
        """Where the file is that people know, when it is a copy."""
        return None if self._sent is None else self._sent.origin

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if dropped_files(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        event.setDropAction(Qt.DropAction.CopyAction)  # the file stays where it is
        event.accept()
        self.set_path(str(dropped_files(event.mimeData())[0]))

    @property
    def machine(self) -> str:
        """Where the file is, as a sentence says it: `on NAME`."""
        return THIS_MACHINE if self._side is None else self._side.name

    @property
    def is_far(self) -> bool:
        """Whether the file is on another machine."""
        return self._far is not None

    @property
    def path(self) -> Path | None:
        """The typed path, with `~` replaced by the home folder; on another machine as soon as that is known."""
        if self._sent is not None:
            return self._sent.path
        text = self.edit.text().strip()
        if self._far is not None and text:
            return self._far.whole(Path(text))
        return Path(os.path.expanduser(text)) if text else None  # Path.expanduser raises while a ~user is being typed

    def look(self, path: Path) -> FoundPath:
        """What is at `path`, on the machine that the field is about; `changed` when more is known."""
        if self._sent is not None:
            return FoundPath("file", "")
        if self._far is not None:
            return self._far.look(path)
        if os.path.isfile(path):
            return FoundPath("file", "")
        is_folder = os.path.isdir(path)
        return (
            FoundPath("folder", f"{path} is a folder; choose a file in it.")
            if is_folder
            else FoundPath("nothing", f"There is no file {path}.")
        )

    def has_folder(self, path: Path) -> bool:
        """Whether there is such a folder, as far as that is known."""
        return os.path.isdir(path) if self._far is None else self._far.has_folder(path)

    def set_path(self, path: str) -> None:
        """Have this one chosen."""
        self.edit.setText(path)

    def _choose(self) -> None:
        folder = str(self.path.parent) if self.path else ""
        formats = {} if self._save is None else self._save()
        name = self.path.name if self.path else f"{self.suggested}.{next(iter(formats), '')}"
        if self._side is not None:
            if formats:
                wanted = WantedPath.SAVE
            elif self._folder:
                wanted = WantedPath.FOLDER
            else:
                wanted = WantedPath.FILE
            self._side.choose(
                self, self._title, wanted, lambda paths: self.edit.setText(str(paths[0])),
                folder=folder, kinds=self._kinds, formats=formats, name=name, ask=False,
            )  # fmt: skip
            return
        if formats:
            saving = SaveDialog(
                self, self._title, name, formats, folder, ask=False
            )  # the form says that there is a file, and asks
            saving.saved.connect(lambda path: self.edit.setText(str(path)))
            saving.open()
            return
        dialog = QFileDialog(
            self,
            self._title,
            folder,
            f"{self._kinds};;All files (*)",
            fileMode=QFileDialog.FileMode.Directory if self._folder else QFileDialog.FileMode.ExistingFile,
        )
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.edit.setText)
        dialog.open()
