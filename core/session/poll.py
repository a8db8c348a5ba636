"""What a session hands out at each beat, which parts of the state that changed, what another session kept of a device,
and the latest events that are still valid, with which a recording or a new window begins. Main thread; no Qt, no torch.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from devexplorer.core.devices.catalog import Catalog
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
from devexplorer.core.telemetry.history import THROUGHPUT, Floats

if TYPE_CHECKING:
    from devexplorer.core.session.state import State


class Change(enum.Flag):
    """Parts of the state that an event changed."""

    NOTHING = 0
    DEVICES = enum.auto()
    """The list of devices, or what a device is."""
    SAMPLES = enum.auto()
    OBJECTS = enum.auto()
    ANSWER = enum.auto()
    RUNS = enum.auto()
    """A run began, started to measure, or ended."""
    POINTS = enum.auto()
    """A run has measured another block."""
    MARKERS = enum.auto()
    LOG = enum.auto()
    ENGINE = enum.auto()
    UNDO = enum.auto()
    DETAILS = enum.auto()
    """Static details of a device, and the links between devices."""
    ALERTS = enum.auto()
    JOBS = enum.auto()
    LABORATORY = enum.auto()
    """Something that was asked about values, files, checkpoints, splits, or of a feature."""


MOST_EVENTS = 400
"""Per beat, so that a flood of events cannot freeze the window."""


class PollResult(NamedTuple):
    """What happened since the last beat."""

    events: list[Event]
    catalog: Catalog | None
    """The devices, when something about them changed."""
    state: State | None = None
    """What is known from now on, instead of everything before: a recording was wound to another moment, or a connection
    was made."""
    continues: bool = False
    """That state is of the same machine: its curves, its log and its alerts go on."""
    away: str = ""
    """Why nothing can be changed there now, one sentence; empty: it can."""
    past: tuple[Past, ...] = ()
    """What was read before the events, where nobody of ours was there."""
    more: bool = False
    """More events wait for the next beat."""


class Past(NamedTuple):
    """Readings of a device, a row of `values` for each time."""

    device: str
    metrics: tuple[str, ...]
    times: Floats
    values: Floats


def fill(state: State, past: Past) -> Change:
    """Add what is newer than what is known of that device."""
    device = state.devices.get(past.device)
    if device is None:
        return Change.NOTHING
    history = device.throughput if past.metrics == (THROUGHPUT.id,) else device.history
    history.fill(past.times, past.metrics, past.values)
    return Change.SAMPLES


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
