"""The Bandwidth page of the Benchmark tab: copies between all chosen devices, in many sizes. Main thread."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base import bytes_text, count_text
from devexplorer.core.benchmark.ranges import parse_byte_sizes
from devexplorer.core.records import BandwidthSpec
from devexplorer.core.session import Run
from devexplorer.gui.benchmark.base_page import BenchPage
from devexplorer.gui.benchmark.copies_view import CopiesView
from devexplorer.gui.forms.device_choice import AllDevices
from devexplorer.gui.widgets import check_box, line_edit
from devexplorer.gui.widgets.form_fields import Choice, MenuEdit, free_bytes, mixed_clocks_of, took

MEMORY = (
    ((True, False), "pinned and pageable", "Copies from and to both kinds of host memory"),
    ((True,), "pinned", "Page-locked host memory, which the device reads and writes itself"),
    ((False,), "pageable", "Host memory as torch.empty gives it; the driver copies it once more"),
)
SIZES = "4K,64K,1M,16M,256M"
CHOICES = (
    ("five sizes", SIZES),
    ("4 KiB to 1 GiB, each four times the last", "4K:1G"),
    ("small copies: latency", "1K:64K"),
    ("1 GiB", "1G"),
)
"""What the menu of sizes offers, and what it writes."""
MOST_COPIES = 5000


class BandwidthPage(BenchPage[BandwidthSpec]):
    """One specification: every pair of the chosen devices."""

    kind = "bandwidth"
    nothing = "No copy was measured in this session."
    device_choice = AllDevices

    def build(self) -> None:
        self.sizes_edit = MenuEdit(SIZES, "bytes per copy", CHOICES, 196)
        self.sizes_edit.setToolTip(
            "Sizes, separated by commas: 64K, 1M; FROM:TO takes four times the one before, from one to the other"
        )
        self.memory = Choice("Host memory", MEMORY)
        self.both_ways = check_box("bidirectional", tip="Also copy there and back at the same time")
        self.seconds_edit = line_edit("0.2", "0.2", "Seconds per copy", 48)
        self.add_fields(
            ("between", self.devices),
            ("sizes", self.sizes_edit),
            ("host", self.memory),
            ("", self.both_ways),
            ("seconds each", self.seconds_edit),
        )
        self.view = CopiesView(self._state)
        self.set_results(self.view)
        self.view.summary.changed.connect(self.refresh)

    # the form

    def specs(self) -> tuple[BandwidthSpec, ...]:
        """One for all pairs. Raises one `BadInput` with everything that is wrong."""
        findings, chosen = self.checked(), self.devices.chosen
        findings.add(*mixed_clocks_of(self._state, [name for name in chosen if name != "cpu"]))
        sizes = findings.checked(lambda: parse_byte_sizes(self.sizes_edit.text()))
        seconds = findings.seconds(self.seconds_edit.text().strip())
        findings.demand_none()
        assert sizes is not None
        assert seconds is not None
        largest, both = max(sizes), self.both_ways.isChecked()
        simulated = any(self._state.devices[name].info.simulated for name in chosen)
        for name in chosen:
            if name == "cpu" and simulated:
                continue  # what a virtual GPU copies has no values: the host's memory does not count
            free, needed = free_bytes(self._state.devices[name]), 2 * largest  # within one device, or there and back
            if free is not None and needed > free:
                words = f"copies of {bytes_text(largest)} need {bytes_text(needed)} on {name}"
                findings.add(f"{words}, and {bytes_text(free)} are free; take less")
        spec = BandwidthSpec(
            sources=chosen,
            destinations=chosen,
            sizes=sizes,
            pinned=self.memory.value,
            both_ways=both,
            seconds=seconds,
        )
        if (count := copies(spec)) > MOST_COPIES:
            findings.add(
                f"{count:,} measurements are too many for one run; take fewer devices or sizes, {MOST_COPIES:,} at most"
            )
        findings.demand_none()
        return (spec,)

    def describe(self, specs: Sequence[BandwidthSpec]) -> str:
        """How many pairs and sizes, and how long they take."""
        spec = specs[0]
        pairs = count_text(len(spec.sources) * len(spec.destinations), "pair")
        return f"{pairs} in {count_text(len(spec.sizes), 'size')}, {took(copies(spec) * spec.seconds)} of measuring"

    def offer(self, specs: Sequence[BandwidthSpec]) -> str:
        """`Measure 9 pairs`."""
        spec = specs[0]
        return f"Measure {count_text(len(spec.sources) * len(spec.destinations), 'pair')}"

    # the runs

    def show_runs(self, runs: list[Run]) -> None:
        """The chosen one, as far as it has come."""
        self.view.set_runs(runs)


def copies(spec: BandwidthSpec) -> int:
    """How many rows there are to measure: both kinds of host memory where it is involved, both ways once per pair and
    pinned."""
    pairs = [(source, destination) for source in spec.sources for destination in spec.destinations]
    host = [pair for pair in pairs if ("cpu" in pair) and len(set(pair)) == 2]
    together = {frozenset(pair) for pair in pairs if len(set(pair)) == 2 and (pair not in host or True in spec.pinned)}
    one_way = len(host) * len(spec.pinned) + len(pairs) - len(host)
    return (one_way + (len(together) if spec.both_ways else 0)) * len(spec.sizes)
