"""What a device is and what one reading of it says. Plain frozen records, made on any thread."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """Something that could not be found out, and why. It never hides another field or another device."""

    reason: str
    """One sentence: what is missing, why, what would help."""
    device: str | None = None
    """The device's id, or None when the reason concerns the whole machine (no driver, say)."""
    field: str | None = None
    """The field of `DeviceInfo` or `DeviceSample`, or None when the whole device is concerned."""


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One device, joined from everything that knows it (NVML, the CUDA driver, torch, a virtual profile)."""

    id: str
    """`cpu`, `cuda:1`, `mps`, `xpu:0`, `vgpu:0`; `nvml:N` for a card that NVML sees and this torch cannot use."""
    kind: str
    """`cpu`, `cuda`, `mps`, `xpu`, `virtual`, `nvml`, or the type name of another torch backend."""
    name: str
    uuid: str | None = None
    bus_id: str | None = None
    nvml_index: int | None = None
    """What nvidia-smi counts."""
    cuda_ordinal: int | None = None
    """What torch counts."""
    usable: bool = True
    """Whether the engine's torch can put a tensor there."""
    reason: str | None = None
    """Why not, when `usable` is False."""
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_shared: bool = False
    """True where the accelerator has no memory of its own and the figures are the system's."""
    compute_capability: str | None = None
    sm_count: int | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    threads: int | None = None
    """CPU only: threads that torch uses for one operation."""
    datasheet_tflops: dict[str, float] = {}
    """Dense TFLOP/s per dtype as torch writes them (`tf32` as a key of its own), where a profile of this card is known."""
    memory_gb_s: float | None = None
    """Datasheet memory bandwidth, decimal GB/s."""
    simulated: bool = False


class ProcessUse(msgspec.Struct, frozen=True):
    """A process that uses a device."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None


class DeviceSample(msgspec.Struct, frozen=True, kw_only=True, tag="device_sample"):
    """One reading of one device by what watches it from outside: NVML, psutil, or the clock of a virtual GPU."""

    device: str
    time_unix_s: float
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_cap_w: float | None = None
    sm_clock_mhz: int | None = None
    fan_percent: float | None = None
    performance_state: str | None = None
    """`P0` to `P15`."""
    processes: tuple[ProcessUse, ...] | None = None
    """None: not visible from here. Empty: nobody uses the device."""
    simulated: bool = False


class AllocatorSample(msgspec.Struct, frozen=True, kw_only=True, tag="allocator_sample"):
    """One reading of an allocator from inside the engine process: what `nvidia-smi` cannot know."""

    device: str
    time_unix_s: float
    allocated_bytes: int
    """In live tensors of the engine process."""
    reserved_bytes: int
    """Taken from the device by the caching allocator; never less than `allocated_bytes`."""
    peak_allocated_bytes: int | None = None
    context_bytes: int | None = None
    """CUDA context and libraries, where known (virtual GPUs: a stated assumption). Freed only when the engine ends."""
    workspace_bytes: int | None = None
    """The part of `allocated_bytes` that named objects of the workspace hold, each storage counted once."""
    simulated: bool = False
