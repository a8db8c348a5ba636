"""The one table of actions: toolbar, context menu, keyboard and command palette all read it. Main thread; no widgets
but QAction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from devexplorer.gui.actions.controller import TWO_T4, Controller

if TYPE_CHECKING:
    from devexplorer.gui.shell.dialogs import Dialogs
    from devexplorer.gui.shell.main_window import MainWindow


@dataclass(frozen=True)
class ActionSpec:
    """One thing that can be done: its words, its key, why it cannot be done now (None: it can), and how it is done."""

    id: str
    text: str
    tip: str
    run: Callable[[], None]
    why_not: Callable[[], str | None] = lambda: None
    key: str = ""
    icon: str = ""


def table(controller: Controller, dialogs: Dialogs, window: MainWindow) -> list[ActionSpec]:
    """Every action of the window, in the order of menus and palette."""
    c, d = controller, dialogs
    return [
        ActionSpec(
            "new_tensor", "New tensor…", "Create a tensor on a device", d.new_tensor, c.why_no_engine, "N", "tensor"
        ),
        ActionSpec(
            "add_virtual",
            "Add virtual GPUs…",
            "Choose profiles of simulated cards",
            d.virtual_gpus,
            c.why_no_engine,
            "",
            "virtual-gpu",
        ),
        ActionSpec(
            "add_two",
            "Add two virtual GPUs",
            "Two simulated Tesla T4",
            lambda: c.add_virtual(TWO_T4),
            c.why_no_engine,
            "",
            "virtual-gpu",
        ),
        ActionSpec(
            "forward",
            "Forward",
            "Run the selected model on the selected tensor, or on a sample input",
            c.forward,
            c.why_no_model,
            "F",
            "forward",
        ),
        ActionSpec(
            "backward",
            "Backward",
            "Forward, sum and backward: fills the gradients",
            c.backward,
            c.why_no_model,
            "Shift+F",
            "backward",
        ),
        ActionSpec(
            "add", "Add tensors", "Add the two selected tensors", lambda: c.combine("+"), c.why_no_pair, "+", "add"
        ),
        ActionSpec(
            "edit",
            "Edit an element…",
            "Set one element of the selected tensor or parameter",
            d.edit_element,
            c.why_no_element,
            "E",
            "",
        ),
        ActionSpec(
            "remove",
            "Remove",
            "Remove the selected objects and free their memory",
            c.remove,
            c.why_no_selection,
            "Del",
            "remove",
        ),
        ActionSpec("undo", "Undo", "Take back the newest change", c.undo, c.why_no_undo, "Ctrl+Z", "undo"),
        ActionSpec("redo", "Redo", "Do again what was undone last", c.redo, c.why_no_redo, "Ctrl+Shift+Z", "redo"),
        ActionSpec(
            "benchmark",
            "Benchmark",
            "Measure matrix products with the settings of the Benchmark tab",
            window.start_benchmark,
            c.why_no_engine,
            "B",
            "benchmark",
        ),
        ActionSpec(
            "stop",
            "Stop benchmark",
            "Stop after the current block; what was measured is kept",
            c.stop_benchmark,
            c.why_no_stop,
            "Shift+B",
            "stop",
        ),
        ActionSpec(
            "pause",
            "Pause plots",
            "Hold the plots still to pan and zoom; again to follow live",
            window.toggle_pause,
            lambda: None,
            "Space",
            "pause",
        ),
        ActionSpec(
            "filter",
            "Filter objects",
            "Put the cursor into the filter",
            window.focus_filter,
            lambda: None,
            "/",
            "filter",
        ),
        ActionSpec(
            "tour",
            "Tour",
            "Watch the main job being done: build, move, measure, undo",
            window.tour_requested.emit,
            c.why_no_tour,
            "",
            "play",
        ),
        ActionSpec(
            "theme", "Light or dark theme", "Change the theme", window.toggle_theme, lambda: None, "Ctrl+T", "theme"
        ),
        ActionSpec(
            "threads",
            "CPU threads…",
            "How many threads one operation on the CPU uses",
            d.threads,
            c.why_no_engine,
            "",
            "cpu",
        ),
        ActionSpec(
            "visible",
            "CUDA_VISIBLE_DEVICES…",
            "Choose which cards the engine sees, and in which order; it is restarted",
            d.visible_devices,
            c.why_no_engine,
        ),
        ActionSpec(
            "record",
            "Record…",
            "Write every reading to a file that can be replayed",
            d.record,
            window.why_no_recording,
            "Ctrl+R",
        ),
        ActionSpec(
            "stop_recording",
            "Stop recording",
            "End the recording and close its file",
            window.stop_recording.emit,
            window.why_no_stop_recording,
        ),
        ActionSpec(
            "open",
            "Open…",
            "Models, tensors, recordings, snapshots: any number at once",
            d.open_anything,
            lambda: None,
            "Ctrl+O",
            "open",
        ),
        ActionSpec(
            "replay", "Open a recording…", "Show a recording in this window, with a time slider", d.replay, lambda: None
        ),
        ActionSpec(
            "snapshot",
            "Open an allocator snapshot…",
            "Browse a snapshot in PyTorch's format",
            d.open_snapshot,
            c.why_no_engine,
        ),
        ActionSpec(
            "restart",
            "Restart engine",
            "End the engine process, free all its memory, rebuild the workspace",
            window.restart_requested.emit,
            lambda: None,
            "",
            "",
        ),
        ActionSpec("quit", "Quit", "Close the window and end the engine", window.quit, lambda: None, "Ctrl+Q", ""),
        ActionSpec("words", "Words", "What the words in this window mean", d.words, lambda: None, "F1", ""),
    ]


def make_qactions(specs: list[ActionSpec], parent: QWidget) -> dict[str, QAction]:
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


def refresh(specs: list[ActionSpec], actions: dict[str, QAction]) -> None:
    """Enable what can be done now; a disabled action says why in its tooltip."""
    for spec in specs:
        action, reason = actions[spec.id], spec.why_not()
        if action.isEnabled() != (reason is None):
            action.setEnabled(reason is None)
        key = f" ({spec.key})" if spec.key else ""
        tip = reason or f"{spec.tip}{key}"
        if action.toolTip() != tip:
            action.setToolTip(tip)
