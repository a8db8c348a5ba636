"""Bandwidth: copies between and within devices. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(needs=("charts",), benchmark="core.bandwidth.kind:BandwidthKind")
