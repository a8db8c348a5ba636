"""The tabs at the bottom of the window: one height for all of them; a page that needs more scrolls. Main thread
only."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QFrame, QTabWidget, QVBoxLayout, QWidget

from devexplorer.gui.widgets.layouts import ScrollArea, vbox

LEAST_PX = QSize(320, 120)
"""What the tabs ask of the window, whatever their pages need."""


class _Column(QVBoxLayout):
    """A page is as low as it can be, not as high as it would like: a scroll area asks a layout of wrapped labels for
    the latter."""

    def hasHeightForWidth(self) -> bool:
        return False


class PageArea(ScrollArea):
    """A page that fills the tab, and scrolls where the tab is smaller than the page can be."""

    def __init__(self) -> None:
        self._column = _Column()
        self._column.setContentsMargins(0, 0, 0, 0)
        super().__init__(self._column, sideways=True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # its page has what Tab goes to

    def set_page(self, page: QWidget) -> None:
        """Show `page`, from now on."""
        self._column.addWidget(page)


class BottomTabs(QFrame):
    """Which tab is in front changes nothing about the rest of the window: the next click finds what it aimed at."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setObjectName("panel")
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)
        self.tabs.tabBar().setDrawBase(False)
        self.tabs.setAccessibleName(name)
        self.tabs.tabBar().setAccessibleName(name)
        self.tabs.setUsesScrollButtons(True)
        vbox(self.tabs, margins=(1, 0, 1, 1), parent=self)

    def add(self, title: str) -> None:
        """Add a tab whose page comes later, or never."""
        self.tabs.addTab(PageArea(), title)

    def area(self, at: int) -> PageArea:
        """The place of a tab's page."""
        area = self.tabs.widget(at)
        assert isinstance(area, PageArea)
        return area

    @property
    def title(self) -> str:
        """Title of the tab in front, without a count behind it."""
        return self._title(self.tabs.currentIndex())

    def _title(self, at: int) -> str:
        return self.tabs.tabText(at).split(" (")[0]

    def count(self, at: int, number: int) -> None:
        """Show a number behind a tab's title; 0: none."""
        title = self._title(at)
        self.tabs.setTabText(at, f"{title} ({number})" if number else title)

    def minimumSizeHint(self) -> QSize:
        return LEAST_PX
