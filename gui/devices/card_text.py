"""What a device card says: the texts of one device, ready to be painted. Main thread; only reads the state."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import NamedTuple

from msgspec.structs import replace

from devexplorer.core.base import MISSING, bytes_text, count_text
from devexplorer.core.records import Problem
from devexplorer.core.session import Device
from devexplorer.core.telemetry.alert_rules import ALARM, NEW_ECC_ERRORS, QUANTITIES, figure_text
from devexplorer.core.telemetry.alert_words import alert_message, calming_text
from devexplorer.core.telemetry.alerts import Alert
from devexplorer.core.telemetry.device_facts import held_down, held_in_short
from devexplorer.core.telemetry.fact_rows import NOT_TOLD
from devexplorer.core.telemetry.memory_breakdown import PART_TEXTS
from devexplorer.gui.widgets.memory_bar import segments

GIB, MIB = 1 << 30, 1 << 20
_SHOWN = {"utilization_percent": "utilization", "temperature_c": "temperature", "power_w": "power"}
TIP_CHARACTERS = 100
"""Of a line of the tooltip: it is plain text, which Qt does not wrap."""


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
    watched: tuple[tuple[str, str], ...] = ()
    """Quantities by name that a card of the layout Monitor has a line for."""


def card_texts(device: Device, problems: tuple[Problem, ...] = (), alerts: Sequence[Alert] = ()) -> CardTexts:
    """The texts of `device`; `problems` are those of the whole catalog, `alerts` what is active anywhere."""
    info, sample = device.info, device.sample
    used, total = device.used_bytes, device.total_bytes
    unit, word = (MIB, "MiB") if total is not None and total < GIB else (GIB, "GiB")
    total_text = MISSING if total is None else _three(total / unit)
    used_text = MISSING if used is None else _three(used / unit)
    of_total = f"of {total_text} {word}" if total is not None else (word if used is not None else "")
    if info.memory_shared and total is not None:
        of_total += ", shared"
    percent = None if sample is None else sample.utilization_percent
    readings = [Reading("util", _whole(percent), "%" if percent is not None else "")]
    if info.kind == "cpu":
        readings.append(Reading("threads", MISSING if info.threads is None else str(info.threads), ""))
    elif info.simulated:
        readings.append(Reading("roofline clock", "", ""))
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
        alarm=alarm_text([alert for alert in alerts if alert.device == info.id and alert.level == ALARM]),
        held=", ".join(held_in_short(sample.throttle_reasons)) if sample is not None else "",
    )


def watch_texts(device: Device, *, brief: bool = False) -> tuple[tuple[str, str], ...]:
    """What the layout Monitor shows below a card: quantities by name, those that this device has; `brief`: nothing of
    its memory, nor that nothing throttles it."""
    sample = device.sample
    if sample is None or device.info.simulated or device.info.kind == "cpu":
        return ()
    if brief:
        sample = replace(sample, memory_temperature_c=None, memory_clock_mhz=None)
    cap = f" of {_whole(sample.power_cap_w)}" if sample.power_cap_w is not None else ""
    memory_c = f", memory {_whole(sample.memory_temperature_c)}" if sample.memory_temperature_c is not None else ""
    memory_mhz = f", memory {sample.memory_clock_mhz:,}" if sample.memory_clock_mhz is not None else ""
    reasons = held_in_short(sample.throttle_reasons)
    return tuple(
        (name, value)
        for name, value in (
            ("power", "" if sample.power_w is None else f"{_whole(sample.power_w)}{cap} W"),
            ("temperature", "" if sample.temperature_c is None else f"{_whole(sample.temperature_c)}{memory_c} °C"),
            ("clock", "" if sample.sm_clock_mhz is None else f"{sample.sm_clock_mhz:,}{memory_mhz} MHz"),
            ("fan", "" if sample.fan_percent is None else f"{_whole(sample.fan_percent)} %"),
            ("throttled", "" if sample.throttle_reasons is None else ", ".join(reasons) or ("" if brief else "no")),
        )
        if value
    )


def alarm_text(alarms: Sequence[Alert]) -> str:
    """The first of these alarms in a few words, and how many more there are: `Temperature 91 °C, 1 more alarm`."""
    if not alarms:
        return ""
    first = alarms[0]
    quantity = QUANTITIES[first.metric]
    words = (
        quantity.label
        if quantity.fixed or first.metric == NEW_ECC_ERRORS
        else f"{quantity.label} {figure_text(first.value, quantity.unit)}"
    )
    words += calming_text(first)
    return words if len(alarms) == 1 else f"{words}, {count_text(len(alarms) - 1, 'more alarm')}"


def card_tooltip(device: Device, problems: tuple[Problem, ...] = (), alerts: Sequence[Alert] = ()) -> str:
    """What identifies the device, what is wrong with it, and the reason for each field that is not available."""
    info = device.info
    lines = [f"{info.id}: {info.name}" + (", simulated" if info.simulated else "")]
    lines += [f"{alert.level}: {alert_message(alert)}" for alert in alerts if alert.device == info.id]
    if info.reason and not info.usable:
        lines.append(info.reason)
    for label, value in (
        ("CUDA ordinal", info.cuda_ordinal),
        ("nvidia-smi index", info.nvml_index),
        ("UUID", info.uuid),
        ("bus id", info.bus_id),
        ("compute capability", info.compute_capability),
        ("multiprocessors", info.sm_count),
        ("driver", info.driver_version),
    ):
        if value is not None:
            lines.append(f"{label}: {value}")
    if device.total_bytes is not None:
        shared = " (the system's: this device has no memory of its own)" if info.memory_shared else ""
        lines.append(f"memory: {bytes_text(device.used_bytes)} of {bytes_text(device.total_bytes)}{shared}")
        parts = segments(device.parts)
        lines += [f"• {item.part}: {bytes_text(item.bytes)}" for item in parts if item.key not in ("free", "used")]
        for key, name in (("cached", "Cached (hatched)"), ("context", "Context")):
            if any(item.key == key for item in parts):
                text = PART_TEXTS[key]
                lines.append(fill(f"{name} is {text.definition}. {text.remedy}", TIP_CHARACTERS))
    held = held_down(device.sample.throttle_reasons) if device.sample is not None else ()
    if held:
        lines.append(f"throttled by: {', '.join(held)}")
    if info.parent is not None:
        lines.append(f"MIG instance of {info.parent}")
    for problem in problems:
        if problem.device == info.id:
            lines.append(problem.reason if problem.field is None else f"{problem.field}: {problem.reason}")
    if device.sample is not None and info.kind != "cpu" and not info.simulated:  # the card shows a dash for these
        known = {problem.field for problem in problems if problem.device == info.id}
        lines += [
            f"{name}: {NOT_TOLD}"
            for field, name in _SHOWN.items()
            if getattr(device.sample, field) is None and field not in known
        ]
    return "\n".join(lines)


def _three(value: float) -> str:
    """Three digits, and never more than two behind the point: `5.42`, `22.5`, `141`, `0.00`."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def _whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"
