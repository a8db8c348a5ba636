"""The pages of the window: makes one when its tab is first shown, redraws those that exist. A layout says which tabs
there are to choose from; those of no layout are in a window of their own. All have one height; a page that needs more
scrolls. Main thread only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QFrame, QTabWidget, QVBoxLayout, QWidget

from devexplorer.core.session import Change
from devexplorer.gui.actions import Page, TabSpec, WindowContext
from devexplorer.gui.actions.layout import Layout
from devexplorer.gui.widgets import ScrollArea, after_paint, chain, tab_widget, vbox

APART = "Session"
"""Title of the window of the pages that no layout has."""
APART_PX = QSize(960, 520)
LEAST_PX = QSize(320, 120)
"""What the tabs ask of the window, whatever their pages need."""
POINTS_S = 0.2
"""Least time between two redraws for points that runs measured."""


class _Column(QVBoxLayout):
    """A page is as low as it can be, not as high as it would like: a scroll area asks a layout of wrapped labels for
    the latter."""

    def hasHeightForWidth(self) -> bool:
        return False


class PageArea(ScrollArea):
    """A page that fills the tab, and scrolls where the tab is smaller than the page can be."""

    def __init__(self) -> None:
        self.column = _Column()
        self.column.setContentsMargins(0, 0, 0, 0)
        super().__init__(self.column, sideways=True)
        self.setObjectName("page")  # without the frame of the focus
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # its page has what Tab goes to


class BottomDock(QFrame):
    """`specs` from left to right. All tabs have one height, so changing the tab moves nothing else in the window.
    `refresh` and `refresh_texts` like the window. One that is called as its layout is a panel of its own (`areas`)."""

    wanted = Signal(str)
    """A page is to be shown: name of the layout that has it, empty where the present one does."""

    def __init__(self, context: WindowContext, specs: Sequence[TabSpec[Any]]) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.specs = tuple(specs)
        self._offered = tuple(spec.name for spec in specs)
        """The tabs of the present layout."""
        self._layout = ""
        self._last = dict(context.settings.tabs)
        """The page that each layout showed."""
        self._context = context
        self._by_name = {spec.name: spec for spec in self.specs}
        self._pages: dict[str, Page] = {}
        self._points_at_s = 0.0
        name = ", ".join(self._by_name).capitalize()
        self.tabs = tab_widget(name)
        self.apart = QDialog(context.window)
        self.apart.setWindowTitle(APART)
        self.apart.resize(APART_PX)
        self.apart_tabs = tab_widget(APART)
        vbox(self.apart_tabs, margins=8, parent=self.apart)
        self.areas = {spec.name: PageArea() for spec in specs}
        for spec in specs:
            if spec.name != spec.layout:
                self._tabs_of(spec).addTab(self.areas[spec.name], spec.title)
        vbox(self.tabs, margins=(1, 0, 1, 1), parent=self)
        self.tabs.currentChanged.connect(self._make_current)
        self.apart_tabs.currentChanged.connect(self._make_apart)
        context.show_tab = self.show_page
        context.redraw_requested.connect(self._redraw)

    def minimumSizeHint(self) -> QSize:
        return LEAST_PX

    def _tabs_of(self, spec: TabSpec[Any]) -> QTabWidget:
        return self.tabs if spec.layout else self.apart_tabs

    def page(self, name: str) -> Any:
        """The page of a tab, made when first asked for."""
        if name not in self._pages:
            page = self._by_name[name].make(self._context)
            self._pages[name] = page
            self.areas[name].column.addWidget(page)
            page.show()  # now, not when its layout next has time
            tabs = self._tabs_of(self._by_name[name])
            if self.areas[name].window() is tabs.window():  # not yet, for a panel of its own
                chain(tabs.tabBar(), page)
            page.refresh()
        return self._pages[name]

    def show_page(self, name: str) -> QWidget:
        """Bring a tab to the front, in the layout or the window that has it; returns its page."""
        spec = self._by_name[name]
        if spec.layout:
            self.wanted.emit("" if name in self._offered else spec.layout)
        else:
            self.apart.show()
            self.apart.raise_()
            self.apart.activateWindow()
        self._tabs_of(spec).setCurrentWidget(self.areas[name])
        return cast("QWidget", self.page(name))

    def show_apart(self) -> None:
        """Show the window of the pages that no layout has, with the one that was in front last."""
        self.show_page(self._name_of(self.apart_tabs.currentWidget()))

    def offer(self, layout: Layout) -> None:
        """Have the tabs of the layout that appears; the page that it had last is in front again."""
        self._last[self._layout], self._layout = self.current, layout.name
        self._offered = tuple(spec.name for spec in self.specs if spec.is_in(layout.name))
        own = [name for name in self._offered if name != layout.name]
        last = self._last.get(layout.name, "")
        front = last if last in own else own[0]  # a later version may have had other tabs
        with QSignalBlocker(self.tabs):
            self.tabs.setTabVisible(self.tabs.indexOf(self.areas[front]), True)
            # before its neighbours go, which would make another one current
            self.tabs.setCurrentWidget(self.areas[front])
            for name, area in self.areas.items():
                if (index := self.tabs.indexOf(area)) >= 0:
                    self.tabs.setTabVisible(index, name in self._offered)
        if self.isVisible():  # else when it is shown
            after_paint(self, self._make_current)

    def _name_of(self, area: QWidget) -> str:
        return next(name for name, other in self.areas.items() if other is area)

    @property
    def current(self) -> str:
        """Name of the tab in front."""
        return self._name_of(self.tabs.currentWidget())

    @property
    def in_front(self) -> dict[str, str]:
        """The tab that each layout has in front, to be remembered."""
        return {**{name: tab for name, tab in self._last.items() if name}, self._layout: self.current}

    def _make_current(self) -> None:
        if self.isVisible():
            self.page(self.current)
            self.refresh_texts()

    def _make_apart(self) -> None:
        if self.apart.isVisible():
            self.page(self._name_of(self.apart_tabs.currentWidget()))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        after_paint(self, self._make_current)

    # --- what the window calls

    def refresh(self, changes: Change, now_unix_s: float) -> None:
        """Redraw the pages that something changed on; for measured points at most five times a second."""
        if changes & (Change.POINTS | Change.DEVICES | Change.RUNS):
            if abs(now_unix_s - self._points_at_s) >= POINTS_S:
                self._points_at_s = now_unix_s
            else:
                changes &= ~Change.POINTS
        self._redraw(changes)

    def _redraw(self, changes: Change) -> None:
        for spec in self.specs:
            if changes & spec.redraw:
                if spec.name in self._pages:
                    self._pages[spec.name].refresh()
                if spec.count is not None:
                    count = spec.count(self._context.state)
                    tabs = self._tabs_of(spec)
                    index = tabs.indexOf(self.areas[spec.name])
                    tabs.setTabText(index, f"{spec.title} ({count})" if count else spec.title)

    def refresh_texts(self) -> None:
        """Live numbers, once or twice a second."""
        for spec in self.specs:
            if spec.live and spec.name in self._pages and self.areas[spec.name].isVisible():
                self._pages[spec.name].refresh()
