"""The paths of the first minute: what an empty window offers to do. Data; main thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QApplication, QDialog, QPushButton, QWidget

from devexplorer.core.records import OpenModel
from devexplorer.gui.files.open_model import OpenModelDialog
from devexplorer.gui.files.trust import TrustDialog
from devexplorer.gui.objects.ways_in import WAYS
from devexplorer.gui.shell.guide import USED, Path, Place, Step
from devexplorer.gui.widgets import can_add_virtual

if TYPE_CHECKING:
    from devexplorer.gui.shell.main_window import MainWindow


POINTS = 120
"""Blocks of a benchmark to watch: about six seconds."""


def _model_is_here(window: MainWindow) -> bool:
    return any(item.kind == "model" for item in window.state.objects.values())


def _model_is_selected(window: MainWindow) -> bool:
    return window.controller.why_no_model() is None


def _model_is_on_a_gpu(window: MainWindow) -> bool:
    models = (item for item in window.state.objects.values() if item.kind == "model")
    return any("cpu" not in item.bytes_by_device for item in models)


def _own_model_is_here(window: MainWindow) -> bool:
    recipes = window.state.engine.recipes if window.state.engine is not None else {}
    return any(item.kind == "model" and item.source not in recipes for item in window.state.objects.values())


def _is_measured(window: MainWindow) -> bool:
    return any(run.points for run in window.state.runs.values())


def _gpu_is_measured(window: MainWindow) -> bool:
    if not _is_measured(window):
        return False
    from devexplorer.core.benchmark.kinds import devices_of  # loaded with the first run

    return any(run.points and set(devices_of(run.spec)) - {"cpu"} for run in window.state.runs.values())


def _points(window: MainWindow) -> int:
    """Blocks of the newest run."""
    return next(reversed(window.state.runs.values())).points if window.state.runs else 0


def _memory_rose(window: MainWindow) -> bool:
    """Whether the curve has the step of the newest move, with its marker."""
    marker = next(reversed(window.state.markers), None)
    device = None if marker is None else window.state.devices.get(marker.device or "")
    if device is None:
        return False
    used = [value for value in device.history.readings(USED)[1] if value == value]
    size = max((sum(item.bytes_by_device.values()) for item in window.state.objects.values()), default=0)
    return bool(used) and max(used) - used[0] >= 0.9 * size


def _has_gpu(window: MainWindow) -> bool:
    return len(window.state.usable_devices) > 1


def _is_quiet(window: MainWindow) -> bool:
    return not window.state.active_runs


def _asked(*kinds: type[QDialog]) -> QDialog | None:
    """The dialog of these kinds that is open, maybe below one that it opened."""
    dialog = QApplication.activeModalWidget()
    while dialog is not None and not isinstance(dialog, kinds):
        parent = dialog.parentWidget()
        dialog = None if parent is None else parent.window()
    return dialog if isinstance(dialog, kinds) else None


def _is_opening(window: MainWindow) -> bool:
    return window.state.running(OpenModel) is not None or _own_model_is_here(window)


def _file_field(_window: MainWindow) -> Place:
    dialog = _asked(OpenModelDialog)
    return dialog.file if isinstance(dialog, OpenModelDialog) else None


def _run_button(_window: MainWindow) -> Place:
    dialog = _asked(TrustDialog)
    return dialog.accept_button if isinstance(dialog, TrustDialog) else None


def _tool(window: MainWindow, button: QPushButton) -> QWidget:
    """A button of the toolbar, or what it is in where there is no room."""
    return window.toolbar.more_button if button.isHidden() else button


def _card(window: MainWindow) -> Place:
    """That of the first GPU, or of the CPU: with many devices the last ones are scrolled away."""
    cards = list(window.workbench.cards.items.values())
    return cards[min(1, len(cards) - 1)] if cards else None


def _tab(window: MainWindow, name: str) -> Place:
    tabs = window.bottom_dock.tabs
    return tabs.tabBar(), tabs.tabBar().tabRect(tabs.indexOf(window.bottom_dock.areas[name]))


def _is_without_errors(window: MainWindow) -> bool:
    found = (finding for diagnosis in window.state.diagnoses.values() for finding in diagnosis.problems)
    return not any(finding.severity == "error" for finding in found)


def _doctor(window: MainWindow) -> Place:
    """What was found; or the way there."""
    dock = window.bottom_dock
    return dock.areas["doctor"] if dock.current == "doctor" else _tab(window, "doctor")


def _plan_button(window: MainWindow) -> Place:
    dock = window.bottom_dock
    if dock.current != "fit":
        return _tab(window, "fit")
    page = dock.page("fit")
    place: QWidget = page.way_to_plan if page.running is None else page
    return place


def _open_tab(words: str, name: str, layout: str) -> Step:
    return Step(words, lambda w: _tab(w, name), lambda w: w.bottom_dock.current == name, layout=layout)


def _second_device() -> Step:
    return Step(
        "There is only the CPU here. Add two virtual GPUs: simulated, with the memory and speed of real cards.",
        lambda w: w.devices.offer_button if w.devices.offer.isVisible() else w.devices.add_button,
        _has_gpu,
        layout="explore",
        picture="2-offer-taken",
    )


def _select() -> Step:
    """What was built or opened is selected: only where the user has chosen something else."""
    words = "Select the model in the list."
    return Step(words, lambda w: w.objects.tree, _model_is_selected, layout="explore", seldom=True)


def _move() -> tuple[Step, ...]:
    return (
        _second_device(),
        Step(
            "Click “Build” and choose vgg16-bn.",
            lambda w: w.toolbar.build,
            _model_is_here,
            "vgg16-bn",
            picture="2-built",
        ),
        _select(),
        Step(
            "Click “Move to” and choose {device}, or drag the model onto its card.",
            lambda w: w.toolbar.move_button,
            _model_is_on_a_gpu,
            "{device}",
            also=lambda w: (w.objects.tree.viewport(), w.objects.current_row()),
        ),
        Step(
            "A line marks the move.{rise} The first use of a GPU adds a CUDA context; a later move can reuse memory"
            " that PyTorch has cached.",
            lambda w: w.memory,
            layout="explore",
            seen=_memory_rose,
            picture="3-moved",
        ),
        Step("Click “Benchmark”: matrix products on a GPU are timed.", lambda w: w.toolbar.benchmark, _gpu_is_measured),
        Step(
            "This is the throughput, block by block. Below is the median of the run.",
            lambda w: w.throughput,
            layout="measure",
            seen=lambda w: _points(w) >= POINTS,
            picture="4-benchmark",
        ),
        Step("That was the main job. “Learn” has short exercises for the rest.", lambda w: w.rail.buttons["learn"]),
    )


def _on_the_cpu() -> tuple[Step, ...]:
    """What there is to do where there is no GPU and cannot be a virtual one."""
    _, build, select, _, _, _, throughput, end = _move()
    return (
        Step(
            "No GPU was found, and there are no virtual ones: {missing} What needs no second device works on the CPU."
            " For a move, choose another Python or connect to another machine here.",
            lambda w: w.toolbar.machine_button,
        ),
        build,
        select,
        Step(
            "This is the memory in use: the model is in it now. On a GPU the same plot shows what a move takes.",
            lambda w: w.memory,
            layout="explore",
        ),
        Step("Click “Benchmark”: matrix products on the CPU are timed.", lambda w: w.toolbar.benchmark, _is_measured),
        throughput,
        end,
    )


def _watch() -> tuple[Step, ...]:
    return (
        Step(
            "Click “Monitor” to see every device at a glance.",
            lambda w: w.rail.buttons["monitor"],
            lambda w: w.workbench.layout_shown.name == "monitor",
        ),
        Step(
            "Click the card of a device.",
            _card,
            lambda w: w.context.device is not None,
            layout="monitor",
        ),
        _open_tab("Open “Memory” to see what uses its memory.", "memory", "monitor"),
        _open_tab("Open “Alerts”: it tells you when a device gets hot or full.", "alerts", "monitor"),
        Step("“Record” writes every reading to a file that you can replay.", lambda w: w.record),
    )


def _open(*between: Step) -> tuple[Step, ...]:
    return (
        Step(
            "Click “File” and choose “Open a model…”.",
            lambda w: w.toolbar.open_button,
            lambda w: _asked(OpenModelDialog, TrustDialog) or _is_opening(w),
            "Open a model",
        ),
        Step(
            "Choose your Python file and what creates the model in it, then click “Open”.",
            _file_field,
            lambda w: _asked(TrustDialog) or _is_opening(w),
        ),
        Step("Your code runs only if you agree, and never in the window's process.", _run_button, _is_opening),
        Step(
            "The model is being built. This may take a moment.",
            lambda w: w.objects if w.state.running(OpenModel) is not None else None,
            _own_model_is_here,
        ),
        *between,
        _select(),
        Step(
            "Click “Check”: it finds the line that would put a tensor on the wrong device.",
            lambda w: _tool(w, w.toolbar.check),
            lambda w: bool(w.state.diagnoses),
        ),
        Step(
            "Errors were found. Choose one to see its line; “Apply patch” writes the fix into your file. Then “Rebuild”"
            " the model and “Check” it again.",
            _doctor,
            _is_without_errors,
            layout="explore",
            seldom=True,
            optional=True,
        ),
        _open_tab("Open “Fit” to see on which cards the model can be trained.", "fit", "explore"),
        Step(
            "Click “Plan”: a training step is planned for every card, without running it.",
            _plan_button,
            lambda w: w.state.fit is not None,
            layout="explore",
        ),
        Step("“File” saves all of it as one workspace file, with Ctrl+S.", lambda w: w.toolbar.open_button),
    )


def _tour() -> tuple[Step, ...]:
    """The main job with what leads to it where there is one device, and what takes it back."""
    stop = Step("Click “Stop”: what was measured is kept.", lambda w: w.toolbar.benchmark, _is_quiet)
    return (
        Step(
            "Show the last 30 seconds.",
            lambda w: w.throughput.time_control,
            lambda w: w.axis.span_s == 30,
            "Show",
        ),
        Step(
            "Click “Benchmark”: the CPU can be measured too.",
            lambda w: w.toolbar.benchmark,
            lambda w: _has_gpu(w) or _is_measured(w),
        ),
        Step("This is its throughput.", lambda w: w.throughput, seen=lambda w: _points(w) >= POINTS // 2),
        stop,
        Step(
            "With one device nothing can move; “Move to” says why.",
            lambda w: w.devices,
            layout="explore",
            seen=lambda w: w.controller.why_no_move() is not None and w.devices.offer.isVisible(),
            picture="2-one-device",
        ),
        *_move()[:-1],
        stop,
        Step(
            "“Undo” takes the move back.",
            lambda w: _tool(w, w.toolbar.undo),
            lambda w: not _model_is_on_a_gpu(w),
            "Undo",
        ),
        Step(
            "The model is on the CPU again; PyTorch keeps the memory of the GPU for the next one.",
            lambda w: w.objects,
            layout="explore",
            picture="5-undone",
        ),
    )


TOUR = Path("Tour", _tour(), action="")
"""What the tour clicks through."""
PATHS = {
    way.name: Path(way.title, steps)
    for way, steps in zip(WAYS, (_move(), _watch(), _open(_second_device())), strict=True)
}
"""By the name of the way in."""
WITHOUT_GPU = PATHS | {"move": Path(WAYS[0].title, _on_the_cpu()), "open": Path(WAYS[2].title, _open())}
"""The same where there is no GPU and cannot be a virtual one."""


def path_of(way: str, window: MainWindow) -> Path:
    """The path that can be gone to its end on the machine on show."""
    state = window.state
    dead_end = state.engine is not None and not (_has_gpu(window) or can_add_virtual(state))
    return (WITHOUT_GPU if dead_end else PATHS)[way]
