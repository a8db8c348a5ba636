"""A tab with several pages, and the column of buttons at its left, one for each page. Main thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar, cast

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QPushButton, QVBoxLayout, QWidget

from devexplorer.gui.forms.page import FormPage
from devexplorer.gui.widgets.layouts import hbox, push_button, stack
from devexplorer.gui.widgets.panel import EDGE_PX

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
    """Pages with forms; one of them is on show. A page is made when it is first asked for."""

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
        """The page on show."""
        return cast(P, self._stack.currentWidget())

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
