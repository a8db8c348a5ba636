"""How each field is asked of NVML, in the units of the records, and what a pid is called. Sampler threads; no torch.

Nothing is imported from pynvml here: `core.devices.nvml` owns the module and hands it in. A field has one or more ways,
in order of preference; the next one is tried where this card, driver or pynvml lacks the one before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

Way = Callable[[Any, Any], Any]
"""One way to ask for a field: `way(pynvml, handle)`."""

_FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of Linux's initial pid namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h)."""

_COMPUTE_MODES = {0: "Default", 1: "Exclusive Thread", 2: "Prohibited", 3: "Exclusive Process"}


class Memory(NamedTuple):
    """Bytes in use and in all; `shared` where they are the system's."""

    used_bytes: int
    total_bytes: int
    shared: bool = False


def _memory_v1(nvml: Any, handle: Any) -> Memory:
    """Counts memory that the driver reserves as used; where even this is not supported, the memory is the system's."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except Exception as error:
        if getattr(error, "value", None) != nvml.NVML_ERROR_NOT_SUPPORTED:
            raise
        system = psutil.virtual_memory()
        return Memory(int(system.total - system.available), int(system.total), shared=True)
    return Memory(int(memory.used), int(memory.total))


def _memory_v2(nvml: Any, handle: Any) -> Memory:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return Memory(int(memory.used), int(memory.total))


def _temperature_v1(nvml: Any, handle: Any) -> float:
    degrees = int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    return float(degrees - 2**32 if degrees >= 2**31 else degrees)  # unsigned there: -5 arrives as 4294967291


def _bus_id(nvml: Any, handle: Any) -> str:
    raw = nvml.nvmlDeviceGetPciInfo(handle).busId
    return raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(raw)


def _state(number: int) -> str | None:
    return f"P{number}" if 0 <= number <= 15 else None  # 32: unknown


NAME: tuple[Way, ...] = (lambda n, h: n.nvmlDeviceGetName(h),)
UUID: tuple[Way, ...] = (lambda n, h: n.nvmlDeviceGetUUID(h),)
BUS_ID: tuple[Way, ...] = (_bus_id,)
MEMORY: tuple[Way, ...] = (_memory_v2, _memory_v1)
CAPABILITY: tuple[Way, ...] = (lambda n, h: "{}.{}".format(*n.nvmlDeviceGetCudaComputeCapability(h)),)
UTILIZATION: tuple[Way, ...] = (lambda n, h: float(n.nvmlDeviceGetUtilizationRates(h).gpu),)
TEMPERATURE: tuple[Way, ...] = (
    lambda n, h: float(n.nvmlDeviceGetTemperatureV(h, n.NVML_TEMPERATURE_GPU)),
    _temperature_v1,
)
POWER: tuple[Way, ...] = (lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1000,)
POWER_CAP: tuple[Way, ...] = (lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,)
CLOCK: tuple[Way, ...] = (lambda n, h: int(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)),)
FAN: tuple[Way, ...] = (lambda n, h: float(n.nvmlDeviceGetFanSpeed(h)),)
STATE: tuple[Way, ...] = (lambda n, h: _state(n.nvmlDeviceGetPerformanceState(h)),)
ECC: tuple[Way, ...] = (lambda n, h: bool(n.nvmlDeviceGetEccMode(h)[0]),)
MIG: tuple[Way, ...] = (lambda n, h: bool(n.nvmlDeviceGetMigMode(h)[0]),)
COMPUTE_MODE: tuple[Way, ...] = (lambda n, h: _COMPUTE_MODES.get(n.nvmlDeviceGetComputeMode(h)),)
COMPUTE_PROCESSES: tuple[Way, ...] = (
    lambda n, h: n.nvmlDeviceGetComputeRunningProcesses(h),
    lambda n, h: n.nvmlDeviceGetComputeRunningProcesses_v2(h),
)
GRAPHICS_PROCESSES: tuple[Way, ...] = (
    lambda n, h: n.nvmlDeviceGetGraphicsRunningProcesses(h),
    lambda n, h: n.nvmlDeviceGetGraphicsRunningProcesses_v2(h),
)


def process_name(pid: int) -> str | None:
    """The program that a pid runs; None when it is gone or somebody else's."""
    try:
        return str(psutil.Process(pid).name())
    except (psutil.Error, OSError):
        return None


def in_pid_namespace() -> bool:
    """Whether this process has process numbers of its own (a container), which NVML's are not."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return os.stat(Path("/proc/self/ns/pid")).st_ino != _FIRST_PID_NAMESPACE
    except OSError:
        return False
