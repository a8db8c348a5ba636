"""Roofline: runs against what a card's datasheet promises. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(needs=("history", "bandwidth", "scaling", "sweep", "charts"), tab="gui.roofline.tab:TAB")
