"""Leads through a path of steps on the window's own controls, until the user leaves it. Main thread.

Nothing is clicked for the user: each beat looks what is the case, points at the control of the step that comes next,
and goes back where the user took away what a step needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, QRect, Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QAbstractButton, QApplication, QLineEdit, QPushButton, QTabBar, QToolButton, QWidget

from devexplorer.core.base import bytes_text, sentence
from devexplorer.gui.shell.bars.menus import second_device
from devexplorer.gui.shell.layouts import BY_NAME
from devexplorer.gui.widgets.callout import Callout, Ring

if TYPE_CHECKING:
    from devexplorer.core.session import State
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
class Step:
    """One thing to do or to look at, on one control."""

    words: str
    """`{device}` is the device that a tutorial moves to, `{rise}` what the newest move did to the memory, `{missing}`
    why there are no virtual GPUs."""
    control: Callable[[MainWindow], Place]
    done: Callable[[MainWindow], object] | None = None
    """Whether it is done; None: something to look at, with a button to go on."""
    line: str = ""
    """What to choose in the control's menu, as it begins there."""
    layout: str = ""
    """The layout that has the control; empty: all have it."""
    seldom: bool = False
    """Mostly skipped: counted once it is shown."""
    optional: bool = False
    """There is a button to go on although it is not done."""
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
    steps: tuple[Step, ...]
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
        self._hide()
        window.context.state_changed.connect(self.look)

    @property
    def step(self) -> Step | None:
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

    @contextmanager
    def out_of_sight(self) -> Iterator[None]:
        """For a picture of the window alone."""
        self._hide()
        yield
        self.look()

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
            self._window.hint(f"To take it up again, search (Ctrl+K) for “{self.path.action}{self.path.title}”.")
        self.path = None
        self._hide()
        if had_keys:
            self._window.workbench.take_focus()

    def _hide(self) -> None:
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
        asked = QApplication.activeModalWidget() is not None  # a file is being chosen, say
        self._gone = self._gone + 1 if self._place() is None and not asked else 0
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

    def _elsewhere(self, step: Step) -> bool:
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
        return (widget, part) if widget.isVisible() and widget.isEnabled() else None

    def _also(self) -> tuple[QWidget, QRect] | None:
        """Where the step can be done as well, as far as that is on show."""
        place = None if self.step is None or self.step.also is None else self.step.also(self._window)
        widget, part = place if isinstance(place, tuple) else (place, QRect() if place is None else place.rect())
        return (widget, part) if widget is not None and widget.isVisible() and not part.isEmpty() else None

    def _say(self) -> None:
        step = self.step
        assert step is not None
        assert self.path is not None
        elsewhere = self._elsewhere(step)
        words = f"Go back to “{BY_NAME[step.layout].title}”." if elsewhere else step.words
        device = second_device(self._window.state) or "a GPU"
        engine = self._window.state.engine
        missing = sentence((engine.virtual_unavailable if engine is not None else None) or "")
        words = words.format(device=device, rise=_rise(self._window.state), missing=missing)
        now = (self.path, self._at, words)
        if now == self._shown:
            return
        self._shown = now
        last = self._at + 1 == len(self.path.steps)
        number = len(self._seen.intersection(range(self._at))) + 1
        self._seen.add(self._at)
        to_come = sum(not one.seldom and not _is_done(one, self._window) for one in self.path.steps[self._at + 1 :])
        self.callout.say(
            f"{self.path.title} · {number} of {number + to_come}",
            words,
            "" if elsewhere or (step.done is not None and not step.optional) else "Done" if last else "Next",
        )
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
        top = widget.window()
        ring = self._ring if top is self._window else top.findChild(Ring, "", Qt.FindChildOption.FindDirectChildrenOnly)
        (ring or Ring(top)).surround(QRect(widget.mapTo(top, part.topLeft()), part.size()))
        self.callout.leave_button.setEnabled(top is self._window)
        if top is not self._window:  # a dialog, which lies above: Escape closes it first
            self._ring.hide()
            self.callout.place(self._here(top, top.rect()), room)
            return
        menu = widget.menu() if isinstance(widget, QPushButton | QToolButton) else None
        clear: QWidget | None = menu if menu is not None and menu.isVisible() else None
        if isinstance(widget, QTabBar):  # the other tabs, and what is on the page
            clear = widget.parentWidget()
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
        cards = (*self._window.devices.items.values(), *self._window.workbench.cards.items.values())
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


def _is_done(step: Step, window: MainWindow) -> bool:
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
