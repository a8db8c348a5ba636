"""Everything known about one device, as groups of rows for the window and the terminal. Pure functions, any thread.

An unknown value is a dash with the most specific reason available; rows that do not apply to a kind of device (the fan
of a CPU) are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from devexplorer.core.base import MISSING, bytes_text, number_text
from devexplorer.core.records import DeviceDetails, DeviceInfo, DeviceSample, NvLink, Problem

NOT_MODELLED = "not modelled for a virtual GPU"
NOT_TOLD = "not reported by the driver"
NO_READING = "no reading yet"
NOT_CUDA = "torch counts CUDA devices only"
NO_CPU_FIELD = "a CPU has none, or the system does not tell it"
_CARDS = ("cuda", "nvml")
"""Kinds of which every row is shown, known or not; of the others only what is known, or missing for a reason. Two
thirds of the rows of a virtual GPU would be dashes."""

_MODELLED = (
    "memory_used_bytes", "memory_total_bytes", "utilization_percent", "temperature_c", "power_w", "power_cap_w",
    "sm_clock_mhz", "throttle_reasons",
)  # fmt: skip
"""What is read of a virtual GPU."""


class FactRow(NamedTuple):
    """One fact."""

    label: str
    value: str
    """Ready to be read, with its unit; `—` where it is not known."""
    why: str = ""
    """Why it, or a part of it, is not known."""
    meaning: str = ""
    """What the label means, where that needs a word."""
    warning: bool = False
    """Whether a person should look at it."""

    def line(self, width: int) -> str:
        """As plain text, with a label of this width; a reason follows the value."""
        return f"  {self.label:<{width}}  {self.value}" + (f"  ({self.why})" if self.why else "")


class DeviceFact(NamedTuple):
    """One field as a row."""

    label: str
    field: str
    write: Callable[[Any], str] = str
    meaning: str = ""
    core: bool = False
    """Whether it is shown for every kind of device, known or not."""
    warn: Callable[[Any], object] | None = None
    most: str = ""
    """The field of the most that it can be: `1,410 of 1,980 MHz`."""
    unit: str = ""
    """Behind both, where there is a most."""


class FactGroup(NamedTuple):
    """Facts that belong together."""

    title: str
    rows: tuple[FactRow, ...]


def label_width(groups: Iterable[FactGroup]) -> int:
    """Characters of the longest label."""
    return max((len(row.label) for group in groups for row in group.rows), default=0)


class Writer:
    """Makes the rows of one device: looks up fields and the reasons for those that are not there."""

    def __init__(
        self, info: DeviceInfo, sample: DeviceSample | None, details: DeviceDetails | None, problems: Iterable[Problem]
    ) -> None:
        self.info, self.sample, self.details = info, sample, details
        own = [problem for problem in problems if problem.device == info.id]
        self._reasons = {problem.field: problem.reason for problem in own if problem.field is not None}
        self._whole = next((problem.reason for problem in own if problem.field is None), "")
        self._core: set[str] = set()

    def get(self, field: str) -> Any:
        """The value of a field: of the sample, else of the details, else of the info."""
        for record in (self.sample, self.details, self.info):
            value = getattr(record, field, None)
            if value is not None:
                return value
        return None

    def reason(self, field: str) -> str:
        """The reason that was given for exactly this field; empty when none was."""
        given = self.details.missing.get(field) if self.details is not None else None
        return given or self._reasons.get(field, "")

    def why(self, field: str) -> str:
        """Why a field is not known, by the most exact reason there is."""
        if given := self.reason(field):
            return given
        if field == "cuda_ordinal":
            return self.info.reason or NOT_CUDA
        if self.info.simulated:
            return NO_READING if self.sample is None and field in _MODELLED else NOT_MODELLED
        if self._whole:
            return self._whole
        if self.info.parent is not None:
            return f"a MIG instance has none: see {self.info.parent}"
        record = self.sample if field in DeviceSample.__struct_fields__ else self.details
        return NO_READING if record is None else NOT_TOLD

    def why_null(self, field: str) -> str:
        """The same for documents, which have every field of every kind of device."""
        return (self.reason(field) or NO_CPU_FIELD) if self.info.kind == "cpu" else self.why(field)

    def row(self, fact: DeviceFact) -> FactRow:
        """The row of one fact."""
        if fact.core:
            self._core.add(fact.label)
        value, most = self.get(fact.field), self.get(fact.most) if fact.most else None
        if value is None and most is None:
            return FactRow(fact.label, MISSING, self.why(fact.field), fact.meaning)
        text = MISSING if value is None else fact.write(value)
        why = self.why(fact.field) if value is None else ""
        if fact.most:
            text = f"{text}{'' if most is None else f' of {fact.write(most)}'} {fact.unit}".strip()
            why = why or (self.why(fact.most) if most is None else "")
        return FactRow(fact.label, text, why, fact.meaning, bool(fact.warn and fact.warn(value)))

    def kept(self, rows: Iterable[FactRow]) -> tuple[FactRow, ...]:
        """Without the rows that make no sense for this kind of device."""
        there = list(rows)
        if self.info.kind in _CARDS:
            return tuple(there)
        given = {*self._reasons.values(), *(self.details.missing.values() if self.details is not None else ())}
        return tuple(row for row in there if row.value != MISSING or row.label in self._core or row.why in given)


def number(value: Any) -> str:
    """`16,896`; a text stays as it is."""
    return f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)


def size(value: float) -> str:
    """Bytes, with a binary unit."""
    return bytes_text(value)


def rate(value: float) -> str:
    """Bytes per second, with a binary unit."""
    return f"{size(value)}/s"


def in_unit(unit: str, digits: int = 0) -> Callable[[Any], str]:
    """Writes numbers with `unit` behind them."""

    def write(value: object) -> str:
        return f"{value:,.{digits}f} {unit}"

    return write


PERCENT, CELSIUS, MEGAHERTZ = in_unit("%"), in_unit("°C"), in_unit("MHz")


def watt(value: float) -> str:
    """`687.4 W`, `700 W`."""
    return f"{value:,.1f}".removesuffix(".0") + " W"


def energy(value: float) -> str:
    """Joules, with a decimal prefix."""
    for factor, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if value >= factor:
            return f"{number_text(value / factor)} {unit}"
    return f"{value:,.0f} J"


def switch(value: object) -> str:
    """A mode."""
    return "on" if value else "off"


def yes(value: object) -> str:
    """A fact."""
    return "yes" if value else "no"


def pending(writer: Writer, later: str) -> Callable[[Any], str]:
    """Writes a mode, and what it will be where the field `later` of the details differs: `off, on after a reset`."""

    def write(value: object) -> str:
        after = getattr(writer.details, later, None)
        return switch(value) + ("" if after is None or after == value else f", {switch(after)} after a reset")

    return write


Part = Callable[[Writer], Iterable[FactRow]]
"""Rows that depend on more than one field."""


def facts(
    info: DeviceInfo,
    sample: DeviceSample | None = None,
    details: DeviceDetails | None = None,
    problems: Iterable[Problem] = (),
) -> tuple[FactGroup, ...]:
    """Everything known of a device, in reading order; groups without rows are left out. `problems` may be those of all
    devices."""
    writer = Writer(info, sample, details, problems)
    made = ((title, writer.kept(_rows(writer, parts))) for title, parts in _GROUPS.items())
    return tuple(FactGroup(title, rows) for title, rows in made if rows)


def _rows(writer: Writer, parts: Sequence[DeviceFact | Part]) -> Iterator[FactRow]:
    for part in parts:
        yield from [writer.row(part)] if isinstance(part, DeviceFact) else part(writer)


def facts_text(groups: Sequence[FactGroup]) -> str:
    """The groups as lines of plain text; reasons follow the dashes."""
    width = label_width(groups)
    lines: list[str] = []
    for group in groups:
        lines += ["", group.title] if lines else [group.title]
        lines += [row.line(width) for row in group.rows]
    return "\n".join(lines)


def held_down(reasons: Iterable[str] | None) -> tuple[str, ...]:
    """Those throttle reasons that limit clocks under load; a card that is idle lowers them by itself."""
    return tuple(
        reason for reason in reasons or () if "idle" not in reason.lower() and reason.lower() not in ("none", "")
    )


def held_in_short(reasons: Iterable[str] | None) -> tuple[str, ...]:
    """The same in short: without what is in brackets, each once."""
    return tuple(dict.fromkeys(reason.partition(" (")[0] for reason in held_down(reasons)))


def _state(w: Writer) -> Iterator[FactRow]:
    if w.info.simulated:
        yield FactRow("simulated", "yes", meaning="Values are real, memory is counted, time is modelled.")
    if not w.info.usable:
        yield FactRow("usable", "no", meaning=w.info.reason or "", warning=True)
    if w.info.parent is not None:
        yield FactRow("instance of", w.info.parent)


def _threads(w: Writer) -> Iterator[FactRow]:
    if w.info.kind == "cpu":
        yield w.row(DeviceFact("threads", "threads", meaning="Threads that torch uses for one operation."))


def _memory_of(field: str, label: str) -> Part:
    def rows(w: Writer) -> Iterator[FactRow]:
        shared = "The system's: this device has no separate memory." if w.info.memory_shared else ""
        yield w.row(DeviceFact(label, field, size, shared, core=True))

    return rows


def _mode(label: str, field: str, meaning: str) -> Part:
    """A mode, and what it will be after a reset where that differs."""

    def rows(w: Writer) -> Iterator[FactRow]:
        yield w.row(DeviceFact(label, field, pending(w, f"{field}_pending"), meaning))

    return rows


def _fans(w: Writer) -> Iterator[FactRow]:
    fans = getattr(w.details, "fans_percent", None) or ()
    if len(fans) > 1:
        yield from (FactRow(f"fan {index}", PERCENT(percent)) for index, percent in enumerate(fans))
    else:
        yield w.row(DeviceFact("fan", "fan_percent", PERCENT, "Of its greatest speed."))


def _nvlink(w: Writer) -> Iterator[FactRow]:
    links = w.details.nvlinks if w.details is not None else None
    if links is None:
        yield w.row(DeviceFact("links", "nvlinks"))
    elif not links:
        yield FactRow("links", "none")
    else:
        active = sum(bool(link.active) for link in links)
        yield FactRow("links", f"{active} of {len(links)} active", warning=0 < active < len(links))
        yield w.row(DeviceFact("sent", "nvlink_tx_bytes_s", rate, "All links together, data without protocol."))
        yield w.row(DeviceFact("received", "nvlink_rx_bytes_s", rate, "All links together, data without protocol."))
        yield from map(_link, links)


def _link(link: NvLink) -> FactRow:
    """`4.0 to 0000:3B:00.0`; the rates, where the driver gives them for each link, are in the meaning."""
    state = {True: "", False: "inactive", None: "state not known"}[link.active]
    end = {"switch": "an NVSwitch", "NPU": "an NPU", "card": "a card"}.get(link.remote_kind or "")
    where = f"to {link.remote_bus_id or end}" if link.remote_bus_id or end else ""
    if link.remote_bus_id and link.remote_kind == "switch":
        where += " (NVSwitch)"
    value = " ".join(part for part in (link.version or "", state, where) if part) or "active"
    both = (("sent", link.tx_bytes_s), ("received", link.rx_bytes_s))
    rates = [f"{word} {rate(speed)}" for word, speed in both if speed is not None]
    return FactRow(f"link {link.link}", value, meaning=", ".join(rates).capitalize())


def _more(w: Writer) -> Iterator[FactRow]:
    if w.details is not None:
        yield from (FactRow(label, value) for label, value in w.details.more.items())


_GROUPS: dict[str, Sequence[DeviceFact | Part]] = {
    "Identity": (
        DeviceFact("name", "name", core=True),
        _state,
        DeviceFact("CUDA ordinal", "cuda_ordinal", meaning="What torch counts."),
        DeviceFact("NVML index", "nvml_index", meaning="What nvidia-smi counts."),
        DeviceFact("UUID", "uuid"),
        DeviceFact("bus id", "bus_id"),
        DeviceFact("serial", "serial"),
        DeviceFact("board part", "board_part_number"),
        DeviceFact("brand", "brand"),
        DeviceFact("VBIOS", "vbios_version"),
        DeviceFact("driver", "driver_version"),
        DeviceFact("CUDA", "cuda_version", meaning="The newest CUDA that the driver supports."),
        DeviceFact("architecture", "architecture"),
        DeviceFact("compute capability", "compute_capability"),
        DeviceFact("SMs", "sm_count", number, "Streaming multiprocessors."),
        DeviceFact("CUDA cores", "cuda_cores", number),
        _threads,
    ),
    "Activity": (
        DeviceFact(
            "utilization", "utilization_percent", PERCENT, "Share of the last period in which something ran.", core=True
        ),
        DeviceFact(
            "memory utilization",
            "memory_utilization_percent",
            PERCENT,
            "Share of it in which memory was read or written.",
        ),
        DeviceFact("encoder", "encoder_percent", PERCENT),
        DeviceFact("decoder", "decoder_percent", PERCENT),
        DeviceFact("performance state", "performance_state", meaning="P0 is the fastest, P15 the slowest."),
        DeviceFact(
            "throttled by",
            "throttle_reasons",
            lambda reasons: ", ".join(held_down(reasons)) or "nothing",
            "Why clocks are lower than they could be.",
            warn=held_down,
        ),
        DeviceFact("processes", "processes", lambda uses: str(len(uses))),
    ),
    "Memory": (
        _memory_of("memory_used_bytes", "used"),
        DeviceFact("free", "memory_free_bytes", size),
        DeviceFact(
            "reserved",
            "memory_reserved_bytes",
            size,
            "Kept by the driver and the firmware; counted as neither used nor free.",
        ),
        _memory_of("memory_total_bytes", "total"),
        DeviceFact("bus width", "memory_bus_bits", in_unit("bit")),
        DeviceFact(
            "bandwidth", "memory_gb_s", lambda result: f"{number(result)} GB/s", "By the datasheet; decimal GB/s."
        ),
    ),
    "Power and heat": (
        DeviceFact(
            "power", "power_w", watt, "As nvidia-smi shows it: a one-second average on most cards since Ampere."
        ),
        DeviceFact("power now", "power_instant_w", watt, "The instantaneous reading."),
        DeviceFact("power cap", "power_cap_w", watt, "The limit in force."),
        DeviceFact("default power cap", "power_limit_default_w", watt),
        DeviceFact("lowest cap", "power_limit_min_w", watt),
        DeviceFact("highest cap", "power_limit_max_w", watt),
        DeviceFact("energy", "energy_j", energy, "Since the driver was loaded."),
        DeviceFact("temperature", "temperature_c", CELSIUS),
        DeviceFact("memory temperature", "memory_temperature_c", CELSIUS),
        DeviceFact("maximum operating temperature", "temperature_limit_c", CELSIUS),
        DeviceFact("slows down at", "temperature_slowdown_c", CELSIUS),
        DeviceFact("shuts down at", "temperature_shutdown_c", CELSIUS),
        DeviceFact("memory slows down at", "temperature_memory_limit_c", CELSIUS),
        _fans,
    ),
    "Clocks": (
        DeviceFact("SM", "sm_clock_mhz", number, most="sm_clock_max_mhz", unit="MHz"),
        DeviceFact("memory", "memory_clock_mhz", number, most="memory_clock_max_mhz", unit="MHz"),
        DeviceFact("graphics", "graphics_clock_mhz", number, most="graphics_clock_max_mhz", unit="MHz"),
        DeviceFact("video", "video_clock_mhz", number, most="video_clock_max_mhz", unit="MHz"),
        DeviceFact(
            "graphics clock (requested)",
            "graphics_clock_application_mhz",
            MEGAHERTZ,
            "The application clock, which the card aims at.",
        ),
        DeviceFact(
            "memory clock (requested)",
            "memory_clock_application_mhz",
            MEGAHERTZ,
            "The application clock, which the card aims at.",
        ),
    ),
    "Memory errors": (
        _mode("ECC", "ecc", "Error correction of the memory."),
        DeviceFact("corrected", "ecc_corrected", number, "Errors since the driver was loaded."),
        DeviceFact("not corrected", "ecc_uncorrected", number, "Errors since the driver was loaded.", warn=bool),
        DeviceFact("corrected, ever", "ecc_corrected_total", number, "Over the card's life."),
        DeviceFact("not corrected, ever", "ecc_uncorrected_total", number, "Over the card's life."),
        DeviceFact(
            "rows remapped, corrected",
            "remapped_rows_corrected",
            number,
            "Rows of memory replaced after errors that were corrected.",
        ),
        DeviceFact(
            "rows remapped, not corrected",
            "remapped_rows_uncorrected",
            number,
            "Rows of memory replaced after errors that could not be.",
        ),
        DeviceFact(
            "remapping pending", "remapping_pending", yes, "Rows wait for the next reset to be replaced.", warn=bool
        ),
        DeviceFact("remapping failed", "remapping_failed", yes, "No spare row was left.", warn=bool),
        DeviceFact(
            "pages retired, single bit",
            "retired_pages_single_bit",
            number,
            "Out of use after errors that were corrected.",
        ),
        DeviceFact(
            "pages retired, double bit",
            "retired_pages_double_bit",
            number,
            "Out of use after errors that could not be corrected.",
        ),
        DeviceFact("retirement pending", "retired_pages_pending", yes, "Pages wait for the next reset.", warn=bool),
    ),
    "PCIe": (
        DeviceFact(
            "generation",
            "pcie_generation",
            number,
            "Of what card and slot can do; cards lower it when idle.",
            most="pcie_generation_max",
        ),
        DeviceFact("lanes", "pcie_width", number, "Of what card and slot can do.", most="pcie_width_max"),
        DeviceFact("sent", "pcie_tx_bytes_s", rate, "From the card, over 20 ms."),
        DeviceFact("received", "pcie_rx_bytes_s", rate, "By the card, over 20 ms."),
        DeviceFact("replays", "pcie_replays", number, "Packets sent again since the driver was loaded."),
        DeviceFact("CPUs near", "cpus"),
        DeviceFact("NUMA node", "numa_node"),
    ),
    "NVLink": (_nvlink,),
    "Modes": (
        DeviceFact("persistence", "persistence", switch, "On: the driver stays loaded when no process uses the card."),
        DeviceFact("compute mode", "compute_mode", meaning="Which processes may use the card: all, one, or none."),
        _mode("MIG", "mig", "On: the card is divided into instances."),
        DeviceFact("accounting", "accounting", switch, "On: the driver keeps what each process used."),
        DeviceFact("display", "display_active", switch, "Whether a screen shows what this card draws."),
    ),
    "More": (_more,),
}
"""Title of a group -> its rows."""
