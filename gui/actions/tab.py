"""Actions and tabs of the window as their features describe them. Main thread only; no widgets but QAction and menus.

`gui/shell/main_window.py` and `gui/shell/main_window.py` collect them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pkgutil import resolve_name
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QApplication, QMenu, QWidget

from devexplorer.core.session import Change, State
from devexplorer.gui.actions.context import WindowContext
from devexplorer.gui.widgets import reading_order

FILE, PARAMETERS, MODEL, SPLIT, ASK = "File", "Parameters", "Mode and optimizer", "Split", "Ask"
MACHINE = "Machine"
"""Menus that actions are in."""
SELECTION_MENUS = (PARAMETERS, MODEL, SPLIT, ASK)
"""Those that are about the selection."""


class ActionSpec(msgspec.Struct, frozen=True):
    """One action: its texts, its key, why it is disabled (None: it is enabled), what it does, which menu it is in."""

    id: str
    text: str
    tooltip: str
    run: Callable[[], object]
    why_not: Callable[[], str | None] = lambda: None
    """It is asked again when the selection, or something of `asks`, has changed."""
    key: str = ""
    menu: str = ""
    section: int = 0
    """Within the menu; there is a line between two sections."""
    asks: Change = Change.OBJECTS | Change.ENGINE
    """Parts of the state that `why_not` depends on."""


def make_qactions(specs: Sequence[ActionSpec], parent: QWidget) -> dict[str, QAction]:
    """One QAction per specification, with its key; keep them current with `refresh`."""
    actions = {}
    for spec in specs:
        action = QAction(spec.text, parent)
        action.setObjectName(spec.id)
        if spec.key:
            action.setShortcut(QKeySequence(spec.key))
        action.triggered.connect(lambda _checked=False, run=spec.run: run())
        parent.addAction(action)
        actions[spec.id] = action
    return actions


def refresh(specs: Sequence[ActionSpec], actions: dict[str, QAction]) -> None:
    """Enable what can be done now; the tooltip of a disabled action says why it is."""
    for spec in specs:
        action, reason = actions[spec.id], spec.why_not()
        if action.isEnabled() != (reason is None):
            action.setEnabled(reason is None)
        key = f" ({spec.key})" if spec.key else ""
        tooltip = reason or f"{spec.tooltip}{key}"
        if action.toolTip() != tooltip:
            action.setToolTip(tooltip)


def fill_menu(menu: QMenu, title: str, specs: Sequence[ActionSpec], actions: dict[str, QAction]) -> None:
    """Add the actions of the menu called `title`, section by section."""
    listed = sorted((spec for spec in specs if spec.menu == title), key=lambda spec: spec.section)
    for _, section in groupby(listed, key=lambda spec: spec.section):
        if not menu.isEmpty():
            menu.addSeparator()
        for spec in section:
            menu.addAction(actions[spec.id])


class Page(Protocol):
    """What the dock asks of the widget in a tab."""

    def refresh(self) -> None:
        """Redraw."""
        ...


P_co = TypeVar("P_co", bound=Page, covariant=True)


class TabSpec(msgspec.Struct, Generic[P_co], frozen=True):
    """A tab. Its page is made when the tab is first shown; nothing may rely on it before."""

    name: str
    make: Callable[[WindowContext], P_co]
    """Makes the page, a QWidget, and connects its signals. `lazy_page` is one for most pages."""
    layout: str = ""
    """Name of the layout that has it; empty: it is in the window Session."""
    redraw: Change = Change.NOTHING
    """The page is redrawn when any of these changes."""
    live: bool = False
    """It has numbers that change by themselves: redrawn twice a second as well, while it is visible."""
    count: Callable[[State], int] | None = None
    """The number behind the title, without the page; 0: none."""
    order: int = 0
    """Of the tabs of a layout, from left to right: the smallest first."""
    also_in: tuple[str, ...] = ()
    """Other layouts that have it as well."""
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

    def is_in(self, layout: str) -> bool:
        """Whether the layout of this name has it."""
        return layout == self.layout or layout in self.also_in

    def show(self, context: WindowContext) -> P_co:
        """Bring the tab to the front; returns its page."""
        return cast("P_co", context.show_tab(self.name))

    def open(self, context: WindowContext) -> P_co:
        """Show the tab and give the keyboard to its page; returns the page."""
        shown = self.show(context)
        page, focus = cast("QWidget", shown), QApplication.focusWidget()
        stops = (stop for stop in reading_order(page) if stop.isVisible() and stop.isEnabled())
        if (focus is None or not page.isAncestorOf(focus)) and (first := next(stops, None)) is not None:
            first.setFocus(Qt.FocusReason.TabFocusReason)
        return shown

    def actions(self, context: WindowContext) -> list[ActionSpec]:
        """The action that opens the tab, for the palette and perhaps a menu."""
        text, tooltip = self.action or f"{self.title} page", self.tooltip or f"Show the {self.title} page"
        run = partial(self.open, context)
        return [ActionSpec(f"page {self.name}", text, tooltip, run, key=self.key, menu=self.menu, section=self.section)]


def lazy_page(path: str, *connect: Callable[[WindowContext, Any], None]) -> Callable[[WindowContext], Any]:
    """Makes the page `module:class`, and lets each of `connect` connect it.

    Its module is imported then: start-up does not wait for pages that are not shown.
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
