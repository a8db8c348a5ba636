"""Charts of results that are not over time, which other features show; they are in `gui/charts`. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature()
