"""Readings under load, from the samples that were taken meanwhile."""

from __future__ import annotations

from devexplorer.core.fleet.check.fleet_check import readings_under_load
from devexplorer.core.records import DeviceDetails, DeviceSample, ProcessUse


def sample(second: float, **fields: object) -> DeviceSample:
    return DeviceSample(device="cuda:0", time_unix_s=second, **fields)  # type: ignore[arg-type]


def test_no_sample_no_readings() -> None:
    assert readings_under_load([]) is None


def test_medians_shares_and_counters() -> None:
    samples = [
        sample(0, sm_clock_mhz=1200, throttle_reasons=(), ecc_corrected=5, pcie_generation=1, pcie_width=16),
        sample(1, sm_clock_mhz=1700, throttle_reasons=("power cap",), ecc_corrected=5, pcie_generation=5),
        sample(2, sm_clock_mhz=1710, throttle_reasons=("power cap",), ecc_corrected=9, temperature_c=60.0),
        sample(3, sm_clock_mhz=1705, throttle_reasons=("power cap", "idle"), pcie_replays=3),
    ]
    readings = readings_under_load(samples, DeviceDetails(device="cuda:0", time_unix_s=0, remapping_pending=True))
    assert readings is not None
    assert readings.sm_clock_mhz == 1702.5
    assert readings.throttled == {"power cap": 0.75, "idle": 0.25}
    assert readings.ecc_corrected == 4
    assert readings.pcie_generation == 5
    assert readings.pcie_width == 16
    assert readings.temperature_c == 60.0
    assert readings.remapping_pending
    assert readings.pcie_replays is None
    assert readings.power_w is None
    assert readings.other_processes is None


def test_a_counter_that_starts_again_counts_from_there() -> None:
    readings = readings_under_load([sample(0, ecc_corrected=100), sample(1, ecc_corrected=2)])
    assert readings is not None
    assert readings.ecc_corrected == 2


def test_processes() -> None:
    one, other = ProcessUse(pid=1), ProcessUse(pid=2, utilization_percent=8.0)
    samples = [sample(0, processes=(one,)), sample(1, processes=(one, other)), sample(2, processes=(other,))]
    readings = readings_under_load(samples)
    assert readings is not None
    assert (readings.other_processes, readings.other_utilization_percent) == (2, 8.0)
