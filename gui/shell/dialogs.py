"""Opens the dialogs of the window and hands on what was chosen. Main thread only; each dialog's module is loaded when
first opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import strftime
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QDialog, QFileDialog, QInputDialog, QSpinBox, QWidget

from devexplorer.core.files.kinds import SUFFIXES
from devexplorer.core.session.state import State
from devexplorer.gui.actions.controller import Controller
from devexplorer.gui.widgets.panel import give_room
from devexplorer.gui.widgets.theme import Theme

if TYPE_CHECKING:
    from devexplorer.core.records.allocator import AllocatorSnapshot
    from devexplorer.gui.memory.snapshot import SnapshotDialog

RECORDINGS, SNAPSHOTS = "DevExplorer recordings", "Allocator snapshots"
EVERYTHING = f"Models, tensors, recordings, snapshots ({' '.join(f'*{suffix}' for suffix in SUFFIXES)})"


class Dialogs(QObject):
    """Each method opens one dialog and returns at once. What commands cannot do is asked for with signals."""

    visible_devices_chosen = Signal(object)
    """CUDA_VISIBLE_DEVICES for the next engine: str, or None for as inherited."""
    recording_chosen = Signal(object)
    """File to record to (Path)."""
    replay_chosen = Signal(object)
    """Recording to show (Path)."""
    files_chosen = Signal(object)
    """Files of any kind to open (list of Path)."""

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
        from devexplorer.gui.objects.new_tensor import NewTensorDialog

        dialog = NewTensorDialog(self._state, self._window)
        dialog.created.connect(self._controller.create)
        self._open(dialog)

    def virtual_gpus(self) -> None:
        """Profiles of simulated cards."""
        from devexplorer.gui.devices.virtual_gpus import VirtualGpusDialog

        dialog = VirtualGpusDialog(self._window)
        dialog.requested.connect(self._controller.add_virtual)
        self._open(dialog)

    def visible_devices(self) -> None:
        """Which cards the engine sees, and in which order."""
        from devexplorer.gui.devices.visible_devices import VisibleDevicesDialog

        dialog = VisibleDevicesDialog(self._state, self._theme(), self._window)
        dialog.chosen.connect(self.visible_devices_chosen)
        self._open(dialog)

    def edit_element(self) -> None:
        """Index and value of one element of the selected tensor."""
        found = self._controller.element_target()
        if found is not None:
            from devexplorer.gui.objects.edit_element import EditElementDialog

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
        from devexplorer.gui.shell.glossary import WordsDialog

        WordsDialog(self._window).open()

    def refresh_snapshot(self) -> None:
        """Show an allocator snapshot that has just been read, in one window that stays beside the main one.

        Called after every change that could have brought one; a snapshot opens the window once, so that a redraw of
        everything (a recording opened or closed, an engine lost) opens nothing.
        """
        read = self._state.snapshot
        if read is None or read is self._read_snapshot:
            return
        self._read_snapshot = read
        if self._snapshot is None:
            from devexplorer.gui.memory.snapshot import SnapshotDialog

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
        self._save(
            "Record to",
            f"recording-{strftime('%Y%m%d-%H%M%S')}.devrec",
            {"devrec": RECORDINGS},
            self.recording_chosen.emit,
        )

    def open_anything(self) -> None:
        """Which files to open, of any kind and any number."""
        self._choose("Open", f"{EVERYTHING};;All files (*)", self.files_chosen.emit, several=True)

    def replay(self) -> None:
        """Which recording to show."""
        self._choose(
            "Open a recording",
            f"{RECORDINGS} (*.devrec);;All files (*)",
            lambda paths: self.replay_chosen.emit(paths[0]),
        )

    def save_snapshot(self, device: str) -> None:
        """Where to save the snapshot of a device's allocator."""
        chosen = partial(self._controller.save_snapshot, device)
        name = f"snapshot-{device.replace(':', '-')}.pickle"
        self._save(
            f"Save the allocator snapshot of {device}", name, {"pickle": SNAPSHOTS}, lambda path: chosen(str(path))
        )

    def open_snapshot(self) -> None:
        """Which snapshot to read."""
        kinds = f"{SNAPSHOTS} (*.pickle *.pkl);;All files (*)"
        self._choose(
            "Open an allocator snapshot", kinds, lambda paths: self._controller.open_snapshot(path=str(paths[0]))
        )

    def _save(self, title: str, name: str, formats: dict[str, str], chosen: Callable[[Path], None]) -> None:
        from devexplorer.gui.widgets.save_dialog import SaveDialog

        dialog = SaveDialog(self._window, title, name, formats, self.folder)
        dialog.saved.connect(lambda path: setattr(self, "folder", str(path.parent)))
        dialog.saved.connect(chosen)
        dialog.open()

    def _choose(self, title: str, kinds: str, chosen: Callable[[list[Path]], None], *, several: bool = False) -> None:
        dialog = QFileDialog(self._window, title, self.folder, kinds)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles if several else QFileDialog.FileMode.ExistingFile)

        def accepted(names: list[str]) -> None:
            paths = [Path(name) for name in names]
            self.folder = str(paths[0].parent)
            chosen(paths)

        dialog.filesSelected.connect(accepted)
        self._open(dialog)
