"""What a fleet is made of and what happens in it: machines that come, go and fall silent, their cards, their readings;
and where machines come from, as a protocol. Plain frozen records, made on any thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.records.base import Record
from devexplorer.core.records.devices import DeviceDetails, DeviceInfo, DeviceSample, Problem

MachineState = Literal["connecting", "connected", "reconnecting", "lost"]
"""`reconnecting`: its last readings are kept, with their age. `lost`: no further attempt is made by itself."""


class FleetMachine(Record):
    """One machine of a fleet at this moment."""

    name: str
    """Unique in the fleet."""
    state: MachineState = "connecting"
    problem: str = ""
    """Why it is not connected, one line."""
    rack: str = ""
    """What the user calls the place it is in."""
    simulated: bool = False


class MachineChanged(Record, tag="MachineChanged"):
    """A machine has joined, or its state is another."""

    machine: FleetMachine


class MachineLeft(Record, tag="MachineLeft"):
    """A machine is no longer a part of the fleet."""

    name: str


class CardsListed(Record, tag="CardsListed"):
    """The devices of a machine, all of them; the order is kept."""

    machine: str
    devices: tuple[DeviceInfo, ...]
    problems: tuple[Problem, ...] = ()


class Readings(Record, tag="Readings"):
    """Readings of one machine, at most one of each device."""

    machine: str
    samples: tuple[DeviceSample, ...]


class CardDetails(Record, tag="CardDetails"):
    """What seldom changes of one card of a machine."""

    machine: str
    details: DeviceDetails


CardKey = tuple[str, str]
"""Machine and device."""


class MeasureOrder(Record):
    """One measurement on many cards at the same time."""

    number: int
    """Unique in the fleet; its events carry it."""
    kind: MeasuredKind
    dtype: str = ""
    seconds: float = 10.0
    """To be measured, after warm-up."""
    soak_s: float = 0.0
    """Of the same work before that, so that the cards are as hot as they get; nothing of it counts."""
    groups: tuple[tuple[CardKey, ...], ...] = ()
    """What is measured together: one card, the two of a copy, the ranks of an all-reduce. No card is in two."""


class GroupStarted(Record, tag="GroupStarted"):
    """A group of an order begins to be measured; its warm-up is over."""

    number: int
    group: int
    """Index into `MeasureOrder.groups`."""
    time_unix_s: float
    """By the clock of who listens."""


class BlocksMeasured(Record, tag="BlocksMeasured"):
    """Blocks of a group, one after the other."""

    number: int
    group: int
    rates: tuple[float, ...]
    """TFLOP/s of products, samples/s of models, decimal GB/s of everything else (bus bandwidth of an all-reduce)."""
    block_s: float
    simulated: bool = False


class GroupEnded(Record, tag="GroupEnded"):
    """Nothing more comes of this group."""

    number: int
    group: int
    failure: str = ""
    """Why it could not be measured to its end, one line."""
    verified: bool | None = None
    """Whether values were compared and agreed; None: not compared."""


MeasureEvent = GroupStarted | BlocksMeasured | GroupEnded
FleetEvent = MachineChanged | MachineLeft | CardsListed | Readings | CardDetails | MeasureEvent


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
