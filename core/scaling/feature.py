"""Scaling: the same job on several devices at once, and one after the other. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(needs=("charts",), benchmark="core.scaling.kind:ScalingKind")
