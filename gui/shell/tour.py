"""The main job, unattended, by real clicks in the real window: build, move, measure, watch. Main thread, one step at a
time.

Each step clicks something and then waits until the state shows that it happened. A step that does not come true in its
time ends the tour with exit code 1 and a sentence, and so does a user who takes away what the tour works with. Nothing
is called behind the window's back.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QMenu, QPushButton, QToolButton, QWidget

from devexplorer.core.session import Run, State
from devexplorer.gui.benchmark.tab import TAB as BENCHMARK
from devexplorer.gui.shell.menus import second_device

if TYPE_CHECKING:
    from devexplorer.gui.shell.app import App

POLL_MS = 50
MODEL = "vgg16-bn"
"""Large enough (528 MiB) that the move is a step in the memory plot."""
POINTS = 120
"""Blocks of benchmark to watch: about six seconds."""
LOOK_SECONDS = 3.0
"""Of curve after a move, so that the step is clear of the right edge in the picture."""


@dataclass(frozen=True)
class Step:
    """What to do, and when it has happened."""

    title: str
    do: Callable[[], None]
    until: Callable[[], bool]
    seconds: float = 30.0
    picture: str = ""


def _nothing() -> None:
    """For steps that only wait."""


class GoneError(Exception):
    """What a step wants to click cannot be clicked: the user is using the window."""


class Tour(QObject):
    """`start` after the window is shown; `ended` is called with what failed (None: every step happened); `report` gives
    the exit code."""

    SIZE_PX = (1440, 900)

    def __init__(self, app: App, screenshots: Path | None, ended: Callable[[str | None], None]) -> None:
        super().__init__(app.window)
        self._app, self._folder, self._ended = app, screenshots, ended
        self._state: State = app.state
        self._steps = self._plan()
        self._done: list[str] = []
        self._failed: str | None = "the window was closed before the tour had ended"
        self._current: Step | None = None
        self._deadline = self._since = 0.0
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._poll)

    def start(self) -> None:
        """Begin."""
        self._timer.start(POLL_MS)

    def report(self) -> int:
        """Say how it went; 0 only if every step happened."""
        for title in self._done:
            print(f"done  {title}")
        if self._failed is not None:
            print(f"devexplorer tour: {self._failed}", file=sys.stderr)
            return 1
        return 0

    # --- the steps
    # -----------------------------------------------------------------------------------------------------

    def _plan(self) -> list[Step]:
        state, window = self._state, self._app.window
        return [
            Step("the engine is ready", _nothing, lambda: state.engine is not None and bool(state.usable_devices), 60),
            Step("looked around", _nothing, self._looked, 10, "1-start"),
            Step(
                "shows the last 30 s",
                lambda: self._menu(window.throughput.time_control, "Show"),
                lambda: window.axis.span_s == 30,
                10,
            ),
            Step(f"built {MODEL}", lambda: self._menu(window.toolbar.build, MODEL), lambda: MODEL in state.objects, 90),
            Step(
                f"selected {MODEL}", self._select, lambda: window.controller.selection() == (MODEL,), picture="2-built"
            ),
            Step("looked for a second device", self._look_for_second_device, lambda: True),
            Step("waited for a piece of memory curve", _nothing, self._looked, 10),
            Step(
                "moved the model",
                lambda: self._menu(window.toolbar.move_button, self._target()),
                lambda: self._is_on(self._target()),
                60,
            ),
            Step("watched the memory step", _nothing, self._memory_stepped, 20, "3-moved"),
            Step("started a benchmark", lambda: self._benchmark(self._target(), "float16", "4096"), self._measures, 60),
            self._back(),
            Step("watched the throughput", _nothing, lambda: self._run().points >= POINTS, 90, "4-benchmark"),
            self._stop(),
            Step(
                "moved back by undo",
                lambda: self._key(Qt.Key.Key_Z, ctrl=True),
                lambda: self._is_on("cpu"),
                60,
                "5-undone",
            ),
            Step("changed the theme", lambda: self._key(Qt.Key.Key_T, ctrl=True), self._looked, 10, "6-other-theme"),
            Step("changed it back", lambda: self._key(Qt.Key.Key_T, ctrl=True), self._looked, 10),
        ]

    def _back(self) -> Step:
        """From the benchmark's form to the picture of model, devices and curves."""
        window = self._app.window
        explore = window.rail.buttons["explore"]
        return Step("went back to the objects", lambda: self._click(explore), window.objects.isVisible, 10)

    def _stop(self) -> Step:
        button = self._app.window.toolbar.benchmark
        return Step("stopped it", lambda: self._click(button), lambda: self._run().result is not None, 30)

    def _look_for_second_device(self) -> None:
        if len(self._state.usable_devices) == 1:
            self._steps[:0] = self._with_one_device()

    def _with_one_device(self) -> list[Step]:
        """What one device allows: measure and watch; then see why nothing can move, and take the offer of virtual
        GPUs."""
        state, window = self._state, self._app.window
        return [
            Step(
                "started a benchmark on the CPU", lambda: self._benchmark("cpu", "float32", "1024"), self._measures, 60
            ),
            self._back(),
            Step("watched its throughput", _nothing, lambda: self._run().points >= POINTS // 2, 60, "2-one-device"),
            self._stop(),
            Step("saw why nothing can move", self._see_why_not, lambda: True),
            Step(
                "took the offer",
                lambda: self._click(window.devices.offer_button),
                lambda: len(state.usable_devices) > 1,
                30,
                "2-offer-taken",
            ),
        ]

    def _see_why_not(self) -> None:
        window = self._app.window
        reason = window.controller.why_no_move()
        if reason is None or window.toolbar.move_button.isEnabled() or not window.devices.offer.isVisible():
            self._end("with one device the window still offers to move, or offers no virtual GPUs")
        else:
            print(f"cannot move yet: {reason}")

    def _measures(self) -> bool:
        return bool(self._state.active_runs) and self._run().points > 0

    def _target(self) -> str:
        device = second_device(self._state)
        if device is None:
            raise GoneError("there is no GPU any more")
        return device

    def _run(self) -> Run:
        return next(reversed(self._state.runs.values()))

    def _looked(self) -> bool:
        return time.monotonic() - self._since > LOOK_SECONDS

    def _is_on(self, device: str) -> bool:
        snapshot = self._state.objects[MODEL]
        return set(snapshot.bytes_by_device) == {device} and not self._state.jobs

    def _memory_stepped(self) -> bool:
        device = self._state.devices[self._target()]
        size = sum(self._state.objects[MODEL].bytes_by_device.values())
        used = [value for value in device.history.readings("memory_used_bytes")[1] if value == value]
        marked = any(marker.device == device.info.id for marker in self._state.markers)
        return self._looked() and marked and bool(used) and max(used) - used[0] >= 0.9 * size

    def _select(self) -> None:
        tree = self._app.window.objects.tree
        QTest.mouseClick(
            tree.viewport(), Qt.MouseButton.LeftButton, pos=tree.visualRect(tree.model().index(0, 0)).center()
        )

    def _benchmark(self, device: str, dtype: str, size: str) -> None:
        """Fill the form of the Benchmark tab by mouse and keyboard, and press its button."""
        window = self._app.window
        panel = BENCHMARK.show(window.context).matmul
        self._demand_usable(panel.devices)
        QTimer.singleShot(POLL_MS, self, lambda: self._check_only(panel.devices.menu(), device))
        self._click(panel.devices)
        self._type(panel.dtype_edit, dtype)
        self._type(panel.size_edit, size)
        self._type(panel.seconds_edit, "30")
        self._click(panel.start_button)

    # --- clicking and looking
    # ------------------------------------------------------------------------------------------

    def _click(self, widget: QWidget) -> None:
        self._demand_usable(widget)
        QTest.mouseClick(widget, Qt.MouseButton.LeftButton)

    def _demand_usable(self, widget: QWidget) -> None:
        if not (widget.isEnabled() and widget.isVisible()):
            raise GoneError(f"“{widget.accessibleName() or widget.toolTip()}” cannot be clicked now")

    def _key(self, key: Qt.Key, *, ctrl: bool = False) -> None:
        modifier = Qt.KeyboardModifier.ControlModifier if ctrl else Qt.KeyboardModifier.NoModifier
        self._app.window.objects.tree.setFocus()
        QTest.keyClick(self._app.window.objects.tree, key, modifier)

    def _menu(self, button: QPushButton | QToolButton, wanted: str) -> None:
        """Open a button's menu by a click and click the line that starts with `wanted`; the menu runs an event loop of
        its own."""
        self._demand_usable(button)
        QTimer.singleShot(POLL_MS, self, lambda: self._choose(button.menu(), wanted))
        self._click(button)

    def _choose(self, menu: QMenu, wanted: str) -> None:
        for action in menu.actions():
            if action.text().replace("\t", " ").split()[0] == wanted:
                QTest.mouseClick(menu, Qt.MouseButton.LeftButton, pos=menu.actionGeometry(action).center())
                return
        menu.close()
        self._end(f"the menu has no '{wanted}'")

    def _check_only(self, menu: QMenu, wanted: str) -> None:
        """In a menu of checks, click until exactly the wanted device is checked, then close it."""
        for action in menu.actions():
            if action.isChecked() != (action.data() == wanted):
                middle = menu.actionGeometry(action).center()
                QTest.mouseMove(menu, middle)
                menu.setActiveAction(action)
                QTest.mouseClick(menu, Qt.MouseButton.LeftButton, pos=middle)
        QTest.keyClick(menu, Qt.Key.Key_Escape)

    def _type(self, field: QLineEdit, text: str) -> None:
        field.selectAll()
        QTest.keyClicks(field, text)

    def _picture(self, name: str) -> None:
        if self._folder is None:
            return
        path = self._folder / f"tour-{name}.png"
        if not self._app.window.grab().save(str(path)):
            self._end(f"the picture {path} could not be saved")

    # --- one step after the other
    # --------------------------------------------------------------------------------------

    def _poll(self) -> None:
        try:
            self._go_on()
        except (
            GoneError,
            LookupError,
            StopIteration,
        ) as gone:  # the object, the device or the run that a step looks for
            title = self._current.title if self._current is not None else "the tour"
            self._end(
                f"The tour ended at “{title}”: {gone if isinstance(gone, GoneError) else 'its object was removed'}."
            )

    def _go_on(self) -> None:
        now = time.monotonic()
        if self._current is None:
            if not self._steps:
                self._end(None)
                return
            self._current = self._steps.pop(0)
            self._since, self._deadline = now, now + self._current.seconds
            self._current.do()
            return
        step = self._current
        if step.until():
            assert self._app.heartbeat is not None
            self._app.heartbeat.tick()  # what is in the picture is what was checked
            self._app.window.refresh_texts()
            if step.picture:
                self._picture(step.picture)
            self._done.append(step.title)
            self._current = None
        elif now > self._deadline:
            answer = self._state.answer
            said = f"; the window says: {answer.title}. {answer.words}" if answer is not None and answer.failed else ""
            self._end(f"this did not happen within {step.seconds:.0f} s: {step.title}{said}")

    def _end(self, failed: str | None) -> None:
        self._timer.stop()
        self._failed = failed
        if failed is not None:
            self._picture_of_failure()
        self._ended(failed)

    def _picture_of_failure(self) -> None:
        if self._folder is not None and self._folder.is_dir():
            self._app.window.grab().save(str(self._folder / "tour-failed.png"))
