"""Opens the dialogs of the window and hands on what was chosen. Main thread only; each dialog's module is loaded when first opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QDialog, QFileDialog, QInputDialog, QSpinBox, QWidget

from devexplorer.core.state import State
from devexplorer.gui.controller import Controller
from devexplorer.gui.panels.panel import give_room
from devexplorer.gui.theme import Theme

if TYPE_CHECKING:
    from devexplorer.core.records.allocator import AllocatorSnapshot
    from devexplorer.gui.panels.snapshot import SnapshotDialog

RECORDINGS = "DevExplorer recordings (*.devrec)"
SNAPSHOTS = "Allocator snapshots (*.pickle *.pkl)"


class Dialogs(QObject):
    """Each method opens one dialog and returns at once. What commands cannot do is asked for with signals."""

    visible_devices_chosen = Signal(object)
    """CUDA_VISIBLE_DEVICES for the next engine: str, or None for as inherited."""
    recording_chosen = Signal(object)
    """File to record to (Path)."""
    replay_chosen = Signal(object)
    """Recording to show (Path)."""

    def __init__(self, window: QWidget, state: State, controller: Controller, theme: Callable[[], Theme]) -> None:
        super().__init__(window)
        self._window, self._state, self._controller, self._theme = window, state, controller, theme
        self._snapshot: SnapshotDialog | None = None
        self._read_snapshot: AllocatorSnapshot | None = None
        """The one that the window was opened for last."""
        self.folder = ""
        """Where the last file was chosen."""

    def _open(self, dialog: QDialog) -> None:
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def new_tensor(self) -> None:
        """A tensor on a device."""
        from devexplorer.gui.panels.new_tensor import NewTensorDialog

        dialog = NewTensorDialog(self._state, self._window)
        dialog.created.connect(self._controller.create)
        self._open(dialog)

    def virtual_gpus(self) -> None:
        """Profiles of simulated cards."""
        from devexplorer.gui.panels.virtual_gpus import VirtualGpusDialog

        dialog = VirtualGpusDialog(self._window)
        dialog.requested.connect(self._controller.add_virtual)
        self._open(dialog)

    def visible_devices(self) -> None:
        """Which cards the engine sees, and in which order."""
        from devexplorer.gui.panels.visible_devices import VisibleDevicesDialog

        dialog = VisibleDevicesDialog(self._state, self._theme(), self._window)
        dialog.chosen.connect(self.visible_devices_chosen)
        self._open(dialog)

    def edit_element(self) -> None:
        """Index and value of one element of the selected tensor."""
        found = self._controller.element_target()
        if found is not None:
            from devexplorer.gui.panels.edit_element import EditElementDialog

            dialog = EditElementDialog(*found, self._window)
            dialog.chosen.connect(lambda edit: self._controller.edit(edit.target, edit.index, edit.value))
            dialog.open()

    def threads(self) -> None:
        """The number of CPU threads."""
        assert self._state.engine is not None
        dialog = QInputDialog(self._window)
        dialog.setWindowTitle("CPU threads")
        dialog.setLabelText("Threads that torch uses for one operation on the CPU:")
        dialog.setInputMode(QInputDialog.InputMode.IntInput)
        dialog.setIntRange(1, 1024)
        dialog.setIntValue(self._state.devices["cpu"].info.threads or self._state.engine.threads)
        give_room(dialog.findChild(QSpinBox))
        dialog.intValueSelected.connect(self._controller.set_threads)
        self._open(dialog)

    def words(self) -> None:
        """The vocabulary."""
        from devexplorer.gui.panels.words import WordsDialog

        WordsDialog(self._window).open()

    def refresh_snapshot(self) -> None:
        """Show an allocator snapshot that has just been read, in one window that stays beside the main one.

        Called after every change that could have brought one; a snapshot opens the window once, so that a redraw of everything (a recording
        opened or closed, an engine lost) opens nothing.
        """
        read = self._state.snapshot
        if read is None or read is self._read_snapshot:
            return
        self._read_snapshot = read
        if self._snapshot is None:
            from devexplorer.gui.panels.snapshot import SnapshotDialog

            self._snapshot = SnapshotDialog(self._state, self._theme(), self._window)
        self._snapshot.set_theme(self._theme())
        self._snapshot.refresh()
        self._snapshot.show()
        self._snapshot.raise_()

    def set_theme(self, theme: Theme) -> None:
        """Colours of the dialogs that stay open."""
        if self._snapshot is not None:
            self._snapshot.set_theme(theme)

    # files

    def record(self) -> None:
        """Where to record to."""
        self._file("Record to", RECORDINGS, ".devrec", self.recording_chosen.emit, save=True)

    def replay(self) -> None:
        """Which recording to show."""
        self._file("Open a recording", RECORDINGS, ".devrec", self.replay_chosen.emit)

    def save_snapshot(self, device: str) -> None:
        """Where to save the snapshot of a device's allocator."""
        chosen = partial(self._controller.save_snapshot, device)
        self._file(f"Save the allocator snapshot of {device}", SNAPSHOTS, ".pickle", lambda path: chosen(str(path)), save=True)

    def open_snapshot(self) -> None:
        """Which snapshot to read."""
        self._file("Open an allocator snapshot", SNAPSHOTS, ".pickle", lambda path: self._controller.open_snapshot(path=str(path)))

    def _file(self, title: str, kinds: str, suffix: str, chosen: Callable[[Path], None], *, save: bool = False) -> None:
        dialog = QFileDialog(self._window, title, self.folder, f"{kinds};;All files (*)")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave if save else QFileDialog.AcceptMode.AcceptOpen)
        dialog.setFileMode(QFileDialog.FileMode.AnyFile if save else QFileDialog.FileMode.ExistingFile)
        if save:
            dialog.setDefaultSuffix(suffix.removeprefix("."))

        def accepted(name: str) -> None:
            self.folder = str(Path(name).parent)
            chosen(Path(name))

        dialog.fileSelected.connect(accepted)
        self._open(dialog)
