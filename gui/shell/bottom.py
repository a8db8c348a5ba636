"""The pages of the bottom tabs: what each shows, is connected to, and when it is redrawn. Main thread only.

A page is made when it is first shown, its module loaded only then: the window is there before most of them are needed.
So nothing here may rely on a page that exists; what a page must know later (the chosen device, where runs are kept) is
kept for it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QWidget

from devexplorer.core.session.settings import Settings
from devexplorer.core.session.state import Change, State
from devexplorer.core.telemetry.alert_rules import ALARM, Rule, complete
from devexplorer.gui.actions.controller import TWO_T4, Controller
from devexplorer.gui.shell.dialogs import Dialogs
from devexplorer.gui.shell.laboratory_dialogs import LaboratoryDialogs
from devexplorer.gui.shell.tabs import BottomTabs, PageArea
from devexplorer.gui.widgets.reading_order import chain
from devexplorer.gui.widgets.theme import Theme

if TYPE_CHECKING:
    from devexplorer.gui.alerts.page import AlertsPanel
    from devexplorer.gui.benchmark.page import BenchmarkPanel
    from devexplorer.gui.devices.details import DetailsPanel
    from devexplorer.gui.devices.processes import ProcessesPanel
    from devexplorer.gui.doctor.page import DoctorPanel
    from devexplorer.gui.experiments.page import ExperimentsPanel
    from devexplorer.gui.files.session_code import SessionPanel, SessionSource
    from devexplorer.gui.fit.page import FitPanel
    from devexplorer.gui.history.page import HistoryPanel
    from devexplorer.gui.history.source import HistorySource
    from devexplorer.gui.learn.page import LearnPanel
    from devexplorer.gui.memory.page import MemoryPanel
    from devexplorer.gui.objects.values import ValuesPanel
    from devexplorer.gui.roofline.page import RooflinePanel
    from devexplorer.gui.shell.log import LogPanel
    from devexplorer.gui.split.page import SplitPanel
    from devexplorer.gui.topology.page import TopologyPanel

PAGES = (
    "benchmark", "history", "roofline", "memory", "device", "topology", "processes", "values", "split", "experiments",
    "doctor", "fit",
    "session", "learn", "alerts", "log",
)  # fmt: skip
"""Pages from left to right. The name is the attribute, the title its capitalised form."""

AFTER_FIRST_PAINT_MS = 20
"""The window is painted and answers before its first page is loaded."""

POINTS_S = 0.2
"""Between two looks at what runs have measured."""

W = TypeVar("W", bound=QWidget)


class _Page(Protocol):
    def refresh(self) -> None: ...
    def set_theme(self, theme: Theme) -> None: ...


class _SelectionPage(Protocol):
    def set_selection(self, targets: tuple[str, ...]) -> None: ...


class Bottom(BottomTabs):
    """`refresh` and `refresh_texts` like the window; a page is an attribute, made when first asked for."""

    device_chosen = Signal(object)
    """A device was chosen in one of the pages (its id)."""
    restart_requested = Signal()
    rules_changed = Signal(object)
    """Other rules for alerts (tuple of `Rule`)."""
    notifications_changed = Signal(bool)
    target_chosen = Signal(str, str)
    """Something is to be selected in the tree: name of the object, path in it or near it."""

    def __init__(
        self,
        state: State,
        controller: Controller,
        dialogs: Dialogs,
        laboratory_dialogs: LaboratoryDialogs,
        settings: Settings,
        theme: Theme,
    ) -> None:
        super().__init__(", ".join(PAGES).capitalize())
        self._state, self._controller, self._dialogs, self._theme = state, controller, dialogs, theme
        self._laboratory_dialogs = laboratory_dialogs
        self._notifications = settings.notifications
        self.learned = settings.learned
        """Exercises that were done."""
        self._device: str | None = None
        self._selection: tuple[str, ...] = ()
        self._source: HistorySource | None = None
        self._actions: SessionSource | None = None
        self._history_problem = ""
        self._points_at_s = 0.0
        state.alerts.set_rules(complete(settings.alert_rules))
        for name in PAGES:
            self.add(name.capitalize())
        self.tabs.currentChanged.connect(self._make_current)

    # --- the pages
    # -----------------------------------------------------------------------------------------------------

    @cached_property
    def benchmark(self) -> BenchmarkPanel:
        """What is measured, and how it goes."""
        from devexplorer.gui.benchmark.page import BenchmarkPanel

        panel = self._placed("benchmark", BenchmarkPanel(self._state, self._theme))
        panel.start_requested.connect(self._controller.benchmark)
        panel.stop_requested.connect(self._controller.stop_benchmark)
        panel.virtual_offered.connect(lambda: self._controller.add_virtual(TWO_T4))
        return panel

    @cached_property
    def history(self) -> HistoryPanel:
        """Every run that was kept."""
        from devexplorer.gui.history.page import HistoryPanel

        panel = self._placed("history", HistoryPanel(self._state, self._theme))
        panel.benchmark_requested.connect(lambda: self.show_page("benchmark"))
        panel.set_source(self._source)
        panel.show_problem(self._history_problem)
        return panel

    @cached_property
    def roofline(self) -> RooflinePanel:
        """Runs below the ceilings of a device."""
        from devexplorer.gui.roofline.page import RooflinePanel

        panel = self._placed("roofline", RooflinePanel(self._state, self._theme))
        panel.benchmark_requested.connect(lambda: self.show_page("benchmark"))
        panel.run_chosen.connect(self._show_stored_run)
        panel.set_source(self._source)
        return panel

    @cached_property
    def memory(self) -> MemoryPanel:
        """Where the memory of a device went."""
        from devexplorer.gui.memory.page import MemoryPanel

        panel = self._placed("memory", MemoryPanel(self._state, self._theme))
        panel.release_requested.connect(self._controller.release_cache)
        panel.restart_requested.connect(self.restart_requested)
        panel.record_requested.connect(self._controller.record_allocator)
        panel.browse_requested.connect(lambda device: self._controller.open_snapshot(device=device))
        panel.save_requested.connect(self._dialogs.save_snapshot)
        panel.open_requested.connect(self._dialogs.open_snapshot)
        if self._device is not None:
            panel.show_device(self._device)
        return panel

    @cached_property
    def device(self) -> DetailsPanel:
        """Everything that a device says of itself."""
        from devexplorer.gui.devices.details import DetailsPanel

        panel = self._placed("device", DetailsPanel(self._state, self._theme))
        panel.set_device(self._device)
        panel.device_chosen.connect(self.device_chosen)
        return panel

    @cached_property
    def topology(self) -> TopologyPanel:
        """How the devices are joined."""
        from devexplorer.gui.topology.page import TopologyPanel

        panel = self._placed("topology", TopologyPanel(self._state, self._theme))
        panel.virtual_offered.connect(lambda: self._controller.add_virtual(TWO_T4))
        return panel

    @cached_property
    def processes(self) -> ProcessesPanel:
        """Who uses which device."""
        from devexplorer.gui.devices.processes import ProcessesPanel

        return self._placed("processes", ProcessesPanel(self._state, self._theme))

    @cached_property
    def values(self) -> ValuesPanel:
        """Histogram and statistics of the selected tensor."""
        from devexplorer.gui.objects.values import ValuesPanel

        panel = self._placed("values", ValuesPanel(self._state, self._theme))
        panel.set_selection(self._selection)
        panel.command_requested.connect(self._controller.send)
        panel.initialise_requested.connect(self._laboratory_dialogs.initialise)
        panel.edit_requested.connect(self._dialogs.edit_element)
        return panel

    @cached_property
    def split(self) -> SplitPanel:
        """Which part of a model goes where."""
        from devexplorer.gui.split.page import SplitPanel

        panel = self._placed("split", SplitPanel(self._state, self._theme))
        panel.set_selection(self._selection)
        panel.command_requested.connect(self._controller.send)
        return panel

    @cached_property
    def experiments(self) -> ExperimentsPanel:
        """Questions and short measurements."""
        from devexplorer.gui.experiments.page import ExperimentsPanel

        panel = self._placed("experiments", ExperimentsPanel(self._state, self._theme))
        panel.set_selection(self._selection)
        panel.command_requested.connect(self._controller.send)
        return panel

    @cached_property
    def doctor(self) -> DoctorPanel:
        """Which line puts a tensor on the wrong device."""
        from devexplorer.gui.doctor.page import DoctorPanel

        panel = self._placed("doctor", DoctorPanel(self._state, self._theme))
        panel.set_selection(self._selection)
        panel.command_requested.connect(self._controller.send)
        panel.target_chosen.connect(self.target_chosen)
        return panel

    @cached_property
    def fit(self) -> FitPanel:
        """Which card a model would fit, and how fast it would be there."""
        from devexplorer.gui.fit.page import FitPanel

        panel = self._placed("fit", FitPanel(self._state, self._theme))
        panel.set_selection(self._selection)
        panel.command_requested.connect(self._controller.send)
        return panel

    @cached_property
    def session(self) -> SessionPanel:
        """Everything done so far, as Python."""
        from devexplorer.gui.files.session_code import SessionPanel

        panel = self._placed("session", SessionPanel(self._state, self._theme))
        panel.save_requested.connect(self._laboratory_dialogs.save_script)
        panel.set_source(self._actions)
        return panel

    @cached_property
    def learn(self) -> LearnPanel:
        """Exercises that check themselves."""
        from devexplorer.gui.learn.page import LearnPanel

        panel = self._placed("learn", LearnPanel(self._state, self._theme, self.learned))
        panel.learned_changed.connect(lambda done: setattr(self, "learned", done))
        panel.virtual_offered.connect(lambda: self._controller.add_virtual(TWO_T4))
        return panel

    @cached_property
    def alerts(self) -> AlertsPanel:
        """What is wrong, and by which rules."""
        from devexplorer.gui.alerts.page import AlertsPanel

        panel = self._placed("alerts", AlertsPanel(self._state, self._theme, self._notifications))
        panel.rules_changed.connect(self._rules_changed)
        panel.notifications_changed.connect(self.notifications_changed)
        panel.dismissed.connect(self._dismiss_alert)
        return panel

    @cached_property
    def log(self) -> LogPanel:
        """What the engine and the user's models said."""
        from devexplorer.gui.shell.log import LogPanel

        return self._placed("log", LogPanel(self._state, self._theme))

    def _placed(self, name: str, panel: W) -> W:
        self._area(name).set_page(panel)
        chain(self.tabs.tabBar(), panel)
        cast(_Page, panel).refresh()
        return panel

    def _area(self, name: str) -> PageArea:
        return self.area(PAGES.index(name))

    def _make_current(self, _index: int = 0) -> None:
        getattr(self, PAGES[self.tabs.currentIndex()])

    def _made(self, *names: str) -> list[_Page]:
        return [self.__dict__[name] for name in names if name in self.__dict__]

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        QTimer.singleShot(AFTER_FIRST_PAINT_MS, self, self._make_current)

    # --- what the window calls
    # -----------------------------------------------------------------------------------------

    def refresh(self, changes: Change, now_unix_s: float) -> None:
        """Redraw the pages that something changed on; what runs measure, five times a second."""
        measured = changes & Change.POINTS and abs(now_unix_s - self._points_at_s) >= POINTS_S
        if measured or changes & (Change.DEVICES | Change.RUNS):
            self._points_at_s = now_unix_s
            self._refresh("benchmark", "roofline")
        if changes & Change.DEVICES:
            self._refresh("history")
        if changes & (Change.DETAILS | Change.DEVICES | Change.ENGINE):
            self._refresh("device", "topology", "memory")
        if changes & (Change.LABORATORY | Change.OBJECTS | Change.ANSWER | Change.DEVICES | Change.ENGINE):
            self._refresh("values", "split", "experiments")
        if changes & (Change.LABORATORY | Change.JOBS | Change.OBJECTS | Change.DEVICES | Change.ENGINE):
            self._refresh("doctor", "fit")
        if changes & (Change.JOBS | Change.ENGINE):
            self._refresh("session", "experiments")
        if changes & (Change.JOBS | Change.OBJECTS | Change.RUNS | Change.ENGINE | Change.DEVICES):
            self._refresh("learn")
        if changes & Change.ALERTS:
            self.show_alerts()
        if changes & Change.LOG:
            self._refresh("log")

    def refresh_texts(self) -> None:
        """Live numbers, twice a second."""
        self._refresh("benchmark", "processes")
        for name in ("memory", "device", "alerts"):
            if self._area(name).isVisible():
                self._refresh(name)

    def _refresh(self, *names: str) -> None:
        for page in self._made(*names):
            page.refresh()

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        self._theme = theme
        for page in self._made(*PAGES):
            page.set_theme(theme)

    def show_page(self, name: str) -> None:
        """Bring a page to the front."""
        self.tabs.setCurrentWidget(self._area(name))

    def set_device(self, device: str) -> None:
        """The device that was chosen on its card."""
        self._device = device
        if "device" in self.__dict__:
            self.device.set_device(device)
        if "memory" in self.__dict__:
            self.memory.show_device(device)

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """What is selected in the tree."""
        self._selection = targets
        for page in self._made("values", "split", "experiments", "doctor", "fit"):
            cast(_SelectionPage, page).set_selection(targets)

    def set_actions(self, source: SessionSource) -> None:
        """Who knows what was done."""
        self._actions = source
        if "session" in self.__dict__:
            self.session.set_source(source)

    # history

    def set_history(self, source: HistorySource) -> None:
        """Where runs are kept."""
        self._source = source
        if "history" in self.__dict__:
            self.history.set_source(source)
        if "roofline" in self.__dict__:
            self.roofline.set_source(source)

    def stored_runs_changed(self) -> None:
        """Runs were added, tagged or deleted."""
        self._refresh("history")
        if "roofline" in self.__dict__:
            self.roofline.reload()

    def history_problem(self, words: str) -> None:
        """What does not work with the history at present; empty: nothing."""
        self._history_problem = words
        if "history" in self.__dict__:
            self.history.show_problem(words)

    def _show_stored_run(self, number: int) -> None:
        self.show_page("history")
        self.history.show_run(number)

    # alerts

    def show_alerts(self) -> None:
        """The list, and how many alarms there are behind the tab's title."""
        self._refresh("alerts")
        self.count(PAGES.index("alerts"), sum(alert.level == ALARM for alert in self._state.alerts.active))

    def _rules_changed(self, rules: tuple[Rule, ...]) -> None:
        self._state.alerts.set_rules(rules)
        self.show_alerts()
        self.rules_changed.emit(rules)

    def _dismiss_alert(self, device: str, metric: str) -> None:
        self._state.alerts.dismiss(device, metric)
        self.show_alerts()
