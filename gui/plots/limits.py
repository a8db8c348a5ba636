"""What a metric is measured against: capacity, power cap, thresholds of temperature, the fastest clock. Pure functions,
main thread."""

from __future__ import annotations

from collections.abc import Callable

from devexplorer.core.session import Device

MEMORY = ("memory_used_bytes", "memory_free_bytes")
Limit = Callable[[Device], float | None]


def _detail(name: str) -> Limit:
    """A figure of the device's details, once they are known."""
    return lambda device: getattr(device.details, name, None)


def _capacity(device: Device) -> float | None:
    return device.total_bytes


def _power_cap(device: Device) -> float | None:
    return device.sample.power_cap_w if device.sample else None


LIMITS: dict[str, tuple[str, Limit]] = {
    "memory_used_bytes": ("capacity", _capacity),
    "memory_free_bytes": ("capacity", _capacity),
    "power_w": ("cap", _power_cap),
    "power_instant_w": ("cap", _power_cap),
    "temperature_c": ("slowdown", _detail("temperature_slowdown_c")),
    "memory_temperature_c": ("limit", _detail("temperature_memory_limit_c")),
    "sm_clock_mhz": ("fastest", _detail("sm_clock_max_mhz")),
    "memory_clock_mhz": ("fastest", _detail("memory_clock_max_mhz")),
    "graphics_clock_mhz": ("fastest", _detail("graphics_clock_max_mhz")),
    "video_clock_mhz": ("fastest", _detail("video_clock_max_mhz")),
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
