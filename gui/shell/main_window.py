"""The window: lists its tabs and actions, puts the panels together, connects their signals to the controller, redraws
what the heartbeat says has changed.

Main thread only. Panels know the state, never each other and never the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from PySide6.QtCore import QPoint, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QCloseEvent,
    QDragEnterEvent,
    QDropEvent,
    QGuiApplication,
    QHideEvent,
    QKeyEvent,
    QKeySequence,
    QShortcut,
    QShowEvent,
)
from PySide6.QtWidgets import QApplication, QWidget

from devexplorer.core.feature import named
from devexplorer.core.session import Change, Settings, State
from devexplorer.gui.actions import (
    FILE,
    MACHINE,
    ActionSpec,
    Controller,
    TabSpec,
    WindowContext,
    make_qactions,
    refresh,
)
from devexplorer.gui.actions.context import safely
from devexplorer.gui.benchmark import tab as benchmark
from devexplorer.gui.devices import tab as devices
from devexplorer.gui.devices.panel import DevicesPanel
from devexplorer.gui.devices.tab import add_virtual_gpus
from devexplorer.gui.forms.dropped_files import dropped_files
from devexplorer.gui.log import tab as log
from devexplorer.gui.objects import actions as objects
from devexplorer.gui.objects.inspector import InspectorPanel
from devexplorer.gui.objects.panel import GUIDED, ObjectsPanel
from devexplorer.gui.plots.time_axis import FORMATS, TimeAxis
from devexplorer.gui.shell.bars.menus import (
    context_menu,
    device_menu,
    measuring_choices,
    move_order,
    palette_choices,
    reading_choices,
)
from devexplorer.gui.shell.bars.status_bar import News, StatusBar
from devexplorer.gui.shell.bars.toolbar import Toolbar
from devexplorer.gui.shell.bottom_dock import BottomDock
from devexplorer.gui.shell.layouts import LAYOUTS
from devexplorer.gui.shell.workbench import GAP_PX, KeptFocus, Workbench
from devexplorer.gui.timelines.slot import PlotSlot
from devexplorer.gui.widgets import (
    ExportingWindow,
    OnScreen,
    TypingKeys,
    after_paint,
    chain,
    current_theme,
    digit_key,
    first_size,
    hbox,
    holder,
    popup_menu,
    reading_order,
    show_tables,
    vbox,
    why_fixed,
)
from devexplorer.gui.widgets import theme as themes
from devexplorer.gui.widgets.notifications import Notifications

if TYPE_CHECKING:
    from devexplorer.gui.shell.guide import Guide


def action_table(context: WindowContext, window: MainWindow) -> list[ActionSpec]:
    """All of them; `make_qactions` makes them real."""
    return [
        *objects.actions(context),
        *devices.actions(context),
        *benchmark.actions(context),
        *(action for actions in named("actions") for action in actions(context)),
        *(action for tab in window.bottom_dock.specs for action in tab.actions(context)),
        *_window_actions(context, window),
    ]


def _window_actions(context: WindowContext, window: MainWindow) -> list[ActionSpec]:
    give_room, room = window.workbench.give_room, window.workbench.room
    return [
        ActionSpec("pause", "Pause plots", "Hold the plots still to pan and zoom; again to follow live",
                   window.toggle_pause, key="Space"),
        ActionSpec("table", "Show as table…", "The numbers of a plot to read and to copy; that with the keyboard first",
                   window.show_table, key="Ctrl+Shift+T"),
        ActionSpec("filter", "Filter objects", "Put the cursor into the filter", window.objects.focus_filter, key="/"),
        ActionSpec("unfold", "Unfold all", "Show every part of what is selected, as * does", window.objects.unfold),
        ActionSpec("next_panel", "Next panel", "Give the keyboard to the next panel; Shift goes back",
                   partial(window.workbench.go_to_panel, 1), key="F6"),
        ActionSpec("last_panel", "Previous panel", "Give the keyboard to the panel before",
                   partial(window.workbench.go_to_panel, -1), key="Shift+F6"),
        ActionSpec("enlarge", "Enlarge the panel", "Give the panel with the keyboard all the room, as a double click on"
                   " its heading does; Escape brings the rest back", partial(give_room, room.enlarge), key="F11"),
        ActionSpec("fold", "Fold or unfold the panel", "Leave only the heading of the panel with the keyboard",
                   partial(give_room, room.toggle_fold), key="Ctrl+Shift+F"),
        ActionSpec("detach", "Panel in a separate window", "For a second screen; closing it brings the panel back",
                   partial(give_room, room.detach), key="Ctrl+Shift+D"),
        ActionSpec("reset_layout", "Reset the layout", "Give the panels of this layout their first places and sizes",
                   window.workbench.reset_layout, menu=MACHINE, section=9),
        *(ActionSpec(f"layout {layout.name}", f"Layout {layout.title}", layout.tooltip,
                     partial(window.workbench.show_layout, layout.name), key=f"Alt+{number}")
          for number, layout in enumerate(LAYOUTS, start=1)),
        ActionSpec("guided", "First steps: Move a model", "A guided minute: build, move, measure",
                   partial(window.begin, GUIDED), context.controller.why_no_engine),
        ActionSpec("tour", "Tour", "Watch the main job being done: build, move, measure, undo",
                   context.tour_requested.emit, context.controller.why_no_tour,
                   asks=Change.OBJECTS | Change.RUNS | Change.ENGINE),
        ActionSpec("theme", "Next theme", "Dark, light or high contrast", window.change_theme, key="Ctrl+T"),
        *(ActionSpec(f"export {kind}", f"Export {words[:1].lower()}{words[1:]}…", "What the plots show, to a file",
                     partial(window.export_requested.emit, None, kind))
          for kind, words in FORMATS.items()),
        ActionSpec("restart", "Restart engine", "End the engine process, free all its memory, rebuild the workspace",
                   context.restart_requested.emit, lambda: why_fixed(context.state) or None, asks=Change.ENGINE),
        ActionSpec("quit", "Quit", "Close the window and end the engine", window.close, key="Ctrl+Q", menu=FILE,
                   section=4),
        ActionSpec("words", "Glossary", "Help: what the terms in this window mean", partial(_show_glossary, context),
                   key="F1"),
    ]  # fmt: skip


def _show_glossary(context: WindowContext) -> None:
    from devexplorer.gui.forms.glossary import GlossaryDialog  # when it is asked for

    context.open_dialog(GlossaryDialog(context.window))


# The tabs of the window, from left to right: the kernel's, and those that features name.

_TABS: tuple[TabSpec[Any], ...] = (
    benchmark.TAB,
    devices.DETAILS,
    devices.PROCESSES,
    log.TAB,
)
TABS = tuple(sorted((*_TABS, *named("tab")), key=attrgetter("order")))


DEFAULT_SIZE_PX = (1440, 900)


class MainWindow(ExportingWindow):
    """Driven by `Heartbeat` through `refresh` and `refresh_texts`."""

    hidden_changed = Signal(bool)

    def __init__(
        self, state: State, controller: Controller, settings: Settings, tabs: Sequence[TabSpec[Any]] = TABS
    ) -> None:
        super().__init__()
        self.setWindowTitle("DevExplorer[*]")
        self.state, self.controller = state, controller
        state.follow(settings)
        self.context = WindowContext(self, state, controller, settings, self.hint)
        self.axis = TimeAxis()
        self.axis.set_span(settings.span_s)
        self.bottom_dock = BottomDock(self.context, tabs)
        self.objects = ObjectsPanel(state)
        self.devices = DevicesPanel(state)
        self.inspector = InspectorPanel(state)
        self.memory = PlotSlot(state, self.axis, settings.left_plot, time_control=True)
        self.throughput = PlotSlot(state, self.axis, settings.right_plot)
        self.slots = (self.memory, self.throughput)
        panels = {
            "devices": self.devices, "objects": self.objects, "inspector": self.inspector,
            "memory": self.memory, "throughput": self.throughput, "pages": self.bottom_dock,
        }  # fmt: skip
        self.workbench = Workbench(self.context, self.bottom_dock, self.axis, panels, settings)
        self.status = StatusBar(controller, (self.objects, self.devices, self.workbench))
        self.banner = self.status.banner
        self.context.axis, self.context.banner = self.axis, self.banner
        self.context.add_bar, self.context.add_status = self.add_bar, self.status.add
        self.context.again = self.objects.again
        self.context.notifications = Notifications(self.windowIcon(), lambda: self.context.settings.notifications)
        self._follow_state()
        self.specs: list[ActionSpec] = action_table(self.context, self)
        self.actions_by_id = make_qactions(self.specs, self)
        refresh(self.specs, self.actions_by_id)
        self.toolbar = Toolbar(controller, self.specs, self.actions_by_id)
        self.context.file_menu = self.toolbar.open_button.menu()
        if "open_model" not in self.actions_by_id:  # of a feature that is not there
            self.objects.empty.leave_out("open")
        copy_menu = self.toolbar.buttons["copy"].menu()
        copy_menu.aboutToShow.connect(lambda: self.context.others.offer(copy_menu))
        self.news = News(self.context)
        for begin in named("window"):
            begin(self.context)
        self.may_close: Callable[[], bool] = lambda: True
        """Asks where something would be lost; the application sets it while there is an engine that can save."""
        self._move_shortcuts: list[QShortcut] = []
        self.rail = self.workbench.rail
        self.rail.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.rail.customContextMenuRequested.connect(self._rail_menu)
        self.workbench.arranged.connect(self._show_tools)
        self._show_tools()
        self._lay_out()
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        self._typing = TypingKeys(app, self)
        self._kept_focus = KeptFocus(self.workbench, self)
        self._on_screen = OnScreen(self)
        self.context.current_settings = self.settings
        self._connect()
        self._follow_actions()
        self._bind_move_keys()
        self._restore()

    # --- composition

    def _lay_out(self) -> None:
        centre, column = QWidget(), QWidget()
        layout = vbox(self.toolbar, spacing=0, parent=column)
        self._column = layout
        layout.addWidget(holder(vbox(self.workbench, margins=GAP_PX)), 1)
        layout.addWidget(self.status)
        hbox(self.rail, (column, 1), spacing=0, parent=centre)
        self.setCentralWidget(centre)
        self.workbench.arranged.connect(self._put_in_order_soon)

    def _show_tools(self) -> None:
        self.toolbar.show_layout(self.workbench.layout_shown.name)

    def _put_in_order_soon(self) -> None:
        after_paint(self, self._put_in_order)  # nobody presses Tab before

    def _put_in_order(self) -> None:
        first, *rest = self.rail.buttons.values()
        chain(first, *rest, self.toolbar, self.workbench.root, self.status)

    def add_bar(self, bar: QWidget) -> None:
        """Put a line above the panels."""
        bar.hide()
        self._column.insertWidget(1, bar)
        chain([*reading_order(self.toolbar)][-1], bar)

    @cached_property
    def guide(self) -> Guide:
        """Leads through the first minute; made when it is first asked for."""
        from devexplorer.gui.shell.guide import Guide

        return Guide(self)

    def begin(self, way: str) -> None:
        """Go one of the ways in of an empty workspace."""
        if way == "build":
            self.toolbar.buttons["build"].showMenu()
        elif way == "open":
            self.actions_by_id["open_model"].trigger()
        elif way == "watch":
            self.workbench.show_layout("monitor")
        else:
            from devexplorer.gui.shell.guide import MOVE

            self.guide.start(MOVE)

    def _connect(self) -> None:
        c = self.controller
        self.toolbar.palette_button.clicked.connect(self.show_palette)
        QShortcut(QKeySequence("Ctrl+K"), self, self.show_palette)
        self.devices.dropped.connect(lambda targets, device: c.move(device, targets))
        self.devices.add_virtual_requested.connect(partial(add_virtual_gpus, self.context))
        self.devices.virtual_offered.connect(c.add_two_virtual)
        self.devices.selected.connect(self.context.select_device)
        self.devices.menu_requested.connect(self._device_menu)
        self.context.settings_changed.connect(self.state.follow)
        self.context.layout_opened.connect(self._show_saved_layout)
        self.context.device_selected.connect(self.inspector.set_device)
        self.context.device_requested.connect(self.devices.choose)
        self.context.target_requested.connect(self.objects.select_near)
        self.context.notifications.clicked.connect(self._come_forward)
        self.objects.selection_changed.connect(self._selection_changed)
        self.objects.context_menu_requested.connect(self._context_menu)
        self.objects.way_chosen.connect(self.begin)
        self.objects.finding_opened.connect(self.show_finding)
        self.objects.drag_started.connect(self.devices.show_verdicts)
        self.objects.drag_ended.connect(lambda: self.devices.show_verdicts(()))
        self.inspector.command_requested.connect(c.send)
        self.inspector.doctor_requested.connect(lambda name: self.show_finding(name, 0))
        self.objects.tree.clicked.connect(self.inspector.show_selection)
        self.context.work_changed.connect(self.status.show_work)
        self.status.session.clicked.connect(self.bottom_dock.show_apart)
        self.status.start.clicked.connect(self.context.restart_requested)
        if "python" in self.actions_by_id:
            self.status.python.clicked.connect(self.actions_by_id["python"].trigger)

    def _follow_state(self) -> None:
        """The panels, in this order, before what features have."""
        follow = self.context.follow
        follow(Change.DEVICES, self.devices.refresh_devices)
        follow(Change.DEVICES, self.objects.refresh_devices)
        follow(Change.DEVICES, self._bind_move_keys)
        # the tree shows the findings of the doctor
        follow(Change.OBJECTS | Change.LABORATORY | Change.ENGINE, self.objects.refresh)
        follow(Change.OBJECTS | Change.ANSWER | Change.ENGINE, self.inspector.refresh)
        follow(Change.ENGINE | Change.UNDO | Change.JOBS | Change.RUNS, self.status.refresh)

    def _follow_actions(self) -> None:
        """What can be done, after everything that it depends on."""
        follow = self.context.follow
        follow(Change.DEVICES | Change.ENGINE, self.toolbar.refresh_menus)
        for asks in {spec.asks for spec in self.specs}:
            asking = [spec for spec in self.specs if spec.asks == asks]
            follow(asks, partial(refresh, asking, self.actions_by_id))
        follow(Change.OBJECTS | Change.DEVICES | Change.ENGINE, self.toolbar.refresh)

    # --- what the heartbeat calls

    def refresh(self, changes: Change, now_unix_s: float) -> None:
        """Redraw what changed; the plots move with time anyway."""
        self.axis.advance(now_unix_s)
        for slot in self.slots:
            if slot.isVisible():
                safely(slot.refresh, now_unix_s)
        safely(self.workbench.refresh, changes, now_unix_s)
        safely(self.bottom_dock.refresh, changes, now_unix_s)
        safely(self.context.refresh, changes)

    def refresh_texts(self) -> None:
        """Live numbers, once or twice a second."""
        self.devices.refresh_texts()
        self.inspector.refresh_texts()
        self.workbench.refresh_texts()
        self.context.texts_due.emit()
        self.bottom_dock.refresh_texts()
        self.status.refresh()

    def refresh_actions(self) -> None:
        """Enable what can be done now, everywhere."""
        refresh(self.specs, self.actions_by_id)
        self.toolbar.refresh()

    def say(self, text: str, *, error: bool = False) -> None:
        """One line in the status bar."""
        self.banner.say(text, error=error)

    def hint(self, text: str) -> None:
        """One line about what was just tried; it goes by itself."""
        self.banner.say(text, passing=True)

    def _come_forward(self) -> None:
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.raise_()
        self.activateWindow()

    # --- selection, menus, palette

    def _selection_changed(self, targets: tuple[str, ...]) -> None:
        self.inspector.set_selection(targets)
        self.context.select_targets(targets)
        self.refresh_actions()

    def _bind_move_keys(self) -> None:
        for shortcut in self._move_shortcuts:
            shortcut.setEnabled(False)
            shortcut.deleteLater()
        self._move_shortcuts = []
        for name, key in move_order(self.state):
            if key:
                shortcut = QShortcut(QKeySequence(key), self, context=Qt.ShortcutContext.ApplicationShortcut)
                shortcut.activated.connect(partial(self.controller.move, name))
                self._move_shortcuts.append(shortcut)

    def _context_menu(self, where: QPoint) -> None:
        context_menu(self, self.controller, self.specs, self.actions_by_id, self.context.others.offer).popup(where)

    def _rail_menu(self, where: QPoint) -> None:
        menu = popup_menu(self)
        menu.addAction(self.actions_by_id["reset_layout"])
        menu.popup(self.rail.mapToGlobal(where))

    def _device_menu(self, device: str, where: QPoint) -> None:
        device_menu(self.context, device, [slot.plot.legend for slot in self.slots]).popup(where)

    def show_palette(self) -> None:
        """Open the command palette."""
        from devexplorer.gui.actions.palette import CommandPalette

        choices = palette_choices(self.specs, self.controller)
        choices += measuring_choices(self.context) + reading_choices(self.context)
        self.context.open_dialog(CommandPalette(choices, self))

    # --- actions of the table that need the window

    def show_finding(self, name: str, number: int) -> None:
        """The line of one of the doctor's findings."""
        doctor: Any = self.context.show_tab("doctor")
        doctor.show_finding(name, number)

    def toggle_pause(self) -> None:
        self.axis.set_paused(not self.axis.paused)

    def show_table(self) -> None:
        """The numbers of the plots shown, that of the one with the keyboard first."""
        focus = QApplication.focusWidget() or self.focusWidget()  # of a panel with a window of its own
        plots = [plot for plot in self.findChildren(QWidget) if hasattr(plot, "figures") and plot.isVisible()]
        plots.sort(key=lambda plot: focus is None or not (plot is focus or plot.isAncestorOf(focus)))
        if not show_tables(self, plots):
            self.hint("No plot shown has values yet.")

    def change_theme(self) -> None:
        """Give the application its next theme."""
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        themes.apply(app, themes.next_theme())

    # --- what is remembered

    def settings(self) -> Settings:
        """What to remember for the next start."""
        return replace(
            self.context.settings,
            theme=current_theme().name,
            tabs=self.bottom_dock.in_front,
            **self.workbench.remembered(),
            span_s=self.axis.span_s,
            left_plot=self.memory.choice,
            right_plot=self.throughput.choice,
        )

    def _show_saved_layout(self, settings: Settings) -> None:
        self.workbench.show_saved(settings)
        self.axis.set_span(settings.span_s)
        self.memory.set_choice(settings.left_plot)
        self.throughput.set_choice(settings.right_plot)

    def _restore(self) -> None:
        self.resize(QSize(*DEFAULT_SIZE_PX))
        if QGuiApplication.platformName() != "offscreen":  # whose screen of 800 × 800 is not a real one
            self.resize(first_size(self.size(), self.screen().availableSize()))
        self.workbench.restore_window(self)

    # --- Qt

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not event.spontaneous():  # not when it was minimised
            for child in self.findChildren(QWidget):
                child.ensurePolished()  # the style says how small each part can be
            self.workbench.share_again()
            self._put_in_order_soon()
        if self.focusWidget() is None:
            self.workbench.take_focus()  # Qt would choose the first button of the toolbar
        self._on_screen.shown()
        self.hidden_changed.emit(False)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if dropped_files(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        files = dropped_files(event.mimeData())
        if files:
            event.setDropAction(Qt.DropAction.CopyAction)  # the file stays where it is
            event.accept()
            # accept the drop before a modal dialog opens
            QTimer.singleShot(0, self, lambda: self.context.files_chosen.emit(files))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """What no widget has taken: a digit that Qt's shortcuts do not hear on this keyboard."""
        if not (key := digit_key(event)):
            super().keyPressEvent(event)
            return
        for device, move_key in move_order(self.state):
            if move_key == key:
                self.controller.move(device)
        for action in self.actions_by_id.values():
            if action.shortcut() == QKeySequence(key):
                action.trigger()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.hidden_changed.emit(True)

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self.may_close():
            event.ignore()
            return
        self.workbench.room.keep_windows()
        super().closeEvent(event)
        app = QApplication.instance()
        if app is not None:
            app.quit()
