"""`devexplorer watch` on fake cards, for the tests of what it prints and of what features do with its readings."""

from __future__ import annotations

from typing import Any

import pytest

from devexplorer.core.cli.arguments import parse
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import DeviceInfo, DeviceSample, ProcessUse
from devexplorer.core.watch import devices
from devexplorer.core.watch.command import watch
from devexplorer.core.watch.table import WatchReading
from fakes.nvml import FakeNvml

GIB = 1 << 30
UUID = "GPU-aaaaaaaa-0000-0000-0000-00000000000{}"
NOW = 1_700_000_000.0


def info(name: str, kind: str = "cuda", model: str = "NVIDIA H100 80GB HBM3", **more: Any) -> DeviceInfo:
    return DeviceInfo(id=name, kind=kind, name=model, **more)


def full(index: int, name: str = "", **changes: Any) -> WatchReading:
    """A card with all values."""
    device = name or f"cuda:{index}"
    fields: dict[str, Any] = {
        "memory_used_bytes": 40 * GIB + index, "memory_total_bytes": 80 * GIB, "memory_free_bytes": 39 * GIB,
        "memory_reserved_bytes": GIB - index, "utilization_percent": 100.0, "memory_utilization_percent": 55.0,
        "encoder_percent": 1.0,
        "decoder_percent": 2.0, "temperature_c": 61.0, "memory_temperature_c": 70.0, "power_w": 699.5,
        "power_instant_w": 701.0,
        "power_cap_w": 700.0, "energy_j": 3.6e9, "sm_clock_mhz": 1980, "memory_clock_mhz": 2619,
        "graphics_clock_mhz": 1980,
        "video_clock_mhz": 1545, "fan_percent": 30.0, "performance_state": "P0", "throttle_reasons": ("power cap",),
        "pcie_generation": 5,
        "pcie_width": 16, "pcie_tx_bytes_s": 12.3e9, "pcie_rx_bytes_s": 1.2e9, "pcie_replays": 3,
        "nvlink_tx_bytes_s": 100e9,
        "nvlink_rx_bytes_s": 200e9, "ecc_corrected": 4, "ecc_uncorrected": 0,
        "processes": (ProcessUse(pid=4242, name="python", memory_bytes=30 * GIB, user="ada",
                                 utilization_percent=99.0),),
    }  # fmt: skip
    simulated = changes.pop("simulated", False)
    sample = DeviceSample(device=device, time_unix_s=NOW + index, simulated=simulated, **(fields | changes))
    kind = "virtual" if simulated else "cuda"
    return WatchReading(
        info(device, kind, uuid=UUID.format(index), nvml_index=None if simulated else index + 4, simulated=simulated),
        sample,
    )


@pytest.fixture(autouse=True)
def patient(no_virtual_gpus_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every test whose module imports it: a busy machine must not make a card late, and no virtual GPU is left."""
    monkeypatch.setattr(devices, "FIRST_S", 30.0)
    monkeypatch.setattr(devices, "NEXT_S", 30.0)


def nothing(name: str, kind: str = "cuda", problem: str = "", model: str = "NVIDIA H100 80GB HBM3") -> WatchReading:
    return WatchReading(info(name, kind, model), DeviceSample(device=name, time_unix_s=NOW), problem)


def run(capfd: pytest.CaptureFixture[str], fake: FakeNvml, *argv: str) -> tuple[str, str]:
    """Run it; returns its output."""
    nvml = Nvml(fake, hidden_processes=lambda: False)
    assert watch(parse(["watch", "--interval", "0.02", *argv]), nvml) == 0
    captured = capfd.readouterr()
    return captured.out, captured.err
