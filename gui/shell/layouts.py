"""The layouts of the window, in their order: the kernel's, and those that features name. Data only; main thread."""

from __future__ import annotations

from operator import attrgetter

from PySide6.QtCore import QSize

from devexplorer.core.feature import named
from devexplorer.gui.actions.layout import ACROSS, DOWN, PLOTS, Layout, PanelSplit

LOW_PX, WIDE_PX = 880, 1280
"""A window is low below this height, if it has this width."""
SLACK_PX = 20
"""So much more or less it takes to be it no longer: at the limit nothing goes to and fro."""


def is_low(window: QSize, *, before: bool) -> bool:
    """Whether a window of that size is low; `before`: it was until now."""
    slack = SLACK_PX if before else 0
    return window.height() < LOW_PX + slack and window.width() >= WIDE_PX - slack


PLOTS_SHARE = 0.487
"""Of the rows above the pages of Explore: three tenths of the whole window."""
PANELS = PanelSplit("panels", ACROSS, ("objects", "inspector"), (0, 0.33), (380, 250), 0)
CENTRE = PanelSplit("centre", DOWN, (PANELS, PLOTS), (1 - PLOTS_SHARE, 0), (150, PLOTS_SHARE), 1)
SIDE = PanelSplit("side", DOWN, ("inspector", "memory"), (0, 0.45), (150, 150), 0)
UNMEASURED = PanelSplit("unmeasured", ACROSS, ("devices", "objects", SIDE), (276, 0, 0.36), (240, 380, 280), 1)
WORKSPACE = PanelSplit("workspace", ACROSS, ("devices", CENTRE), (276, 0), (240, 500), 1)
BELOW_DEVICES = PanelSplit("below devices", ACROSS, ("stack", "pages"), (0.4, 0), (190, 732), 1)

LOW_ABOVE = PanelSplit("low above", ACROSS, ("devices", "objects", "inspector"), (276, 0, 0.25), (240, 380, 250), 1)
LOW_BELOW = PanelSplit("low below", ACROSS, ("memory", "pages"), (0.3, 0), (200, 620), 1)

_LAYOUTS = (
    Layout(
        "explore",
        "explore",
        "Tensors and models: what is where, and moving it",
        PanelSplit("rows", DOWN, (WORKSPACE, "pages"), (0, 0.3), (380, 90), 0),
        low=PanelSplit("low rows", DOWN, (LOW_ABOVE, LOW_BELOW), (0, 0.38), (200, 0.38), 0),
        unmeasured=PanelSplit("unmeasured rows", DOWN, (UNMEASURED, "pages"), (0, 0.3), (380, 90), 0),
        order=1,
    ),
    Layout(
        "measure",
        "benchmark",
        "Benchmarks, their history, and what the datasheet promises",
        PanelSplit("rows", DOWN, (PLOTS, "pages"), (0, 0.5), (0.42, 120), 0),
        order=2,
    ),
    Layout(
        "monitor",
        "monitor",
        "Every device in one table, and any quantity over time",
        PanelSplit("table above", DOWN, ("cards", BELOW_DEVICES), (0.5, 0), (120, 260), 1),
        order=3,
    ),
)
LAYOUTS: tuple[Layout, ...] = tuple(sorted((*_LAYOUTS, *named("layout")), key=attrgetter("order")))
BY_NAME = {layout.name: layout for layout in LAYOUTS}
