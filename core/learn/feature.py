"""Learn: exercises that check themselves. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(
    needs=("parameters",), tab="gui.learn.tab:TAB", layout="gui.learn.layout:LAYOUT", choices="gui.learn.tab:choices"
)
