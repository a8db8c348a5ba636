"""Every action of the window, in the order of the palette. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.feature import named
from devexplorer.core.session import Change
from devexplorer.gui.actions import FILE, MACHINE, ActionSpec, WindowContext
from devexplorer.gui.benchmark import actions as benchmark
from devexplorer.gui.devices import actions as devices
from devexplorer.gui.objects import actions as objects
from devexplorer.gui.objects.panel import GUIDED
from devexplorer.gui.plots.time_axis import FORMATS
from devexplorer.gui.shell.layouts import LAYOUTS
from devexplorer.gui.widgets import why_fixed

if TYPE_CHECKING:
    from devexplorer.gui.shell.main_window import MainWindow


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
