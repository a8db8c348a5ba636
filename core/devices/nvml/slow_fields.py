"""How the fields that change seldom or cost much are asked of NVML: every few seconds, on the card's sampler thread.

As much as possible comes from one `nvmlDeviceGetFieldValues`, which never raises for a field: each answer carries its
own code. Where the driver is too old for it, or for one field, the older function of that field is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from devexplorer.core.devices.nvml.arrays import nvmlDeviceGetFieldValues
from devexplorer.core.devices.nvml.fields import POWER_CAP, celsius, megahertz, percent, watts
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
"""A rate over less time would be chance: the driver counts in steps."""


class Value(NamedTuple):
    """One field of `nvmlDeviceGetFieldValues`: `code` 0 and its number, or the code of its error."""

    code: int
    number: float | None


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""By nvmlValueType_t."""

_SENTINELS = {"uiVal": 2**32 - 1, "ulVal": 2**64 - 1, "ullVal": 2**64 - 1}


def field_values(nvml: Any, handle: Any, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Value]:
    """Several fields by (id, scope) in one call. A value that stands for "not available" has no number."""
    asked = list(wanted)
    found = {}
    for key, answer in zip(asked, nvmlDeviceGetFieldValues(nvml, handle, asked), strict=True):
        code = int(answer.nvmlReturn)
        member = _MEMBERS[answer.valueType] if code == 0 and 0 <= answer.valueType < len(_MEMBERS) else None
        number = getattr(answer.value, member) if member is not None else None
        found[key] = Value(code, None if member is not None and number == _SENTINELS.get(member) else number)
    return found


def clock_reasons(bits: int) -> tuple[str, ...]:
    """The clock event reasons in words; bits that this list does not have by their number. Empty: nothing holds the
    clocks down."""
    in_range(bits, 0, 2**63, "as clock event reasons")
    known = tuple(words for bit, words in _CLOCK_REASONS.items() if bits & bit)
    rest = bits & ~sum(_CLOCK_REASONS)
    return (*known, f"reason 0x{rest:x}") if rest else known


def _state(number: int) -> str:
    return f"P{int(in_range(number, 0, 15, 'as performance state'))}"  # 32: unknown


def fans(nvml: Any, handle: Any) -> tuple[float, ...]:
    """Each fan's speed in per cent of its greatest, which it can exceed a little (`fan.speed`)."""
    count = int(in_range(nvml.nvmlDeviceGetNumFans(handle), 0, 64, "fans"))
    if count == 0:
        raise ValueError("the card has no fan of its own")
    return tuple(float(plausible("fan_percent", nvml.nvmlDeviceGetFanSpeed_v2(handle, fan))) for fan in range(count))


def one_fan(nvml: Any, handle: Any) -> tuple[float, ...]:
    """Of drivers that do not tell fans apart."""
    return (float(plausible("fan_percent", nvml.nvmlDeviceGetFanSpeed(handle))),)


def _ecc(kind: str, since: str) -> Callable[[Any, Any], int]:
    def ask(n: Any, h: Any) -> int:
        kinds = {"corrected": n.NVML_MEMORY_ERROR_TYPE_CORRECTED, "uncorrected": n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED}
        period = n.NVML_VOLATILE_ECC if since == "start" else n.NVML_AGGREGATE_ECC
        return count(n.nvmlDeviceGetTotalEccErrors(h, kinds[kind], period))

    return ask


def count(number: float) -> int:
    """How often something happened."""
    return int(plausible("ecc_corrected", number))


def _throughput(kib_s: int) -> float:
    return float(plausible("pcie_tx_bytes_s", kib_s * _KIB))


def _joules(millijoules: float) -> float:
    return plausible("energy_j", millijoules / 1000)


ENCODER = Query("encoder_percent", (lambda n, h: percent(n.nvmlDeviceGetEncoderUtilization(h)[0]),))
DECODER = Query("decoder_percent", (lambda n, h: percent(n.nvmlDeviceGetDecoderUtilization(h)[0]),))
FAN = Query("fan_percent", (lambda n, h: max(fans(n, h)), lambda n, h: max(one_fan(n, h))))
STATE = Query("performance_state", (lambda n, h: _state(n.nvmlDeviceGetPerformanceState(h)),))
THROTTLE = Query(
    "throttle_reasons",
    (
        lambda n, h: clock_reasons(n.nvmlDeviceGetCurrentClocksEventReasons(h)),
        lambda n, h: clock_reasons(n.nvmlDeviceGetCurrentClocksThrottleReasons(h)),
    ),
)
GRAPHICS_CLOCK = Query(
    "graphics_clock_mhz", (lambda n, h: megahertz(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_GRAPHICS)),)
)
VIDEO_CLOCK = Query("video_clock_mhz", (lambda n, h: megahertz(n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_VIDEO)),))
PCIE_GENERATION = Query(
    "pcie_generation", (lambda n, h: int(plausible("pcie_generation", n.nvmlDeviceGetCurrPcieLinkGeneration(h))),)
)
PCIE_WIDTH = Query("pcie_width", (lambda n, h: int(plausible("pcie_width", n.nvmlDeviceGetCurrPcieLinkWidth(h))),))

SINGLE = (POWER_CAP, ENCODER, DECODER, FAN, STATE, THROTTLE, GRAPHICS_CLOCK, VIDEO_CLOCK, PCIE_GENERATION, PCIE_WIDTH)
"""`enforced.power.limit`, `utilization.encoder/decoder`, `fan.speed`, `pstate`, `clocks_event_reasons.active`,
`clocks.gr`, `clocks.video`, `pcie.link.gen.current`, `pcie.link.width.current`."""

PCIE_THROUGHPUT = (
    Query("pcie_tx_bytes_s", (lambda n, h: _throughput(n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_TX_BYTES)),)),
    Query("pcie_rx_bytes_s", (lambda n, h: _throughput(n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_RX_BYTES)),)),
)
"""Each blocks for the 20 ms over which the driver measures (KiB/s there)."""


class Grouped(NamedTuple):
    """A field that comes with others: its number for `nvmlDeviceGetFieldValues`, and how it was asked before there was
    that."""

    question: Query
    id: int
    convert: Callable[[float], float | int]


GROUPED = (
    Grouped(Query("power_instant_w", ()), 186, watts),
    Grouped(Query("memory_temperature_c", ()), 82, lambda value: celsius(int(value))),
    Grouped(
        Query("energy_j", (lambda n, h: _joules(n.nvmlDeviceGetTotalEnergyConsumption(h)),)),
        83,
        _joules,
    ),
    Grouped(
        Query("pcie_replays", (lambda n, h: int(plausible("pcie_replays", n.nvmlDeviceGetPcieReplayCounter(h))),)),
        94,
        lambda value: int(plausible("pcie_replays", value)),
    ),
    Grouped(Query("ecc_corrected", (_ecc("corrected", "start"),)), 3, count),
    Grouped(Query("ecc_uncorrected", (_ecc("uncorrected", "start"),)), 4, count),
)
"""`power.draw.instant`, `temperature.memory`, the energy since the driver was loaded, replays,
`ecc.errors.…volatile.total`.

The numbers are nvml.h's NVML_FI_DEV_POWER_INSTANT, MEMORY_TEMP, TOTAL_ENERGY_CONSUMPTION, PCIE_REPLAY_COUNTER,
ECC_SBE_VOL_TOTAL, ECC_DBE_VOL_TOTAL, and below NVLINK_THROUGHPUT_DATA_TX and _RX.
"""

ECC_LIFE = (
    Query("ecc_corrected_total", (_ecc("corrected", "life"),)),
    Query("ecc_uncorrected_total", (_ecc("uncorrected", "life"),)),
)
"""`ecc.errors.corrected/uncorrected.aggregate.total`: belong to the details."""

_NVLINK = (Query("nvlink_tx_bytes_s", ()), Query("nvlink_rx_bytes_s", ()))


def nvlink_fields(link: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The two counters of a link: KiB sent and received, data without protocol."""
    return (138, link), (139, link)


_WANTED = (*((one.id, 0) for one in GROUPED), *nvlink_fields(ALL_LINKS))
_COUNTERS = Query("nvlink_counters", (lambda n, h: field_values(n, h, nvlink_fields(ALL_LINKS)),))
_ALL = Query("field_values", (lambda n, h: field_values(n, h, _WANTED),))


def rate(opened: CardState, name: str, link: int, number: float, now: float) -> float | None:
    """Bytes per second since the reading before of a counter of KiB; None at the first, and after it was set back."""
    total = int(number) * _KIB
    then = opened.counters.get((name, link))
    opened.counters[name, link] = (now, total)
    if then is None or now <= then[0] or total < then[1]:
        return None
    found = (total - then[1]) / (now - then[0])
    return found if found <= RANGES["nvlink_tx_bytes_s"][1] else None  # the counter was never filled, or jumped


def read_grouped(asker: QueryRunner, opened: CardState, now: float) -> dict[str, Any]:
    """The fields of the one call, by name; `now` in monotonic seconds. Raises `LostError` and `GoneError`."""
    found: dict[tuple[int, int], Value] = asker.ask(opened, _ALL) or {}
    why = opened.reasons.get(_ALL.field, "the driver is too old for it")
    values: dict[str, Any] = {}
    for question, number, convert in GROUPED:
        values[question.field] = _grouped(asker, opened, question, found.get((number, 0)), convert, why)
    for question, key in zip(_NVLINK, nvlink_fields(ALL_LINKS), strict=True):
        counter = _grouped(asker, opened, question, found.get(key), float, why)
        values[question.field] = None if counter is None else rate(opened, question.field, ALL_LINKS, counter, now)
        if counter is not None and values[question.field] is None:
            asker.miss(opened, question, NEEDS_TWO, problem=False)
    return values


def read_rates_again(asker: QueryRunner, opened: CardState, now: float) -> dict[str, Any]:
    """NVLink's rates after a first reading, which has none: what the links carried while the rest was read, if that
    took long enough."""
    since = opened.counters.get((_NVLINK[0].field, ALL_LINKS))
    if since is None or opened.reasons.get(_NVLINK[0].field) != NEEDS_TWO or now - since[0] < LEAST_S:
        return {}
    found: dict[tuple[int, int], Value] = asker.ask(opened, _COUNTERS) or {}
    values: dict[str, Any] = {}
    for question, key in zip(_NVLINK, nvlink_fields(ALL_LINKS), strict=True):
        value = found.get(key)
        if value is not None and value.code == 0 and value.number is not None:
            values[question.field] = rate(opened, question.field, ALL_LINKS, value.number, now)
            if values[question.field] is not None:
                asker.settle(opened, question)
    return values


def _grouped(
    asker: QueryRunner,
    opened: CardState,
    question: Query,
    value: Value | None,
    convert: Callable[[float], float | int],
    why: str,
) -> float | int | None:
    """One field out of several: its number, else the answer of the older function, else None with the reason."""
    if value is not None and value.code == 0 and value.number is not None:
        try:
            number = convert(value.number)
        except ValueError as error:
            asker.miss(opened, question, str(error), problem=False)
            return None
        if question.field in opened.reasons:
            asker.settle(opened, question)
        return number
    if value is not None:
        asker.check(opened, value.code)
        why = asker.code_words(value.code) if value.code != 0 else "the driver answers that it does not know"
    answer: float | int | None = asker.ask(opened, question)
    if answer is None and question.field not in opened.reasons:
        asker.lack(opened, question, why)
    return answer
