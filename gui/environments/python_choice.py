"""Opens the dialog that chooses the Python of the engine, of whichever machine is shown, and remembers the choice.
Main thread only."""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from devexplorer.core.base import MISSING, BadInput, count_text, sentence
from devexplorer.core.base.chosen_python import choice
from devexplorer.core.environments.environment import refusal
from devexplorer.core.environments.finding import short
from devexplorer.core.environments.records import Environment, Probe
from devexplorer.core.session import State
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.forms.far_side import THIS_MACHINE
from devexplorer.gui.widgets import (
    Cell,
    Colour,
    Column,
    ElidedLabel,
    Role,
    RowsTable,
    TableRow,
    check_box,
    hbox,
    push_button,
)

Found = Callable[[tuple[Environment, ...]], None]
Probed = Callable[[Probe], None]
Failed = Callable[[str], None]


class Pythons(Protocol):
    """The Python environments of one machine."""

    name: str
    """Of the machine, as a sentence says it: `on NAME`."""
    folder: str
    """Where the user works there."""

    @property
    def current_python(self) -> str:
        """The interpreter that runs the engine now; empty: it is not known."""

    def remember_python(self, python: str) -> None:
        """Have the engine start in this one the next time the user works there."""

    def find_pythons(self, folder: str, then: Found, failed: Failed) -> None:
        """Those that concern somebody who works in that folder."""

    def given_python(self, path: str, then: Callable[[Environment], None], failed: Failed) -> None:
        """The one that this path names, of an interpreter or of a folder."""

    def probe_python(self, python: str, then: Probed) -> None:
        """What one of them has; it is started for that."""


class PythonsHere:
    """Of this machine."""

    name = THIS_MACHINE

    def __init__(self, context: WindowContext) -> None:
        self._context, self._in_background = context, context.in_background
        self.folder = str(Path.cwd())

    @property
    def current_python(self) -> str:
        session = self._context.session
        return (session is not None and session.python) or sys.executable

    def remember_python(self, python: str) -> None:
        self._context.save_settings(pythons=choice(self._context.settings.pythons, Path(self.folder), python))

    def find_pythons(self, folder: str, then: Found, failed: Failed) -> None:
        from devexplorer.core.environments.environment import find

        self._in_background("pythons", lambda: find(folder), then)

    def given_python(self, path: str, then: Callable[[Environment], None], failed: Failed) -> None:
        def show(answer: Environment | str) -> None:
            failed(answer) if isinstance(answer, str) else then(answer)

        self._in_background("pythons", lambda: _given(path), show)

    def probe_python(self, python: str, then: Probed) -> None:
        from devexplorer.core.environments.environment import probe

        self._in_background("pythons", lambda: probe(python), then)


def _given(path: str) -> Environment | str:
    from devexplorer.core.environments.environment import given

    try:
        return given(path)
    except BadInput as error:
        return sentence(str(error))


WIDTH_PX, HEIGHT_PX = 860, 460
AT_ONCE = 2
WORDS = (
    "The engine runs in this Python and uses its torch. Nothing is installed there: DevExplorer's code, and packages"
    " that are missing, are kept in your cache folder."
)
KINDS = {"path": "on PATH", "given": "chosen"}
"""Those that are called something else."""
COLUMNS = (
    Column("environment"),
    Column("kind"),
    Column("Python"),
    Column("torch"),
    Column("built for"),
    Column("devices"),
    Column(""),
)
ASKING, CANNOT, RUNS = "…", "△ cannot serve", "● runs now"


class PythonDialog(FormDialog):
    """`chosen` carries the interpreter and whether to remember it; `browse_requested` asks for a file."""

    chosen = Signal(str, bool)
    browse_requested = Signal()

    def __init__(self, state: State, pythons: Pythons, parent: QWidget | None = None) -> None:
        folder, current = pythons.folder, pythons.current_python
        on = "" if pythons.name == THIS_MACHINE else f" on {pythons.name}"
        super().__init__(f"Python environment{on}", "Use it", WIDTH_PX, parent)
        self.resize(WIDTH_PX, HEIGHT_PX)
        self.set_words(WORDS)
        self._state, self._pythons, self._current = state, pythons, current
        self._found: list[Environment] = []
        self._probes: dict[str, Probe] = {}
        self._waiting: deque[str] = deque()
        self._asked = 0
        self._searching = True
        self._problem = ""
        self.table = RowsTable(
            COLUMNS, "Python environments", [190, 96, 66, 100, 96, 150, 130], stretched=0, gives_up=(1,)
        )
        self.path = ElidedLabel(Role.CODE, "dim")
        place = pythons.name if on else short(folder, dict(os.environ))
        self.remember = check_box(f"Remember for {place}", tip="The engine starts in it the next time")
        self.remember.setChecked(True)
        self.remember.setVisible(bool(folder))
        self.add_part(self.table, 1)
        self.add_part(self.path)
        self.add_part(hbox(self.remember, None))
        self.browse_button = push_button(
            "Another…", self.browse_requested, tip="A Python, or the folder of an environment"
        )
        self.add_button(self.browse_button)
        self.table.selected.connect(self._check)
        self.table.activated.connect(self.accept_button.click)
        self._check()
        QTimer.singleShot(
            0, self, lambda: pythons.find_pythons(folder, self._while_open(self._show_found), self._failed)
        )

    # --- what is there

    def _while_open(self, show: Callable[..., None]) -> Callable[..., None]:
        """The dialog can have been closed before the answer comes."""

        def take(*answer: object) -> None:
            if isValid(self):
                show(*answer)

        return take

    def _show_found(self, found: tuple[Environment, ...]) -> None:
        self._searching = False
        for environment in found:
            self._add(environment)
        self._fill()
        if self._current and all(one.python != self._current for one in found):
            self.add(self._current)  # the user named it
        self.table.select_key(self._current)

    def add(self, path: str) -> None:
        """Show one that the user named, and choose it."""
        self._pythons.given_python(path, self._while_open(self._add_given), self._while_open(self._failed))

    def _add_given(self, environment: Environment) -> None:
        self._add(environment)
        self._fill()
        self.table.select_key(environment.python)

    def _failed(self, problem: str) -> None:
        if isValid(self):
            self._searching, self._problem = False, problem
            self._check()

    def _add(self, environment: Environment) -> None:
        if any(one.python == environment.python for one in self._found):
            return
        self._found.append(environment)
        self._waiting.append(environment.python)
        self._probe_next()

    def _probe_next(self) -> None:
        while self._asked < AT_ONCE and self._waiting:
            self._asked += 1
            python = self._waiting.popleft()

            def show(probe: Probe, python: str = python) -> None:
                self._asked -= 1
                self._probes[python] = probe
                self._fill()
                self._probe_next()

            self._pythons.probe_python(python, self._while_open(show))

    def _fill(self) -> None:
        chosen = self.table.selected_key
        self.table.set_rows([self._row(one) for one in self._found])
        if chosen is not None and chosen != self.table.selected_key:
            self.table.select_key(chosen)
        self._check()

    def _row(self, one: Environment) -> TableRow:
        probe = self._probes.get(one.python)
        reason = None if probe is None else refusal(probe)
        runs = one.python == self._current
        if probe is None:
            texts = (one.version or ASKING, one.torch or ASKING, ASKING, ASKING)
        else:
            texts = (
                probe.version or one.version or MISSING,
                probe.torch or MISSING,
                _built_for(probe),
                _devices(probe),
            )
        if reason:
            state = CANNOT
        elif runs:
            state = RUNS
        elif probe is None:
            state = ASKING
        else:
            state = ""
        words = sentence(reason or "")
        tone: Colour | Literal[""] = "dim" if reason or probe is None else ""
        cells = (
            Cell(one.label or one.prefix, tone, words or one.python),
            Cell(KINDS.get(one.kind, one.kind), "dim"),
            *(Cell(text, tone, words) for text in texts),
            Cell(state, "warning" if reason else "dim", words),
        )
        return TableRow(one.python, cells)

    # --- choosing

    def _check(self) -> None:
        chosen = next((one for one in self._found if one.python == self.table.selected_key), None)
        self.path.set_full_text("" if chosen is None else chosen.python)
        if chosen is None:
            asking = f"Looking for Pythons on {self._pythons.name}…" if self._searching else ""
            self.say(self._problem or asking or "Choose an environment.", wrong=bool(self._problem), ready=False)
            return
        self._problem = ""
        probe = self._probes.get(chosen.python)
        if probe is None:
            self.say("Asking this Python what it has…", ready=False)
        elif (reason := refusal(probe)) is not None:
            self.say(sentence(reason), wrong=True)
        elif chosen.python == self._current:
            self.say("The engine runs in this Python.", ready=False)
        else:
            count = len(self._state.objects)
            objects = f" {count_text(count, 'object')} will be rebuilt from the journal." if count else ""
            lists = " What cannot be rebuilt is listed." if count else ""
            self.say(f"The engine restarts with torch {probe.torch}.{objects}{lists}")

    def _accept(self) -> None:
        python = self.table.selected_key
        if isinstance(python, str):
            self.chosen.emit(python, self.remember.isVisible() and self.remember.isChecked())
            self.accept()


def _built_for(probe: Probe) -> str:
    if not probe.torch:
        return MISSING
    if probe.cuda:
        return f"CUDA {probe.cuda}"
    if probe.rocm:
        return f"ROCm {probe.rocm}"
    return "CPU"


def _devices(probe: Probe) -> str:
    if not probe.torch:
        return MISSING
    counts = Counter(device.name or device.id for device in probe.devices)
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items()) or "CPU only"


def open_dialog(context: WindowContext) -> PythonDialog:
    """Choose, then restart the engine."""
    far: Any = context.far
    pythons: Pythons = PythonsHere(context) if far is None else far
    dialog = PythonDialog(context.state, pythons, context.window)
    dialog.chosen.connect(partial(_use, context, pythons))
    dialog.browse_requested.connect(partial(_browse, context, dialog))
    context.open_dialog(dialog)
    return dialog


def _browse(context: WindowContext, dialog: PythonDialog) -> None:
    context.choose_files("Choose a Python", "All files (*)", lambda paths: dialog.add(str(paths[0])))


def _use(context: WindowContext, pythons: Pythons, python: str, remember: bool) -> None:
    if context.session is not None:
        context.session.set_python(python)
        if remember:
            pythons.remember_python(python)
