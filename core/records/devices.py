"""What a device is and what one reading of it says. Plain frozen records, made on any thread."""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import Record


class Problem(msgspec.Struct, frozen=True):
    """Something that could not be found out, and why. It never hides another field or another device."""

    reason: str
    """One sentence: what is missing, why, what would help."""
    device: str | None = None
    """The device's id, or None when the reason concerns the whole machine (no driver, say)."""
    field: str | None = None
    """The field of `DeviceInfo` or `DeviceSample`, or None when the whole device is concerned."""


class DeviceInfo(Record):
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
    parent: str | None = None
    """The card that this MIG instance is a part of, by id."""
    mig_profile: str | None = None
    """`1g.5gb`; None for what is no MIG instance."""
    gpu_instance_id: int | None = None
    """What nvidia-smi calls the GPU instance of a MIG instance (`GI`)."""
    datasheet_tflops: dict[str, float] = msgspec.field(default_factory=dict)
    """Dense TFLOP/s per dtype as torch writes them (`tf32` as a key of its own), where a profile of this card is
    known."""
    memory_gb_s: float | None = None
    """Datasheet memory bandwidth, decimal GB/s."""
    simulated: bool = False


class ProcessUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that uses a device."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None
    user: str | None = None
    command: str | None = None
    """The command line, shortened to 400 characters."""
    kind: str | None = None
    """`compute`, `graphics`, or `compute, graphics`."""
    utilization_percent: float | None = None
    """Share of the last seconds in which one of its kernels ran."""
    memory_utilization_percent: float | None = None
    """Share of the last seconds in which it read or wrote the device's memory."""
    cpu_percent: float | None = None
    """Of one core, since the reading before; above 100 with several threads."""
    host_memory_bytes: int | None = None
    """Resident in the machine's own memory."""
    running_s: float | None = None
    """Since it was started."""


class DeviceSample(Record, omit_defaults=True, tag="device_sample"):
    """One reading of one device by what watches it from outside: NVML, psutil, or the clock of a virtual GPU.

    What costs much to ask is read every few seconds and repeated in the samples between (`core.telemetry.sampler` says
    which).
    """

    device: str
    time_unix_s: float
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    """Kept by the driver and the firmware; in neither `used` nor `free`."""
    memory_total_bytes: int | None = None
    utilization_percent: float | None = None
    """Share of the last sampling period in which a kernel ran (CPU: busy share of all cores)."""
    memory_utilization_percent: float | None = None
    """Share of the last sampling period in which memory was read or written."""
    encoder_percent: float | None = None
    decoder_percent: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    power_w: float | None = None
    """As nvidia-smi shows it: a one-second average on most cards since Ampere."""
    power_instant_w: float | None = None
    power_cap_w: float | None = None
    energy_j: float | None = None
    """Since the driver was loaded."""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    graphics_clock_mhz: int | None = None
    video_clock_mhz: int | None = None
    fan_percent: float | None = None
    """The fastest fan, of its greatest speed."""
    performance_state: str | None = None
    """`P0` to `P15`."""
    throttle_reasons: tuple[str, ...] | None = None
    """Why clocks are lower than they could be, in words; empty: nothing holds them down. None: not known."""
    pcie_generation: int | None = None
    """Now; cards lower it when idle."""
    pcie_width: int | None = None
    """Lanes now."""
    pcie_tx_bytes_s: float | None = None
    """From the card, over 20 ms."""
    pcie_rx_bytes_s: float | None = None
    pcie_replays: int | None = None
    """Packets sent again since the driver was loaded."""
    nvlink_tx_bytes_s: float | None = None
    """All links together, data without protocol, since the reading before."""
    nvlink_rx_bytes_s: float | None = None
    ecc_corrected: int | None = None
    """Errors since the driver was loaded."""
    ecc_uncorrected: int | None = None
    processes: tuple[ProcessUse, ...] | None = None
    """None: not visible from here. Empty: no process uses the device."""
    simulated: bool = False


class NvLink(Record, omit_defaults=True):
    """One NVLink of a card."""

    link: int
    active: bool | None = None
    version: str | None = None
    """`4.0`"""
    remote_bus_id: str | None = None
    """None where the driver names no real address, as for NVSwitches of another system."""
    remote_kind: str | None = None
    """What it leads to: `card`, `switch`, `NPU`."""
    tx_bytes_s: float | None = None
    rx_bytes_s: float | None = None


class DeviceDetails(Record, omit_defaults=True, tag="device_details"):
    """What changes seldom or never: read when a device is found, and again about twice a minute.

    None: not known; `missing` says why, field by field.
    """

    device: str
    time_unix_s: float
    architecture: str | None = None
    """`Ampere`, `Hopper`, …"""
    brand: str | None = None
    serial: str | None = None
    board_part_number: str | None = None
    vbios_version: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    """The newest CUDA that the driver supports."""
    sm_count: int | None = None
    cuda_cores: int | None = None
    memory_bus_bits: int | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    """`Default`, `Exclusive Process`, `Prohibited`."""
    accounting: bool | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    """The mode after the next reset, where it differs."""
    display_active: bool | None = None
    fans_percent: tuple[float, ...] | None = None
    temperature_slowdown_c: float | None = None
    """The chip lowers its clocks from here on."""
    temperature_shutdown_c: float | None = None
    temperature_limit_c: float | None = None
    """The highest at which the chip is meant to work."""
    temperature_memory_limit_c: float | None = None
    power_limit_default_w: float | None = None
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    sm_clock_max_mhz: int | None = None
    graphics_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    video_clock_max_mhz: int | None = None
    graphics_clock_application_mhz: int | None = None
    memory_clock_application_mhz: int | None = None
    pcie_generation_max: int | None = None
    """Of card and slot together."""
    pcie_width_max: int | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_corrected_total: int | None = None
    """Over the card's life."""
    ecc_uncorrected_total: int | None = None
    remapped_rows_corrected: int | None = None
    """Rows of memory replaced after errors that could be corrected."""
    remapped_rows_uncorrected: int | None = None
    remapping_pending: bool | None = None
    remapping_failed: bool | None = None
    retired_pages_single_bit: int | None = None
    """Pages of memory taken out of use after several errors that could be corrected."""
    retired_pages_double_bit: int | None = None
    retired_pages_pending: bool | None = None
    nvlinks: tuple[NvLink, ...] | None = None
    """Empty: the card has none."""
    cpus: str | None = None
    """CPUs near the card, as `0-15,32-47`."""
    numa_node: int | None = None
    more: dict[str, str] = msgspec.field(default_factory=dict)
    """What only this kind of device has to say (Apple, Intel, AMD cards), label -> value with its unit."""
    missing: dict[str, str] = msgspec.field(default_factory=dict)
    """Field -> why it is not known."""
    simulated: bool = False


class PeerLink(Record, omit_defaults=True):
    """How two devices are joined, and what they may do with each other's memory."""

    a: str
    b: str
    level: str | None = None
    """`same board`, `PCIe switch`, `several PCIe switches`, `host bridge`, `NUMA node`, `system`: what the way between
    them crosses."""
    code: str | None = None
    """As `nvidia-smi topo -m` writes it: `NV12`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`."""
    nvlinks: int | None = None
    """Active NVLinks between the two; 0: none."""
    peer_read: str | None = None
    """`ok`, or why not: `the chipset does not support it`, …"""
    peer_write: str | None = None
    peer_atomics: str | None = None
    gb_s: float | None = None
    """One direction, decimal GB/s: of a virtual GPU's profile."""
    simulated: bool = False


class Affinity(Record, omit_defaults=True):
    """Which CPUs and which memory are near a device."""

    device: str
    cpus: str | None = None
    numa_node: int | None = None


class Topology(Record, omit_defaults=True, tag="topology"):
    """How the devices of one source are joined: every pair once, `a` before `b`."""

    source: str
    """`nvml` or `virtual`; each source replaces only its own."""
    links: tuple[PeerLink, ...] = ()
    affinities: tuple[Affinity, ...] = ()


class ObjectUse(msgspec.Struct, frozen=True):
    """What a named object of the workspace holds on a device; a storage that several share is counted for the first."""

    name: str
    bytes: int


class AllocatorSample(Record, omit_defaults=True, tag="allocator_sample"):
    """One reading of an allocator from inside the engine process: what `nvidia-smi` cannot know."""

    device: str
    time_unix_s: float
    allocated_bytes: int
    """In live tensors of the engine process."""
    reserved_bytes: int
    """Taken from the device by the caching allocator; never less than `allocated_bytes`."""
    peak_allocated_bytes: int | None = None
    largest_free_block_bytes: int | None = None
    """Of the cached memory: a request that is larger needs a new segment, however much is cached."""
    segments: int | None = None
    """Pieces that the allocator has taken from the device."""
    context_bytes: int | None = None
    """CUDA context and libraries, where known (virtual GPUs: a stated assumption). Freed only when the engine ends."""
    workspace_bytes: int | None = None
    """The part of `allocated_bytes` that named objects of the workspace hold, each storage counted once."""
    objects: tuple[ObjectUse, ...] = ()
    """`workspace_bytes` by object, largest first; at most 30, so that their sum can be less."""
    simulated: bool = False


class CalibrationFactor(Record):
    """How one class of work on a card compares with the cost model."""

    name: str
    """One of `core.virtual.device.cost.SCALED`."""
    value: float
    """Measured over modelled, in the unit of the quantity: above 1 a rate is faster, a time slower."""
    low: float
    """The 20th percentile of the samples over the modelled figure."""
    high: float
    """The 80th."""


class Calibration(Record, omit_defaults=True):
    """A card's own factors, and where and when they were measured."""

    name: str
    """What the calibrated card is called among the cards: `Tesla T4 calibrated on 27 Nov 2026`, and
    ` (simulated)` where a virtual GPU was."""
    card: str
    """The profile that the factors are relative to."""
    factors: tuple[CalibrationFactor, ...]
    measured_unix_s: float
    device: str = ""
    uuid: str | None = None
    host: str = ""
    """The machine that the card is in."""
    torch_version: str = ""
    simulated: bool = False
    """Measured on a virtual GPU: it says what the cost model says."""

    @property
    def values(self) -> dict[str, float]:
        """Factor by name."""
        return {factor.name: factor.value for factor in self.factors}

    @property
    def key(self) -> tuple[str, str | None, str, str, bool]:
        """Calibrations with equal keys are of one card in one environment: the newer one replaces the other."""
        return self.card, self.uuid, self.host, self.torch_version, self.simulated
