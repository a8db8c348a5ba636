"""How the quick fields of a card, and those that identify it, are asked of NVML, in the units of the records. Sampler threads.

Nothing is imported from pynvml here: `core.devices.nvml` owns the module and hands it in. Each question is named with
its `nvidia-smi --query-gpu` equivalent, so that a reader can check a figure by hand. An answer that cannot be right (an
old driver's sentinel, 4294967295 degrees) raises ValueError with the reason.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import psutil

from devexplorer.core.devices.nvml_asking import Question

COMPUTE_MODES = {0: "Default", 1: "Exclusive Thread", 2: "Prohibited", 3: "Exclusive Process"}

MOST_BYTES = 1 << 50
"""No card has a pebibyte."""
MOST_WATTS = 100_000
MOST_MHZ = 100_000


class Memory(NamedTuple):
    """Bytes; `shared` where they are the system's. A part that cannot be right is None."""

    used_bytes: int | None
    free_bytes: int | None
    reserved_bytes: int | None
    total_bytes: int
    shared: bool = False


class Utilization(NamedTuple):
    """Share of the driver's last sampling period (1/6 to 1 s) in which a kernel ran, memory was read or written."""

    gpu_percent: float | None
    memory_percent: float | None


def right(value: float, least: float, most: float, what: str) -> float:
    """The value, or ValueError when no card can mean it."""
    if not least <= value <= most:
        raise ValueError(f"the driver answers {value:.15g} {what}, which cannot be right")
    return value


def percent(value: float) -> float:
    """0 to 100."""
    return float(right(value, 0, 100, "%"))


def watts(milliwatts: float) -> float:
    """From NVML's milliwatts; 4294967295 and the like are none."""
    return right(milliwatts / 1000, 0, MOST_WATTS, "W")


def megahertz(value: int) -> int:
    """A clock."""
    return int(right(value, 0, MOST_MHZ, "MHz"))


def celsius(value: int) -> float:
    """From a temperature that older functions give as unsigned: -5 arrives as 4294967291; 4294967295 means not known."""
    if value == 2**32 - 1:
        raise ValueError("the driver answers that it does not know")
    return float(right(value - 2**32 if value >= 2**31 else value, -100, 300, "°C"))


def text(value: Any) -> str:
    """A string of NVML, which is bytes in structures."""
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip()


def told(value: Any) -> str:
    """A string that is not empty."""
    found = text(value)
    if not found or found.upper() in ("N/A", "[N/A]", "UNKNOWN"):
        raise ValueError("the driver leaves it empty")
    return found


def _memory(used: int, free: int, reserved: int | None, total: int) -> Memory:
    right(total, 1, MOST_BYTES, "bytes of memory")
    return Memory(
        used if used <= total else None,
        free if free <= total else None,
        reserved if reserved is not None and reserved <= total else None,
        total,
    )


def _memory_v2(nvml: Any, handle: Any) -> Memory:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return _memory(memory.used, memory.free, memory.reserved, memory.total)


def _memory_v1(nvml: Any, handle: Any) -> Memory:
    """Counts memory that the driver reserves as used; where even this is not supported, the memory is the system's."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except Exception as error:
        if getattr(error, "value", None) != nvml.NVML_ERROR_NOT_SUPPORTED:
            raise
        system = psutil.virtual_memory()
        return Memory(int(system.total - system.available), int(system.available), None, int(system.total), shared=True)
    return _memory(memory.used, memory.free, None, memory.total)


def _utilization(nvml: Any, handle: Any) -> Utilization:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    gpu, memory = rates.gpu, rates.memory
    if gpu > 100 and memory > 100:
        percent(gpu)
    return Utilization(float(gpu) if gpu <= 100 else None, float(memory) if memory <= 100 else None)


def _bus_id(nvml: Any, handle: Any) -> str:
    return told(nvml.nvmlDeviceGetPciInfo(handle).busId)


# Six calls a reading: `memory.used,free,reserved,total`, `utilization.gpu,memory`, `temperature.gpu`, `power.draw` (a
# one-second average on most cards since Ampere), `clocks.sm`, `clocks.mem`.
MEMORY = Question(
    "memory_used_bytes",
    (_memory_v2, _memory_v1),
    expected=True,
    also=("memory_free_bytes", "memory_reserved_bytes", "memory_total_bytes"),
)
UTILIZATION = Question("utilization_percent", (_utilization,), expected=True, also=("memory_utilization_percent",))
TEMPERATURE = Question(
    "temperature_c",
    (
        lambda n, h: float(right(n.nvmlDeviceGetTemperatureV(h, n.NVML_TEMPERATURE_GPU), -100, 300, "°C")),
        lambda n, h: celsius(n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)),
    ),
    expected=True,
)
POWER = Question("power_w", (lambda n, h: watts(n.nvmlDeviceGetPowerUsage(h)),), expected=True)
SM_CLOCK = Question("sm_clock_mhz", (lambda n, h: megahertz(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)),), expected=True)
MEMORY_CLOCK = Question("memory_clock_mhz", (lambda n, h: megahertz(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM)),))

# What a card is: asked when it is first listed.
NAME = Question("name", (lambda n, h: told(n.nvmlDeviceGetName(h)),), expected=True)
UUID = Question("uuid", (lambda n, h: told(n.nvmlDeviceGetUUID(h)),), expected=True)
BUS_ID = Question("bus_id", (_bus_id,), expected=True)
CAPABILITY = Question("compute_capability", (lambda n, h: "{}.{}".format(*n.nvmlDeviceGetCudaComputeCapability(h)),), expected=True)
POWER_CAP = Question("power_cap_w", (lambda n, h: watts(n.nvmlDeviceGetEnforcedPowerLimit(h)),))
ECC = Question("ecc", (lambda n, h: bool(n.nvmlDeviceGetEccMode(h)[0]),))
MIG = Question("mig", (lambda n, h: bool(n.nvmlDeviceGetMigMode(h)[0]),))
COMPUTE_MODE = Question("compute_mode", (lambda n, h: COMPUTE_MODES.get(n.nvmlDeviceGetComputeMode(h)),))

# Of the machine.
DRIVER_VERSION = Question("driver_version", (lambda n, _: told(n.nvmlSystemGetDriverVersion()),), expected=True)
CUDA_VERSION = Question(
    "cuda_version", (lambda n, _: n.nvmlSystemGetCudaDriverVersion_v2(), lambda n, _: n.nvmlSystemGetCudaDriverVersion()), expected=True
)
COUNT = Question("count", (lambda n, _: int(right(n.nvmlDeviceGetCount(), 0, 4096, "cards")),), expected=True)


def cuda_text(number: int | None) -> str | None:
    """`12040` -> `12.4`."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def mig_profile(name: str) -> str | None:
    """`NVIDIA A100-SXM4-40GB MIG 1g.5gb` -> `1g.5gb`."""
    found = re.search(r"\bMIG (\d+\S*)", name)
    return found[1] if found else None
