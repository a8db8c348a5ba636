"""The details of a card, which change seldom or never, about twice a minute; and how the cards are joined: what lies
between each pair, peer access, the CPUs and memory near each. Sampler threads.

How cards are joined: `nvidia-smi topo -m` shows the same; the codes are its. Nothing here is expected of every pair:
what the driver does not tell is None.

Nothing here is expected of every card: what one lacks is None, and the reason is in `DeviceDetails.missing`.
Each question is named with its `nvidia-smi --query-gpu` equivalent where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from devexplorer.core.devices.catalog import bus_key
from devexplorer.core.devices.nvml.fields import (
    COMPUTE_MODES,
    ECC_LIFE,
    GRAPHICS_CLOCK_MAX,
    LINKS,
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
    with_traffic,
)
from devexplorer.core.devices.nvml.query import (
    CardLostError,
    CardState,
    Query,
    QueryRunner,
    affinity,
    nvmlDeviceGetRetiredPages,
)
from devexplorer.core.devices.plausible import in_range
from devexplorer.core.records import DeviceDetails, DeviceSample, NvLink, PeerLink

_LEVELS = {
    0: ("same board", "PSB"),
    10: ("PCIe switch", "PIX"),
    20: ("several PCIe switches", "PXB"),
    30: ("host bridge", "PHB"),
    40: ("NUMA node", "NODE"),
    50: ("system", "SYS"),
}
"""nvmlGpuTopologyLevel_t: what the way between two cards crosses at most, in words and as `nvidia-smi topo` writes
it."""

_PEER = {
    0: "ok",
    1: "the chipset does not support it",
    2: "one of the cards does not support it",
    3: "the I/O hub between the cards does not support it",
    4: "switched off by a driver setting",
    5: "not supported",
}
"""nvmlGpuP2PStatus_t; 6 is unknown."""

_READ, _WRITE, _NVLINK, _ATOMICS = 0, 1, 2, 3
"""nvmlGpuP2PCapsIndex_t (pynvml's own constant for the first is a tuple by mistake)."""

_WORDS = 16
"""64-bit words of a set of CPUs or nodes: 1024 of them, more than the largest machines have."""


def members(words: Iterable[int]) -> list[int]:
    """The numbers in a set of 64-bit words, lowest first."""
    return [64 * index + bit for index, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1]


def ranges_text(numbers: Sequence[int]) -> str:
    """`[0, 1, 2, 3, 32]` -> `0-3,32`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)


def _cpus(nvml: Any, handle: Any) -> str:
    result = members(affinity(nvml, "nvmlDeviceGetCpuAffinity", handle, _WORDS))
    if not result:
        raise ValueError("the driver names no CPU")
    return ranges_text(result)


def _node(nvml: Any, handle: Any) -> int:
    result = members(affinity(nvml, "nvmlDeviceGetMemoryAffinity", handle, _WORDS, 0))
    if len(result) != 1:
        raise ValueError(
            f"near several NUMA nodes: {ranges_text(result)}" if result else "the driver names no NUMA node"
        )
    return result[0]


CPUS = Query("cpus", _cpus)
NUMA_NODE = Query("numa_node", _node)
"""The node of the CPUs near the card. (nvmlDeviceGetNumaNodeId is about the card's own memory on machines where that is
a node.)"""


def numa_of_bus(bus_id: str | None) -> int | None:
    """The NUMA node that Linux gives for a PCI address such as `00000000:3B:00.0`; None on other systems, and where
    there is only one."""
    if bus_id is None:
        return None
    domain, _, rest = bus_id.lower().partition(":")
    try:
        node = int(Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def numa_node(runner: QueryRunner, state: CardState) -> int | None:
    """The NUMA node near a card: NVML's, else the system's for its PCI address."""
    node: int | None = runner.ask(state, NUMA_NODE)
    if node is None and (node := numa_of_bus(state.known_card.bus_id)) is not None:
        runner.clear_reason(state, NUMA_NODE)
    return node


def same_bus(left: str | None, right: str | None) -> bool:
    """Whether two PCI addresses are one; NVML writes the domain with eight digits, others with four."""
    return left is not None and bus_key(left) == bus_key(right)


class PairEnd(NamedTuple):
    """One card as the end of pairs."""

    device: str
    state: CardState
    links: tuple[NvLink, ...] | None
    """The active ones; None where the card does not tell."""
    switched: int = 0
    """How many of them lead to NVSwitches."""

    @property
    def bus_id(self) -> str | None:
        """The card's PCI address."""
        return self.state.card.bus_id if self.state.card else None


def end(runner: QueryRunner, device: str, state: CardState) -> PairEnd:
    """A card with its links. Raises `NvmlGoneError`; a lost card has none."""
    try:
        state.links = links = runner.ask(state, LINKS)
    except CardLostError:
        links = None
    return PairEnd(device, state, tuple(link for link in links if link.active) if links is not None else None)


def with_switches(ends: Sequence[PairEnd]) -> list[PairEnd]:
    """The same ends, with how many of their links lead to NVSwitches."""
    return [one._replace(switched=_switched(one, ends)) for one in ends]


def pair(runner: QueryRunner, a: PairEnd, b: PairEnd) -> PeerLink:
    """How two cards are joined. Raises `NvmlGoneError`; a lost card only leaves its own pairs without answers."""
    try:
        level = _between(
            runner, a, b, "topology_level", lambda n, left, right: n.nvmlDeviceGetTopologyCommonAncestor(left, right)
        )
        read, write, atomics = (_status(runner, a, b, index) for index in (_READ, _WRITE, _ATOMICS))
        links = nvlinks(runner, a, b)
    except CardLostError:
        return PeerLink(a=a.device, b=b.device)
    message, code = _LEVELS.get(-1 if level is None else level, (None, None))
    return PeerLink(
        a=a.device,
        b=b.device,
        level=message,
        code=f"NV{links}" if links else code,
        nvlinks=links,
        peer_read=_PEER.get(-1 if read is None else read),
        peer_write=_PEER.get(-1 if write is None else write),
        peer_atomics=_PEER.get(-1 if atomics is None else atomics),
    )


def nvlinks(runner: QueryRunner, a: PairEnd, b: PairEnd) -> int | None:
    """Active links from `a` to `b`: those that end there, else those by which both reach NVSwitches. None where a card
    does not tell."""
    if a.links is None or b.links is None:
        return None
    direct = sum(same_bus(link.remote_bus_id, b.bus_id) for link in a.links)
    if direct:
        return direct
    switched = min(a.switched, b.switched)
    if switched and _status(runner, a, b, _NVLINK) not in (0, None):
        return 0  # there are switches, but they do not join these two
    return switched


def _switched(end: PairEnd, ends: Sequence[PairEnd]) -> int:
    """Active links of a card that lead to an NVSwitch.

    A far end that is no card of this list is one only if NVML says so: in a container it may be a card that is not
    visible. With drivers that do not say, a far end where another card ends, too, is taken for one.
    """
    count = 0
    for link in end.links or ():
        if any(same_bus(link.remote_bus_id, other.bus_id) for other in ends):
            continue
        others = (far for other in ends if other is not end for far in other.links or ())
        meet = any(same_bus(link.remote_bus_id, far.remote_bus_id) for far in others)
        count += link.remote_kind == "switch" if link.remote_kind is not None else meet
    return count


def _status(runner: QueryRunner, a: PairEnd, b: PairEnd, index: int) -> int | None:
    return _between(runner, a, b, f"peer_{index}", lambda n, left, right: n.nvmlDeviceGetP2PStatus(left, right, index))


def _between(runner: QueryRunner, a: PairEnd, b: PairEnd, what: str, ask: Any) -> int | None:
    """A question about two cards; one that fails leaves no trace on either of them."""
    if a.state.handle is None or b.state.handle is None:
        return None
    hanging = runner.hanging_at(
        a.state.known_card.index, "pairs"
    )  # apart from the card's own: it is not to blame for the other one
    trial = CardState(a.state.device, a.state.card, a.state.handle, tracker=a.state.tracker, hanging=hanging)
    answer = runner.ask(trial, Query(f"{what} {b.device}", lambda n, h: int(ask(n, h, b.state.handle))))
    return answer if answer is None else int(answer)


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
