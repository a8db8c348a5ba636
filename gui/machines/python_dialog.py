"""The dialog that chooses the Python whose torch the engine uses: what was found, filled in as each one answers. Main
thread; nothing waits.

At most two Pythons are started at a time: importing torch reads hundreds of megabytes.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable
from typing import Literal

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from devexplorer.core.base import MISSING, count_text, sentence
from devexplorer.core.environments.environment import refusal
from devexplorer.core.environments.finding import short
from devexplorer.core.records.environments import Environment, Probe
from devexplorer.core.session import State
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.machines.pythons import Pythons
from devexplorer.gui.widgets import Colour, ElidedLabel, Role, check_box, hbox, push_button
from devexplorer.gui.widgets.table import Cell, Column, RowsModel, RowsTable, TableRow

WIDTH_PX, HEIGHT_PX = 860, 460
AT_ONCE = 2
WORDS = (
    "The engine runs in this Python and uses its torch. Nothing is installed there: DevExplorer's code, and packages"
    " that are missing, are kept in your cache folder."
)
KINDS = {
    "own": "own",
    "active": "active",
    "project": "project",
    "module": "module",
    "conda": "conda",
    "venv": "venv",
    "uv": "uv",
    "pyenv": "pyenv",
    "path": "on PATH",
    "given": "chosen",
}
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

    def __init__(
        self, state: State, pythons: Pythons, folder: str, current: str, parent: QWidget | None = None
    ) -> None:
        """`folder`: where the user works, for which the choice is remembered. `current`: the interpreter that runs the
        engine now; empty: it is not known."""
        on = "" if pythons.machine == "this machine" else f" on {pythons.machine}"
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
        self.model = RowsModel(COLUMNS)
        self.table = RowsTable(
            self.model, "Python environments", [190, 96, 66, 100, 96, 150, 130], stretched=0, gives_up=(1,)
        )
        self.path = ElidedLabel(Role.CODE, "dim")
        place = pythons.machine if on else short(folder, dict(os.environ))
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
        self.table.selectionModel().selectionChanged.connect(self._check)
        self.table.activated.connect(self._activated)
        self._check()
        QTimer.singleShot(0, self, lambda: pythons.find(folder, self._while_open(self._show_found), self._failed))

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
        self._pythons.given(path, self._while_open(self._add_given), self._while_open(self._failed))

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

            self._pythons.probe(python, self._while_open(show))

    def _fill(self) -> None:
        chosen = self.table.selected_key
        self.model.set_rows([self._row(one) for one in self._found])
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
        state = CANNOT if reason else RUNS if runs else ASKING if probe is None else ""
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
            asking = f"Looking for Pythons on {self._pythons.machine}…" if self._searching else ""
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

    def _activated(self) -> None:
        if self.accept_button.isEnabled():
            self.accept_button.click()

    def _accept(self) -> None:
        python = self.table.selected_key
        if isinstance(python, str):
            self.chosen.emit(python, self.remember.isVisible() and self.remember.isChecked())
            self.accept()


def _built_for(probe: Probe) -> str:
    if not probe.torch:
        return MISSING
    return f"CUDA {probe.cuda}" if probe.cuda else f"ROCm {probe.rocm}" if probe.rocm else "CPU"


def _devices(probe: Probe) -> str:
    if not probe.torch:
        return MISSING
    counts = Counter(device.name or device.id for device in probe.devices)
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items()) or "CPU only"
