"""What stands in a plot over time, as a user reads it: texts of the axes, labels of lines, the readout."""

from __future__ import annotations

from devexplorer.gui.plots.timeline_plot import TimelinePlot


def marker_labels(plot: TimelinePlot) -> list[str]:
    """Labels of markers, cut short where room was short, oldest first."""
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
    """The readout as HTML; empty while there is none."""
    return "" if plot.cursor_box.box.isHidden() else plot.cursor_box.box.text()
