"""The Experiments tab: Python's questions, replicas, timing without synchronising, and where a device overtakes the
CPU. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedLayout, QWidget

from devexplorer.core.session.state import State
from devexplorer.gui.experiments.pages import AskPage, CrossoverPage, ReplicatePage, TimeWorkPage
from devexplorer.gui.objects.command_page import ExperimentPage
from devexplorer.gui.widgets.layouts import hbox
from devexplorer.gui.widgets.side_nav import SideNav
from devexplorer.gui.widgets.theme import Theme


class ExperimentsPanel(QWidget):
    """Reads `state.jobs`, `state.done`, `state.work` and `state.crossover`; `set_selection` says what is selected."""

    command_requested = Signal(object)

    def __init__(self, state: State, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.ask = AskPage(state, theme)
        self.replicate = ReplicatePage(state, theme)
        self.time_work = TimeWorkPage(state, theme)
        self.crossover = CrossoverPage(state, theme)
        self.pages: dict[str, ExperimentPage] = {
            page.title: page for page in (self.ask, self.replicate, self.time_work, self.crossover)
        }
        self.rail = SideNav({title: (title, page.meaning) for title, page in self.pages.items()})
        self.rail.chosen.connect(self.show_page)
        self._stack = QStackedLayout()
        self.setLayout(hbox(self.rail, (self._stack, 1), spacing=0))
        for page in self.pages.values():
            self._stack.addWidget(page)
            page.command_requested.connect(self.command_requested)
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        for page in self.pages.values():
            page.set_theme(theme)

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """What is selected in the tree."""
        for page in self.pages.values():
            page.set_selection(targets)

    def refresh(self) -> None:
        """Show everything as it is now."""
        for page in self.pages.values():
            page.refresh()
        self.rail.mark({title for title, page in self.pages.items() if page.running is not None})

    def show_page(self, title: str) -> None:
        """Bring one experiment to the front, by its title."""
        self.rail.choose(title)
        self._stack.setCurrentWidget(self.pages[title])

    @property
    def page(self) -> ExperimentPage:
        """The experiment on show."""
        page = self._stack.currentWidget()
        assert isinstance(page, ExperimentPage)
        return page
