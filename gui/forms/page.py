"""A page with a form: fields, Start and Stop above, results or an empty state below. Main thread."""

from __future__ import annotations

from typing import ClassVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QLineEdit, QWidget

from devexplorer.core.session import State
from devexplorer.gui.forms.device_choice import DeviceChoice, DeviceField
from devexplorer.gui.widgets.form_fields import Choice, FormRow, labelled
from devexplorer.gui.widgets.layouts import hbox, push_button, stack, vbox
from devexplorer.gui.widgets.panel import EDGE_PX, ElidedLabel, EmptyState
from devexplorer.gui.widgets.theme import Role

BUTTON_PX = 26


class FormPage(QWidget):
    """Subclasses add fields and results, and say in `check` whether the form can be started."""

    title: ClassVar[str] = ""
    nothing: ClassVar[str] = ""
    """The sentence of the empty state."""
    action: ClassVar[str] = "Start"
    """The text of the button."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self.start_button = push_button(self.action, self.start, look="primary")
        self.stop_button = push_button("Stop", self.stop)
        self.hint = ElidedLabel(Role.LABEL, "dim")
        self.empty = EmptyState(self.nothing, "")
        self._fields = FormRow()
        self._device_fields: list[DeviceChoice | DeviceField] = []
        for button in (self.start_button, self.stop_button):
            button.setFixedHeight(BUTTON_PX)
        top = Qt.AlignmentFlag.AlignTop  # in the first line of fields
        buttons = ((button, 0, top) for button in (self.start_button, self.stop_button))
        self._form = hbox(self._fields, *buttons, margins=(0, 6, EDGE_PX, 4))
        self._results = stack(self.empty)
        self._column = vbox(self._form, (self._results, 1), spacing=0, margins=(0, 0, 0, 4), parent=self)

    def add_fields(self, *fields: tuple[str, QWidget]) -> None:
        """Put each field behind its name into the form."""
        for words, field in fields:
            self.add_field(words, field)

    def add_field(self, words: str, field: QWidget) -> QWidget:
        """Put a field behind its name into the form; returns both, to be hidden together."""
        both = labelled(words, field) if words else field
        self._fields.row.addWidget(both)
        if isinstance(field, DeviceChoice | DeviceField):
            self._device_fields.append(field)
        if isinstance(field, QLineEdit):
            field.textChanged.connect(self._edited)
            field.returnPressed.connect(self.start)
        elif isinstance(field, DeviceChoice):
            field.changed.connect(self.check)
            field.picked.connect(self._edited)
        elif isinstance(field, Choice):
            field.currentIndexChanged.connect(self._edited)
        elif isinstance(field, QCheckBox):
            field.toggled.connect(self._edited)
        return both

    def _edited(self) -> None:
        """The user has changed a field."""
        self.check()

    def check(self) -> None:
        """Say what the form comes to, or what is wrong with it."""
        raise NotImplementedError

    def start(self) -> None:
        """Ask for what the form says."""
        raise NotImplementedError

    def stop(self) -> None:
        """End what was started."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Offer the devices as they are now."""
        for field in self._device_fields:
            field.refresh()

    @property
    def is_empty(self) -> bool:
        """Whether the empty state is on show."""
        return self._results.currentWidget() is self.empty
