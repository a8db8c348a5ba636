"""`devexplorer watch`: live readings in a terminal. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature()
