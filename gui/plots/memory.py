"""The former name of the plot of a metric, until the window has a `PlotSlot` in its place. Main thread only."""

from devexplorer.gui.plots.metric import MetricPlot as MemoryPlot

__all__ = ["MemoryPlot"]
