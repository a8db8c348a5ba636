"""Serving the readings of `devexplorer watch` and of fleets to Prometheus. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(needs=("watch",))
