"""The cost of one tick of a plot with 8 curves: `refresh` (passing the new reading) and the following repaint.

Run: `python tests/benchmarks/plot_cost.py`; offscreen unless QT_QPA_PLATFORM says otherwise. Prints milliseconds.
"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np

CURVES, TICKS, TICK_S, NOW_S = 8, 60, 1 / 30, 1_800_000_000.0


def measure(points: int, simulated: bool) -> dict[str, float]:
    """Median milliseconds of `refresh` and of a full repaint at 720 x 232 with `points` readings a curve in view."""
    from PySide6.QtWidgets import QApplication, QWidget

    from devexplorer.core.devices.catalog import Catalog
    from devexplorer.core.records import DeviceInfo, DeviceSample
    from devexplorer.core.session.state import State
    from devexplorer.gui.plots.time_axis import TimeAxis
    from devexplorer.gui.timelines.slot import MetricPlot

    app = QApplication.instance() or QApplication([])
    state, axis = State(), TimeAxis()
    names = [f"vgpu:{index}" for index in range(CURVES)]
    kind = "virtual" if simulated else "cuda"
    state.set_catalog(
        Catalog(devices=tuple(DeviceInfo(id=name, kind=kind, name="card", simulated=simulated) for name in names))
    )
    noise = np.random.default_rng(0)
    for name in names:
        values = noise.normal(8e9, 1e8, points)
        for moment, value in zip(np.linspace(NOW_S - axis.span_s, NOW_S, points), values, strict=True):
            state.apply(
                DeviceSample(device=name, time_unix_s=float(moment), memory_used_bytes=int(value), simulated=simulated)
            )
    host = QWidget()  # without a layout: the plot has exactly this size
    plot = MetricPlot(state, axis)
    plot.setParent(host)
    plot.resize(720, 232)
    host.resize(720, 232)
    host.show()
    plot.refresh(NOW_S)
    app.processEvents()
    refreshes, repaints = [], []
    for tick in range(1, TICKS + 1):
        now = NOW_S + tick * TICK_S
        for name in names:
            state.apply(
                DeviceSample(device=name, time_unix_s=now, memory_used_bytes=8_000_000_000 + tick, simulated=simulated)
            )
        start = time.perf_counter()
        plot.refresh(now)
        refreshed = time.perf_counter()
        plot.canvas.viewport().repaint()
        repaints.append(time.perf_counter() - refreshed)
        refreshes.append(refreshed - start)
    host.close()
    host.deleteLater()
    app.processEvents()
    return {"refresh_ms": 1e3 * statistics.median(refreshes), "repaint_ms": 1e3 * statistics.median(repaints)}


def main() -> dict[str, dict[str, float]]:
    """Measure 600 and 6000 readings a curve, real (solid) and simulated (dashed) devices."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    results = {}
    for points in (600, 6000):
        for simulated in (False, True):
            name = f"{CURVES} {'dashed' if simulated else 'solid'} curves of {points} readings"
            results[name] = measure(points, simulated)
            print(f"{name}: refresh {results[name]['refresh_ms']:.2f} ms, repaint {results[name]['repaint_ms']:.2f} ms")
    return results


if __name__ == "__main__":
    main()
