"""The experiments, a page each: a question to what is selected, replicas of it, timing with and without synchronising,
and a device against the CPU. Main thread."""

from __future__ import annotations

from PySide6.QtWidgets import QSizePolicy

from devexplorer.core.base import BadInput, Findings, count_text
from devexplorer.core.records import Ask, Crossover, Replicate, Row, TimeWork
from devexplorer.core.session import Done, State
from devexplorer.gui.actions import row_of
from devexplorer.gui.charts.wall_bars import Bar, WallBars
from devexplorer.gui.experiments.actions import QUESTIONS
from devexplorer.gui.experiments.crossover_plot import CrossoverPlot
from devexplorer.gui.forms.device_choice import AlikeDevices, DeviceField
from devexplorer.gui.objects.command_page import ExperimentPage
from devexplorer.gui.widgets import EDGE_PX, ElidedLabel, FactsTable, Role, holder, line_edit, vbox
from devexplorer.gui.widgets.form_fields import Choice

OF_MODULES = ("type", "device")
"""Questions that a module can be asked too."""
TARGET_PX = 220
"""Largest width of the name of what is selected."""
SAMPLE_INPUT = (None, "a sample", "A sample input that fits the model")
SMALLEST = 16
LARGEST = (256, 512, 1024, 2048, 4096)


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
        words = self._targets[0] if count == 1 else f"{count} selected" if count else "nothing selected"
        self.target.setFixedWidth(min(self.target.fontMetrics().horizontalAdvance(words) + 4, TARGET_PX))
        self.target.set_full_text(words)
        super().refresh()

    def show_result(self, done: Done) -> None:
        """See `ExperimentPage`."""
        if done.answer is not None:
            self.facts.set_facts(done.answer.facts)

    @property
    def selected(self) -> tuple[str, Row] | None:
        """The one selected target that is there, and its row."""
        row = row_of(self._state, self._targets[0]) if len(self._targets) == 1 else None
        return None if row is None else (self._targets[0], row)


class AskPage(_SelectionPage):
    """One of Python's questions."""

    kind, title, action = Ask, "Ask", "Ask"
    meaning = "What Python answers about a tensor or a model, and why"
    nothing = (
        "Select a tensor, a parameter or a model, and ask it what Python would: type(), numpy(), item(). Errors are"
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

    kind, title, action = Replicate, "Replicate", "Replicate"
    meaning = "A copy of a model on each device, the batch split over them, the outputs gathered"
    nothing = (
        "Select a model and choose two devices or more: each gets a copy, the batch is split over them and the outputs"
        " are gathered, as DataParallel does."
    )

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.devices = AlikeDevices(state)
        self.input = Choice("Input", [SAMPLE_INPUT])
        self.add_fields(("on", self.devices), ("batch", self.input))
        self.refresh()

    @property
    def lacks_devices(self) -> bool:
        """See `ExperimentPage`."""
        return len(self._state.usable_devices) < 2

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
        "Products of matrices are timed twice: until their launches have returned, and until the device is done. On a"
        " GPU that differs."
    )

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.device = DeviceField(state)
        self.bars = WallBars()
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

    def show_result(self, done: Done) -> None:
        """Two bars, of the latest one that was measured."""
        work = self._state.work
        if work is None:
            return
        colour = self._state.look_of(work.device)[0]
        group = f"{count_text(work.iterations, 'product')} of {work.size}×{work.size} on {work.device}"
        times = {"without synchronising": work.launched_seconds, "with": work.finished_seconds}
        bars = tuple(Bar(group, name, seconds, colour, work.simulated) for name, seconds in times.items())
        if bars != self.bars.bars:
            self.bars.set_bars(bars)


class CrossoverPage(ExperimentPage):
    """The CPU against a device."""

    kind, title, action = Crossover, "Crossover", "Compare"
    meaning = "From which size on a device is faster than the CPU, copies left out and included"
    nothing = (
        "One product over growing sizes, on the CPU and on a device: from which size on is it worth it, and with the"
        " copies there and back?"
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

    @property
    def lacks_devices(self) -> bool:
        """See `ExperimentPage`."""
        return len(self._state.usable_devices) < 2

    def command(self) -> Crossover:
        """See `ExperimentPage`."""
        if self.device.value is None:
            raise BadInput("the CPU is the only device here; add virtual GPUs to try it")
        sizes, size = [], SMALLEST
        while size <= self.largest.value:
            sizes.append(size)
            size *= 2
        return Crossover(device=self.device.value, sizes=tuple(sizes))

    def show_result(self, done: Done) -> None:
        """The curves of the latest one that was measured."""
        measured = self._state.crossover
        if measured is not None:
            self.plot.show_measured(measured, self._state.look_of(measured.device)[0])
