"""The columns of `devexplorer watch`: what stands in each, and how much room its usual values need. Pure functions, any
thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from devexplorer.core.base.formats import MISSING
from devexplorer.core.records.devices import DeviceSample


class Column(NamedTuple):
    """One column."""

    title: str
    cells: int
    """Room that its usual values need."""
    fields: tuple[str, ...]
    """What it shows."""
    text: Callable[[DeviceSample], str]
    always: bool = False
    """Whether a real card has it even while its value is not known."""


def number_text(value: float | None, digits: int = 0) -> str:
    """A number, or a dash."""
    return MISSING if value is None else f"{value:.{digits}f}"


def _pair(first: float | None, second: float | None, digits: int = 0) -> str:
    return (
        MISSING if first is None and second is None else f"{number_text(first, digits)}/{number_text(second, digits)}"
    )


def _gb(value: float | None) -> float | None:
    return None if value is None else value / 1e9


def _power(s: DeviceSample) -> str:
    return number_text(s.power_w) if s.power_cap_w is None else _pair(s.power_w, s.power_cap_w)


def _pcie(s: DeviceSample) -> str:
    return MISSING if s.pcie_generation is None else f"{s.pcie_generation}x{number_text(s.pcie_width)}"


_PCIE = ("pcie_rx_bytes_s", "pcie_tx_bytes_s")
_NVLINK = ("nvlink_rx_bytes_s", "nvlink_tx_bytes_s")

COLUMNS = (
    Column("util%", 5, ("utilization_percent",), lambda s: number_text(s.utilization_percent), always=True),
    Column("°C", 3, ("temperature_c",), lambda s: number_text(s.temperature_c), always=True),
    Column("W/cap", 7, ("power_w", "power_cap_w"), _power, always=True),
    Column("MHz", 4, ("sm_clock_mhz",), lambda s: number_text(s.sm_clock_mhz), always=True),
    Column("mem%", 4, ("memory_utilization_percent",), lambda s: number_text(s.memory_utilization_percent)),
    Column("fan%", 4, ("fan_percent",), lambda s: number_text(s.fan_percent)),
    Column("PCIe rx/tx GB/s", 15, _PCIE, lambda s: _pair(_gb(s.pcie_rx_bytes_s), _gb(s.pcie_tx_bytes_s), 2)),
    Column("NVLink rx/tx GB/s", 17, _NVLINK, lambda s: _pair(_gb(s.nvlink_rx_bytes_s), _gb(s.nvlink_tx_bytes_s), 1)),
    Column("mem°C", 5, ("memory_temperature_c",), lambda s: number_text(s.memory_temperature_c)),
    Column("mem MHz", 7, ("memory_clock_mhz",), lambda s: number_text(s.memory_clock_mhz)),
    Column("P", 3, ("performance_state",), lambda s: s.performance_state or MISSING),
    Column("PCIe", 4, ("pcie_generation", "pcie_width"), _pcie),
    Column(
        "enc/dec%", 8, ("encoder_percent", "decoder_percent"), lambda s: _pair(s.encoder_percent, s.decoder_percent)
    ),
    Column(
        "ECC fixed/not", 13, ("ecc_corrected", "ecc_uncorrected"), lambda s: _pair(s.ecc_corrected, s.ecc_uncorrected)
    ),
    Column("kWh", 6, ("energy_j",), lambda s: number_text(None if s.energy_j is None else s.energy_j / 3.6e6, 2)),
)
"""After device, name and memory, by priority."""
