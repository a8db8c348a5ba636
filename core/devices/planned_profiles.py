"""What can be planned for: cards that were calibrated, every profile of a virtual GPU, and Apple's chips, which can be
none, because PyTorch's device there is `mps` and not CUDA. No torch, no thread.

`resources/apple_chips.csv` has the chips with their sources. Of their memory that part is usable which macOS recommends
the GPU to use; CPU and GPU share it, so what is copied between them is read and written in the same memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from devexplorer.core.devices.profiles import Profile, load_profiles, parse_profiles, resource_rows
from devexplorer.core.records import Calibration

GIB = 1 << 30
SMALL_GB = 32
"""Up to here macOS lets the GPU use two thirds of the memory, and three quarters beyond it."""


def planned_profiles(calibrations: Iterable[Calibration] = ()) -> dict[str, Profile]:
    """Every profile by name: calibrated cards, those of virtual GPUs, Apple's."""
    return calibrated_profiles(calibrations) | load_profiles() | apple_profiles()


def parse_planned(spec: str, calibrations: Iterable[Calibration] = ()) -> list[Profile]:
    """As `parse_virtual`, of everything that can be planned for."""
    return parse_profiles(spec, planned_profiles(calibrations))


def calibrated_profiles(calibrations: Iterable[Calibration]) -> dict[str, Profile]:
    """A profile for each calibration, by its name; of cards without a profile there is none."""
    profiles = load_profiles()
    return {
        each.name: replace(profiles[each.card], name=each.name, calibration=each)
        for each in calibrations
        if each.card in profiles
    }


def apple_profiles() -> dict[str, Profile]:
    """`Apple M4 Max 64GB`: each chip with each size of memory that it is sold with."""
    found = (
        _profile(row, int(size)) for row in resource_rows("apple_chips.csv") for size in row["memory_gb"].split(";")
    )
    return {profile.name: profile for profile in found}


def usable_bytes(gigabytes: int) -> int:
    """Metal's `recommendedMaxWorkingSetSize`, as Macs print it: 10,922.67 MiB of 16 GiB, 21,845.34 of 32, 73,728 of 96
    (logs of llama.cpp: llama-cpp-python issue 687, llama.cpp issues 2011 and 3213). Newer versions of macOS allow more
    of large memories, 107.5 of 128 GiB (antirez/ds4 issue 893), and `sysctl iogpu.wired_limit_mb` changes it."""
    whole = gigabytes * GIB
    return whole * 2 // 3 if gigabytes <= SMALL_GB else whole * 3 // 4


def _profile(row: dict[str, str], gigabytes: int) -> Profile:
    family, bandwidth, rate = row["gpu_family"], float(row["memory_gb_s"]), float(row["fp32"])
    dtypes = ("float32", "float16") if family == "apple7" else ("float32", "float16", "bfloat16")
    return Profile(
        name=f"Apple {row['chip']} {gigabytes}GB",
        memory_bytes=gigabytes * GIB,
        usable_bytes=usable_bytes(gigabytes),
        compute_capability=family,
        sm_count=int(row["gpu_cores"]),
        memory_gb_s=bandwidth,
        link="none",
        link_gb_s=bandwidth / 2,
        host_gb_s=bandwidth / 2,
        tflops=dict.fromkeys(dtypes, rate),
        tdp_w=None,
        unverified=frozenset({"usable_mib", "host_gb_s"}),
        computed=frozenset({"fp32", "fp16", "bf16"}),
    )
