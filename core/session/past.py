"""What another session kept of a device, added to the curves of a state. Main thread; no Qt, no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from devexplorer.core.session.change import Change
from devexplorer.core.telemetry.history import THROUGHPUT, Floats

if TYPE_CHECKING:
    from devexplorer.core.session.state import State


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
