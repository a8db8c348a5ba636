"""Opens the dialogs of the laboratory: models, files, initial values. Main thread only; each dialog's module is loaded
when first opened.

Code of the user's runs only after a question, which is asked once per folder (`Settings.trusted_folders`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QDialog, QWidget

from devexplorer.core.records.laboratory import OpenModel
from devexplorer.core.session.settings import Settings
from devexplorer.core.session.state import State
from devexplorer.gui.actions.controller import Controller
from devexplorer.gui.actions.laboratory import Laboratory
from devexplorer.gui.widgets.theme import Theme

if TYPE_CHECKING:
    from devexplorer.gui.files.checkpoint import CheckpointDialog
    from devexplorer.gui.files.load_file import LoadFileDialog

MOST_RECENT = 10


class LaboratoryDialogs(QObject):
    """Each method opens one dialog and returns at once."""

    script_wanted = Signal(object)
    """File for the session as Python (Path); a notebook where it ends in `.ipynb`."""

    def __init__(
        self,
        window: QWidget,
        state: State,
        controller: Controller,
        laboratory: Laboratory,
        settings: Settings,
        theme: Callable[[], Theme],
    ) -> None:
        super().__init__(window)
        self._window, self._state, self._controller, self._laboratory, self._theme = (
            window,
            state,
            controller,
            laboratory,
            theme,
        )
        self.trusted_folders = list(settings.trusted_folders)
        """Folders whose code may run without a question."""
        self.recent_models = list(settings.recent_models)
        """What was opened last, the newest first."""
        self._failed: tuple[str, str] | None = None
        """Source and folder of the model that could not be opened last: the dialog has it ready to be tried again."""
        self._done_count = 0
        """How many commands were over when the recent models were brought up to date."""
        self._checkpoint: CheckpointDialog | None = None
        self._load: LoadFileDialog | None = None

    def _open(self, dialog: QDialog) -> None:
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    # --- models

    def open_model(self, path: Path | None = None) -> QDialog:
        """A model of the user's own; `path`: in this file."""
        from devexplorer.gui.files.open_model import OpenModelDialog

        dialog = OpenModelDialog(self._state, tuple(self.recent_models), self._window)
        if path is not None:
            dialog.show_file(path)
        elif self._failed is not None:
            dialog.show_source(*self._failed)
        dialog.chosen.connect(self.run_after_question)
        self._open(dialog)
        return dialog

    def run_after_question(self, command: OpenModel) -> None:
        """Open a model; when that runs code of a folder that nobody has spoken for yet, ask first."""
        from devexplorer.core.models.source import describe

        code = describe(command.source, command.folder)
        if not code.own_code or code.folder in self.trusted_folders:
            self._send_model(command)
            return
        from devexplorer.gui.files.trust import TrustDialog

        dialog = TrustDialog(code, self._window)
        dialog.allowed.connect(lambda remember: self._allowed(command, code.folder, remember))
        self._open(dialog)

    def _allowed(self, command: OpenModel, folder: str, remember: bool) -> None:
        if remember:
            self.trusted_folders.append(folder)
        self._send_model(command)

    def _send_model(self, command: OpenModel) -> None:
        self._controller.send(command)

    def _remember_models(self) -> None:
        """Models that were opened since this was last asked; one that could not be opened is not offered again."""
        new = min(self._state.done_count - self._done_count, len(self._state.done))
        self._done_count = self._state.done_count
        for done in list(self._state.done)[len(self._state.done) - new :] if new > 0 else ():
            if not isinstance(done.command, OpenModel):
                continue
            source = (done.command.source, done.command.folder)
            self._failed = None if done.ok else source
            if done.ok:
                self.recent_models = [source, *(one for one in self.recent_models if one != source)][:MOST_RECENT]

    # --- files

    def load(self, path: Path | None = None) -> QDialog:
        """Tensors of a file."""
        from devexplorer.gui.files.load_file import LoadFileDialog

        dialog = self._load = LoadFileDialog(self._state, self._theme(), None, self._window)
        dialog.command_requested.connect(self._controller.send)
        dialog.finished.connect(lambda _code: setattr(self, "_load", None))
        if path is not None:
            dialog.file.set_path(str(path))
        self._open(dialog)
        return dialog

    def checkpoint(self) -> None:
        """Values of a file into the selected model."""
        from devexplorer.gui.files.checkpoint import CheckpointDialog

        model = self._laboratory.model()
        if model is None:
            return
        self._checkpoint = CheckpointDialog(self._state, self._theme(), model, self._window)
        self._checkpoint.command_requested.connect(self._controller.send)
        self._checkpoint.finished.connect(lambda _code: setattr(self, "_checkpoint", None))
        self._open(self._checkpoint)

    def save(self) -> None:
        """The selected objects to a file."""
        self._save(tuple(target for target, _ in self._laboratory.rows()))

    def save_all(self) -> None:
        """The whole workspace to a file."""
        self._save(())

    def _save(self, targets: tuple[str, ...]) -> None:
        from devexplorer.gui.files.save_file import SaveFileDialog

        dialog = SaveFileDialog(self._state, targets, self._window)
        dialog.command_requested.connect(self._controller.send)
        self._open(dialog)

    def save_script(self) -> None:
        """The session as a script or a notebook."""
        from devexplorer.gui.files.save_file import choose_script

        choose_script(self._window, self.script_wanted.emit)

    # --- parameters

    def initialise(self) -> None:
        """New initial values for what is selected."""
        from devexplorer.gui.objects.initialise import InitialiseDialog

        rows = self._laboratory.rows()
        if len(rows) != 1:
            return
        dialog = InitialiseDialog(*rows[0], self._window)
        dialog.command_requested.connect(self._controller.send)
        self._open(dialog)

    # --- what the window calls

    def refresh(self) -> None:
        """Something that was asked about a file has been answered, or a model was opened."""
        self._remember_models()
        for dialog in (self._load, self._checkpoint):
            if dialog is not None:
                dialog.refresh()
