"""The tabs at the bottom of the window, each with a height of its own. Main thread only."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QFrame, QSizePolicy, QSplitter, QTabWidget, QVBoxLayout, QWidget

LEAST_UPPER_PX, LEAST_PLOTS_PX = 300, 150
"""What the rows above keep at least when a tab takes more room."""


class BottomTabs(QFrame):
    """Tabs in the last row of a vertical splitter of three: panels, plots, tabs.

    Choosing a tab gives it the height that it had last (or wants at first); what it takes or leaves is the upper row's,
    and the plots' where that one has no more to give.
    """

    def __init__(self, name: str, heights: Mapping[str, int]) -> None:
        """`heights`: title -> pixels, as remembered from the last time."""
        super().__init__()
        self.setObjectName("panel")
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)
        self.tabs.tabBar().setDrawBase(False)
        self.tabs.setAccessibleName(name)
        self.tabs.tabBar().setAccessibleName(name)
        self.tabs.setUsesScrollButtons(True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(1, 0, 1, 1)
        layout.addWidget(self.tabs)
        self.tabs.currentChanged.connect(lambda _index: self._need_room())
        self.heights = dict(heights)
        """Title -> pixels, kept current."""
        self._splitter: QSplitter | None = None
        self._plots_px: int | None = None
        """What the plots had before a tab took of it."""

    def add(self, page: QWidget, title: str, height_px: int) -> None:
        """Add a tab that wants `height_px` when it is first shown."""
        self.heights.setdefault(title, height_px)
        self.tabs.addTab(page, title)
        self._need_room()

    def follow(self, splitter: QSplitter) -> None:
        """Share the height with the rows of `splitter`, of which this widget is the last."""
        self._splitter = splitter
        self.tabs.currentChanged.connect(lambda _index: QTimer.singleShot(0, self, self.take_height))
        splitter.splitterMoved.connect(self._moved)

    def _need_room(self) -> None:
        """Only the tab in front says how low this may become; Qt would ask all of them, also those that nobody sees."""
        for at in range(self.tabs.count()):
            page = self.tabs.widget(at)
            assert page is not None
            front = at == self.tabs.currentIndex()
            policy = QSizePolicy.Policy.Preferred if front else QSizePolicy.Policy.Ignored
            page.setSizePolicy(page.sizePolicy().horizontalPolicy(), policy)

    def count(self, page: QWidget, number: int) -> None:
        """Show a number behind a tab's title; 0: none."""
        at = self.tabs.indexOf(page)
        title = self._title(at)
        self.tabs.setTabText(at, f"{title} ({number})" if number else title)

    def _title(self, at: int) -> str:
        return self.tabs.tabText(at).split(" (")[0]

    @property
    def title(self) -> str:
        """Title of the tab in front, without a count behind it."""
        return self._title(self.tabs.currentIndex())

    def take_height(self) -> None:
        """Give the tab in front its height."""
        if self._splitter is None or not self.isVisible():
            return
        panels, plots, tabs = self._splitter.sizes()
        wanted = self.heights[self.title]
        rest = panels + plots + tabs - wanted
        first = self._plots_px is None
        if self._plots_px is None:
            self._plots_px = plots
        plots = max(min(self._plots_px, rest - LEAST_UPPER_PX), LEAST_PLOTS_PX)
        if first or tabs != wanted:
            self._splitter.setSizes([max(rest - plots, 0), plots, wanted])

    def _moved(self) -> None:
        """The user drags: that is the height from now on."""
        assert self._splitter is not None
        _, self._plots_px, self.heights[self.title] = self._splitter.sizes()
