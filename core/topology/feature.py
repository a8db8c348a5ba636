"""Topology: how devices are joined, as a picture. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(tab="gui.topology.tab:TAB")
