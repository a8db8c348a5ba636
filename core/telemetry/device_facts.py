"""Everything known about one device, as groups of rows for the window and the terminal. Pure functions, any thread.

An unknown value is a dash with a reason; rows that do not apply to a kind of device (the fan of a CPU) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from devexplorer.core.records.devices import DeviceDetails, DeviceInfo, DeviceSample, NvLink, Problem
from devexplorer.core.telemetry.fact_rows import (
    CELSIUS,
    MEGAHERTZ,
    PERCENT,
    Group,
    Row,
    Writer,
    energy,
    in_unit,
    number,
    pending,
    rate,
    size,
    switch,
    watt,
    yes,
)


def facts(
    info: DeviceInfo,
    sample: DeviceSample | None = None,
    details: DeviceDetails | None = None,
    problems: Iterable[Problem] = (),
) -> tuple[Group, ...]:
    """Everything known of a device, in reading order; groups without rows are left out. `problems` may be those of all
    devices."""
    writer = Writer(info, sample, details, problems)
    made = ((title, writer.kept(rows(writer))) for title, rows in _GROUPS)
    return tuple(Group(title, rows) for title, rows in made if rows)


def facts_text(groups: Sequence[Group]) -> str:
    """The groups as lines of plain text; reasons stand behind the dashes."""
    width = max((len(row.label) for group in groups for row in group.rows), default=0)
    lines: list[str] = []
    for group in groups:
        lines += ["", group.title] if lines else [group.title]
        for row in group.rows:
            lines.append(f"  {row.label:<{width}}  {row.value}" + (f"  ({row.why})" if row.why else ""))
    return "\n".join(lines)


def held_down(reasons: Iterable[str] | None) -> tuple[str, ...]:
    """Those throttle reasons that limit clocks under load; a card that is idle lowers them by itself."""
    return tuple(
        reason for reason in reasons or () if "idle" not in reason.lower() and reason.lower() not in ("none", "")
    )


def held_in_short(reasons: Iterable[str] | None) -> tuple[str, ...]:
    """The same for where there is little room: without what stands in brackets, each once."""
    return tuple(dict.fromkeys(reason.partition(" (")[0] for reason in held_down(reasons)))


def _identity(w: Writer) -> list[Row | None]:
    info = w.info
    return [
        w.row("name", "name", core=True),
        Row("simulated", "yes", meaning="Values are real, memory is counted, time is modelled.")
        if info.simulated
        else None,
        Row("usable", "no", meaning=info.reason or "", warning=True) if not info.usable else None,
        Row("instance of", info.parent) if info.parent is not None else None,
        w.row("CUDA ordinal", "cuda_ordinal", meaning="What torch counts."),
        w.row("NVML index", "nvml_index", meaning="What nvidia-smi counts."),
        w.row("UUID", "uuid"),
        w.row("bus id", "bus_id"),
        w.row("serial", "serial"),
        w.row("board part", "board_part_number"),
        w.row("brand", "brand"),
        w.row("VBIOS", "vbios_version"),
        w.row("driver", "driver_version"),
        w.row("CUDA", "cuda_version", meaning="The newest CUDA that the driver supports."),
        w.row("architecture", "architecture"),
        w.row("compute capability", "compute_capability"),
        w.row("SMs", "sm_count", number, "Streaming multiprocessors."),
        w.row("CUDA cores", "cuda_cores", number),
        w.row("threads", "threads", meaning="Threads that torch uses for one operation.")
        if info.kind == "cpu"
        else None,
    ]


def _memory(w: Writer) -> list[Row | None]:
    shared = "The system's: this device has no memory of its own." if w.info.memory_shared else ""
    return [
        w.row("used", "memory_used_bytes", size, shared, core=True),
        w.row("free", "memory_free_bytes", size),
        w.row(
            "reserved",
            "memory_reserved_bytes",
            size,
            "Kept by the driver and the firmware; counted as neither used nor free.",
        ),
        w.row("total", "memory_total_bytes", size, shared, core=True),
        w.row("bus width", "memory_bus_bits", in_unit("bit")),
        w.row("bandwidth", "memory_gb_s", lambda result: f"{number(result)} GB/s", "By the datasheet; decimal GB/s."),
    ]


def _errors(w: Writer) -> list[Row | None]:
    return [
        w.row("ECC", "ecc", pending(w, "ecc_pending"), "Error correction of the memory."),
        w.row("corrected", "ecc_corrected", number, "Errors since the driver was loaded."),
        w.row("not corrected", "ecc_uncorrected", number, "Errors since the driver was loaded.", warn=bool),
        w.row("corrected, ever", "ecc_corrected_total", number, "Over the card's life."),
        w.row("not corrected, ever", "ecc_uncorrected_total", number, "Over the card's life."),
        w.row(
            "rows remapped, corrected",
            "remapped_rows_corrected",
            number,
            "Rows of memory replaced after errors that were corrected.",
        ),
        w.row(
            "rows remapped, not",
            "remapped_rows_uncorrected",
            number,
            "Rows of memory replaced after errors that could not be.",
        ),
        w.row("remapping pending", "remapping_pending", yes, "Rows wait for the next reset to be replaced.", warn=bool),
        w.row("remapping failed", "remapping_failed", yes, "No spare row was left.", warn=bool),
        w.row(
            "pages retired, single bit",
            "retired_pages_single_bit",
            number,
            "Out of use after errors that were corrected.",
        ),
        w.row(
            "pages retired, double bit",
            "retired_pages_double_bit",
            number,
            "Out of use after errors that could not be corrected.",
        ),
        w.row("retirement pending", "retired_pages_pending", yes, "Pages wait for the next reset.", warn=bool),
    ]


def _activity(w: Writer) -> list[Row | None]:
    return [
        w.row(
            "utilization", "utilization_percent", PERCENT, "Share of the last period in which something ran.", core=True
        ),
        w.row(
            "memory utilization",
            "memory_utilization_percent",
            PERCENT,
            "Share of it in which memory was read or written.",
        ),
        w.row("encoder", "encoder_percent", PERCENT),
        w.row("decoder", "decoder_percent", PERCENT),
        w.row("performance state", "performance_state", meaning="P0 is the fastest, P15 the slowest."),
        w.row(
            "clocks limited by",
            "throttle_reasons",
            lambda reasons: ", ".join(reasons) or "nothing",
            "Why clocks are lower than they could be.",
            warn=held_down,
        ),
        w.row("processes", "processes", lambda uses: str(len(uses))),
    ]


def _heat(w: Writer) -> list[Row | None]:
    fans = getattr(w.details, "fans_percent", None) or ()
    each = [Row(f"fan {index}", PERCENT(percent)) for index, percent in enumerate(fans)] if len(fans) > 1 else []
    return [
        w.row("power", "power_w", watt, "As nvidia-smi shows it: a one-second average on most cards since Ampere."),
        w.row("power now", "power_instant_w", watt, "The instantaneous reading."),
        w.row("power cap", "power_cap_w", watt, "The limit in force."),
        w.row("cap by default", "power_limit_default_w", watt),
        w.row("lowest cap", "power_limit_min_w", watt),
        w.row("highest cap", "power_limit_max_w", watt),
        w.row("energy", "energy_j", energy, "Since the driver was loaded."),
        w.row("temperature", "temperature_c", CELSIUS),
        w.row("memory temperature", "memory_temperature_c", CELSIUS),
        w.row("meant to work up to", "temperature_limit_c", CELSIUS),
        w.row("slows down at", "temperature_slowdown_c", CELSIUS),
        w.row("shuts down at", "temperature_shutdown_c", CELSIUS),
        w.row("memory slows down at", "temperature_memory_limit_c", CELSIUS),
        *(each or [w.row("fan", "fan_percent", PERCENT, "Of its greatest speed.")]),
    ]


def _clocks(w: Writer) -> list[Row | None]:
    return [
        w.of("SM", "sm_clock_mhz", "sm_clock_max_mhz", "MHz"),
        w.of("memory", "memory_clock_mhz", "memory_clock_max_mhz", "MHz"),
        w.of("graphics", "graphics_clock_mhz", "graphics_clock_max_mhz", "MHz"),
        w.of("video", "video_clock_mhz", "video_clock_max_mhz", "MHz"),
        w.row(
            "graphics, asked for",
            "graphics_clock_application_mhz",
            MEGAHERTZ,
            "The application clock, which the card aims at.",
        ),
        w.row(
            "memory, asked for",
            "memory_clock_application_mhz",
            MEGAHERTZ,
            "The application clock, which the card aims at.",
        ),
    ]


def _pcie(w: Writer) -> list[Row | None]:
    return [
        w.of(
            "generation",
            "pcie_generation",
            "pcie_generation_max",
            meaning="Of what card and slot can do; cards lower it when idle.",
        ),
        w.of("lanes", "pcie_width", "pcie_width_max", meaning="Of what card and slot can do."),
        w.row("sent", "pcie_tx_bytes_s", rate, "From the card, over 20 ms."),
        w.row("received", "pcie_rx_bytes_s", rate, "By the card, over 20 ms."),
        w.row("replays", "pcie_replays", number, "Packets sent again since the driver was loaded."),
        w.row("CPUs near", "cpus"),
        w.row("NUMA node", "numa_node"),
    ]


def _nvlink(w: Writer) -> list[Row | None]:
    links = w.details.nvlinks if w.details is not None else None
    if links is None:
        return [w.row("links", "nvlinks")]
    if not links:
        return [Row("links", "none")]
    active = sum(bool(link.active) for link in links)
    return [
        Row("links", f"{active} of {len(links)} active", warning=0 < active < len(links)),
        w.row("sent", "nvlink_tx_bytes_s", rate, "All links together, data without protocol."),
        w.row("received", "nvlink_rx_bytes_s", rate, "All links together, data without protocol."),
        *(_link(link) for link in links),
    ]


def _link(link: NvLink) -> Row:
    """`4.0 to 0000:3B:00.0`; the rates, where the driver gives them for each link, are in the meaning."""
    state = {True: "", False: "inactive", None: "state not known"}[link.active]
    end = {"switch": "an NVSwitch", "NPU": "an NPU", "card": "a card"}.get(link.remote_kind or "")
    where = f"to {link.remote_bus_id or end}" if link.remote_bus_id or end else ""
    if link.remote_bus_id and link.remote_kind == "switch":
        where += " (NVSwitch)"
    value = " ".join(part for part in (link.version or "", state, where) if part) or "active"
    both = (("sent", link.tx_bytes_s), ("received", link.rx_bytes_s))
    rates = [f"{word} {rate(speed)}" for word, speed in both if speed is not None]
    return Row(f"link {link.link}", value, meaning=", ".join(rates).capitalize())


def _modes(w: Writer) -> list[Row | None]:
    return [
        w.row("persistence", "persistence", switch, "On: the driver stays loaded when no process uses the card."),
        w.row("compute mode", "compute_mode", meaning="Which processes may use the card: all, one, or none."),
        w.row("MIG", "mig", pending(w, "mig_pending"), "On: the card is divided into instances."),
        w.row("accounting", "accounting", switch, "On: the driver keeps what each process used."),
        w.row("display", "display_active", switch, "Whether a screen shows what this card draws."),
    ]


def _more(w: Writer) -> list[Row | None]:
    return [Row(label, value) for label, value in w.details.more.items()] if w.details is not None else []


_GROUPS: tuple[tuple[str, Callable[[Writer], list[Row | None]]], ...] = (
    ("Identity", _identity),
    ("Activity", _activity),
    ("Memory", _memory),
    ("Power and heat", _heat),
    ("Clocks", _clocks),
    ("Memory errors", _errors),
    ("PCIe", _pcie),
    ("NVLink", _nvlink),
    ("Modes", _modes),
    ("More", _more),
)
