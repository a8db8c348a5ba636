"""The page Script: how fast a running script makes its steps, what takes their time, and the phases of a step over
time. Main thread.

Colour means device, and phases are no devices: what computes has shades of one hue, what waits has greys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, cast

from PySide6.QtCore import Qt
from PySide6.QtGui import QBrush, QColor
from PySide6.QtWidgets import QWidget

from devexplorer.core.base import MISSING, count_text, number_text, seconds_text
from devexplorer.core.observe.live import PHASES, ScriptState
from devexplorer.core.observe.records import ScriptPlacement, ScriptSteps, StepMemory
from devexplorer.core.records import Command
from devexplorer.core.session import State
from devexplorer.core.telemetry.history import History
from devexplorer.core.telemetry.metrics import Metric
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.charts.shades import STEPS, ramp
from devexplorer.gui.doctor.tab import TAB as DOCTOR
from devexplorer.gui.fit.tab import TAB as FIT
from devexplorer.gui.observe.scripts import why_no_question
from devexplorer.gui.plots.curves import Unit
from devexplorer.gui.plots.legend import LegendLine
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.timelines.slot import StackPlot
from devexplorer.gui.widgets import (
    EDGE_PX,
    ElidedLabel,
    EmptyState,
    Role,
    ShrinkingLabel,
    current_theme,
    hbox,
    holder,
    label,
    push_button,
    vbox,
)

if TYPE_CHECKING:
    from devexplorer.gui.shell.main_window import MainWindow

NO_SCRIPT = (
    "No script is shown. Start one with: devexplorer run train.py. While it runs, Machine ▾ › Running here lists it."
)
NO_STEP = "No steps of {name} have been seen. A step is a round of the optimizer; without one, a call of a model."
MEMORY_TIP = "What the next step has in the memory when backward begins: by part, and activations by layer"
FIT_TIP = "What a step takes by prediction and by measurement, and which other cards it would fit"
DOCTOR_TIP = "The doctor's rules that need no run, with what the script was seen to do: each finding with its line"
PLACE_TIP = "Which device each part of the model is on, and what goes to another one at every step"
UNITS = (Unit("s", 1.0), Unit("ms", 1e-3), Unit("µs", 1e-6))
RATE_S = 10.0
COMPUTES = {"forward": 1.0, "backward": 0.7, "optimizer": 0.42, "evaluation": 0.85}
"""Place in the ramp of a hue."""
HATCHED = {
    "evaluation": Qt.BrushStyle.BDiagPattern,
    "copies": Qt.BrushStyle.FDiagPattern,
    "read back": Qt.BrushStyle.BDiagPattern,
    "other ranks": Qt.BrushStyle.DiagCrossPattern,
}


class PhasePlot(StackPlot):
    """Seconds of a step by phase."""

    def __init__(self, state: State, axis: TimeAxis) -> None:
        metric = Metric("step_s", "Step time", "seconds")
        super().__init__(metric, state, axis, EmptyState(NO_SCRIPT, "Running scripts…"), PHASES)
        self._scale.set_units(UNITS)
        self._recolour()

    @property
    def _last(self) -> ScriptSteps | None:
        steps = self._state.part(ScriptState).steps
        return steps[-1] if steps else None

    @property
    def _history(self) -> History | None:
        return self._state.part(ScriptState).history

    def _parts(self) -> list[str]:
        history = self._state.part(ScriptState).history
        return [phase for phase in PHASES if history.has(phase)]

    def _brushes(self, part: str) -> list[QBrush]:
        theme = current_theme()
        if part in COMPUTES:
            colour = ramp(0)[int(COMPUTES[part] * (STEPS - 1))]
        else:
            colour = QColor(theme.bar_context if part == "rest" else theme.bar_other)
        brushes = [QBrush(colour)]
        if part in HATCHED:
            brushes.append(QBrush(QColor(theme.panel), HATCHED[part]))
        return brushes

    def _entries(self) -> list[LegendLine]:
        if self._last is None:
            return []
        phases = seconds_by_phase(self._state.part(ScriptState).steps)
        whole = sum(phases.values()) or 1.0
        return [
            line._replace(value=f"{100 * phases.get(line.device, 0.0) / whole:.0f} %") for line in super()._entries()
        ]

    def _subtitles(self) -> list[str]:
        unit = self._scale.unit.name
        if self._last is not None and self._last.simulated:
            unit += " · simulated"
        return [f"{unit} · shares of the last {RATE_S:.0f} s", unit]

    def _readout_titles(self) -> list[str]:
        return ["simulated"] if self._last is not None and self._last.simulated else []

    def _value_text(self, value: float) -> str:
        return seconds_text(value)


class ScriptPage(QWidget):
    """`refresh` shows the script of now, the plot goes on with each beat."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__()
        self._context, self._state = context, context.state
        self.setAccessibleName("Script")
        self.name = ShrinkingLabel(Role.STRONG)
        self.rate = label("", Role.NUMBER)
        self.numbers = ShrinkingLabel(words="dim")
        self.verdict = ElidedLabel()
        self.plot = PhasePlot(context.state, context.axis)
        self.memory = push_button("Memory of a step", partial(self._ask, StepMemory()), tip=MEMORY_TIP)
        self.placement = push_button("Placement", partial(self._ask, ScriptPlacement()), tip=PLACE_TIP)
        self.fit = push_button("Fit", lambda: FIT.show(context).start(), tip=FIT_TIP)
        self.doctor = push_button("Doctor", self._ask_doctor, tip=DOCTOR_TIP)
        asks = (self.memory, self.fit, self.placement, self.doctor)
        line = hbox(self.name, self.rate, self.numbers, None, *asks, spacing=EDGE_PX)
        self._head = holder(vbox(line, self.verdict, spacing=2, margins=(EDGE_PX, 2, EDGE_PX, 4)))
        vbox(self._head, (self.plot, 1), spacing=0, parent=self)
        context.beaten.connect(lambda: self.plot.refresh(context.axis.clock_unix_s))
        self.refresh()

    def _ask(self, command: Command) -> None:
        """The inspector has the answer."""
        workbench = cast("MainWindow", self._context.window).workbench
        if not workbench.shows("inspector"):
            workbench.show_layout("explore")
        self._context.controller.send(command)

    def _ask_doctor(self) -> None:
        """Of the model that is selected, or of the first."""
        page = DOCTOR.show(self._context)
        if page.form.target is None:
            page.set_selection(tuple(self._state.models[:1]))
        page.form.check()

    def refresh(self) -> None:
        """Show how it is now."""
        state, engine = self._state, self._state.engine
        for button, tip in (
            (self.memory, MEMORY_TIP),
            (self.fit, FIT_TIP),
            (self.placement, PLACE_TIP),
            (self.doctor, DOCTOR_TIP),
        ):
            reason = why_no_question(state)
            button.setEnabled(reason is None)
            button.setToolTip(reason or tip)
        steps = state.part(ScriptState).steps
        is_script = engine is not None and bool(engine.read_only)
        name = self._context.machine.name if is_script else "Script"
        self._head.setVisible(bool(steps))
        self.plot.show_empty(not steps)
        held = state.part(ScriptState).held
        stopped = f"{name} is stopped {held}." if held and is_script else ""
        self.plot.empty.sentence.setText(stopped or (NO_STEP.format(name=name) if is_script else NO_SCRIPT))
        self.plot.empty.button.setVisible(not is_script)
        if not steps:
            return
        last = steps[-1]
        phases = seconds_by_phase(steps)
        took = sum(phases.values())
        self.name.set_full_text(name)
        self.rate.setText(f"{number_text(steps_per_second(steps))} steps/s")
        a_step = seconds_text(took, last.simulated) if took else MISSING
        self.numbers.set_full_text(f"{count_text(last.steps, 'step')}, {a_step} each")
        self.verdict.set_full_text(stopped or last.verdict or largest_words(phases))


def steps_per_second(steps: Sequence[ScriptSteps]) -> float:
    """Over the last seconds: from one word to the next it goes to and fro."""
    last = steps[-1]
    for earlier in reversed(steps):
        passed = last.time_unix_s - earlier.time_unix_s
        if passed >= RATE_S:
            return (last.steps - earlier.steps) / passed
    return last.steps_per_second


def seconds_by_phase(steps: Sequence[ScriptSteps]) -> dict[str, float]:
    """Of a step, over the same seconds: of the last word alone, one evaluation would be all that is seen."""
    last = later = steps[-1]
    sums: Counter[str] = Counter()
    made = 0
    for earlier in islice(reversed(steps), 1, None):
        count = later.steps - earlier.steps
        for phase, seconds in later.phases.items():
            sums[phase] += count * seconds  # type: ignore[assignment]
        made += count
        later = earlier
        if last.time_unix_s - earlier.time_unix_s >= RATE_S:
            break
    if not made:
        return last.phases
    return {phase: seconds / made for phase, seconds in sums.items()}


def largest_words(phases: dict[str, float]) -> str:
    """What a step spends most of its time on, while nothing more is known."""
    if not phases:
        return ""
    phase, seconds = max(phases.items(), key=lambda phase: phase[1])
    return f"The largest part of a step: {phase}, {100 * seconds / (sum(phases.values()) or 1.0):.0f} %"
