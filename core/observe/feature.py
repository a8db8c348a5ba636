"""Scripts of the user's, run as they are and observed. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature()
