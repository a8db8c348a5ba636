"""What a reading of a device can be: a value that no device can have is refused, with the value. Pure functions, any
thread.

Drivers answer all bits set, counters that were never filled, or what another structure has in its place. One table
holds for every source (NVML, the kernel, Apple, torch), so that a figure is refused everywhere or nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from devexplorer.core.records import DeviceSample

MOST_BYTES = 1 << 50
"""No card has a pebibyte."""
_MOST_EVENTS = 10**15
_MOST_RATE = 10**13
"""Bytes per second: five times what all NVLinks of a card carry."""

MEMORY_PARTS = ("memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes")
RANGES: dict[str, tuple[float, float, str]] = {
    "memory_used_bytes": (0, MOST_BYTES, "bytes of memory in use"),
    "memory_free_bytes": (0, MOST_BYTES, "bytes of free memory"),
    "memory_reserved_bytes": (0, MOST_BYTES, "bytes of reserved memory"),
    "memory_total_bytes": (1, MOST_BYTES, "bytes of memory"),
    "utilization_percent": (0, 100, "% utilization"),
    "memory_utilization_percent": (0, 100, "% memory utilization"),
    "encoder_percent": (0, 100, "% use of the encoder"),
    "decoder_percent": (0, 100, "% use of the decoder"),
    "temperature_c": (-60, 200, "°C"),
    "memory_temperature_c": (-60, 200, "°C"),
    "power_w": (0, 20_000, "W"),
    "power_instant_w": (0, 20_000, "W"),
    "power_cap_w": (0, 20_000, "W"),
    "energy_j": (0, 10**13, "J"),
    "sm_clock_mhz": (0, 30_000, "MHz"),
    "memory_clock_mhz": (0, 30_000, "MHz"),
    "graphics_clock_mhz": (0, 30_000, "MHz"),
    "video_clock_mhz": (0, 30_000, "MHz"),
    "fan_percent": (0, 200, "% of the fan's greatest speed"),
    "pcie_generation": (1, 15, "as PCIe generation"),
    "pcie_width": (1, 64, "PCIe lanes"),
    "pcie_tx_bytes_s": (0, 10**12, "bytes/s"),
    "pcie_rx_bytes_s": (0, 10**12, "bytes/s"),
    "pcie_replays": (0, 2**32 - 2, "replays"),
    "nvlink_tx_bytes_s": (0, _MOST_RATE, "bytes/s"),
    "nvlink_rx_bytes_s": (0, _MOST_RATE, "bytes/s"),
    "ecc_corrected": (0, _MOST_EVENTS, "errors"),
    "ecc_uncorrected": (0, _MOST_EVENTS, "errors"),
}
"""Field of a `DeviceSample` -> least, most, unit. A fan can exceed its rated speed a little; 20 kW is ten of the
largest cards, 1 TB/s four times what 16 lanes of PCIe 7 carry."""

OVERCLOCK = 1.25
"""How far a clock can be above the maximum that its card tells. nvml.h: current clocks "can differ from max clocks by
few MHz"; who overclocks adds up to 15 %, which not every driver adds to the maximum. What lies in the wrong place of a
structure is mostly further away."""


def in_range(value: float, least: float, most: float, what: str) -> float:
    """The value, or ValueError when no device can mean it."""
    if not least <= value <= most:
        raise ValueError(_refusal(value, what))
    return value


def _refusal(value: float, what: str) -> str:
    shown = value if isinstance(value, int) else f"{value:.15g}"
    return f"the driver answers {shown} {what}, which cannot be right"


def plausible(field: str, value: float) -> float:
    """The value of a field of `DeviceSample`, or ValueError."""
    return in_range(value, *RANGES[field])


def refuse_too_fast(mhz: int, most_mhz: int) -> None:
    """ValueError for a clock far above the maximum that the card tells; a maximum of 0 tells nothing."""
    if 0 < most_mhz * OVERCLOCK < mhz:
        raise ValueError(_refusal(mhz, f"MHz of {most_mhz} at most"))


def implausible(values: Mapping[str, float | None], total: float | None = None) -> dict[str, str]:
    """Why fields of `DeviceSample` cannot be right; `total` is the memory that parts of it lie within."""
    refused = {}
    for field, value in values.items():
        if value is None:
            continue
        least, most, what = RANGES[field]
        if not least <= value <= most:
            refused[field] = _refusal(value, what)
        elif total is not None and value > total and field in MEMORY_PARTS:
            refused[field] = _refusal(value, f"{what} of {total}")
    if "memory_used_bytes" in refused and values.get("memory_free_bytes") is not None:
        refused.setdefault("memory_free_bytes", refused["memory_used_bytes"])  # drivers count one from the other
    return refused


def without_implausible(sample: DeviceSample) -> tuple[DeviceSample, dict[str, str]]:
    """The sample without what cannot be right, and why each such field is missing."""
    total = sample.memory_total_bytes
    if implausible({"memory_total_bytes": total}):
        total = None
    refused = implausible({field: getattr(sample, field) for field in RANGES}, total)
    return replace(sample, **dict.fromkeys(refused)), refused
