"""The Bandwidth page of the Benchmark tab: copies between all chosen devices, in many sizes. Main thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from PySide6.QtWidgets import QCheckBox

from devexplorer.core.benchmark.spec import parse_seconds
from devexplorer.core.formats import bytes_text, count_text
from devexplorer.core.records.benchmark import BandwidthSpec, BenchSpec
from devexplorer.core.state import Run, State
from devexplorer.gui.panels.bench_copies import CopiesView
from devexplorer.gui.panels.bench_fields import Choice, Findings, edit, parse_bytes, parse_sizes
from devexplorer.gui.panels.bench_matmul import free_bytes
from devexplorer.gui.panels.bench_page import BenchPage
from devexplorer.gui.panels.device_choice import AllDevices
from devexplorer.gui.theme import Theme

MEMORY = (
    ((True, False), "pinned and pageable", "Copies from and to both kinds of host memory"),
    ((True,), "pinned", "Page-locked host memory, which the device reads and writes itself"),
    ((False,), "pageable", "Host memory as torch.empty gives it; the driver copies it once more"),
)
EXAMPLE = "4 KiB to 256 MiB ×16"
MOST_COPIES = 5000


class BandwidthPage(BenchPage):
    """One specification: every pair of the chosen devices."""

    kind, title = "bandwidth", "Bandwidth"
    nothing = "No copy was measured in this session."

    def __init__(self, state: State, theme: Theme, clock: Callable[[], float] = time.time) -> None:
        super().__init__(state, theme, clock)
        self.devices = AllDevices(state)
        self.sizes_edit = edit(EXAMPLE, EXAMPLE, "Bytes per copy", 170)
        self.sizes_edit.setToolTip("A list (64 KiB, 1 MiB), or a range: 4 KiB to 1 GiB ×4")
        self.memory = Choice("Host memory", MEMORY)
        self.both_ways = QCheckBox("both ways too")
        self.both_ways.setToolTip("Also copy there and back at the same time")
        self.seconds_edit = edit("0.2", "0.2", "Seconds per copy", 48)
        self.add_field("between", self.devices)
        self.add_field("sizes", self.sizes_edit)
        self.add_field("host memory", self.memory)
        self.add_field("", self.both_ways)
        self.add_field("seconds each", self.seconds_edit)
        self.view = CopiesView(state, theme)
        self.set_results(self.view)
        self.memory.currentIndexChanged.connect(self.check)
        self.both_ways.toggled.connect(self.check)
        self.view.summary.changed.connect(self.refresh)
        self.check()
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        self.view.set_theme(theme)
        super().set_theme(theme)

    def refresh(self) -> None:
        """Show devices and runs as they are now."""
        self.devices.refresh()
        super().refresh()

    # the form

    def specs(self) -> tuple[BandwidthSpec, ...]:
        """One for all pairs. Raises one `BadInput` with everything that is wrong."""
        found = Findings()
        chosen = self.devices.chosen
        if not chosen:
            found.add("no device is chosen; choose at least one")
        sizes = found.read(lambda text: parse_sizes(text, parse_bytes, EXAMPLE), self.sizes_edit.text())
        seconds = found.read(parse_seconds, self.seconds_edit.text().strip())
        found.refuse()
        assert sizes is not None
        assert seconds is not None
        for device in chosen:
            free = free_bytes(self._state.devices[device])
            needed = 2 * sizes[-1]
            if free is not None and needed > free:
                what = f"a copy of {bytes_text(sizes[-1])} within {device} needs {bytes_text(needed)}"
                found.add(f"{what}, and {bytes_text(free)} are free; take smaller sizes")
        spec = BandwidthSpec(
            sources=chosen,
            destinations=chosen,
            sizes=sizes,
            pinned=self.memory.value,
            both_ways=self.both_ways.isChecked(),
            seconds=seconds,
        )
        if (count := copies(spec)) > MOST_COPIES:
            found.add(f"{count:,} measurements are too many for one run; take fewer devices or sizes, {MOST_COPIES:,} at most")
        found.refuse()
        return (spec,)

    def describe(self, specs: Sequence[BenchSpec]) -> str:
        """How many pairs and sizes, and how long they take."""
        spec = specs[0]
        assert isinstance(spec, BandwidthSpec)
        seconds = copies(spec) * spec.seconds
        took = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
        pairs = count_text(len(spec.sources) * len(spec.destinations), "pair")
        return f"{pairs} in {count_text(len(spec.sizes), 'size')}, {took} of measuring"

    def offer(self, specs: Sequence[BenchSpec]) -> str:
        """`Measure 9 pairs`."""
        spec = specs[0]
        assert isinstance(spec, BandwidthSpec)
        return f"Measure {count_text(len(spec.sources) * len(spec.destinations), 'pair')}"

    # the runs

    def show_runs(self, runs: list[Run]) -> None:
        """The chosen one, as far as it has come."""
        self.view.set_runs(runs)


def copies(spec: BandwidthSpec) -> int:
    """How many pairs, sizes and kinds there are to measure."""
    host = sum("cpu" in (source, destination) and source != destination for source in spec.sources for destination in spec.destinations)
    others = len(spec.sources) * len(spec.destinations) - host
    return (host * len(spec.pinned) + others) * len(spec.sizes) * (2 if spec.both_ways else 1)
