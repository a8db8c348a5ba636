"""What the pages of the Benchmark tab have in common: runs in words, a form with Start and Stop, progress, what is
wrong, results. Main thread.

A page is a kind of benchmark. It reads the state, makes specifications from its form, and shows the runs of its kind.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QShowEvent
from PySide6.QtWidgets import QComboBox, QLabel, QProgressBar, QSizePolicy, QWidget

from devexplorer.core.base import MISSING, BadInput, Clock, Findings, joined, parse_dtype, seconds_text, sentence
from devexplorer.core.benchmark.kind import devices_of, kind_name, kind_of
from devexplorer.core.benchmark.spec import check_product, mixed_clocks
from devexplorer.core.benchmark.statistics import STOPPED_EARLY
from devexplorer.core.records import BenchSpec
from devexplorer.core.session import Run, State
from devexplorer.core.session.running import done_share, is_simulated, remaining_text, runs_document, where
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.forms.device_choice import DeviceChoice
from devexplorer.gui.forms.page import FormPage
from devexplorer.gui.widgets import (
    EDGE_PX,
    NOT_READY,
    Cell,
    Choice,
    Column,
    ElidedLabel,
    MenuEdit,
    Role,
    RowsTable,
    ScrollArea,
    ScrollColumn,
    TableRow,
    hbox,
    holder,
    label,
    push_button,
    set_look,
    show_text,
    vbox,
    why_fixed,
)


def state_cell(run: Run, *more: str) -> Cell:
    """The state of a run; `more` are things to know about a result."""
    if not run.ended:
        return Cell("running" if run.started_unix_s is not None else "warming up", "text")
    if run.result is None and run.reason == STOPPED_EARLY:
        return Cell(STOPPED_EARLY, "dim", STOPPED_EARLY)
    if run.result is None:
        words = f"✕ failed: {run.reason or 'nothing was measured'}"
        return Cell(words, "error", words)
    if run.result.verified is False:
        words = f"✕ values are wrong: {kind_of(run.spec).wrong_values}"
        return Cell(words, "error", words)
    if run.result.failure:
        words = f"▲ ended early: {run.result.failure}"
        return Cell(words, "warning", f"{words}\nWhat was measured until then is kept.")
    words = ", ".join(["stopped" if run.result.stopped else "done", *more])
    tip = "It was stopped before its time; what was measured until then is kept." if run.result.stopped else ""
    return Cell(words, "dim", joined("\n", *more, tip))


def device_cell(run: Run, state: State) -> Cell:
    """The device of a run in its colour, and that it is simulated."""
    device = state.devices.get(run.spec.device)
    return Cell(
        f"{where(run.spec)}  simulated" if is_simulated(run, state) else where(run.spec),
        "dim" if device is None else device.colour,
    )


def seconds_cell(seconds: float | None) -> Cell:
    """How long was measured."""
    return Cell(MISSING if seconds is None else f"{seconds:.2f}", tip=seconds_text(seconds))


def title(run: Run) -> str:
    """A run in a few words, for a list of runs of its kind."""
    return kind_of(run.spec).choice_text(run.spec, where(run.spec))


PROGRESS_PX, COPY_PX = (120, 4), 22
NOTHING_RUNS = "No benchmark is running."
NONE_ENDED = "No run has ended yet."


DTYPES = ("float32", "tf32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2", "int8")
"""Offered; others can be typed."""


def took(seconds: float) -> str:
    """`42 s`, `5 min`: a duration that is only estimated."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class DtypeEdit(MenuEdit):
    """A dtype to type, or to choose."""

    def __init__(self) -> None:
        super().__init__("float32", "dtype", [(name, name) for name in DTYPES], 116)

    def parse(self) -> str:
        """The dtype that is meant; `BadInput` with those there are."""
        return check_product(parse_dtype(self.text(), tf32=True))


Spec = TypeVar("Spec", bound=BenchSpec)


WIDTH_PX = 272


class Summary(ScrollColumn):
    """A narrow column: the choice, one strong line, words, one button. It scrolls where the tab is low."""

    changed = Signal()
    """Another run was chosen."""
    acted = Signal()
    """The button."""

    def __init__(self, state: State) -> None:
        super().__init__("", WIDTH_PX)
        self._state = state
        self._runs: dict[int, Run] = {}
        self.choice = Choice("The run shown")
        self.choice.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.choice.setMinimumContentsLength(12)
        self.choice.currentIndexChanged.connect(self.changed)
        self.headline = label("", Role.STRONG, wrap=True)
        self.state = label("", words="error", wrap=True)
        self.facts = label("", words="dim", wrap=True)
        self.words = label("", words="soft", wrap=True)
        self.warning = label("", words="error", wrap=True)
        self.button = push_button(clicked=self.acted)
        column = vbox(
            self.choice,
            self.headline,
            self.warning,
            self.words,
            self.state,
            self.facts,
            (self.button, 0, Qt.AlignmentFlag.AlignLeft),
            None,
            spacing=6,
            margins=(EDGE_PX, 2, 8, 4),
        )
        self.set_content(column)
        self.setFixedWidth(WIDTH_PX)

    def offer(self, runs: list[Run]) -> Run:
        """Offer these runs (at least one), the newest first; returns the chosen one: a run that begins, after that the
        user's choice."""
        new = next((run.run for run in runs if run.run not in self._runs), self.choice.value)
        self._runs = {run.run: run for run in runs}
        self.choice.offer((run.run, title(run), "") for run in runs)
        self.choice.blockSignals(True)
        self.choice.choose(new)
        self.choice.blockSignals(False)
        return self._runs[self.choice.value]

    @property
    def run(self) -> Run | None:
        """The one that is chosen."""
        return self._runs.get(self.choice.value)

    def say(
        self,
        headline: str,
        words: str,
        run: Run,
        *facts: str,
        warning: str = "",
        action: str = "",
        simulated: str | None = None,
    ) -> None:
        """The result (empty: there is none), the state of the run, and facts about it; a state with a sign has a line
        and a colour of its own. `simulated`: which figures are; None: all of a simulated run."""
        state = state_cell(run)
        if not headline:
            headline = "Nothing was measured." if run.ended else "Nothing is measured yet."
        if simulated is None and is_simulated(run, self._state):
            simulated = "simulated"
        sign = state.text[:1]
        told = sign in ("✕", "▲")
        below = joined(", ", "" if told else state.text, *facts, simulated)
        texts = (
            (self.headline, headline),
            (self.warning, warning),
            (self.words, words),
            (self.state, state.text if told else ""),
        )
        for target, text in (*texts, (self.facts, below), (self.button, action)):
            show_text(target, text)
        set_look(self.state, "warning" if sign == "▲" else "error")

    def explain(self, reasons: Iterable[str | None]) -> None:
        """Why something was not measured, for the tooltip of the facts: each reason once, with how often it was so."""
        counts = Counter(reason or "no reason is known" for reason in reasons)
        texts = [f"{count} not measured: {reason}" for reason, count in counts.most_common()]
        self.facts.setToolTip("\n".join(texts))


class BenchPage(FormPage, Generic[Spec]):
    """A subclass adds fields and results in `build`; see the methods that raise here."""

    kind: ClassVar[str] = ""
    """`matmul`, `sweep`, …: the tag of its specifications."""
    device_choice: ClassVar[type[DeviceChoice]] = DeviceChoice
    """What is chosen until the user picks."""

    start_requested = Signal(object)
    """A `tuple[BenchSpec, ...]`."""
    stop_requested = Signal(object)
    """A run's number, or None: all."""

    def __init__(self, state: State, clock: Clock = time.time) -> None:
        super().__init__(state)
        self._clock = clock
        self._age: Callable[[], str] = str
        self._refused, self._words = False, ""
        self._problem = ""
        """Why the form cannot be started now; empty: it can."""
        self._touched = False
        """Whether the user has done something to the form: before that what is missing is no mistake, and is not said
        in red."""
        self.copy_button = push_button("Copy as JSON", self.copy_json, look="quiet")
        self.progress = QProgressBar(textVisible=False)
        self.progress.setRange(0, 1000)
        self.progress.setFixedSize(*PROGRESS_PX)
        self.progress.setAccessibleName("Progress")
        self.message = ElidedLabel(Role.LABEL, "error")
        self.message.hide()
        self._lay_out()
        self.devices = self.device_choice(state)
        self.build()
        self.check()
        self.refresh()

    def _lay_out(self) -> None:
        self.copy_button.setFixedHeight(COPY_PX)  # the fields above need the width
        self._form.addStretch(1)
        line = hbox(
            self.progress, (self.hint, 1), (self.message, 1), None, self.copy_button, margins=(EDGE_PX, 0, EDGE_PX, 3)
        )
        self._column.insertLayout(1, line)
        self.stop_button.setText("Stop all")
        self.stop_button.setFixedWidth(self.stop_button.sizeHint().width())
        self.empty.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)

    def _edited(self) -> None:
        self._touched = True
        self.check()

    @staticmethod
    def rename(both: QWidget, words: str) -> None:
        """Give a field, as `add_field` returned it, another name."""
        name = both.findChild(QLabel, "name")
        if name is not None:
            name.setText(words)

    def set_results(self, widget: QWidget) -> None:
        """What is shown once there is a run."""
        self._view = widget
        self._results.addWidget(widget)

    # what a page has to say

    def build(self) -> None:
        """Add the fields and what is shown once there is a run."""
        raise NotImplementedError

    def specs(self) -> tuple[Spec, ...]:
        """What the form asks for. Raises one `BadInput` with everything that is wrong."""
        raise NotImplementedError

    def describe(self, specs: Sequence[Spec]) -> str:
        """What these would cost or take, in a few words."""
        raise NotImplementedError

    def show_runs(self, runs: list[Run]) -> None:
        """Show these, the newest first; there is at least one."""
        raise NotImplementedError

    def follow(self, context: WindowContext) -> None:
        """It is in this window from now on."""

    @property
    def selected_active(self) -> Run | None:
        """The run that runs and that the user means; None: none in particular."""
        return None

    # what the panel calls

    def refresh(self) -> None:
        """Show devices and runs as they are now."""
        super().refresh()
        runs = self.runs
        if self._refused or self._problem:  # a run that ended, or memory that was freed, may have put it right
            self.check()
        self._results.setCurrentWidget(self._view if runs else self.empty)
        if runs and self.isVisible():  # up to thirty times a second; a page that is not shown is drawn when it is
            self.show_runs(runs)
        self._show_progress()
        self.show_buttons()

    @property
    def runs(self) -> list[Run]:
        """The runs of this kind, the newest first."""
        return sorted(
            (run for run in self._state.runs.values() if kind_name(run.spec) == self.kind), key=lambda run: -run.run
        )

    @property
    def active(self) -> list[Run]:
        """Those that have not ended."""
        return [run for run in self.runs if not run.ended]

    def start(self) -> None:
        """Ask for what the form says, or say what is wrong with it."""
        self._touched = True
        try:
            specs = self.specs()
        except BadInput as error:
            self.say(str(error), refused=True)
            return
        self.request(specs)

    def request(self, specs: tuple[Spec, ...]) -> None:
        """Ask for these, or say which device is measured already."""
        taken = {name for run in self._state.active_runs for name in devices_of(run.spec)}
        busy = [name for spec in specs for name in devices_of(spec) if name in taken]
        if busy:
            # Only asked here: while a run goes on there is nothing wrong with what the form says.
            names = ", ".join(dict.fromkeys(busy))
            self.say(
                f"a benchmark is running on {names} already; stop it first, or choose another device", refused=True
            )
            return
        self.start_requested.emit(specs)

    def stop(self) -> None:
        """Ask to stop the run that is meant, or all runs of this kind."""
        meant = self.selected_active
        others = len(self._state.active_runs) > len(self.active)
        if meant is not None:
            self.stop_requested.emit(meant.run)
        elif others:  # of other kinds: they go on
            for run in self.active:
                self.stop_requested.emit(run.run)
        else:
            self.stop_requested.emit(None)

    def copy_json(self) -> None:
        """Put the finished runs of this kind on the clipboard, as the command line prints them."""
        results = [run.result for run in reversed(self.runs) if run.result is not None]
        QGuiApplication.clipboard().setText(runs_document(results))

    def check(self) -> None:
        """Say what the form comes to, or what is wrong with it."""
        self._problem = ""
        if not self._state.usable_devices:  # the engine has not named them yet, which is no error
            self._problem = NOT_READY
            self.say("")
        else:
            self._check_form()
        self.show_buttons()

    def _check_form(self) -> None:
        try:
            specs = self.specs()
        except BadInput as error:
            self._problem = sentence(str(error))
            self.say(str(error), refused=True)
            return
        self.say(self.describe(specs))

    # inside

    def checked(self) -> Findings:
        """Findings to begin the checks of a form with: whether a device is chosen."""
        findings = Findings()
        if not self.devices.chosen:
            findings.add("no device is chosen; choose at least one")
        return findings

    def mixed_clocks(self, devices: Iterable[str]) -> list[str]:
        """What is wrong with measuring these devices in one run."""
        return mixed_clocks({name: self._state.devices[name].info.simulated for name in devices})

    def say(self, text: str, *, refused: bool = False) -> None:
        """One line: what the form comes to, or what is wrong with it."""
        self._refused = refused
        loud = refused and self._touched
        self.message.set_full_text(f"✕ {text}" if loud else "")  # never colour alone
        self.message.setVisible(loud)
        self._words = "" if loud else text
        self._show_progress()

    def set_moment(self, clock: Clock, age: Callable[[], str]) -> None:
        """`clock` gives the moment of what is shown; `age` how old that is, where it is not of now."""
        self._clock, self._age = clock, age

    def _show_progress(self) -> None:
        active, now = self.active, self._clock()
        shares = [share for share in (done_share(run, now) for run in active) if share is not None]
        self.progress.setVisible(bool(active) and len(shares) == len(active))
        if shares:
            self.progress.setValue(round(1000 * min(shares)))
        self.hint.setVisible(not self.message.full_text)  # the error takes its place
        if not active:
            self.hint.set_full_text(self._words)
            self.hint.setAccessibleName(f"What would be measured: {self._words}")
            return
        run = self.selected_active or active[-1]
        parts = [where(run.spec) if len(active) == 1 or self.selected_active else f"{len(active)} runs"]
        parts += [run.latest.text] if run.latest is not None and run.latest.text else []
        left, age = remaining_text(active, now), self._age()
        parts.append(f"{left} as of {age}" if left and age else left)
        self.hint.set_full_text(joined(", ", *parts))

    def show_buttons(self) -> None:
        """Start, Stop and Copy, as they can be used now."""
        active, chosen = self.active, self.selected_active
        live = self._state.recording is None  # else it was running then
        self.stop_button.setEnabled(bool(active) and live)
        self.stop_button.setText("Stop all" if len(active) > 1 and chosen is None else "Stop")
        if not live:
            tip = why_fixed(self._state)
        elif active:
            tip = "" if chosen is None else f"Stop the selected run on {where(chosen.spec)}"
        elif self._state.active_runs:
            tip = "No benchmark of this kind is running."
        else:
            tip = NOTHING_RUNS
        self.stop_button.setToolTip(tip)
        fixed = why_fixed(self._state)
        reason = fixed or self._problem
        self.start_button.setEnabled(not reason)
        self.start_button.setToolTip(reason)
        finished = any(run.result is not None for run in self.runs)
        self.copy_button.setEnabled(finished)
        self.copy_button.setToolTip(
            "The finished runs of this kind, as the command line prints them" if finished else NONE_ENDED
        )

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()


class TablePage(BenchPage[Spec]):
    """A page whose runs are the rows of a table."""

    table_name: ClassVar[str]
    columns: ClassVar[Sequence[Column]]
    widths_px: ClassVar[Sequence[int]]
    stretched: ClassVar[int]
    """Number of the column that takes what is left."""
    gives_up: ClassVar[Sequence[int]]
    """Columns that a narrow table goes without; the last of them is wanted most."""

    def add_table(self) -> None:
        """Show the table once there is a run."""
        self.table = RowsTable(
            self.columns, self.table_name, self.widths_px, stretched=self.stretched, gives_up=self.gives_up
        )
        self.table.selected.connect(self.show_buttons)
        self._ended: dict[int, TableRow] = {}
        """Rows of runs that have ended, made once."""
        self.set_results(self.table)

    def row(self, run: Run) -> TableRow:
        """A run in the table."""
        raise NotImplementedError

    def show_runs(self, runs: list[Run]) -> None:
        """A row for each."""
        for run in runs:
            if run.ended and run.run not in self._ended:
                self._ended[run.run] = self.row(run)
        self.table.set_rows([self._ended.get(run.run) or self.row(run) for run in runs])

    @property
    def selected_active(self) -> Run | None:
        """The selected row, if its run has not ended."""
        key = self.table.selected_key
        return next((run for run in self.active if run.run == key), None)


class PicturePage(BenchPage[Spec]):
    """A page that shows one run at a time: a picture, and beside it what came out in words."""

    def add_picture(self, picture: QWidget) -> None:
        """Show it once there is a run; it scrolls where it has no room."""
        self.summary = Summary(self._state)
        self.summary.changed.connect(self.refresh)
        area = ScrollArea(picture, sideways=True)
        area.setMinimumSize(200, 56)
        self.set_results(holder(hbox(self.summary, (area, 1))))
        self._shown: object = None

    def show_runs(self, runs: list[Run]) -> None:
        """The chosen one, as far as it has come."""
        run = self.summary.offer(runs)
        rows = getattr(run.result, "rows", tuple(run.parts))
        shown = run.run, len(rows), run.ended
        if shown != self._shown:
            self._shown = shown
            self.draw(run, rows)
        self.tell(run, rows)

    def draw(self, run: Run, rows: Sequence[Any]) -> None:
        """Draw what has been measured so far."""
        raise NotImplementedError

    def tell(self, run: Run, rows: Sequence[Any]) -> None:
        """Say it in words."""
        raise NotImplementedError
