"""Times and durations as clocks show them, for recordings and alerts. Pure functions, any thread."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

Clock = Callable[[], float]
"""Tells the seconds, as `time.time` and `time.monotonic` do; whoever measures is given one."""


def moment_text(time_unix_s: float) -> str:
    """Day and time on this machine's clock: `2026-11-20 13:04:05`."""
    return datetime.fromtimestamp(time_unix_s).strftime("%Y-%m-%d %H:%M:%S")


def elapsed_text(seconds: float) -> str:
    """`3723.4` -> `1:02:03`; below an hour `2:03`. A clock that was set back makes it 0, never less."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
