"""The questions before code of the user's runs, and before work that is in no file is closed, or replaced by another
workspace. Main thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QWidget

from devexplorer.core.files.records import TrustedFolders
from devexplorer.core.isolation.model_source import WhatRuns
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.files.models import trust_of
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import Role, label, push_button

MOST_NAMED = 8


class TrustDialog(FormDialog):
    """`allowed` carries whether the folder is not to be asked about again; `always`: why that is no choice."""

    allowed = Signal(object)
    """Whether to remember it (bool)."""

    def __init__(self, code: WhatRuns, parent: QWidget | None = None, *, always: str = "") -> None:
        super().__init__("Run this code?", "Run it", 520, parent)
        self.set_words(code.words)
        self.add_row("folder", label(code.folder, role=Role.CODE, wrap=True))
        self.remember = QCheckBox("do not ask again for this folder")
        if not always:
            self.add_row("", self.remember)
        self.say(always or "It never runs in the window's process, so it cannot affect the window.")
        self.first = self.cancel_button
        self.cancel_button.setDefault(True)  # an Enter too many runs nothing

    def _accept(self) -> None:
        self.allowed.emit(self.remember.isChecked())
        self.accept()


def ask_to_run(context: WindowContext, code: WhatRuns, run: Callable[[], object]) -> None:
    """Run what needs this code, once the user allows it; code in a folder that is trusted is not asked about."""
    folder = trust_of(context, code.folder)
    trusted: TrustedFolders = context.settings.of_features.get("trusted_folders", ())
    if not code.own_code or folder in trusted:
        run()
        return

    def allowed(remember: bool) -> None:
        if remember:
            context.remember(trusted_folders=(*trusted, folder))
        run()

    dialog = TrustDialog(code, context.window)
    dialog.allowed.connect(allowed)
    context.open_dialog(dialog, about_machine=True)


class SaveQuestion(FormDialog):
    """`accepted`: save; or `discarded`; neither when everything is to stay."""

    discarded = Signal()

    def __init__(self, title: str, words: str, discard: str, parent: QWidget) -> None:
        """`words`: what is not saved; `discard`: what Discard does."""
        super().__init__(title, "Save", 420, parent)
        self.set_words(words)
        self.say(discard)
        self.discard_button = push_button("Discard", self._discard)
        self.add_button(self.discard_button)
        self.first = self.accept_button

    def _accept(self) -> None:
        self.accept()

    def _discard(self) -> None:
        self.done(2)
        self.discarded.emit()


class LossQuestion(FormDialog):
    """Everything is saved that a file can hold: `accepted` where the rest may go."""

    def __init__(self, title: str, accept: str, lost: Sequence[str], parent: QWidget) -> None:
        super().__init__(title, accept, 420, parent)
        named = [*lost[:MOST_NAMED], *([f"{len(lost) - MOST_NAMED:,} more"] if len(lost) > MOST_NAMED else [])]
        self.set_words("\n".join(["These would be lost:", *(f"• {phrase}" for phrase in named)]))
        self.say("A workspace file cannot hold them; everything else is saved.", warning=True)
        self.first = self.cancel_button
        self.cancel_button.setDefault(True)  # an Enter too many loses nothing

    def _accept(self) -> None:
        self.accept()
