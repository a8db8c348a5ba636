"""What a device card says: the texts of one device, ready to be painted. Main thread; only reads the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from devexplorer.core.base import MISSING, count_text
from devexplorer.core.feature import Trouble
from devexplorer.core.records import Problem
from devexplorer.core.session import Device
from devexplorer.core.telemetry.device_facts import held_in_short

GIB, MIB = 1 << 30, 1 << 20


class Reading(NamedTuple):
    """One number with the words round it: `util` `97` `%`."""

    before: str
    value: str
    after: str


class CardTexts(NamedTuple):
    """Everything that a card or a compact row shows in words."""

    id: str
    name: str
    note: str
    """Dimmed behind the name: `nvidia-smi 1`."""
    simulated: bool
    used: str
    """The big number, in the unit of `of_total`."""
    of_total: str
    short: str
    """Used and total for a compact row, in GiB as the panel's header says: `6.71/22.5`; another unit is named."""
    readings: tuple[Reading, ...]
    reason: str
    """Why the device cannot be used and says nothing of itself either; empty where there are readings."""
    warning: str
    """Something that the user should know beside the readings; empty when there is nothing."""
    alarm: str = ""
    """The alarm that fires on this device, the most serious, and how many others do; empty: none."""
    held: str = ""
    """What throttles its clocks (`power cap`); empty when nothing does, or it is not known."""


def card_texts(device: Device, problems: tuple[Problem, ...] = (), troubles: Sequence[Trouble] = ()) -> CardTexts:
    """The texts of `device`; `problems` are those of the whole catalog, `troubles` those of all devices."""
    info, sample = device.info, device.sample
    used, total = device.used_bytes, device.total_bytes
    unit, word = (MIB, "MiB") if total is not None and total < GIB else (GIB, "GiB")
    total_text = MISSING if total is None else _three(total / unit)
    used_text = MISSING if used is None else _three(used / unit)
    if total is not None:
        of_total = f"of {total_text} {word}"
    elif used is not None:
        of_total = word
    else:
        of_total = ""
    if info.memory_shared and total is not None:
        of_total += ", shared"
    percent = None if sample is None else sample.utilization_percent
    readings = [Reading("util", _whole(percent), "%" if percent is not None else "")]
    if info.kind == "cpu":
        readings.append(Reading("threads", MISSING if info.threads is None else str(info.threads), ""))
    else:
        readings.append(Reading("", _whole(None if sample is None else sample.temperature_c), "°C"))
        readings.append(Reading("", _whole(None if sample is None else sample.power_w), "W"))
    whole = [problem.reason for problem in problems if problem.device == info.id and problem.field is None]
    unusable = "" if info.usable else info.reason or "This torch cannot use it."
    watched = sample is not None and sample.memory_used_bytes is not None
    said_once = any(problem.device is None and problem.reason in unusable for problem in problems)  # of the machine
    if unusable and watched and not said_once:  # what it does is worth more room than why tensors cannot go there
        whole.append(unusable)
    return CardTexts(
        id=info.id,
        name=info.name,
        note="" if info.nvml_index is None or info.kind == "nvml" else f"nvidia-smi {info.nvml_index}",
        simulated=info.simulated,
        used=used_text,
        of_total=of_total,
        short=f"{used_text}/{total_text}" + (f" {word}" if unit != GIB else ""),
        readings=tuple(readings),
        reason="" if watched else unusable,
        warning=" ".join(whole) if info.usable or watched else "",
        alarm=alarm_text([trouble for trouble in troubles if trouble.device == info.id and trouble.is_alert]),
        held=", ".join(held_in_short(sample.throttle_reasons)) if sample is not None else "",
    )


def alarm_text(alarms: Sequence[Trouble]) -> str:
    """The first of these alarms in a few words, and how many more there are: `Temperature 91 °C, 1 more alert`."""
    more = f", {count_text(len(alarms) - 1, 'more alert')}" if len(alarms) > 1 else ""
    return f"{alarms[0].brief}{more}" if alarms else ""


def card_tooltip(device: Device, problems: tuple[Problem, ...] = (), troubles: Sequence[Trouble] = ()) -> str:
    """What is wrong with the device; the inspector says the rest."""
    info = device.info
    lines = [f"{info.id}: {info.name}" + (", simulated" if info.simulated else "")]
    lines += [
        f"{'alert' if trouble.is_alert else 'notice'}: {trouble.words}"
        for trouble in troubles
        if trouble.device == info.id
    ]
    if info.reason and not info.usable:
        lines.append(info.reason)
    for problem in problems:
        if problem.device == info.id:
            lines.append(problem.reason if problem.field is None else f"{problem.field}: {problem.reason}")
    return "\n".join(lines)


def _three(value: float) -> str:
    """Three digits, and never more than two behind the point: `5.42`, `22.5`, `141`, `0.00`."""
    if value < 9.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def _whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"
