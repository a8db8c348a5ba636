"""Who watches a long job: hears how far it is, and may cancel it. Any thread; no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Watch:
    """What a long job tells while it runs, and what it asks between two steps."""

    progress: Callable[[float, str], None] = lambda done, text: None
    """Gets the share that is done, 0 to 1, and what is being done."""
    cancelled: Callable[[], bool] = lambda: False


NOBODY = Watch()
"""Nobody watches and nobody cancels."""
