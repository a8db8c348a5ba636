"""A day of readings in the window: 24 hours at 10 Hz from 16 devices, fed at full speed. Is memory constant, what does
a reading cost, and how long does it take to draw any part of it?

    python tests/benchmarks/timeline_memory.py [--hours 24]

Resident memory is compared after the first quarter of an hour (the readings' rings are full) and at the end. A drawing
is everything that one beat does for one plot of 700 × 206 pixels with all data fetched again: the refresh and the full
repaint. Wanted: 10 ms."""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import time

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import numpy as np
import psutil

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import AllocatorSample, DeviceInfo, DeviceSample
from devexplorer.core.session.state import State

DEVICES = tuple(f"vgpu:{index}" for index in range(16))
RATE_HZ = 10
START_S = 1_700_000_000.0
SETTLED_S = 900.0
MIB, GIB = 1 << 20, 1 << 30
SPANS_S = (30.0, 120.0, 600.0, 3600.0, 21_600.0, 86_400.0)
DRAWINGS, PANS = 15, 60


def make_state() -> State:
    """Sixteen simulated cards, whose dashed curves cost more than solid ones."""
    state = State()
    infos = (
        DeviceInfo(id=name, kind="virtual", name="Tesla T4", memory_total_bytes=16 * GIB, simulated=True)
        for name in DEVICES
    )
    state.set_catalog(Catalog(tuple(infos)))
    return state


def push(state: State, first: int, stop: int) -> float:
    """Feed these ticks; returns the seconds that `State.apply` took for the samples, without creating them."""
    spent = 0.0
    for tick in range(first, stop):
        now = START_S + tick / RATE_HZ
        samples = []
        for number, name in enumerate(DEVICES):
            wave = math.sin(tick / 5000 + number)
            used = int((8 + 5 * wave) * GIB) + (tick * 4099 + number) % (GIB // 4)
            samples.append(
                DeviceSample(
                    device=name, time_unix_s=now, memory_used_bytes=used, memory_free_bytes=16 * GIB - used,
                    memory_total_bytes=16 * GIB,
                    utilization_percent=50 + 40 * wave, memory_utilization_percent=30.0, encoder_percent=0.0,
                    decoder_percent=0.0,
                    temperature_c=60 + 10 * wave, power_w=150 + 90 * wave, power_instant_w=150.0, power_cap_w=250.0,
                    energy_j=tick * 15.0,
                    sm_clock_mhz=1410, memory_clock_mhz=5000, graphics_clock_mhz=1410, video_clock_mhz=1200,
                    fan_percent=40.0,
                    pcie_generation=4, pcie_width=16, pcie_tx_bytes_s=1e9, pcie_rx_bytes_s=2e9, ecc_corrected=0,
                    ecc_uncorrected=0,
                )
            )  # fmt: skip
            if tick % 10 == 0:
                state.apply(
                    AllocatorSample(
                        device=name, time_unix_s=now, allocated_bytes=used // 2, reserved_bytes=used * 3 // 4,
                        workspace_bytes=used // 3,
                        context_bytes=GIB // 8, largest_free_block_bytes=used // 8, simulated=True,
                    )
                )  # fmt: skip
        started = time.perf_counter()
        for sample in samples:
            state.apply(sample)
        spent += time.perf_counter() - started
    return spent


def drawing_times(state: State, now_s: float) -> dict[str, tuple[float, float]]:
    """Median and worst milliseconds of a drawing, by plot and span."""
    from PySide6.QtWidgets import QApplication, QWidget

    from devexplorer.gui.plots.time_axis import TimeAxis
    from devexplorer.gui.timelines.slot import PlotSlot

    app = QApplication.instance() or QApplication([])
    axis = TimeAxis()
    host = QWidget()  # without a layout: the plot has exactly this size
    host.resize(700, 206)
    slot = PlotSlot(state, axis)
    slot.setParent(host)
    slot.resize(700, 206)
    host.show()
    slot.refresh(now_s)
    app.processEvents()

    def draw() -> float:
        slot.plot._forget_drawn()
        started = time.perf_counter()
        slot.refresh(now_s)
        slot.plot.canvas.viewport().repaint()
        return 1e3 * (time.perf_counter() - started)

    results = {}
    rng = np.random.default_rng(0)
    for choice in ("memory_used_bytes", "utilization_percent", "parts:vgpu:3"):
        slot.set_choice(choice)
        axis.set_paused(False)
        for span in SPANS_S:
            axis.set_span(span)
            app.processEvents()
            draw()
            took = [draw() for _ in range(DRAWINGS)]
            results[f"{choice}, live {span:.0f} s"] = statistics.median(took), max(took)
        axis.set_paused(True)
        took = []
        for _ in range(PANS):
            width = float(10 ** rng.uniform(0, math.log10(86_400)))
            axis.right_s = -float(rng.uniform(0, 86_400 - width))
            axis.left_s = axis.right_s - width
            axis.changed.emit()
            took.append(draw())
        results[f"{choice}, {PANS} paused ranges"] = statistics.median(took), max(took)
    host.close()
    host.deleteLater()
    app.processEvents()
    return results


def main() -> dict[str, float]:
    """Feed, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    hours = parser.parse_args().hours
    state, process = make_state(), psutil.Process()
    empty = process.memory_info().rss
    settled, ticks = round(SETTLED_S * RATE_HZ), round(hours * 3600 * RATE_HZ)
    push(state, 0, settled)
    gc.collect()
    before = process.memory_info().rss
    seconds = push(state, settled, ticks)
    gc.collect()
    after = process.memory_info().rss
    samples = (ticks - settled) * len(DEVICES)
    found = {
        "samples": float(samples),
        "before_bytes": float(before),
        "after_bytes": float(after),
        "ratio": after / before,
        "microseconds_per_sample": 1e6 * seconds / samples,
    }
    print(
        f"{hours:g} h of {len(DEVICES)} devices at {RATE_HZ} Hz, {samples:,} samples of"
        f" {len(state.devices[DEVICES[0]].history.metrics)} quantities: resident {before / MIB:.1f} MiB after a quarter"
        f" of an hour, {after / MIB:.1f} MiB at the end (ratio {after / before:.3f}; {(after - empty) / MIB:.1f} MiB"
        f" more than empty), {found['microseconds_per_sample']:.1f} us a sample"
    )
    for name, (median, worst) in drawing_times(state, START_S + ticks / RATE_HZ).items():
        found[f"{name}: ms"] = median
        print(f"  {name}: {median:.1f} ms (median), {worst:.1f} ms at worst")
    return found


if __name__ == "__main__":
    main()
