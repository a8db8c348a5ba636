"""The texts of a plot over time, as a user reads them: axes, labels of lines, the readout."""

from __future__ import annotations

import numpy as np

from devexplorer.gui.plots.curves import Floats
from devexplorer.gui.plots.device_plot import DevicePlot
from devexplorer.gui.plots.timeline_plot import TimelinePlot


def marker_labels(plot: TimelinePlot) -> list[str]:
    """Labels of markers, elided if there was too little space, oldest first."""
    return [label.text for label in plot.canvas.lines.labels]


def guide_labels(plot: TimelinePlot) -> list[str]:
    """Labels of the horizontal lines."""
    return [label.text for label in plot.canvas.lines.guide_labels]


def y_ticks(plot: TimelinePlot) -> list[str]:
    """From the bottom."""
    return [text for _, text in plot.canvas.left.ticks]


def x_ticks(plot: TimelinePlot) -> list[str]:
    """From the left."""
    return [text for _, text in plot.canvas.bottom.ticks]


def cursor_text(plot: TimelinePlot) -> str:
    """The readout as HTML; empty if there is none."""
    return "" if plot.cursor_box.box.isHidden() else plot.cursor_box.box.text()


def curve_data(plot: TimelinePlot, device: str) -> tuple[Floats, Floats]:
    """Times (unix seconds) and values of a device's curve; empty if it has none or it is hidden."""
    assert isinstance(plot, DevicePlot)
    curve = plot.curves.get(device)
    if curve is None or not curve.line.is_shown:
        return np.empty(0), np.empty(0)
    return curve.times, curve.values


def selected_edges(plot: TimelinePlot) -> tuple[float, float] | None:
    """Both edges of the selected band in seconds from now; None: nothing is selected."""
    band = plot._selected
    return band.getRegion() if band.isVisible() else None
