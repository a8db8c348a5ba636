"""Where the machines of a fleet come from: hosts over ssh, the nodes of a cluster, or a simulation. A protocol; no
thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from devexplorer.core.fleet.events import FleetEvent, MeasureOrder

MOST_EVENTS = 512
"""That one `drain` returns: a beat of the window stays short when a thousand machines report at once."""


class FleetSource(Protocol):
    """`start`, then `drain` often; `close` at the end. Main thread, and no method waits, but for `close`."""

    def start(self) -> None:
        """Begin to look for machines; returns at once."""
        ...

    def drain(self) -> Sequence[FleetEvent]:
        """What happened since the last call, in order; after a flood the rest comes with the next calls."""
        ...

    def close(self, deadline_s: float) -> bool:
        """Give everything back; False when something of it still runs after `deadline_s`."""
        ...


class MeasuringSource(FleetSource, Protocol):
    """A source whose cards can be measured."""

    def prepare(self, order: MeasureOrder) -> None:
        """Find out what the order needs, as the addresses of machines; on the thread of the check, and may wait."""
        ...

    def measure(self, order: MeasureOrder) -> None:
        """Measure on cards of this fleet, everywhere at the same time; events say what came of it, and each group ends
        with one `GroupEnded`. One order at a time."""
        ...

    def cancel(self) -> None:
        """End the order that is being measured; its groups end soon, with what was measured until then."""
        ...
