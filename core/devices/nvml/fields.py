"""How the fields of a card are asked of NVML, in the units of the records: the quick ones and those that identify it,
those that change seldom, and its NVLinks with their traffic since the reading before. Sampler threads.

Nothing is imported from pynvml here: `core.devices.nvml.library` owns the module and hands it in. Each question is
named with its `nvidia-smi --query-gpu` equivalent, so that a reader can check a figure by hand. An answer that cannot
be right (an old driver's sentinel, 4294967295 degrees) raises ValueError with the reason.

Most of what changes seldom comes from one call of `nvmlDeviceGetFieldValues`, in which each field has its own error
code. Where the driver does not have that call, or a field of it, the field's older function is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from devexplorer.core.devices.nvml.query import CardState, Query, QueryRunner, nvmlDeviceGetFieldValues
from devexplorer.core.devices.plausible import RANGES, implausible, in_range, plausible
from devexplorer.core.records import NvLink

COMPUTE_MODES = {0: "Default", 1: "Exclusive Thread", 2: "Prohibited", 3: "Exclusive Process"}

INTEGRATED = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
"""Compute capabilities of chips that have no memory of their own: Tegra X1 and X2, Xavier, Orin, Thor (twice: CUDA 13
renumbered it), GB10.

By NVIDIA's list "CUDA GPU Compute Capability". NVML says NotSupported for their memory, as DGX Spark's user guide
states; from any other card the same answer only means that it does not tell.
"""
_NOTHING: Mapping[str, str] = MappingProxyType({})


class CardMemory(NamedTuple):
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


def _memory(used: int, free: int, reserved: int | None, total: int) -> CardMemory:
    plausible("memory_total_bytes", total)
    parts = {"memory_used_bytes": used, "memory_free_bytes": free, "memory_reserved_bytes": reserved}
    refused = implausible(parts, total)
    kept = [None if field in refused else value for field, value in parts.items()]
    return CardMemory(kept[0], kept[1], kept[2], total, refused=refused)


_plain = object.__getattribute__
"""pynvml's structures look whether a field is text whenever it is read, in Python."""


def _memory_v2(nvml: Any, handle: Any) -> CardMemory:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    used, free = _plain(memory, "used"), _plain(memory, "free")
    return _memory(used, free, _plain(memory, "reserved"), _plain(memory, "total"))


def _memory_v1(nvml: Any, handle: Any) -> CardMemory:
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


def _system_memory() -> CardMemory:
    import psutil  # takes a third of the time that this module needs, and only machines of this kind need it

    system = psutil.virtual_memory()
    return CardMemory(int(system.total - system.available), int(system.available), None, int(system.total), shared=True)


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


_CLOCK_REASONS = {
    0x1: "idle",
    0x2: "application clocks are set lower",
    0x4: "power cap",
    0x8: "hardware slowdown (heat, power brake, or a supply that is too weak)",
    0x10: "kept at the clock of its sync boost group",
    0x20: "too hot (the driver lowers the clocks)",
    0x40: "too hot (the hardware lowers the clocks)",
    0x80: "power brake (the supply asks for less)",
    0x100: "clocks are held for the display",
    0x200: "voltage limit of the board",
    0x400: "reliability limit of the voltage",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons, as nvml.h describes them (nvmlClocksEventReason…), in words."""

ALL_LINKS = 0xFFFFFFFF
"""Scope of an NVLink field that adds the links up."""

_KIB = 1024
NEEDS_TWO = "a rate needs two readings of the counter, and there was one"
LEAST_S = 0.02
"""Shortest time for a rate: the driver counts in steps."""


class Value(NamedTuple):
    """One field of `nvmlDeviceGetFieldValues`: `code` 0 and its number, or the code of its error."""

    code: int
    number: float | None


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""By nvmlValueType_t."""

_SENTINELS = {"uiVal": 2**32 - 1, "ulVal": 2**64 - 1, "ullVal": 2**64 - 1}


def field_values(nvml: Any, handle: Any, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Value]:
    """Several fields by (id, scope) in one call. A "not available" value has no number."""
    asked = list(wanted)
    result = {}
    for key, answer in zip(asked, nvmlDeviceGetFieldValues(nvml, handle, asked), strict=True):
        code = int(answer.nvmlReturn)
        member = _MEMBERS[answer.valueType] if code == 0 and 0 <= answer.valueType < len(_MEMBERS) else None
        number = getattr(answer.value, member) if member is not None else None
        result[key] = Value(code, None if member is not None and number == _SENTINELS.get(member) else number)
    return result


def clock_reasons(bits: int) -> tuple[str, ...]:
    """Names of the clock event reasons; unknown bits as numbers. Empty: nothing limits the clocks."""
    in_range(bits, 0, 2**63, "as clock event reasons")
    known = tuple(message for bit, message in _CLOCK_REASONS.items() if bits & bit)
    rest = bits & ~sum(_CLOCK_REASONS)
    return (*known, f"reason 0x{rest:x}") if rest else known


def _state(number: int) -> str:
    return f"P{int(in_range(number, 0, 15, 'as performance state'))}"  # 32: unknown


def fans(nvml: Any, handle: Any) -> tuple[float, ...]:
    """Each fan's speed in per cent of its greatest, which it can exceed a little (`fan.speed`)."""
    count = int(in_range(nvml.nvmlDeviceGetNumFans(handle), 0, 64, "fans"))
    if count == 0:
        raise ValueError("the card has no fan")
    return tuple(float(plausible("fan_percent", nvml.nvmlDeviceGetFanSpeed_v2(handle, fan))) for fan in range(count))


def one_fan(nvml: Any, handle: Any) -> tuple[float, ...]:
    """For drivers without a speed per fan."""
    return (float(plausible("fan_percent", nvml.nvmlDeviceGetFanSpeed(handle))),)


def count(number: float) -> int:
    """A plausible number of errors."""
    return int(plausible("ecc_corrected", number))


def _throughput(kib_s: int) -> float:
    return float(plausible("pcie_tx_bytes_s", kib_s * _KIB))


def _share(answer: Any) -> float:
    """In per cent; the second part of the answer is the sampling period."""
    return float(in_range(answer[0], 0, 100, "%"))


def _joules(millijoules: float) -> float:
    return plausible("energy_j", millijoules / 1000)


SINGLE = (  # with the field of `nvidia-smi --query-gpu`
    POWER_CAP,  # enforced.power.limit
    simple("encoder_percent", "nvmlDeviceGetEncoderUtilization", _share),  # utilization.encoder
    simple("decoder_percent", "nvmlDeviceGetDecoderUtilization", _share),  # utilization.decoder
    Query("fan_percent", lambda n, h: max(fans(n, h)), lambda n, h: max(one_fan(n, h))),  # fan.speed
    simple("performance_state", "nvmlDeviceGetPerformanceState", _state),  # pstate
    Query(  # clocks_event_reasons.active
        "throttle_reasons",
        lambda n, h: clock_reasons(n.nvmlDeviceGetCurrentClocksEventReasons(h)),
        lambda n, h: clock_reasons(n.nvmlDeviceGetCurrentClocksThrottleReasons(h)),
    ),
    simple("graphics_clock_mhz", "nvmlDeviceGetClockInfo", megahertz, 0, most=GRAPHICS_CLOCK_MAX),  # clocks.gr
    simple("video_clock_mhz", "nvmlDeviceGetClockInfo", megahertz, 3, most=VIDEO_CLOCK_MAX),  # clocks.video
    simple("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", whole(*RANGES["pcie_generation"])),
    simple("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", whole(*RANGES["pcie_width"])),  # pcie.link.width.current
)
"""One call each."""

PCIE_THROUGHPUT = (
    simple("pcie_tx_bytes_s", "nvmlDeviceGetPcieThroughput", _throughput, 0),
    simple("pcie_rx_bytes_s", "nvmlDeviceGetPcieThroughput", _throughput, 1),
)
"""By nvmlPcieUtilCounter_t. Each blocks for the 20 ms over which the driver measures (KiB/s there)."""


class Grouped(NamedTuple):
    """A field of the one call: its number for `nvmlDeviceGetFieldValues`, and the older function of that field."""

    query: Query
    id: int
    convert: Callable[[float], float | int]


_replays = whole(*RANGES["pcie_replays"])
GROUPED = (
    Grouped(Query("power_instant_w"), 186, watts),
    Grouped(Query("memory_temperature_c"), 82, lambda value: celsius(int(value))),
    Grouped(simple("energy_j", "nvmlDeviceGetTotalEnergyConsumption", _joules), 83, _joules),
    Grouped(simple("pcie_replays", "nvmlDeviceGetPcieReplayCounter", _replays), 94, _replays),
    Grouped(simple("ecc_corrected", "nvmlDeviceGetTotalEccErrors", count, 0, 0), 3, count),
    Grouped(simple("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", count, 1, 0), 4, count),
)
"""`power.draw.instant`, `temperature.memory`, the energy since the driver was loaded, replays,
`ecc.errors.…volatile.total`.

The numbers are nvml.h's NVML_FI_DEV_POWER_INSTANT, MEMORY_TEMP, TOTAL_ENERGY_CONSUMPTION, PCIE_REPLAY_COUNTER,
ECC_SBE_VOL_TOTAL, ECC_DBE_VOL_TOTAL, and below NVLINK_THROUGHPUT_DATA_TX and _RX. nvmlDeviceGetTotalEccErrors takes
nvmlMemoryErrorType_t (0 corrected, 1 not) and nvmlEccCounterType_t (0 since start, 1 ever).
"""

ECC_LIFE = (
    simple("ecc_corrected_total", "nvmlDeviceGetTotalEccErrors", count, 0, 1),
    simple("ecc_uncorrected_total", "nvmlDeviceGetTotalEccErrors", count, 1, 1),
)
"""`ecc.errors.corrected/uncorrected.aggregate.total`: belong to the details."""

_NVLINK = (Query("nvlink_tx_bytes_s"), Query("nvlink_rx_bytes_s"))


def nvlink_fields(link: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The two counters of a link: KiB sent and received, data without protocol."""
    return (138, link), (139, link)


_WANTED = (*((item.id, 0) for item in GROUPED), *nvlink_fields(ALL_LINKS))
_COUNTERS = Query("nvlink_counters", lambda n, h: field_values(n, h, nvlink_fields(ALL_LINKS)))
_ALL = Query("field_values", lambda n, h: field_values(n, h, _WANTED))


def rate(state: CardState, name: str, link: int, number: float, now: float) -> float | None:
    """Bytes per second of a KiB counter since the previous reading; None for the first, and after a reset."""
    total = int(number) * _KIB
    then = state.counters.get((name, link))
    state.counters[name, link] = (now, total)
    if then is None or now <= then[0] or total < then[1]:
        return None
    result = (total - then[1]) / (now - then[0])
    return result if result <= RANGES["nvlink_tx_bytes_s"][1] else None  # the counter was never filled, or jumped


def read_grouped(runner: QueryRunner, state: CardState, now: float) -> dict[str, Any]:
    """The fields of the one call, by name; `now` in monotonic seconds. Raises `CardLostError` and `NvmlGoneError`."""
    result: dict[tuple[int, int], Value] = runner.ask(state, _ALL) or {}
    why = state.reasons.get(_ALL.field, "the driver is too old for it")
    values: dict[str, Any] = {}
    for query, number, convert in GROUPED:
        values[query.field] = _grouped(runner, state, query, result.get((number, 0)), convert, why)
    for query, key in zip(_NVLINK, nvlink_fields(ALL_LINKS), strict=True):
        counter = _grouped(runner, state, query, result.get(key), float, why)
        values[query.field] = None if counter is None else rate(state, query.field, ALL_LINKS, counter, now)
        if counter is not None and values[query.field] is None:
            runner.set_missing(state, query, NEEDS_TWO, problem=False)
    return values


def read_rates_again(runner: QueryRunner, state: CardState, now: float) -> dict[str, Any]:
    """NVLink rates after a first reading, which has none: the traffic since then, if enough time has passed."""
    since = state.counters.get((_NVLINK[0].field, ALL_LINKS))
    if since is None or state.reasons.get(_NVLINK[0].field) != NEEDS_TWO or now - since[0] < LEAST_S:
        return {}
    result: dict[tuple[int, int], Value] = runner.ask(state, _COUNTERS) or {}
    values: dict[str, Any] = {}
    for query, key in zip(_NVLINK, nvlink_fields(ALL_LINKS), strict=True):
        value = result.get(key)
        if value is not None and value.code == 0 and value.number is not None:
            values[query.field] = rate(state, query.field, ALL_LINKS, value.number, now)
            if values[query.field] is not None:
                runner.clear_reason(state, query)
    return values


def _grouped(
    runner: QueryRunner,
    state: CardState,
    query: Query,
    value: Value | None,
    convert: Callable[[float], float | int],
    why: str,
) -> float | int | None:
    """One field: its value, else that of the older function, else None with the reason."""
    if value is not None and value.code == 0 and value.number is not None:
        try:
            number = convert(value.number)
        except ValueError as error:
            runner.set_missing(state, query, str(error), problem=False)
            return None
        if query.field in state.reasons:
            runner.clear_reason(state, query)
        return number
    if value is not None:
        runner.check(state, value.code)
        why = runner.code_message(value.code) if value.code != 0 else "the driver answers that it does not know"
    answer: float | int | None = runner.ask(state, query)
    if answer is None and query.field not in state.reasons:
        runner.set_unsupported(state, query, why)
    return answer


_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
"""nvmlNvlinkVersion_t"""

_KINDS = {0: "card", 1: "NPU", 2: "switch"}
"""nvmlIntNvLinkDeviceType_t"""

_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_NOWHERE = re.compile(r"[0-9a-f]{4,8}:ff:ff\.|f+:", re.IGNORECASE)
"""What drivers write where the far end is a switch that this system does not see."""

_MOST_LINKS = 36
"""NVML_NVLINK_MAX_LINKS of the newest nvml.h; a card says itself where its links end."""


def links(nvml: Any, handle: Any) -> tuple[NvLink, ...]:
    """Every link; none where the card has none. What one link does not tell is None."""
    result = []
    for link in range(_MOST_LINKS):
        try:
            active = bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except Exception as error:
            if getattr(error, "value", None) in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                break
            raise
        version = _or_none(nvml, "nvmlDeviceGetNvLinkVersion", handle, link)
        remote = _or_none(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link) if active else None
        kind = _or_none(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) if active else None
        bus_id = _text(remote)
        result.append(
            NvLink(
                link=link,
                active=active,
                version=_VERSIONS.get(version or 0),
                remote_bus_id=bus_id if _BUS_ID.fullmatch(bus_id) and not _NOWHERE.match(bus_id) else None,
                remote_kind=_KINDS.get(kind if kind is not None else -1),
            )
        )
    return tuple(result)


def _text(remote: Any) -> str:
    """The address of a far end; bytes that are no text are none."""
    try:
        return text(remote.busId) if remote is not None else ""
    except UnicodeDecodeError:
        return ""


def _or_none(nvml: Any, query: str, handle: Any, link: int) -> Any:
    """One detail of a link: links differ, and one that does not tell hides no other. A lost card is lost."""
    try:
        return getattr(nvml, query)(handle, link)
    except Exception as error:
        if getattr(error, "value", None) in (
            nvml.NVML_ERROR_GPU_IS_LOST,
            nvml.NVML_ERROR_UNINITIALIZED,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        ):
            raise
        return None


LINKS = Query("nvlinks", links, many=True)


def with_traffic(runner: QueryRunner, state: CardState, result: tuple[NvLink, ...], now: float) -> tuple[NvLink, ...]:
    """The links with bytes per second since the last call, from one question about all active ones."""
    active = [link.link for link in result if link.active]
    if not active:
        return result
    wanted = [field for link in active for field in nvlink_fields(link)]
    values = runner.ask(state, Query("nvlink_traffic", lambda n, h: field_values(n, h, wanted))) or {}

    def traffic(link: int, index: int, name: str) -> float | None:
        value = values.get(nvlink_fields(link)[index])
        if value is None or value.code != 0 or value.number is None:
            return None
        return rate(state, name, link, value.number, now)

    return tuple(
        replace(link, tx_bytes_s=traffic(link.link, 0, "tx"), rx_bytes_s=traffic(link.link, 1, "rx"))
        if link.active
        else link
        for link in result
    )
