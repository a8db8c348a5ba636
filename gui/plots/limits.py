"""What a metric is measured against: capacity, power cap, thresholds of temperature, the fastest clock. Pure functions,
main thread."""

from __future__ import annotations

from collections.abc import Callable

from devexplorer.core.session.state import Device

MEMORY = ("memory_used_bytes", "memory_free_bytes")
LIMITS: dict[str, tuple[str, Callable[[Device], float | None]]] = {
    "memory_used_bytes": ("capacity", lambda device: device.total_bytes),
    "memory_free_bytes": ("capacity", lambda device: device.total_bytes),
    "power_w": ("cap", lambda device: device.sample.power_cap_w if device.sample else None),
    "power_instant_w": ("cap", lambda device: device.sample.power_cap_w if device.sample else None),
    "temperature_c": ("slowdown", lambda device: device.details.temperature_slowdown_c if device.details else None),
    "memory_temperature_c": (
        "limit",
        lambda device: device.details.temperature_memory_limit_c if device.details else None,
    ),
    "sm_clock_mhz": ("fastest", lambda device: device.details.sm_clock_max_mhz if device.details else None),
    "memory_clock_mhz": ("fastest", lambda device: device.details.memory_clock_max_mhz if device.details else None),
    "graphics_clock_mhz": ("fastest", lambda device: device.details.graphics_clock_max_mhz if device.details else None),
    "video_clock_mhz": ("fastest", lambda device: device.details.video_clock_max_mhz if device.details else None),
}
"""Metric -> what its limit is called, and where a device says it."""


def limits(metric: str, devices: list[Device], value_text: Callable[[float], str]) -> list[tuple[float, str]]:
    """The limits of these devices with their labels; devices with the same one share a label. Empty where there are
    none."""
    if metric not in LIMITS:
        return []
    word, ask = LIMITS[metric]
    result: dict[float, list[str]] = {}
    for device in devices:
        limit = ask(device)
        if limit:
            result.setdefault(float(limit), []).append(device.info.id)
    return [(limit, f"{word} {value_text(limit)}  {_names(names)}") for limit, names in result.items()]


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]}"
