"""The Experiments tab, a page for each experiment: a question to what is selected, replicas of it, timing with and
without synchronising, and where a device overtakes the CPU. Main thread."""

from __future__ import annotations

import math

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSizePolicy

from devexplorer.core.base import BadInput, Findings, count_text, seconds_text
from devexplorer.core.experiments.records import (
    Ask,
    Crossover,
    CrossoverMeasured,
    DeviceSeconds,
    Replicate,
    TimeWork,
    alone,
    overtaking,
    with_copies,
)
from devexplorer.core.experiments.state import ExperimentState
from devexplorer.core.records import Row
from devexplorer.core.session import FinishedCommand, State
from devexplorer.gui.charts.size_curve import Point, Series, SizeCurve
from devexplorer.gui.charts.wall_bars import Bar, WallBars
from devexplorer.gui.experiments.tab import QUESTIONS
from devexplorer.gui.forms.device_choice import AlikeDevices, DeviceField
from devexplorer.gui.forms.page import FormPages
from devexplorer.gui.objects.command_page import ExperimentPage
from devexplorer.gui.plots.canvas import Ticks
from devexplorer.gui.plots.curves import Unit
from devexplorer.gui.widgets import (
    CPU,
    EDGE_PX,
    Choice,
    ElidedLabel,
    FactsTable,
    Role,
    device_dash,
    holder,
    line_edit,
    vbox,
)

SHORTEST = 1e-9
"""Shorter times in seconds have no place on the axis."""
WITH_COPIES_DASHES = (1.0, 3.0)
OF_MODULES = ("type", "device")
"""Questions that a module can be asked too."""
TARGET_PX = 220
"""Largest width of the name of what is selected."""
SAMPLE_INPUT = (None, "a sample", "A sample input that fits the model")
SMALLEST = 16
LARGEST = (256, 512, 1024, 2048, 4096)


class CrossoverPlot(SizeCurve):
    """Feed it with `show_measured`."""

    def __init__(self) -> None:
        super().__init__("Seconds of a product over its size", (Unit("s", 1.0),))
        self._shown: object = None
        self.set_axis("n", "{:.0f}".format)

    def show_measured(self, measured: CrossoverMeasured, colour: int) -> None:
        """Show these points; `colour` is the device's index into the palette."""
        if (measured, colour) == self._shown:
            return
        self._shown = (measured, colour)
        device, simulated = measured.device, measured.simulated
        dashes, mark = tuple(device_dash(colour)), "ring" if simulated else ""
        self.set_curves(
            [
                Series("cpu", CPU, _times(measured, lambda point: point.cpu_seconds)),
                Series(device, colour, _times(measured, alone), simulated, mark, dashes=dashes),
                Series(
                    "with copies", colour, _times(measured, with_copies), simulated, "square", dashes=WITH_COPIES_DASHES
                ),
            ],
            markers=_overtakings(measured),
        )  # fmt: skip

    def _y(self, value: float) -> float:
        return math.log10(max(value, SHORTEST))

    def _y_ticks(self) -> Ticks:
        seconds = [self._y(point[1]) for item in self.series for point in item.points] or [0.0]
        low, high = math.floor(min(seconds)), math.ceil(max(seconds))
        return [(float(power), seconds_text(10.0**power)) for power in range(low, max(high, low + 1) + 1)]

    def _y_name(self) -> str:
        return "time of n×n"

    def _value_text(self, value: float) -> str:
        return seconds_text(value)


def _times(measured: CrossoverMeasured, seconds: DeviceSeconds) -> tuple[Point, ...]:
    return tuple((float(point.size), *(seconds(point),) * 3) for point in measured.points)


def _overtakings(measured: CrossoverMeasured) -> list[tuple[float, str]]:
    """Sizes from which on the device is faster, with their labels."""
    first, copied = (overtaking(measured.points, seconds) for seconds in (alone, with_copies))
    if first is not None and copied is not None and first.size == copied.size:
        return [(first.size, "overtakes, with copies too")]
    lines = [] if first is None else [(float(first.size), f"overtakes from {first.size}")]
    return lines if copied is None else [*lines, (float(copied.size), f"with copies from {copied.size}")]


class _SelectionPage(ExperimentPage):
    """A page about the one thing that is selected; its picture is the answer's facts."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.facts = FactsTable()
        self.set_picture(holder(vbox(self.facts, None, margins=(EDGE_PX, 4, EDGE_PX, 4))), shares=(1, 1))
        self.target = ElidedLabel(Role.STRONG)
        fixed = QSizePolicy.Policy.Fixed  # its width is set, and the row has to know of it
        self.target.setSizePolicy(fixed, fixed)
        self.add_field("", self.target)

    def refresh(self) -> None:
        """See `ExperimentPage`."""
        count = len(self._targets)
        if count == 1:
            words = self._targets[0]
        elif count:
            words = f"{count} selected"
        else:
            words = "nothing selected"
        self.target.setFixedWidth(min(self.target.fontMetrics().horizontalAdvance(words) + 4, TARGET_PX))
        self.target.set_full_text(words)
        super().refresh()

    def show_result(self, done: FinishedCommand) -> None:
        """See `ExperimentPage`."""
        if done.answer is not None:
            self.facts.set_facts(done.answer.facts)

    @property
    def selected(self) -> tuple[str, Row] | None:
        """The one selected target that is there, and its row."""
        row = self._state.row_of(self._targets[0]) if len(self._targets) == 1 else None
        return None if row is None else (self._targets[0], row)


class AskPage(_SelectionPage):
    """One of Python's questions."""

    kind, title, action = Ask, "Ask", "Ask"
    meaning = "What Python answers about a tensor or a model, and why"
    nothing = (
        "Select a tensor, a parameter or a model, and see what type(), numpy() or item() answers in Python. Errors are"
        " explained."
    )

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.question = Choice("Question", [(key, words, "") for key, words in QUESTIONS.items()])
        self.add_field("", self.question)
        self.refresh()

    def command(self) -> Ask:
        """See `ExperimentPage`."""
        selected = self.selected
        if selected is None:
            raise BadInput("select one tensor, parameter, buffer or model")
        target, row = selected
        question = str(self.question.value)
        if row.kind not in ("module", "parameter", "buffer", "tensor") or not row.registered:
            raise BadInput("select a registered parameter or buffer, a tensor or a model")
        if row.kind == "module" and question not in OF_MODULES:
            raise BadInput("this is a question for a tensor; select one of the model's parameters")
        return Ask(target=target, question=question)


class ReplicatePage(_SelectionPage):
    """Copies on several devices, as DataParallel makes them."""

    kind, title, action, fewest = Replicate, "Replicate", "Replicate", 2
    meaning = "A copy of a model on each device, the batch split over them, the outputs gathered"
    nothing = (
        "Select a model and choose at least two devices: each gets a copy and a part of the batch, and the outputs are"
        " gathered."
    )

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.devices = AlikeDevices(state)
        self.input = Choice("Input", [SAMPLE_INPUT])
        self.add_fields(("on", self.devices), ("batch", self.input))
        self.refresh()

    def refresh(self) -> None:
        """See `ExperimentPage`."""
        tensors = [name for name, snapshot in self._state.objects.items() if snapshot.kind == "tensor"]
        self.input.offer([SAMPLE_INPUT, *((name, name, "") for name in tensors)])
        super().refresh()

    def command(self) -> Replicate:
        """See `ExperimentPage`."""
        findings = Findings()
        selected = self.selected
        if selected is None or selected[1].kind != "module":
            findings.add("select one model, or one part of a model")
        if self.lacks_devices:
            findings.add("there is only one device here; add virtual GPUs to try it")
        elif len(self.devices.chosen) < 2:
            findings.add("choose at least two devices")
        findings.demand_none()
        assert selected is not None
        return Replicate(target=selected[0], devices=self.devices.chosen, input=self.input.value)


class TimeWorkPage(ExperimentPage):
    """Products timed with and without synchronising."""

    kind, title, action = TimeWork, "Timing", "Time it"
    meaning = "What a timer reads without synchronising, and with"
    nothing = (
        "Matrix products are timed twice: until the launches return, and until the device has finished. On a GPU the"
        " two differ."
    )

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.device = DeviceField(state)
        self.bars = WallBars(grouped=False)  # both are of one job, which the answer names
        self.set_picture(self.bars)
        self.size_edit = line_edit("1000", "1000", "Size", 56, tip="Side of the square matrices")
        self.iterations_edit = line_edit("10", "10", "Products", 56)
        self.add_fields(("on", self.device), ("size", self.size_edit), ("products", self.iterations_edit))
        self.refresh()

    def command(self) -> TimeWork:
        """See `ExperimentPage`."""
        findings = Findings()
        size = findings.count(self.size_edit.text(), "size")
        iterations = findings.count(self.iterations_edit.text(), "products")
        if self.device.value is None:
            findings.add("no device yet")
        findings.demand_none()
        assert size is not None
        assert iterations is not None
        return TimeWork(device=self.device.value, size=size, iterations=iterations)

    def show_result(self, done: FinishedCommand) -> None:
        """Two bars, of the latest one that was measured."""
        work = self._state.part(ExperimentState).work
        if work is None:
            return
        colour = self._state.look_of(work.device)[0]
        group = f"{count_text(work.iterations, 'product')} of {work.size}×{work.size} on {work.device}"
        times = {"unsynchronised": work.launched_seconds, "synchronised": work.finished_seconds}
        bars = tuple(Bar(group, name, seconds, colour, work.simulated) for name, seconds in times.items())
        if bars != self.bars.bars:
            self.bars.set_bars(bars)


class CrossoverPage(ExperimentPage):
    """The CPU against a device."""

    kind, title, action, fewest = Crossover, "Crossover", "Compare", 2
    meaning = "From which size on a device is faster than the CPU, copies left out and included"
    nothing = (
        "One matrix product at growing sizes, on the CPU and on a device: from which size is the device faster, with"
        " and without the copies?"
    )

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.device = DeviceField(state, without_cpu=True)
        self.plot = CrossoverPlot()
        self.set_picture(self.plot)
        self.largest = Choice(
            "Largest size",
            [(size, f"{size}", f"Sizes from {SMALLEST} to {size}, each twice the last") for size in LARGEST],
        )
        self.largest.choose(1024)
        self.add_fields(("CPU against", self.device), (f"sizes from {SMALLEST} to", self.largest))
        self.refresh()

    def command(self) -> Crossover:
        """See `ExperimentPage`."""
        if self.device.value is None:
            raise BadInput("the CPU is the only device here; add virtual GPUs to try it")
        sizes, size = [], SMALLEST
        while size <= self.largest.value:
            sizes.append(size)
            size *= 2
        return Crossover(device=self.device.value, sizes=tuple(sizes))

    def show_result(self, done: FinishedCommand) -> None:
        """The curves of the latest one that was measured."""
        measured = self._state.part(ExperimentState).crossover
        if measured is not None:
            self.plot.show_measured(measured, self._state.look_of(measured.device)[0])


class ExperimentsPanel(FormPages[ExperimentPage]):
    """Reads `state.jobs`, `state.done` and what was measured; `set_selection` says what is selected."""

    command_requested = Signal(object)

    def __init__(self, state: State) -> None:
        self.ask = AskPage(state)
        self.replicate = ReplicatePage(state)
        self.time_work = TimeWorkPage(state)
        self.crossover = CrossoverPage(state)
        every: tuple[ExperimentPage, ...] = (self.ask, self.replicate, self.time_work, self.crossover)
        by_title = {page.title: page for page in every}
        super().__init__({page.title: (page.title, page.meaning) for page in every}, by_title.__getitem__)
        for page in every:
            self.pages[page.title].command_requested.connect(self.command_requested)
        self.refresh()

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """What is selected in the tree."""
        for page in self.pages.values():
            page.set_selection(targets)

    def refresh(self) -> None:
        """Show everything as it is now."""
        for page in self.pages.values():
            page.refresh()
        self.rail.mark({title for title, page in self.pages.items() if page.running is not None})
