"""Less frequent ways of running a step, in the menu of one button: checkpoints, TF32, channels_last. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QAction

from devexplorer.gui.widgets import ButtonMenu, push_button

CHECKPOINTING = "Compute the activations of repeated blocks again in backward instead of keeping them."
TF32 = "Matrix products of float32 in TF32, where a card has it; convolutions use it anyway, as PyTorch's defaults do."
CHANNELS_LAST = "Weights of convolutions and images in torch.channels_last, which matrix units compute in."
TRAINING_ONLY = "This is about training."


class StepOptions(ButtonMenu):
    """`button` opens it and says how many are chosen; `changed`: the user, or `choose`, has changed one."""

    changed = Signal()

    def __init__(self) -> None:
        self.button = push_button("Options", name="Options of the step")
        super().__init__(self.button)
        self.setToolTipsVisible(True)
        self.checkpointing = self._option("Checkpointing", CHECKPOINTING)
        self.tf32 = self._option("TF32 products", TF32)
        self.channels_last = self._option("channels_last", CHANNELS_LAST)
        self.button.setMenu(self)
        self._show_chosen()

    def _option(self, text: str, meaning: str) -> QAction:
        action = self.addAction(text)
        action.setCheckable(True)
        action.setToolTip(meaning)
        action.toggled.connect(self._on_toggled)
        return action

    def _on_toggled(self, _on: bool) -> None:
        self._show_chosen()
        self.changed.emit()

    def _show_chosen(self) -> None:
        chosen = [action.text() for action in self.actions() if action.isChecked() and action.isEnabled()]
        self.button.setText(f"Options: {len(chosen)}" if chosen else "Options")
        self.button.setToolTip(", ".join(chosen) or "Checkpointing, TF32, channels_last")

    def set_training(self, training: bool) -> None:
        """Checkpoints are about backward."""
        self.checkpointing.setEnabled(training)
        self.checkpointing.setToolTip(CHECKPOINTING if training else TRAINING_ONLY)
        self._show_chosen()

    def choose(self, *, checkpointing: bool, tf32: bool, channels_last: bool) -> None:
        """Choose exactly these."""
        self.checkpointing.setChecked(checkpointing)
        self.tf32.setChecked(tf32)
        self.channels_last.setChecked(channels_last)
