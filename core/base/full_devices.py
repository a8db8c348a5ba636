"""Who wants to know that a virtual GPU is full; none has to be imported for that. Any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_told: list[Callable[[Any, int, str], None]] = []


def observe_full(tell: Callable[[Any, int, str], None]) -> None:
    """Let this be called with the virtual GPU, the bytes asked for and the message, each time before
    `OutOfMemoryError` is raised; it must not raise itself."""
    _told.append(tell)


def say_full(gpu: Any, nbytes: int, message: str) -> None:
    """A virtual GPU is full."""
    for tell in _told:
        tell(gpu, nbytes, message)
