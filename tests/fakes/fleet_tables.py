"""Fleets of any size without a source: tables filled with chosen readings."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.fleet.events import CardsListed, FleetEvent, FleetMachine, MachineChanged, MeasureOrder, Readings
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.records import DeviceInfo, DeviceSample

NOW = 1_700_000_000.0
GIB = 1 << 30


def info(index: int, name: str = "NVIDIA H100 80GB HBM3") -> DeviceInfo:
    return DeviceInfo(id=f"cuda:{index}", kind="cuda", name=name, memory_total_bytes=80 * GIB)


def sample(index: int, now: float = NOW, **readings: object) -> DeviceSample:
    fields = {
        "utilization_percent": 50.0, "memory_used_bytes": 8 * GIB, "memory_total_bytes": 80 * GIB,
        "temperature_c": 50.0, "power_w": 300.0, "power_cap_w": 700.0, "throttle_reasons": (),
    }  # fmt: skip
    return DeviceSample(device=f"cuda:{index}", time_unix_s=now, **(fields | readings))  # type: ignore[arg-type]


def joined(machines: int, cards: int, names: Sequence[str] = ("NVIDIA H100 80GB HBM3",)) -> list[FleetEvent]:
    """Machines in racks of two; the models of their cards in turn."""
    events: list[FleetEvent] = []
    for number in range(machines):
        name = f"node{number}"
        machine = FleetMachine(name=name, state="connected", rack=f"rack{number // 2}")
        infos = tuple(info(index, names[index % len(names)]) for index in range(cards))
        events += (MachineChanged(machine=machine), CardsListed(machine=name, devices=infos))
    return events


def table(machines: int, cards: int, names: Sequence[str] = ("NVIDIA H100 80GB HBM3",)) -> FleetTable:
    """Every card has a reading of its own temperature."""
    made = FleetTable()
    made.apply(joined(machines, cards, names))
    made.apply([
        Readings(
            machine=f"node{number}",
            samples=tuple(sample(index, temperature_c=30.0 + (7 * number + 3 * index) % 50) for index in range(cards)),
        )
        for number in range(machines)
    ])  # fmt: skip
    return made


class SourceFake:
    """A fleet that says what a test has put into `events`."""

    def __init__(self, *events: FleetEvent) -> None:
        self.events = list(events)
        self.orders: list[MeasureOrder] = []
        self.closed = 0
        self.cancelled = 0
        self.problem = ""

    def start(self) -> None:
        pass

    def drain(self) -> list[FleetEvent]:
        events, self.events = self.events[:512], self.events[512:]
        return events

    def prepare(self, order: MeasureOrder) -> None:
        """Nothing has to be found out."""

    def measure(self, order: MeasureOrder) -> None:
        self.orders.append(order)

    def cancel(self) -> None:
        self.cancelled += 1

    def close(self, deadline_s: float) -> bool:
        self.closed += 1
        return True
