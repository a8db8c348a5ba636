"""How the details of a card are asked of NVML: what changes seldom or never. Sampler threads, about twice a minute.

Nothing here is expected of every card: what one lacks is None, and the reason is in `DeviceDetails.missing`.
Each question is named with its `nvidia-smi --query-gpu` equivalent where there is one.
"""

from __future__ import annotations

from typing import Any

from devexplorer.core.devices.nvml.fields import (
    COMPUTE_MODES,
    ECC_LIFE,
    GRAPHICS_CLOCK_MAX,
    MEMORY_CLOCK_MAX,
    SM_CLOCK_MAX,
    VIDEO_CLOCK_MAX,
    celsius,
    count,
    fans,
    megahertz,
    named,
    nonempty_text,
    one_fan,
    simple,
    watts,
    whole,
)
from devexplorer.core.devices.nvml.links import LINKS, with_traffic
from devexplorer.core.devices.nvml.query import CardState, Query, QueryRunner, nvmlDeviceGetRetiredPages
from devexplorer.core.devices.nvml.topology import CPUS, numa_node
from devexplorer.core.devices.plausible import in_range
from devexplorer.core.records import DeviceDetails, DeviceSample

_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
"""NVML_DEVICE_ARCH_…"""

_BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC",
    9: "NVIDIA Virtual Compute Server",
    10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA Cloud Gaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
}
"""NVML_BRAND_…"""

_CORES_PER_SM = {3: 192, 5: 128, 7: 64, 9: 128, 10: 128, 11: 128, 12: 128}
_CORES_PER_SM_MINOR = {(6, 0): 64, (6, 1): 128, (6, 2): 128, (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128}
"""By compute capability: CUDA C++ Programming Guide, "Compute Capabilities", and helper_cuda.h of the CUDA samples."""


def _yes_no(number: int) -> bool:
    return bool(in_range(number, 0, 1, "as yes or no"))


def _sm_count_from_cores(nvml: Any, handle: Any) -> int:
    """CUDA cores over cores of an SM: exact, where only MIG-capable cards tell the number itself."""
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    cores = _CORES_PER_SM_MINOR.get((major, minor), _CORES_PER_SM.get(major))
    if cores is None:
        raise ValueError(f"cores per SM are not known for compute capability {major}.{minor}")
    return int(in_range(nvml.nvmlDeviceGetNumGpuCores(handle), cores, 2**20, "CUDA cores")) // cores


def _pair(answer: Any) -> tuple[bool, bool | None]:
    """Mode now, and the one after the next reset where it differs."""
    now, pending = _yes_no(answer[0]), _yes_no(answer[1])
    return now, pending if pending != now else None


def _remapped(answer: Any) -> tuple[int, int, bool, bool]:
    corrected, uncorrected, pending, failed = answer
    return count(corrected), count(uncorrected), _yes_no(pending), _yes_no(failed)


QUERIES: tuple[Query, ...] = (
    simple("architecture", "nvmlDeviceGetArchitecture", named(_ARCHITECTURES)),
    simple("brand", "nvmlDeviceGetBrand", named(_BRANDS)),
    simple("serial", "nvmlDeviceGetSerial", nonempty_text, text=True),  # serial
    simple("board_part_number", "nvmlDeviceGetBoardPartNumber", nonempty_text, text=True),
    simple("vbios_version", "nvmlDeviceGetVbiosVersion", nonempty_text, text=True),  # vbios_version
    Query(
        "sm_count",
        lambda n, h: int(in_range(n.nvmlDeviceGetAttributes_v2(h).multiprocessorCount, 1, 4096, "SMs")),
        _sm_count_from_cores,
    ),
    simple("cuda_cores", "nvmlDeviceGetNumGpuCores", whole(1, 2**20, "CUDA cores")),
    simple("memory_bus_bits", "nvmlDeviceGetMemoryBusWidth", whole(1, 2**16, "bits")),
    simple("persistence", "nvmlDeviceGetPersistenceMode", _yes_no),  # persistence_mode
    simple("compute_mode", "nvmlDeviceGetComputeMode", named(COMPUTE_MODES)),  # compute_mode
    simple("accounting", "nvmlDeviceGetAccountingMode", _yes_no),  # accounting.mode
    simple("mig", "nvmlDeviceGetMigMode", _pair, also=("mig_pending",)),  # mig.mode.current, pending
    simple("display_active", "nvmlDeviceGetDisplayActive", _yes_no),  # display_active
    Query("fans_percent", fans, one_fan),
    # nvmlTemperatureThresholds_t
    simple("temperature_shutdown_c", "nvmlDeviceGetTemperatureThreshold", celsius, 0),
    simple("temperature_slowdown_c", "nvmlDeviceGetTemperatureThreshold", celsius, 1),
    simple("temperature_memory_limit_c", "nvmlDeviceGetTemperatureThreshold", celsius, 2),
    simple("temperature_limit_c", "nvmlDeviceGetTemperatureThreshold", celsius, 3),
    simple("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", watts),  # power.default_limit
    simple(  # power.min_limit, power.max_limit
        "power_limit_min_w",
        "nvmlDeviceGetPowerManagementLimitConstraints",
        lambda limits: tuple(map(watts, limits)),
        also=("power_limit_max_w",),
    ),
    GRAPHICS_CLOCK_MAX,
    SM_CLOCK_MAX,
    MEMORY_CLOCK_MAX,
    VIDEO_CLOCK_MAX,
    simple("graphics_clock_application_mhz", "nvmlDeviceGetApplicationsClock", megahertz, 0),  # clocks.applications.gr
    simple("memory_clock_application_mhz", "nvmlDeviceGetApplicationsClock", megahertz, 2),  # clocks.applications.mem
    simple(
        "pcie_generation_max",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        whole(1, 15, "as PCIe generation"),
    ),
    simple("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", whole(1, 64, "PCIe lanes")),  # pcie.link.width.max
    simple("ecc", "nvmlDeviceGetEccMode", _pair, also=("ecc_pending",)),  # ecc.mode.current, pending
    *ECC_LIFE,
    simple(
        "remapped_rows_corrected",
        "nvmlDeviceGetRemappedRows",
        _remapped,
        also=("remapped_rows_uncorrected", "remapping_pending", "remapping_failed"),
    ),  # nvidia-smi --query-remapped-rows
    # nvmlPageRetirementCause_t: retired_pages.…count
    Query("retired_pages_single_bit", lambda n, h: len(nvmlDeviceGetRetiredPages(n, h, 0))),
    Query("retired_pages_double_bit", lambda n, h: len(nvmlDeviceGetRetiredPages(n, h, 1))),
    simple("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus", _yes_no),  # retired_pages.pending
    CPUS,
)
"""Asked one after the other; an answer to several fields is a tuple in the order of `field`, `also`."""

_SAMPLE_FIELDS = frozenset(DeviceSample.__struct_fields__)
_DETAIL_FIELDS = frozenset(DeviceDetails.__struct_fields__)


def read_details(
    runner: QueryRunner,
    state: CardState,
    *,
    device: str,
    time_unix_s: float,
    now: float,
) -> DeviceDetails:
    """The details of one card; `now` in monotonic seconds. Raises `CardLostError` and `NvmlGoneError`."""
    values: dict[str, Any] = {}
    runner.read(state, QUERIES, values)
    card = state.known_card
    if card.mig_instance is None:
        result, state.links = state.links or runner.ask(state, LINKS), None
        values["nvlinks"] = with_traffic(runner, state, result, now) if result is not None else None
    else:  # it says that it has no link, where its card has some
        runner.set_unsupported(state, LINKS, "")
    values["numa_node"] = numa_node(runner, state)
    values["driver_version"] = card.driver_version
    values["cuda_version"] = card.cuda_version
    return DeviceDetails(device=device, time_unix_s=time_unix_s, **values, missing=missing(state))


def missing(state: CardState) -> dict[str, str]:
    """Why fields of the details, and of the samples, are not known."""
    reasons = state.reasons.copy()  # in one step: a listing on another thread may add to it
    return {field: why for field, why in reasons.items() if field in _SAMPLE_FIELDS or field in _DETAIL_FIELDS}


def lost_details(device: str, time_unix_s: float, why: str) -> DeviceDetails:
    """Of a card that cannot be asked: nothing is known, for one reason; that goes for its samples, too."""
    return DeviceDetails(device=device, time_unix_s=time_unix_s, missing=dict.fromkeys(sorted(_ASKED), why))


_ASKED = {
    *(field for kind in (DeviceSample, DeviceDetails) for field in kind.__struct_fields__),
} - {"device", "time_unix_s", "simulated", "more", "missing"}
"""Fields that the driver is asked for."""
