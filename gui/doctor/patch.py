"""The dialog that applies the patch of a finding to its file: shows what would change. Main thread; the engine writes
the file."""

from __future__ import annotations

import os

from PySide6.QtWidgets import QWidget

from devexplorer.core.records import ApplyPatch
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import Role, label
from devexplorer.gui.widgets.source_view import DiffView

WIDTH_PX = 640


class PatchDialog(FormDialog):
    """Nothing is written before Apply."""

    def __init__(self, command: ApplyPatch, parent: QWidget | None = None) -> None:
        super().__init__("Apply patch", "Apply", WIDTH_PX, parent)
        self._command = command
        self.patch = DiffView()
        self.patch.set_code(command.patch.rstrip("\n"))
        self.add_row("file", label(command.file, role=Role.CODE, wrap=True, selectable=True))
        self.add_part(self.patch, 1)
        name = os.path.basename(command.file)
        self.say(f"The former file is kept beside it as {name}.orig, or with a number where that exists.")

    def command(self) -> ApplyPatch:
        """See `FormDialog`."""
        return self._command
