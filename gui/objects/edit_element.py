"""A small dialog that sets one element of a tensor, parameter or buffer. Main thread only."""

from __future__ import annotations

import math

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QFormLayout, QPushButton, QWidget

from devexplorer.core.base.formats import shape_text
from devexplorer.core.records.messages import EditElement
from devexplorer.gui.widgets.layouts import hbox, line_edit, push_button
from devexplorer.gui.widgets.panel import label
from devexplorer.gui.widgets.plain_text import tip

MIN_PX = 380
"""Room for what is wrong in two lines."""


class EditElementDialog(QDialog):
    """Emits `chosen(EditElement)`; says inline what is wrong with an index or a value."""

    chosen = Signal(object)

    def __init__(self, target: str, shape: tuple[int, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(f"Set one element of {target}")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._target, self._shape = target, shape
        self.index = line_edit(", ".join("0" for _ in shape), name="Index")
        self.value = line_edit("1.0", name="Value")
        self.message = label("", words="error", wrap=True)
        self.message.hide()
        accept = self.set_button = QPushButton("Set")
        cancel = push_button("Cancel", self.reject)
        for edit in (self.index, self.value):
            edit.textChanged.connect(self._check)
        accept.setProperty("look", "primary")
        accept.setDefault(True)
        accept.clicked.connect(self._accept)
        self.setMinimumWidth(MIN_PX)
        buttons = hbox(None, cancel, accept)
        form = QFormLayout(self)
        form.setContentsMargins(16, 16, 16, 16)
        form.setHorizontalSpacing(12)
        form.setVerticalSpacing(8)
        form.addRow(label("shape", words="dim"), label(shape_text(shape)))
        form.addRow(label("index", words="dim"), self.index)
        form.addRow(label("value", words="dim"), self.value)
        form.addRow(self.message)
        form.addRow(buttons)

    def _check(self) -> EditElement | None:
        """Say what is wrong with the fields; what they come to where nothing is."""
        wrong: list[str] = []
        index: tuple[int, ...] = ()
        value = math.nan
        try:
            index = tuple(int(part) for part in self.index.text().split(",") if part.strip())
        except ValueError:
            wrong.append("The index is a whole number per dimension, separated by commas.")
        else:
            if len(index) != len(self._shape) or any(
                not 0 <= i < size for i, size in zip(index, self._shape, strict=False)
            ):
                wrong.append(f"The index must lie inside {shape_text(self._shape)}; the first element is at 0.")
        try:
            value = float(self.value.text())
        except ValueError:
            wrong.append("The value must be a number.")
        self.message.setText(f"✕ {' '.join(wrong)}" if wrong else "")  # never colour alone
        self.message.setVisible(bool(wrong))
        self.set_button.setEnabled(not wrong)
        self.set_button.setToolTip(tip(" ".join(wrong)))
        self.adjustSize()
        return None if wrong else EditElement(target=self._target, index=index, value=value)

    def _accept(self) -> None:
        command = self._check()
        if command is not None:
            self.chosen.emit(command)
            self.accept()
