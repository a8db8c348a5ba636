"""Leads through a path of steps on the window's own controls, until the user leaves it; the guided path through the
main job, and the tour, which clicks through it. Main thread.

Nothing is clicked for the user: each beat looks what is the case, points at the control of the step that comes next,
and goes back where the user took away what a step needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QPoint, QRect, Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QAbstractButton, QLineEdit, QPushButton, QTabBar, QToolButton, QWidget

from devexplorer.core.base import bytes_text
from devexplorer.gui.shell.bars.menus import second_device
from devexplorer.gui.shell.layouts import BY_NAME
from devexplorer.gui.widgets.callout import Callout, Ring

if TYPE_CHECKING:
    from devexplorer.core.session import State
    from devexplorer.gui.benchmark.base_page import BenchPage
    from devexplorer.gui.shell.main_window import MainWindow


USED, SETTLED_S = "memory_used_bytes", 0.5
"""The reading that a move changes, and how long before and after a move it is taken."""
BACK_AFTER = 10
"""Beats for which a control has to be gone: a dialog closes before the command that it sent has begun."""
SMALL, CARD = 0.3, 3.0
"""What it weighs to cover a button or a field, which is less than to be far from what the callout is about; and to
cover a card or tabs."""
Place = QWidget | tuple[QWidget, QRect] | None
"""A control, or a part of one; None: there is none now."""


@dataclass(frozen=True)
class GuideStep:
    """One thing to do or to look at, on one control."""

    words: str
    """`{device}` is the device that a tutorial moves to, `{rise}` what the newest move did to the memory."""
    control: Callable[[MainWindow], Place]
    done: Callable[[MainWindow], object] | None = None
    """Whether it is done; None: something to look at, with a button to go on."""
    line: str = ""
    """What to choose in the control's menu, as it begins there."""
    layout: str = ""
    """The layout that has the control; empty: all have it."""
    seldom: bool = False
    """Mostly skipped: counted once it is shown."""
    seen: Callable[[MainWindow], object] | None = None
    """Whether what there is to look at can be seen: the tour waits for it."""
    also: Callable[[MainWindow], Place] | None = None
    """Where it can be done as well: the callout leaves that free."""
    picture: str = ""
    """The tour's picture of it."""


@dataclass(frozen=True)
class Path:
    """A minute's worth of steps."""

    title: str
    steps: tuple[GuideStep, ...]
    action: str = "First steps: "
    """What the palette has before the title."""


class Guide(QObject):
    """`start` a path, `leave` it at any time; at most one is under way."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self.path: Path | None = None
        """Under way; None: none is."""
        self._at = self._gone = 0
        """The step, and for how many beats its control has been gone."""
        self._seen: set[int] = set()
        """Steps that were shown: one that is done already is skipped, and not counted."""
        self._shown: tuple[object, ...] = ()
        self._placed: tuple[object, ...] = ()
        """What the callout was placed for."""
        self._menu_at: object = None
        """The menu whose line was pointed out."""
        self._ring = Ring(window)
        self.callout = Callout(window)
        self.callout.left.connect(self.leave)
        self.callout.passed.connect(self._pass)
        self._escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), window, self.leave)
        self.hide()
        window.context.beaten.connect(self.look)

    @property
    def step(self) -> GuideStep | None:
        """What is to be done now."""
        return None if self.path is None else self.path.steps[self._at]

    @property
    def control(self) -> QWidget | None:
        """What is pointed at now."""
        place = self._place()
        return place[0] if place is not None else None

    @property
    def words(self) -> str:
        """What is said now."""
        return self.callout.words.text()

    @property
    def line(self) -> str:
        """How the line begins that is to be chosen in the control's menu; empty where there is none."""
        return self.step.line.format(device=second_device(self._window.state)) if self.step is not None else ""

    @property
    def is_elsewhere(self) -> bool:
        """Whether the way to another layout is pointed at."""
        return self.step is not None and self._elsewhere(self.step)

    def start(self, path: Path) -> None:
        """Begin at its first step that is not done yet."""
        self._window.workbench.show_layout("explore")
        self._window.workbench.room.restore()
        self.path, self._at, self._gone, self._shown, self._seen = path, 0, 0, (), set()
        self.look()

    def leave(self) -> None:
        """Leave the window as it is."""
        had_keys = self.callout.isAncestorOf(self._window.focusWidget() or self._window)
        if self.path is not None and self._at + 1 < len(self.path.steps):
            self._window.hint(f"To continue, search (Ctrl+K) for “{self.path.action}{self.path.title}”.")
        self.path = None
        self.hide()
        if had_keys:
            self._window.workbench.take_focus()

    def hide(self) -> None:
        """Until it looks again."""
        self._escape.setEnabled(False)
        self._ring.hide()
        self.callout.hide()

    def _pass(self) -> None:
        """What there was to look at was looked at."""
        if self.path is not None and self._at + 1 < len(self.path.steps):
            self._at += 1
            self.look()
        else:
            self.leave()

    def look(self) -> None:
        """Go on where a step was done, back where its control is gone, and point."""
        if self.path is None:
            return
        window, steps = self._window, self.path.steps
        if window.state.recording is not None:
            self.leave()
            return
        while (at := self._next_to_do()) is not None and _is_done(steps[at], window):
            self._at = at + 1  # with what there was to look at before it
        self._gone = self._gone + 1 if self._place() is None else 0
        if self._gone > BACK_AFTER:
            before = range(self._at - 1, -1, -1)
            undone = (at for at in before if steps[at].done and not _is_done(steps[at], window))
            self._at = next((at for at in undone if self._place(at) is not None), self._at)
        self._escape.setEnabled(window.workbench.room.enlarged is None)  # Escape has one meaning
        self._say()
        self._point()

    def _next_to_do(self) -> int | None:
        """The next step, from the present one on, that is not only to look at."""
        assert self.path is not None
        steps = enumerate(self.path.steps[self._at :], start=self._at)
        return next((at for at, step in steps if step.done is not None), None)

    def _elsewhere(self, step: GuideStep) -> bool:
        return bool(step.layout) and step.layout != self._window.workbench.layout_shown.name

    def _place(self, at: int | None = None) -> tuple[QWidget, QRect] | None:
        """The control of a step and the part of it that counts, where it can be used now."""
        if self.path is None:
            return None
        step = self.path.steps[self._at if at is None else at]
        place = self._window.rail.buttons[step.layout] if self._elsewhere(step) else step.control(self._window)
        if place is None:
            return None
        widget, part = place if isinstance(place, tuple) else (place, place.rect())
        usable = widget.isVisible() and widget.isEnabled() and widget.window() is self._window
        return (widget, part) if usable else None

    def _also(self) -> tuple[QWidget, QRect] | None:
        """Where the step can be done as well, as far as that is shown."""
        place = None if self.step is None or self.step.also is None else self.step.also(self._window)
        if place is None:
            return None
        widget, part = place if isinstance(place, tuple) else (place, place.rect())
        return (widget, part) if widget.isVisible() and not part.isEmpty() else None

    def _say(self) -> None:
        step = self.step
        assert step is not None
        assert self.path is not None
        elsewhere = self._elsewhere(step)
        words = f"Go back to “{BY_NAME[step.layout].title}”." if elsewhere else step.words
        device = second_device(self._window.state) or "a GPU"
        words = words.format(device=device, rise=_rise(self._window.state))
        now = (self.path, self._at, words)
        if now == self._shown:
            return
        self._shown = now
        last = self._at + 1 == len(self.path.steps)
        number = len(self._seen.intersection(range(self._at))) + 1
        self._seen.add(self._at)
        to_come = sum(not one.seldom and not _is_done(one, self._window) for one in self.path.steps[self._at + 1 :])
        button = "Done" if last else "Next"
        if elsewhere or step.done is not None:
            button = ""
        self.callout.say(f"{self.path.title} · {number} of {number + to_come}", words, button)
        if self.callout.next_button.isVisibleTo(self.callout) and self._window.isActiveWindow():
            self.callout.show()
            self.callout.next_button.setFocus()

    def _point(self) -> None:
        place = self._place()
        room = self._window.rect().adjusted(self._window.rail.width(), 0, 0, 0)
        if place is None:
            self._ring.hide()
            self.callout.place(None, room)
            return
        widget, part = place
        self._ring.surround(self._here(widget, part))
        menu = widget.menu() if isinstance(widget, QPushButton | QToolButton) else None
        clear = menu if menu is not None and menu.isVisible() else None
        target, never = self._here(widget, part), () if clear is None else (self._here(clear, clear.rect()),)
        placed = (self._at, target, never, room, self.callout.size(), self._also())
        if placed != self._placed or self.callout.isHidden():
            self._placed = placed
            self.callout.place(target, room, never, self._in_use())
        if clear is None or menu is None:
            self._menu_at = None
        elif self._menu_at is not menu:
            self._menu_at = menu
            line = self.line
            action = next((one for one in menu.actions() if line and one.text().startswith(line)), None)
            if action is not None:
                menu.setActiveAction(action)

    def _in_use(self) -> list[tuple[QRect, float]]:
        """What may be wanted next, as far as it can be seen: the controls of the steps to come, the nearest most,
        where the present one can be done as well, and all cards, tabs, fields and buttons."""
        assert self.path is not None
        steps = [at for at in range(self._at + 1, len(self.path.steps)) if self.path.steps[at].done is not None]
        places = [(place, 4.0 / (at - self._at)) for at in steps if (place := self._place(at)) is not None]
        cards = tuple(self._window.devices.items.values())
        kinds = (QAbstractButton, QLineEdit, QTabBar)
        small = [one for kind in kinds for one in self._window.findChildren(kind) if not self.callout.isAncestorOf(one)]
        weighed = [(one, SMALL if isinstance(one, QAbstractButton | QLineEdit) else CARD) for one in (*cards, *small)]
        others = [((one, one.rect()), weight) for one, weight in weighed if one.isVisible()]
        if (also := self._also()) is not None:
            places.append((also, CARD))
        return [(self._here(*place), weight) for place, weight in (*places, *others)]

    def _here(self, widget: QWidget, part: QRect) -> QRect:
        """A part of any widget, in the window."""
        corner: QPoint = self._window.mapFromGlobal(widget.mapToGlobal(part.topLeft()))
        return QRect(corner, part.size())


def _is_done(step: GuideStep, window: MainWindow) -> bool:
    return step.done is not None and bool(step.done(window))


def _rise(state: State) -> str:
    """By how much the memory of its device rose with the newest move to a GPU, once that is measured; else empty."""
    reports = (done.report for done in reversed(state.done) if done.report is not None)
    report = next((one for one in reports if one.kind == "move" and one.destination != "cpu"), None)
    markers = (one for one in reversed(state.markers) if report is not None and one.device == report.destination)
    device, moved = None if report is None else state.devices.get(report.destination), next(markers, None)
    if report is None or device is None or moved is None:
        return ""
    before_s, after_s = moved.time_unix_s - report.wall_seconds - SETTLED_S, moved.time_unix_s + SETTLED_S
    if not device.history.latest_unix_s >= after_s:
        return ""
    rise = device.history.value_at(USED, after_s) - device.history.value_at(USED, before_s)
    if math.isnan(rise):
        return ""
    what = f"rose by {bytes_text(round(rise))}" if rise > 0 else "did not rise"
    return f" The memory of {report.destination} {what}: the model has {bytes_text(report.bytes)}."


POINTS = 120
"""Blocks of a benchmark to watch: about six seconds."""


def _model_is_here(window: MainWindow) -> bool:
    return any(item.kind == "model" for item in window.state.objects.values())


def _model_is_selected(window: MainWindow) -> bool:
    return window.controller.why_no_model() is None


def _model_is_on_a_gpu(window: MainWindow) -> bool:
    models = (item for item in window.state.objects.values() if item.kind == "model")
    return any("cpu" not in item.bytes_by_device for item in models)


def _is_measured(window: MainWindow) -> bool:
    return any(run.points for run in window.state.runs.values())


def _gpu_is_measured(window: MainWindow) -> bool:
    if not _is_measured(window):
        return False
    from devexplorer.core.benchmark.kind import devices_of  # loaded with the first run

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


def _tool(window: MainWindow, name: str) -> QPushButton:
    """A button of the toolbar, or what it is in where there is no room."""
    button = window.toolbar.buttons[name]
    return window.toolbar.more_button if button.isHidden() else button


def _benchmark(window: MainWindow) -> BenchPage[Any]:
    page: BenchPage[Any] = window.bottom_dock.page("benchmark").page
    return page


def _second_device() -> GuideStep:
    return GuideStep(
        "There is only the CPU here. Add two virtual GPUs: simulated, with the memory and speed of real cards.",
        lambda w: w.devices.offer_button if w.devices.offer.isVisible() else w.devices.add_button,
        _has_gpu,
        layout="explore",
        picture="2-offer-taken",
    )


def _select() -> GuideStep:
    """What was built or opened is selected: only where the user has chosen something else."""
    words = "Select the model in the list."
    return GuideStep(words, lambda w: w.objects.tree, _model_is_selected, layout="explore", seldom=True)


def _measure(words: str, done: Callable[[MainWindow], object]) -> tuple[GuideStep, ...]:
    """Open the form, start what it says."""
    return (
        GuideStep(
            "Click “Benchmark”: it opens the form.",
            lambda w: _tool(w, "benchmark"),
            lambda w: done(w) or w.workbench.layout_shown.name == "measure",
            layout="explore",
        ),
        GuideStep(words, lambda w: _benchmark(w).start_button, done, layout="measure"),
    )


def _move() -> tuple[GuideStep, ...]:
    return (
        _second_device(),
        GuideStep(
            "Click “Build” and choose vgg16-bn.",
            lambda w: _tool(w, "build"),
            _model_is_here,
            "vgg16-bn",
            layout="explore",
            picture="2-built",
        ),
        _select(),
        GuideStep(
            "Click “Move to” and choose {device}, or drag the model onto its card.",
            lambda w: _tool(w, "move"),
            _model_is_on_a_gpu,
            "{device}",
            layout="explore",
            also=lambda w: (w.objects.tree.viewport(), w.objects.current_row()),
        ),
        GuideStep(
            "A line marks the move.{rise} The first use of a GPU adds a CUDA context; a later move can reuse memory"
            " that PyTorch has cached.",
            lambda w: w.memory,
            layout="explore",
            seen=_memory_rose,
            picture="3-moved",
        ),
        *_measure("Click “Start”: matrix products on a GPU are timed.", _gpu_is_measured),
        GuideStep(
            "This is the throughput, block by block. Below is the median of the run.",
            lambda w: w.throughput,
            layout="measure",
            seen=lambda w: _points(w) >= POINTS,
            picture="4-benchmark",
        ),
        *_what_next(),
    )


def _what_next() -> tuple[GuideStep, ...]:
    if "learn" not in BY_NAME:
        return ()
    return (
        GuideStep(
            "That was the main job. “Learn” has short exercises for the rest.", lambda w: w.rail.buttons["learn"]
        ),
    )


def _tour() -> tuple[GuideStep, ...]:
    """The main job with what leads to it where there is one device, and what takes it back."""
    stop = GuideStep(
        "Click “Stop”: what was measured is kept.",
        lambda w: _benchmark(w).stop_button,
        _is_quiet,
        layout="measure",
    )
    return (
        GuideStep(
            "Show the last 30 seconds.",
            lambda w: w.memory.time_control,
            lambda w: w.axis.span_s == 30,
            "Show",
        ),
        *_measure("Click “Start”: the CPU can be measured too.", lambda w: _has_gpu(w) or _is_measured(w)),
        GuideStep(
            "This is its throughput.",
            lambda w: w.throughput,
            layout="measure",
            seen=lambda w: _points(w) >= POINTS // 2,
        ),
        stop,
        GuideStep(
            "With one device nothing can move; “Move to” says why.",
            lambda w: w.devices,
            layout="explore",
            seen=lambda w: w.controller.why_no_move() is not None and w.devices.offer.isVisible(),
            picture="2-one-device",
        ),
        *_move()[:-1],
        stop,
        GuideStep(
            "“Undo” takes the move back.",
            lambda w: _tool(w, "undo"),
            lambda w: not _model_is_on_a_gpu(w),
            "Undo",
            layout="explore",
        ),
        GuideStep(
            "The model is on the CPU again; PyTorch keeps the memory of the GPU for the next one.",
            lambda w: w.objects,
            layout="explore",
            picture="5-undone",
        ),
    )


TOUR = Path("Tour", _tour(), action="")
"""What the tour clicks through."""
MOVE = Path("Move a model", _move())
"""“Show me how”."""
