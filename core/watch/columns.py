"""The columns of `devexplorer watch`: what each shows, and how much room its usual values need. Pure functions, any
thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from devexplorer.core.base import MISSING, bytes_text, printable, running_text
from devexplorer.core.records import DeviceSample, ProcessUse


class WatchColumn(NamedTuple):
    """One column: the numbers of its fields, joined by a stroke."""

    title: str
    cells: int
    """Room that its usual values need."""
    fields: tuple[str, ...]
    always: bool = False
    """Whether a real card has it even while its value is not known."""
    scale: float = 1.0
    """What the numbers are divided by."""
    digits: int = 0
    write: Callable[[DeviceSample], str] | None = None
    """Where its text is made in another way."""

    def text(self, sample: DeviceSample) -> str:
        """Its text for a device; a dash for what is not known."""
        if self.write is not None:
            return self.write(sample)
        values = [getattr(sample, field) for field in self.fields]
        if all(value is None for value in values):
            return MISSING
        return "/".join(number_text(value, self.digits, self.scale) for value in values)


def number_text(value: float | None, digits: int = 0, scale: float = 1.0) -> str:
    """A number, or a dash."""
    return MISSING if value is None else f"{value / scale:.{digits}f}"


def _power(sample: DeviceSample) -> str:
    """Without the cap where it is not known."""
    cap = sample.power_cap_w
    return number_text(sample.power_w) + ("" if cap is None else f"/{number_text(cap)}")


def _pcie(sample: DeviceSample) -> str:
    return MISSING if sample.pcie_generation is None else f"{sample.pcie_generation}x{number_text(sample.pcie_width)}"


def _state(sample: DeviceSample) -> str:
    return sample.performance_state or MISSING


COLUMNS = (
    WatchColumn("util%", 5, ("utilization_percent",), always=True),
    WatchColumn("°C", 3, ("temperature_c",), always=True),
    WatchColumn("W/cap", 7, ("power_w", "power_cap_w"), always=True, write=_power),
    WatchColumn("MHz", 4, ("sm_clock_mhz",), always=True),
    WatchColumn("mem%", 4, ("memory_utilization_percent",)),
    WatchColumn("fan%", 4, ("fan_percent",)),
    WatchColumn("PCIe rx/tx GB/s", 15, ("pcie_rx_bytes_s", "pcie_tx_bytes_s"), scale=1e9, digits=2),
    WatchColumn("NVLink rx/tx GB/s", 17, ("nvlink_rx_bytes_s", "nvlink_tx_bytes_s"), scale=1e9, digits=1),
    WatchColumn("mem°C", 5, ("memory_temperature_c",)),
    WatchColumn("mem MHz", 7, ("memory_clock_mhz",)),
    WatchColumn("P", 3, ("performance_state",), write=_state),
    WatchColumn("PCIe", 4, ("pcie_generation", "pcie_width"), write=_pcie),
    WatchColumn("enc/dec%", 8, ("encoder_percent", "decoder_percent")),
    WatchColumn("ECC fixed/not", 13, ("ecc_corrected", "ecc_uncorrected")),
    WatchColumn("kWh", 6, ("energy_j",), scale=3.6e6, digits=2),
)
"""After device, name and memory, by priority."""


class ProcessColumn(NamedTuple):
    """One column of the processes: its text for a device's id and a process."""

    title: str
    cells: int
    text: Callable[[str, ProcessUse], str]
    right: bool = True


PROCESS_COLUMNS = (
    ProcessColumn("pid", 7, lambda _, use: str(use.pid)),
    ProcessColumn("user", 8, lambda _, use: printable(use.user or MISSING), right=False),
    ProcessColumn("memory", 10, lambda _, use: bytes_text(use.memory_bytes)),
    ProcessColumn("util%", 5, lambda _, use: number_text(use.utilization_percent)),
)
"""Between the device and the command."""
WIDER_PROCESS_COLUMNS = (
    ProcessColumn("CPU%", 5, lambda _, use: number_text(use.cpu_percent)),
    ProcessColumn("host mem", 10, lambda _, use: bytes_text(use.host_memory_bytes)),
    ProcessColumn("running", 8, lambda _, use: running_text(use.running_s)),
)
"""After those, by priority, where the terminal is wide enough."""
