"""Every metric that can be plotted, alerted on or exported: its field, name and unit; which samples have none. Pure
data, any thread."""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.records import DeviceSample


class Metric(NamedTuple):
    """A number of a `DeviceSample`. `id` is the record's field."""

    id: str
    label: str
    """As menus and legends show it."""
    unit: str
    """A key of `UNITS`."""
    top: float | None = None
    """End of the scale where there is a natural one."""


UNITS = {
    "bytes": "B",
    "bytes_s": "B/s",
    "percent": "%",
    "celsius": "°C",
    "watt": "W",
    "joule": "J",
    "megahertz": "MHz",
    "seconds": "s",
    "count": "",
}
"""Unit -> what follows the number; bytes and bytes per second take binary prefixes (MiB), the others none."""

METRICS: tuple[Metric, ...] = (
    Metric("memory_used_bytes", "Memory used", "bytes"),
    Metric("memory_free_bytes", "Memory free", "bytes"),
    Metric("memory_reserved_bytes", "Memory reserved by the driver", "bytes"),
    Metric("utilization_percent", "Utilization", "percent", 100),
    Metric("memory_utilization_percent", "Memory utilization", "percent", 100),
    Metric("encoder_percent", "Encoder", "percent", 100),
    Metric("decoder_percent", "Decoder", "percent", 100),
    Metric("temperature_c", "Temperature", "celsius"),
    Metric("memory_temperature_c", "Memory temperature", "celsius"),
    Metric("power_w", "Power", "watt"),
    Metric("power_instant_w", "Power, instantaneous", "watt"),
    Metric("power_cap_w", "Power cap", "watt"),
    Metric("energy_j", "Energy since start", "joule"),
    Metric("sm_clock_mhz", "SM clock", "megahertz"),
    Metric("memory_clock_mhz", "Memory clock", "megahertz"),
    Metric("graphics_clock_mhz", "Graphics clock", "megahertz"),
    Metric("video_clock_mhz", "Video clock", "megahertz"),
    Metric("fan_percent", "Fan", "percent", 100),
    Metric("pcie_generation", "PCIe generation", "count"),
    Metric("pcie_width", "PCIe lanes", "count"),
    Metric("pcie_tx_bytes_s", "PCIe sent", "bytes_s"),
    Metric("pcie_rx_bytes_s", "PCIe received", "bytes_s"),
    Metric("pcie_replays", "PCIe replays", "count"),
    Metric("nvlink_tx_bytes_s", "NVLink sent", "bytes_s"),
    Metric("nvlink_rx_bytes_s", "NVLink received", "bytes_s"),
    Metric("ecc_corrected", "ECC errors, corrected", "count"),
    Metric("ecc_uncorrected", "ECC errors, not corrected", "count"),
)
"""In the order of menus. Allocator and memory breakdown metrics are in `core.telemetry.history`."""

BY_ID = {metric.id: metric for metric in METRICS}


_READINGS = tuple(name for name in DeviceSample.__struct_fields__ if name not in ("device", "time_unix_s", "simulated"))


def is_empty_sample(sample: DeviceSample) -> bool:
    """Whether a sample has no reading at all: the sampler puts such samples for a card that does not answer."""
    if sample.memory_used_bytes is not None or sample.utilization_percent is not None:
        return False  # quick, for nearly all
    return all(getattr(sample, name) is None for name in _READINGS)
