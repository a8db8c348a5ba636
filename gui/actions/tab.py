"""A tab of the window as its feature describes it. Main thread only.

`gui/shell/tab_table.py` lists the tabs; nothing else has to know a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any, Generic, Protocol, TypeVar, cast

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget

from devexplorer.core.session import Change, State
from devexplorer.gui.actions.context import WindowContext
from devexplorer.gui.actions.spec import ActionSpec
from devexplorer.gui.widgets.accessibility.reading_order import reading_order


class Page(Protocol):
    """What the dock asks of the widget in a tab."""

    def refresh(self) -> None:
        """Redraw."""
        ...


P_co = TypeVar("P_co", bound=Page, covariant=True)


@dataclass(frozen=True)
class TabSpec(Generic[P_co]):
    """A tab. Its page is made when the tab is first shown; nothing may rely on it before."""

    name: str
    make: Callable[[WindowContext], P_co]
    """Makes the page, a QWidget, and connects its signals. `lazy_page` is one for most pages."""
    layout: str = ""
    """Name of the layout that has it; empty: all have it."""
    redraw: Change = Change.NOTHING
    """The page is redrawn when any of these changes."""
    live: bool = False
    """It has numbers that change by themselves: redrawn twice a second as well, while it is visible."""
    count: Callable[[State], int] | None = None
    """The number behind the title, without the page; 0: none."""
    action: str = ""
    """Text of the action that shows the tab; empty: `Page` and its title."""
    tooltip: str = ""
    """What the page is for: the palette finds it by these words too."""
    key: str = ""
    menu: str = ""
    section: int = 0

    @property
    def title(self) -> str:
        """What the tab is called in the window."""
        return self.name.capitalize()

    def show(self, context: WindowContext) -> P_co:
        """Bring the tab to the front; returns its page."""
        return cast(P_co, context.show_tab(self.name))

    def open(self, context: WindowContext) -> P_co:
        """Show the tab and give the keyboard to its page; returns the page."""
        shown = self.show(context)
        page, focus = cast(QWidget, shown), QApplication.focusWidget()
        stops = (stop for stop in reading_order(page) if stop.isVisible() and stop.isEnabled())
        if (focus is None or not page.isAncestorOf(focus)) and (first := next(stops, None)) is not None:
            first.setFocus(Qt.FocusReason.TabFocusReason)
        return shown

    def actions(self, context: WindowContext) -> list[ActionSpec]:
        """The action that opens the tab, for the palette and perhaps a menu."""
        text, tooltip = self.action or f"Page {self.title}", self.tooltip or f"Bring the page {self.title} to the front"
        run = partial(self.open, context)
        return [ActionSpec(f"page {self.name}", text, tooltip, run, key=self.key, menu=self.menu, section=self.section)]


def lazy_page(path: str, *connect: Callable[[WindowContext, Any], None]) -> Callable[[WindowContext], Any]:
    """Makes the page `module:class`, and lets each of `connect` connect it.

    Its module is imported then: start-up does not wait for pages that are not on show.
    """

    def make(context: WindowContext) -> Any:
        page = resolve_name(path)(context.state)
        for link in connect:
            link(context, page)
        return page

    return make


def follow_selection(context: WindowContext, page: Any) -> None:
    """For pages about what is selected in the tree, whose commands go to the engine."""
    page.set_selection(context.targets)
    page.command_requested.connect(context.controller.send)
    context.targets_selected.connect(page.set_selection)
