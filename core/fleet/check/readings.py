"""The readings of one card while it was measured, from its samples. Pure functions, any thread."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Sequence

from devexplorer.core.fleet.records import LoadReadings
from devexplorer.core.records import DeviceDetails, DeviceSample


def readings_under_load(
    samples: Sequence[DeviceSample],
    details: DeviceDetails | None = None,
    own_pids: Collection[int] = (),
    near_memory: bool | None = None,
) -> LoadReadings | None:
    """What the samples of one card say, all taken while it was measured and in their order; None without a sample.

    `own_pids`: processes that measure. Counters are the last reading less the first.
    """
    if not samples:
        return None
    processes, utilization = _others(samples, own_pids)
    return LoadReadings(
        sm_clock_mhz=_median(samples, "sm_clock_mhz"),
        memory_clock_mhz=_median(samples, "memory_clock_mhz"),
        power_w=_median(samples, "power_w"),
        power_cap_w=_median(samples, "power_cap_w"),
        temperature_c=_median(samples, "temperature_c"),
        memory_temperature_c=_median(samples, "memory_temperature_c"),
        throttled=_shares(samples),
        ecc_corrected=_grown(samples, "ecc_corrected"),
        ecc_uncorrected=_grown(samples, "ecc_uncorrected"),
        remapping_pending=None if details is None else _pending(details),
        pcie_generation=_most(samples, "pcie_generation"),
        pcie_width=_most(samples, "pcie_width"),
        pcie_generation_max=None if details is None else details.pcie_generation_max,
        pcie_width_max=None if details is None else details.pcie_width_max,
        pcie_replays=_grown(samples, "pcie_replays"),
        other_processes=processes,
        other_utilization_percent=utilization,
        near_memory=near_memory,
    )


def _known(samples: Sequence[DeviceSample], field: str) -> list[float]:
    return [value for sample in samples if (value := getattr(sample, field)) is not None]


def _median(samples: Sequence[DeviceSample], field: str) -> float | None:
    known = _known(samples, field)
    return float(statistics.median(known)) if known else None


def _most(samples: Sequence[DeviceSample], field: str) -> int | None:
    return int(max(known)) if (known := _known(samples, field)) else None


def _grown(samples: Sequence[DeviceSample], field: str) -> int | None:
    """A counter that starts again has grown by what it shows since."""
    known = _known(samples, field)
    if len(known) < 2:
        return None
    return int(known[-1] - known[0] if known[-1] >= known[0] else known[-1])


def _shares(samples: Sequence[DeviceSample]) -> dict[str, float] | None:
    read = [sample.throttle_reasons for sample in samples if sample.throttle_reasons is not None]
    counted = Counter(reason for reasons in read for reason in set(reasons))
    return {reason: number / len(read) for reason, number in counted.items()} if read else None


def _pending(details: DeviceDetails) -> bool | None:
    known = [flag for flag in (details.remapping_pending, details.retired_pages_pending) if flag is not None]
    return any(known) if known else None


def _others(samples: Sequence[DeviceSample], own_pids: Collection[int]) -> tuple[int | None, float | None]:
    """How many processes of others there were, and the median of their kernels' share of the time together."""
    seen: set[int] = set()
    shares: list[float] = []
    read = [sample.processes for sample in samples if sample.processes is not None]
    for processes in read:
        others = [process for process in processes if process.pid not in own_pids]
        seen.update(process.pid for process in others)
        known = [process.utilization_percent for process in others if process.utilization_percent is not None]
        if known or not others:
            shares.append(sum(known))
    return (len(seen) if read else None), (statistics.median(shares) if shares else None)
