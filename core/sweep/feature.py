"""Sweeps: products of many shapes on one device, and the search for the fastest. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(needs=("charts",), benchmark="core.sweep.kind:SweepKind")
