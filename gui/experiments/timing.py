"""Experiments with time: work with and without synchronising, and a device against the CPU over growing sizes. Main
thread."""

from __future__ import annotations

from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.findings import Findings
from devexplorer.core.base.formats import count_text
from devexplorer.core.benchmark.spec import parse_count
from devexplorer.core.records.experiments import Crossover, TimeWork
from devexplorer.core.session.jobs import Done
from devexplorer.core.session.state import State
from devexplorer.gui.charts.wall_bars import Bar, WallBars
from devexplorer.gui.experiments.crossover_plot import CrossoverPlot
from devexplorer.gui.objects.command_page import DeviceField, ExperimentPage
from devexplorer.gui.widgets.form_fields import Choice, edit
from devexplorer.gui.widgets.theme import CPU, Theme

SMALLEST = 16
LARGEST = (256, 512, 1024, 2048, 4096)


class TimeWorkPage(ExperimentPage):
    """The tutorial's own timing forgets to synchronise."""

    kind, title, action = TimeWork, "Time work", "Time it"
    meaning = "What a timer reads without synchronising, and with"
    nothing = (
        "Products of matrices are timed twice: until their launches have returned, and until the device is done. On a"
        " GPU that differs."
    )

    def __init__(self, state: State, theme: Theme) -> None:
        super().__init__(state, theme)
        self.device = DeviceField(state)
        self.size_edit = edit("1000", "1000", "Size", 56)
        self.size_edit.setToolTip("Side of the square matrices")
        self.iterations_edit = edit("10", "10", "Products", 56)
        self.add_field("on", self.device)
        self.add_field("size", self.size_edit)
        self.add_field("products", self.iterations_edit)
        self.bars = WallBars(theme)
        self.set_picture(self.bars)
        self.refresh()

    def set_theme(self, theme: Theme) -> None:
        """See `ExperimentPage`."""
        self.bars.set_theme(theme)
        super().set_theme(theme)

    def refresh(self) -> None:
        """See `ExperimentPage`."""
        self.device.refresh()
        super().refresh()

    def command(self) -> TimeWork:
        """See `ExperimentPage`."""
        found = Findings()
        size = found.checked(lambda: parse_count(self.size_edit.text(), "size"))
        iterations = found.checked(lambda: parse_count(self.iterations_edit.text(), "products"))
        if self.device.value is None:
            found.add("there is no device yet")
        found.demand_none()
        assert size is not None
        assert iterations is not None
        return TimeWork(device=self.device.value, size=size, iterations=iterations)

    def show_result(self, done: Done) -> None:
        """Two bars, of the latest one that was measured."""
        work = self._state.work
        if work is None:
            return
        device = self._state.devices.get(work.device)
        colour = CPU if device is None else device.colour
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

    def __init__(self, state: State, theme: Theme) -> None:
        super().__init__(state, theme)
        self.device = DeviceField(state, without_cpu=True)
        self.largest = Choice(
            "Largest size",
            [(size, f"{size}", f"Sizes from {SMALLEST} to {size}, each twice the last") for size in LARGEST],
        )
        self.largest.choose(1024)
        self.add_field("CPU against", self.device)
        self.add_field(f"sizes from {SMALLEST} to", self.largest)
        self.plot = CrossoverPlot(theme)
        self.set_picture(self.plot)
        self.refresh()

    @property
    def lacks_devices(self) -> bool:
        """See `ExperimentPage`."""
        return len(self._state.usable_devices) < 2

    def set_theme(self, theme: Theme) -> None:
        """See `ExperimentPage`."""
        self.plot.set_theme(theme)
        super().set_theme(theme)

    def refresh(self) -> None:
        """See `ExperimentPage`."""
        self.device.refresh()
        super().refresh()

    def command(self) -> Crossover:
        """See `ExperimentPage`."""
        if self.device.value is None:
            raise BadInput("there is no device beside the CPU here; add virtual GPUs to try it")
        sizes, size = [], SMALLEST
        while size <= self.largest.value:
            sizes.append(size)
            size *= 2
        return Crossover(device=self.device.value, sizes=tuple(sizes))

    def show_result(self, done: Done) -> None:
        """The curves of the latest one that was measured."""
        measured = self._state.crossover
        if measured is not None:
            device = self._state.devices.get(measured.device)
            self.plot.show_measured(measured, CPU if device is None else device.colour)
