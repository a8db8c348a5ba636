"""How the quick fields of a card, and those that identify it, are asked of NVML, in the units of the records. Sampler
threads.

Nothing is imported from pynvml here: `core.devices.nvml.library` owns the module and hands it in. Each question is
named with its `nvidia-smi --query-gpu` equivalent, so that a reader can check a figure by hand. An answer that cannot
be right (an old driver's sentinel, 4294967295 degrees) raises ValueError with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from devexplorer.core.devices.nvml.query import Query
from devexplorer.core.devices.plausible import implausible, in_range, plausible

COMPUTE_MODES = {0: "Default", 1: "Exclusive Thread", 2: "Prohibited", 3: "Exclusive Process"}

INTEGRATED = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
"""Compute capabilities of chips that have no memory of their own: Tegra X1 and X2, Xavier, Orin, Thor (twice: CUDA 13
renumbered it), GB10.

By NVIDIA's list "CUDA GPU Compute Capability". NVML says NotSupported for their memory, as DGX Spark's user guide
states; from any other card the same answer only means that it does not tell.
"""
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Memory(NamedTuple):
    """Bytes; `shared` where they are the system's. A part that cannot be right is None, and `refused` says why."""

    used_bytes: int | None
    free_bytes: int | None
    reserved_bytes: int | None
    total_bytes: int
    shared: bool = False
    refused: Mapping[str, str] = _NOTHING


class Utilization(NamedTuple):
    """Share of the driver's last sampling period (1/6 to 1 s) in which a kernel ran, memory was read or written."""

    gpu_percent: float | None
    memory_percent: float | None
    refused: Mapping[str, str] = _NOTHING


def simple(field: str, function: str, convert: Callable[[Any], Any], *arguments: int, **options: Any) -> Query:
    """The query of a field that one NVML function of a card returns, with these arguments after the card's handle."""
    return Query(field, lambda n, h: convert(getattr(n, function)(h, *arguments)), **options)


def named(names: Mapping[int, str]) -> Callable[[int], str]:
    """Converts the numbers of an enumeration."""

    def convert(number: int) -> str:
        if number not in names:
            raise ValueError(f"the driver answers {number}, which this version of DevExplorer does not know")
        return names[number]

    return convert


def whole(least: float, most: float, what: str) -> Callable[[float], int]:
    """Converts whole numbers within a range."""
    return lambda value: int(in_range(value, least, most, what))


def watts(milliwatts: float) -> float:
    """From NVML's milliwatts; 4294967295 and the like are none."""
    return plausible("power_w", milliwatts / 1000)


def megahertz(value: int) -> int:
    """A clock."""
    return int(plausible("sm_clock_mhz", value))


def celsius(value: int) -> float:
    """From a temperature that older functions give as unsigned: -5 arrives as 4294967291; 4294967295 means not
    known."""
    if value == 2**32 - 1:
        raise ValueError(f"the driver answers {value} °C, by which it means that it does not know")
    return float(plausible("temperature_c", value - 2**32 if value >= 2**31 else value))


def text(value: Any) -> str:
    """A string of NVML, which is bytes in structures."""
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip()


def nonempty_text(value: Any) -> str:
    """A string that is not empty."""
    result = text(value)
    if not result or result.upper() in ("N/A", "[N/A]", "UNKNOWN"):
        raise ValueError("the driver leaves it empty")
    return result


def _memory(used: int, free: int, reserved: int | None, total: int) -> Memory:
    plausible("memory_total_bytes", total)
    parts = {"memory_used_bytes": used, "memory_free_bytes": free, "memory_reserved_bytes": reserved}
    refused = implausible(parts, total)
    kept = [None if field in refused else value for field, value in parts.items()]
    return Memory(kept[0], kept[1], kept[2], total, refused=refused)


_plain = object.__getattribute__
"""pynvml's structures look whether a field is text whenever it is read, in Python."""


def _memory_v2(nvml: Any, handle: Any) -> Memory:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    used, free = _plain(memory, "used"), _plain(memory, "free")
    return _memory(used, free, _plain(memory, "reserved"), _plain(memory, "total"))


def _memory_v1(nvml: Any, handle: Any) -> Memory:
    """Counts memory that the driver reserves as used; a chip without memory of its own has the system's."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except Exception as error:
        if getattr(error, "value", None) != nvml.NVML_ERROR_NOT_SUPPORTED or not _is_integrated(nvml, handle):
            raise
        return _system_memory()
    if memory.total == 0 and _is_integrated(nvml, handle):
        return _system_memory()
    return _memory(memory.used, memory.free, None, memory.total)


def _is_integrated(nvml: Any, handle: Any) -> bool:
    try:
        return tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)) in INTEGRATED
    except Exception:
        return False  # then its answer about its memory stays


def _system_memory() -> Memory:
    import psutil  # takes a third of the time that this module needs, and only machines of this kind need it

    system = psutil.virtual_memory()
    return Memory(int(system.total - system.available), int(system.available), None, int(system.total), shared=True)


def _utilization(nvml: Any, handle: Any) -> Utilization:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    shares = {"utilization_percent": float(rates.gpu), "memory_utilization_percent": float(rates.memory)}
    refused = implausible(shares)
    kept = [None if field in refused else share for field, share in shares.items()]
    return Utilization(kept[0], kept[1], refused)


def _capability(answer: Any) -> str:
    major, minor = answer
    in_range(major, 1, 99, "as compute capability")
    in_range(minor, 0, 99, "as minor compute capability")
    return f"{major}.{minor}"


def _cuda_version(number: int) -> int:
    return int(in_range(number, 1000, 99_999, "as CUDA version"))


MEMORY = Query(
    "memory_used_bytes",
    _memory_v2,
    _memory_v1,
    expected=True,
    also=("memory_free_bytes", "memory_reserved_bytes", "memory_total_bytes"),
    parts=True,
)
GRAPHICS_CLOCK_MAX = simple("graphics_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", megahertz, 0)
SM_CLOCK_MAX = simple("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", megahertz, 1)
MEMORY_CLOCK_MAX = simple("memory_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", megahertz, 2)
VIDEO_CLOCK_MAX = simple("video_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", megahertz, 3)
"""`clocks.max.graphics`, `sm`, `memory`: nvmlClockType_t 0 graphics, 1 SM, 2 memory, 3 video."""
_POWER = simple("power_w", "nvmlDeviceGetPowerUsage", watts, expected=True)
_QUICK = (MEMORY, simple("sm_clock_mhz", "nvmlDeviceGetClockInfo", megahertz, 1, expected=True, most=SM_CLOCK_MAX))
"""`memory.used,free,reserved,total`, `clocks.sm`."""
_SLUGGISH = (
    Query("utilization_percent", _utilization, expected=True, also=("memory_utilization_percent",), parts=True),
    Query(
        "temperature_c",
        lambda n, h: float(plausible("temperature_c", n.nvmlDeviceGetTemperatureV(h, n.NVML_TEMPERATURE_GPU))),
        lambda n, h: celsius(n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)),
        expected=True,
    ),
    simple("memory_clock_mhz", "nvmlDeviceGetClockInfo", megahertz, 2, most=MEMORY_CLOCK_MAX),
)
"""`utilization.gpu,memory`, averaged by the driver over 1/6 to 1 s, `temperature.gpu`, `clocks.mem`. None changes much
within a few ticks."""


@cache
def by_pace(compute_capability: str | None) -> tuple[tuple[Query, ...], tuple[Query, ...]]:
    """What is asked of a card at every tick, and what at every third of ten ticks a second: six calls in all.

    `power.draw` is a one-second average on cards since Ampere, except GA100 (8.0), and what flows now on others, by
    NVML's reference of nvmlDeviceGetPowerUsage.
    """
    major, minor = map(int, (compute_capability or "0.0").split("."))
    if (major, minor) > (8, 0):
        return _QUICK, (_POWER, *_SLUGGISH)
    return (*_QUICK, _POWER), _SLUGGISH


# What a card is: asked when it is first listed.
NAME = simple("name", "nvmlDeviceGetName", nonempty_text, expected=True, text=True)
UUID = simple("uuid", "nvmlDeviceGetUUID", nonempty_text, expected=True)
BUS_ID = simple("bus_id", "nvmlDeviceGetPciInfo", lambda pci: nonempty_text(pci.busId), expected=True)
CAPABILITY = simple("compute_capability", "nvmlDeviceGetCudaComputeCapability", _capability, expected=True)
POWER_CAP = simple("power_cap_w", "nvmlDeviceGetEnforcedPowerLimit", watts)
ECC = simple("ecc", "nvmlDeviceGetEccMode", lambda modes: bool(modes[0]))
MIG = simple("mig", "nvmlDeviceGetMigMode", lambda modes: bool(modes[0]))
COMPUTE_MODE = simple("compute_mode", "nvmlDeviceGetComputeMode", COMPUTE_MODES.get)

# Of the machine.
DRIVER_VERSION = Query(
    "driver_version", lambda n, _: nonempty_text(n.nvmlSystemGetDriverVersion()), expected=True, text=True
)
CUDA_VERSION = Query(
    "cuda_version",
    lambda n, _: _cuda_version(n.nvmlSystemGetCudaDriverVersion_v2()),
    lambda n, _: _cuda_version(n.nvmlSystemGetCudaDriverVersion()),
    expected=True,
)
COUNT = Query("count", lambda n, _: int(in_range(n.nvmlDeviceGetCount(), 0, 256, "cards")), expected=True)

GPU_INSTANCE = simple("gpu_instance", "nvmlDeviceGetGpuInstanceId", whole(0, 64, "is no GPU instance"))


def cuda_text(number: int | None) -> str | None:
    """`12040` -> `12.4`."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def mig_profile(name: str) -> str | None:
    """`NVIDIA A100-SXM4-40GB MIG 1g.5gb` -> `1g.5gb`."""
    result = re.search(r"\bMIG (\d+\S*)", name)
    return result[1] if result else None
