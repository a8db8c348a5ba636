"""What is said about a machine: its state in words, its devices, their load. Main thread; only reads."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from devexplorer.core.base import MISSING, bytes_text, number_text
from devexplorer.core.session import Device, State
from devexplorer.core.session.machine import Machine
from devexplorer.gui.machines.words import STALE_S, age_text, alarm_words, state_colour, state_words, why
from devexplorer.gui.widgets.table import Cell, Column, TableRow, numbers
from devexplorer.gui.widgets.theme import Colour

if TYPE_CHECKING:
    pass

GIB = 1 << 30
COLUMNS = (
    Column("machine"),
    Column("state"),
    Column("devices", "The GPUs; where there is none, the virtual ones, else the CPU. What follows is about them."),
    numbers("load %", "The highest utilization of these devices"),
    numbers("memory GiB", "Used, and all of it, of these devices together"),
    numbers("hottest °C", "The highest temperature of these devices"),
    numbers("readings", "How old the latest readings are"),
    numbers("latency ms", "There and back through the link"),
    numbers("rate kB/s", "Received and sent through the link, compressed"),
    numbers("dropped", "Readings that were left out because the link was too slow"),
)
WIDTHS = (160, 184, 160, 68, 112, 88, 78, 84, 80, 72)
DEVICES = 2
GIVES_UP = (9, 8, 5, 7)


class Summary(NamedTuple):
    """Of the devices of one machine."""

    devices: str
    load_percent: float | None
    used_bytes: int | None
    total_bytes: int | None
    hottest_c: float | None


def summary(state: State) -> Summary:
    """The devices that count: usable GPUs, else virtual ones, else other GPUs, else the CPU."""
    every = list(state.devices.values())
    real = [one for one in every if one.info.kind != "cpu" and not one.info.simulated]
    usable = [one for one in real if one.info.usable]
    chosen = usable or [one for one in every if one.info.simulated] or real or every
    counts = Counter(one.info.name for one in chosen)
    names = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items())
    if chosen and chosen[0].info.simulated:
        names += ", simulated"
    samples = [one.sample for one in chosen if one.sample is not None]
    loads = [one.utilization_percent for one in samples if one.utilization_percent is not None]
    hot = [one.temperature_c for one in samples if one.temperature_c is not None]
    return Summary(
        names or MISSING,
        max(loads, default=None),
        _sum([one.used_bytes for one in chosen]),
        _sum([one.total_bytes for one in chosen]),
        max(hot, default=None),
    )


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def row(machine: Machine, state: State, *, shown: bool) -> TableRow:
    """One machine; `state` is what is known of it."""
    link, about = machine.link, summary(state)
    stale = link is not None and (link.state != "connected" or (link.reading_age_s or 0) >= STALE_S)
    alarmed = alarm_words(state)
    colour = "error" if alarmed else state_colour(link)
    tone: Colour | str = "dim" if stale else ""
    rate = None if link is None else (link.received_bytes_s + link.sent_bytes_s) / 1000
    memory = (
        MISSING
        if about.used_bytes is None or about.total_bytes is None
        else f"{about.used_bytes / GIB:.1f} / {about.total_bytes / GIB:.1f}"
    )
    cells = (
        (machine.name, "", _about(machine)),
        (", ".join(filter(None, (state_words(link), "on show" * shown, alarmed))), colour, why(link)),
        (about.devices, tone, _each(state)),
        (MISSING if about.load_percent is None else f"{about.load_percent:.0f}", tone, ""),
        (memory, tone, ""),
        (MISSING if about.hottest_c is None else f"{about.hottest_c:.0f}", tone, ""),
        ("now" if link is None else age_text(link.reading_age_s), "warning" if stale else "", ""),
        (MISSING if link is None or link.latency_s is None else number_text(link.latency_s * 1000), "", ""),
        (MISSING if rate is None else f"{rate:.1f}", "", ""),
        (MISSING if link is None else f"{link.dropped:,}", "", ""),
    )
    return TableRow(machine.name, tuple(Cell(text, colour, tip) for text, colour, tip in cells))  # type: ignore[arg-type]


def known_row(host: str) -> TableRow:
    """One that is only remembered."""
    rest = (Cell(MISSING, "dim") for _ in COLUMNS[2:])
    return TableRow(host, (Cell(host, "dim"), Cell("○ Not connected", "dim"), *rest))


def order_key(text: str) -> tuple[bool, float, str]:
    """For sorting by what a cell says: numbers by their size, what is missing last."""
    first = text.split()[0].replace(",", "") if text.split() else ""
    try:
        return False, float(first), ""
    except ValueError:
        return text == MISSING, 0.0, text.lower()


def _about(machine: Machine) -> str:
    link = machine.link
    if link is None:
        return ""
    facts = (link.machine and f"calls itself {link.machine}", link.devexplorer and f"DevExplorer {link.devexplorer}")
    return "\n".join(filter(None, (*facts, link.python and f"engine: {link.python}")))


def _each(state: State) -> str:
    return "\n".join(map(_device_line, state.devices.values()))


def _device_line(device: Device) -> str:
    sample = device.sample
    load = "" if sample is None or sample.utilization_percent is None else f", {sample.utilization_percent:.0f} %"
    simulated = ", simulated" if device.info.simulated else ""
    return f"{device.info.id}  {device.info.name}{simulated}: {bytes_text(device.used_bytes, 1)}{load}"
