"""A pytest plugin: as if PySide6 were not installed, in every worker."""

import sys

sys.modules["PySide6"] = None  # type: ignore[assignment]
