"""The dialog that sets one element of a tensor, parameter or buffer. Main thread only."""

from __future__ import annotations

import math

from PySide6.QtWidgets import QWidget

from devexplorer.core.base import shape_text
from devexplorer.core.records import EditElement
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import label, line_edit

WIDTH_PX = 380


class EditElementDialog(FormDialog):
    """Says what is wrong with an index or a value while it is typed."""

    def __init__(self, target: str, shape: tuple[int, ...], parent: QWidget | None = None) -> None:
        super().__init__(f"Set one element of {target}", "Set", WIDTH_PX, parent)
        self._target, self._shape = target, shape
        self.index = line_edit(", ".join("0" for _ in shape), name="Index")
        self.value = line_edit("1.0", name="Value")
        self.add_row("shape", label(shape_text(shape)))
        self.add_row("index", self.index)
        self.add_row("value", self.value)
        for field in (self.index, self.value):
            field.textChanged.connect(self.command)
        self.command()

    def command(self) -> EditElement | None:
        """Say what is wrong with the fields; return the command if nothing is."""
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
                wrong.append(f"The index must be inside {shape_text(self._shape)}; the first element is at 0.")
        try:
            value = float(self.value.text())
        except ValueError:
            wrong.append("The value must be a number.")
        self.say(" ".join(wrong), wrong=bool(wrong))
        return None if wrong else EditElement(target=self._target, index=index, value=value)
