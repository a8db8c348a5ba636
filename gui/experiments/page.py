"""The Experiments tab: Python's questions, replicas, timing without synchronising, and where a device overtakes the
CPU. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Signal

from devexplorer.core.session import State
from devexplorer.gui.experiments.pages import AskPage, CrossoverPage, ReplicatePage, TimeWorkPage
from devexplorer.gui.forms.pages import FormPages
from devexplorer.gui.objects.command_page import ExperimentPage


class ExperimentsPanel(FormPages[ExperimentPage]):
    """Reads `state.jobs`, `state.done`, `state.work` and `state.crossover`; `set_selection` says what is selected."""

    command_requested = Signal(object)

    def __init__(self, state: State) -> None:
        self.ask = AskPage(state)
        self.replicate = ReplicatePage(state)
        self.time_work = TimeWorkPage(state)
        self.crossover = CrossoverPage(state)
        every: tuple[ExperimentPage, ...] = (self.ask, self.replicate, self.time_work, self.crossover)
        by_title = {page.title: page for page in every}
        super().__init__({page.title: (page.title, page.meaning) for page in every}, by_title.__getitem__)
        for page in every:
            self.pages[page.title].command_requested.connect(self.command_requested)
        self.refresh()

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """What is selected in the tree."""
        for page in self.pages.values():
            page.set_selection(targets)

    def refresh(self) -> None:
        """Show everything as it is now."""
        for page in self.pages.values():
            page.refresh()
        self.rail.mark({title for title, page in self.pages.items() if page.running is not None})
