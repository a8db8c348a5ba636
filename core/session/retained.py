"""The latest events that are still valid: a recording begins with them, and what a new window is told. No thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from devexplorer.core.records import (
    BenchEnded,
    BenchPreparing,
    BenchStarted,
    DeviceDetails,
    EngineLost,
    EngineReady,
    Event,
    Topology,
)

_RETAINED: dict[type, Callable[[Any], object]] = {
    DeviceDetails: lambda event: event.device,
    Topology: lambda event: event.source,
    EngineReady: lambda event: None,
    BenchPreparing: lambda event: event.run,
    BenchStarted: lambda event: event.run,
}
"""Events that are valid until the next one of the same kind with the same key."""
_OF_THE_ENGINE = (EngineReady, BenchPreparing, BenchStarted)


class RetainedEvents:
    """Engine, details, topology, unfinished runs."""

    def __init__(self) -> None:
        self._events: dict[tuple[type, object], Event] = {}

    def take(self, event: Event) -> None:
        """Retain it, or drop what it ends."""
        key = _RETAINED.get(type(event))
        if key is not None:
            self._events[type(event), key(event)] = event
        elif isinstance(event, BenchEnded):
            self._events.pop((BenchPreparing, event.run), None)
            self._events.pop((BenchStarted, event.run), None)
        elif isinstance(event, EngineLost):
            self._events = {key: kept for key, kept in self._events.items() if key[0] not in _OF_THE_ENGINE}

    def events(self) -> list[Event]:
        """All of them."""
        return list(self._events.values())
