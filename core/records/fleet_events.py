"""What a fleet is made of and what happens in it: machines that come, go and fall silent, their cards, their readings.
Plain frozen records, made on any thread."""

from __future__ import annotations

from typing import Literal

from devexplorer.core.records.base import Record
from devexplorer.core.records.devices import DeviceInfo, DeviceSample, Problem

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


FleetEvent = MachineChanged | MachineLeft | CardsListed | Readings
