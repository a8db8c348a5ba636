"""The layout Learn: an exercise beside what it needs. Data only; main thread."""

from __future__ import annotations

from devexplorer.gui.actions.layout import ACROSS, DOWN, PLOTS, Layout, PanelSplit

EXERCISE = PanelSplit("exercise", DOWN, ("exercise", "inspector"), (0, 311), (200, 120), 0)
ROW = PanelSplit("row", ACROSS, ("devices", "objects"), (276, 0), (240, 280), 1)
BESIDE_IT = PanelSplit("rows", DOWN, (ROW, PLOTS, "pages"), (0.355, 0, 0.376), (150, 150, 150), 1)
LAYOUT = Layout(
    "learn",
    "learn",
    "Exercises that check themselves, beside what they need",
    PanelSplit("columns", ACROSS, (EXERCISE, BESIDE_IT), (0.23, 0), (260, 500), 1),
    order=4,
)
