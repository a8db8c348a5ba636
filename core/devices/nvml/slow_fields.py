"""NVML queries for fields that change seldom or are expensive: every few seconds, on the card's sampler thread.

Most come from one call of `nvmlDeviceGetFieldValues`, in which each field has its own error code. Where the driver does
not have that call, or a field of it, the field's older function is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from devexplorer.core.devices.nvml.arrays import nvmlDeviceGetFieldValues
from devexplorer.core.devices.nvml.fields import (
    GRAPHICS_CLOCK_MAX,
    POWER_CAP,
    VIDEO_CLOCK_MAX,
    celsius,
    megahertz,
    simple,
    watts,
    whole,
)
from devexplorer.core.devices.nvml.query import CardState, Query, QueryRunner
from devexplorer.core.devices.plausible import RANGES, in_range, plausible

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
