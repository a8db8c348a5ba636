"""A page with a form: fields, Start and Stop above, results or an empty state below; and a tab with several of them,
with a column of buttons at its left. Main thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Generic, TypeVar, cast

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QCheckBox, QLineEdit, QPushButton, QVBoxLayout, QWidget

from devexplorer.core.session import State
from devexplorer.gui.forms.device_choice import DeviceChoice, DeviceField
from devexplorer.gui.widgets import (
    EDGE_PX,
    Choice,
    ElidedLabel,
    EmptyState,
    FormRow,
    Role,
    hbox,
    labelled,
    push_button,
    stack,
    vbox,
)

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
        self.start_button.setAutoDefault(True)  # Enter presses it
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
        """Whether the empty state is shown."""
        return self._results.currentWidget() is self.empty


RAIL_PX, CHOICE_PX = 104, 22
P = TypeVar("P", bound=FormPage)


class SideNav(QWidget):
    """`chosen` carries the key of the page that was clicked."""

    chosen = Signal(str)

    def __init__(self, pages: Mapping[str, tuple[str, str]]) -> None:
        """`pages`: key -> title and meaning, from the top; the first one is chosen."""
        super().__init__()
        self._titles = {key: title for key, (title, _) in pages.items()}
        self.choices: dict[str, QPushButton] = {}
        self._group = QButtonGroup(self)
        column = QVBoxLayout(self)
        column.setContentsMargins(EDGE_PX - 4, 6, 0, 4)
        column.setSpacing(0)
        for key, (title, meaning) in pages.items():
            choice = push_button(title, lambda _checked, key=key: self.chosen.emit(key), look="quiet", tip=meaning)
            choice.setStyleSheet("text-align: left; padding-left: 8px; padding-right: 2px;")
            choice.setCheckable(True)
            choice.setFixedSize(RAIL_PX, CHOICE_PX)
            self._group.addButton(choice)
            self.choices[key] = choice
            column.addWidget(choice)
        column.addStretch(1)
        self.choose(next(iter(self.choices)))

    def choose(self, key: str) -> None:
        """Check one, without saying so. Tab goes to that one, the arrows go on from there."""
        self.choices[key].setChecked(True)
        for choice in self.choices.values():
            choice.setFocusPolicy(Qt.FocusPolicy.StrongFocus if choice.isChecked() else Qt.FocusPolicy.ClickFocus)

    def mark(self, running: set[str]) -> None:
        """A dot behind the titles of pages on which something runs."""
        for key, choice in self.choices.items():
            words = f"{self._titles[key]} ●" if key in running else self._titles[key]
            if choice.text() != words:
                choice.setText(words)
                choice.setAccessibleName(f"{self._titles[key]}{', running' if key in running else ''}")


class FormPages(QWidget, Generic[P]):
    """Pages with forms; one of them is shown. A page is made when it is first asked for."""

    def __init__(self, pages: Mapping[str, tuple[str, str]], make: Callable[[str], P]) -> None:
        """`pages`: as for `SideNav`; `make` is called with a key."""
        super().__init__()
        self.pages: Mapping[str, P] = _Pages(self._made)
        """Those made so far; any key can be asked for."""
        self._make = make
        self.rail = SideNav(pages)
        self.rail.chosen.connect(self.show_page)
        self._stack = stack()
        hbox(self.rail, (self._stack, 1), spacing=0, parent=self)
        self._stack.setCurrentWidget(self.pages[next(iter(pages))])

    def _made(self, key: str) -> P:
        page = self._make(key)
        self._stack.addWidget(page)
        return page

    @property
    def page(self) -> P:
        """The page shown."""
        return cast("P", self._stack.currentWidget())

    def show_page(self, key: str) -> None:
        """Bring a page to the front."""
        self.rail.choose(key)
        self._stack.setCurrentWidget(self.pages[key])
        self.page.refresh()


class _Pages(dict[str, P]):
    def __init__(self, make: Callable[[str], P]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: str) -> P:
        self[key] = page = self._make(key)
        return page
