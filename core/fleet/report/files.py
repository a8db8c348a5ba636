"""A check of a fleet as one file for others, whoever lets the cards for example: HTML that loads nothing, or the JSON
document. Any thread.

Names come from the machines: every text is escaped, and what cannot be printed is replaced.
"""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import msgspec

import devexplorer
from devexplorer.core.base import (
    MISSING,
    BadInput,
    Unavailable,
    bytes_text,
    count_text,
    list_text,
    number_text,
    printable,
    seconds_text,
    sentence,
)
from devexplorer.core.base.files import replacing
from devexplorer.core.base.html_page import page, table, table_row
from devexplorer.core.benchmark.conditions import moment_text
from devexplorer.core.fleet.check.fleet_check import CheckReport
from devexplorer.core.fleet.records import CardMeasurement, CardVerdict, LoadReadings, MeasuredKind, Verdict
from devexplorer.core.fleet.report.document import (
    check_document,
    group_lines,
    interrupted_line,
    key_text,
    line,
    median_rate,
    unit,
)
from devexplorer.core.fleet.verdicts.judge import equals_key
from devexplorer.core.records import DeviceInfo

SCHEMA = 1
MOST_NORMAL = 2000
"""Normal cards that are listed; the JSON document has all."""
MOST_NAMES = 40
"""In a list of machines, of failures, or of cards in detail."""
_STYLE = """\
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0; } dt { color: var(--dim); }
dd, h3 { margin: 0; overflow-wrap: anywhere; } h3 { margin-top: 24px; } h3 + p { margin-top: 4px; }
.found table { width: auto; margin-bottom: 12px; } .found td, .found th { padding-right: 28px; }
header p.result { font-size: 16px; color: var(--text); }
"""


def report_file(text: str) -> Path:
    """Where a report can be written. Raises `BadInput`."""
    path = Path(text)
    if path.suffix.lower() not in (".html", ".json"):
        raise BadInput(f"--report '{text}': name a file that ends in .html or .json")
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        wrong = "is a folder" if os.path.isdir(path) else f"there is no folder '{path.parent}'; make it first"
        raise BadInput(f"--report '{text}': {wrong}")
    return path


def write_check(path: Path, report: CheckReport, *, uuids: bool = False) -> None:
    """Write the file, all or nothing; its ending says which kind. `uuids`: with UUIDs and PCI addresses of the cards.
    Raises `Unavailable`."""
    if path.suffix.lower() == ".json":
        document = {"schema": SCHEMA} | check_document(report, uuids=uuids)
        data = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    else:
        data = check_html(report, uuids=uuids).encode("utf-8", "replace")
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Unavailable(f"{path} could not be written ({reason})") from error


class _Subject(NamedTuple):
    """One card."""

    verdict: CardVerdict
    measured: CardMeasurement
    info: DeviceInfo

    @property
    def simulated(self) -> str:
        return " (simulated)" if self.verdict.simulated else ""

    @property
    def is_bad(self) -> bool:
        return self.verdict.verdict is not Verdict.NORMAL


def check_html(report: CheckReport, *, uuids: bool = False) -> str:
    """The page."""
    subjects = [_Subject(*card) for card in zip(report.verdict.cards, report.measurements, report.devices, strict=True)]
    groups: dict[tuple[object, ...], list[_Subject]] = {}
    for subject in subjects:
        groups.setdefault(equals_key(subject.measured), []).append(subject)
    body = [
        _header(report, subjects),
        _conditions(report, subjects),
        _findings(report, groups.values()),
        "".join(_equal_cards(group, uuids=uuids) for group in groups.values()),
        _together(report),
        _method(report),
    ]
    return page("Fleet check", "".join(body), _STYLE)


def _header(report: CheckReport, subjects: Sequence[_Subject]) -> str:
    found = Counter(subject.verdict.verdict for subject in subjects)
    parts = [f"{found[verdict]:,} {verdict.value}" for verdict in Verdict if found[verdict]]
    machines = len({subject.verdict.machine for subject in subjects})
    result = f"{count_text(len(subjects), 'card')} on {count_text(machines, 'machine')}: {', '.join(parts)}."
    links = len(report.slow_links)
    result += f" {count_text(links, 'slow link')}." if links else ""
    notes = []
    if simulated := sum(subject.verdict.simulated for subject in subjects):
        notes.append(
            f"Simulated: {simulated:,} of {count_text(len(subjects), 'card')}. Their figures come from a model with"
            " declared noise, not from a card, and simulated seconds may pass faster than real ones."
        )
    if report.cancelled:
        notes.append(sentence(interrupted_line(report)))
    marked = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    return (
        f'<header><h1>Fleet check</h1><p class="result">{escape(result)}</p>'
        f"<p>Measured by DevExplorer {escape(devexplorer.__version__)} on {moment_text(report.started_unix_s)}.</p>"
        f"{marked}</header>"
    )


def _conditions(report: CheckReport, subjects: Sequence[_Subject]) -> str:
    plan = report.plan
    cards = Counter(
        (subject.verdict.name + subject.simulated, bytes_text(subject.info.memory_total_bytes)) for subject in subjects
    )
    drivers = sorted({subject.info.driver_version or "" for subject in subjects} - {""})
    how = "one card of a machine after the other" if plan.in_turn else "all cards at the same time"
    rows = {
        "Cards": "; ".join(f"{number:,} × {name}, {memory}" for (name, memory), number in cards.items()),
        "Machines": _some(dict.fromkeys(subject.verdict.machine for subject in subjects)),
        "Driver": ", ".join(drivers) or "not known",
        "Measured": f"{list_text([_measured(kind, plan.dtypes) for kind in plan.kinds])}, {how}",
        "Each measurement": f"{seconds_text(plan.seconds)} after warm-up",
        "Soak": f"{seconds_text(plan.soak_s)} of products before" if plan.soak_s else "",
        "Left out": f"{', '.join(kind.value for kind in report.left_out)}: the time budget was too short"
        if report.left_out
        else "",
        "Begun": moment_text(report.started_unix_s),
        "Ended": moment_text(report.ended_unix_s),
    }
    if report.start_spread_s is not None:
        rows["Started within"] = f"{1000 * report.start_spread_s:.1f} ms"
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(printable(text))}</dd>" for name, text in rows.items() if text
    )
    return f"<section><h2>What was measured</h2><dl>{listed}</dl></section>"


def _measured(kind: MeasuredKind, dtypes: Sequence[str]) -> str:
    return f"{kind.value} {' '.join(dtypes)}" if kind in (MeasuredKind.MATMUL, MeasuredKind.MODEL) else kind.value


def _some(names: Iterable[str]) -> str:
    """The names, as far as one reads them."""
    known = list(names)
    more = len(known) - MOST_NAMES
    return ", ".join(known[:MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


# --- what was found


def _findings(report: CheckReport, groups: Iterable[Sequence[_Subject]]) -> str:
    parts = []
    for group in groups:
        usual = [card.measured.readings for card in group if not card.is_bad and card.measured.readings is not None]
        bad = [card for card in group if card.is_bad]
        parts += [_found(card, usual) for card in bad[:MOST_NAMES]]
        if len(bad) > MOST_NAMES:
            parts.append(f"<p>{count_text(len(bad) - MOST_NAMES, 'more card')} like these in the table below.</p>")
    lines = group_lines(report.verdict.groups)
    lines += [f"Slow between {key_text(a)} and {key_text(b)}; both are fast with others." for a, b in report.slow_links]
    lines += [f"{machine} slows down what all machines do together." for machine in report.slow_machines]
    listed = "".join(f"<li>{escape(printable(text))}</li>" for text in lines)
    if not parts and not listed:
        return "<section><h2>What was found</h2><p>No card and no link stands out.</p></section>"
    together = f"<ul>{listed}</ul>" if listed else ""
    return f'<section class="found"><h2>What was found</h2>{together}{"".join(parts)}</section>'


def _found(card: _Subject, usual: Sequence[LoadReadings]) -> str:
    """A card that is not normal: its verdict, what it was compared with, its readings beside the others'."""
    name = printable(f"{card.verdict.machine}/{card.verdict.device}")
    parts = [f"<h3>{escape(name)}</h3><p>{escape(printable(line(card.verdict)))}</p>"]
    compared = "".join(
        table_row(
            (
                f"{one.kind.value} {one.dtype}".rstrip() + card.simulated,
                f"{one.basis.value}{f' ({one.others:,})' if one.others else ''}",
                f"{one.ratio:.3f}",
                MISSING if one.slow_below is None else f"{one.slow_below:.3f}",
                "slow" if one.slow else "not slow",
            ),
            numbers=(2, 3),
            simulated=card.verdict.simulated,
        )
        for one in card.verdict.comparisons
    )
    if compared:
        parts.append(table(("measured", "compared with", ">ratio", ">slow below", ""), compared))
    failures: dict[str, list[str]] = {}
    for rates in card.measured.rates:
        if rates.failure and rates.kind.value not in failures.setdefault(rates.failure, []):
            failures[rates.failure].append(rates.kind.value)
    parts += [f"<p>{escape(printable(f'{list_text(kinds)}: {why}'))}</p>" for why, kinds in failures.items()]
    if card.measured.readings is not None:
        own, others = _readings(card.measured.readings), [_readings(reading) for reading in usual]
        rows = "".join(
            table_row((label, _text(value), _text(_median(other[label] for other in others))), numbers=(1, 2),
                      simulated=card.verdict.simulated)
            for label, value in own.items()
            if value is not None
        )  # fmt: skip
        parts.append(table((f"while measured{card.simulated}", ">this card", ">equal cards, median"), rows))
        reasons = ", ".join(
            f"{reason} ({100 * share:.0f} % of the time)"
            for reason, share in (card.measured.readings.throttled or {}).items()
        )
        parts.append(f"<p>Clocks held down: {escape(printable(reasons)) or 'no reason was reported'}.</p>")
    return "".join(parts)


def _readings(readings: LoadReadings) -> dict[str, float | None]:
    return {
        "temperature, °C": readings.temperature_c,
        "memory temperature, °C": readings.memory_temperature_c,
        "SM clock, MHz": readings.sm_clock_mhz,
        "memory clock, MHz": readings.memory_clock_mhz,
        "power, W": readings.power_w,
        "power cap, W": readings.power_cap_w,
        "PCIe generation": readings.pcie_generation,
        "PCIe lanes": readings.pcie_width,
        "PCIe packets sent again": readings.pcie_replays,
        "ECC errors, corrected": readings.ecc_corrected,
        "ECC errors, not corrected": readings.ecc_uncorrected,
        "other processes": readings.other_processes,
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _text(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"


# --- all cards


def _equal_cards(group: Sequence[_Subject], *, uuids: bool) -> str:
    """A table of equal cards, those that are not normal first."""
    first = group[0]
    kinds = list(dict.fromkeys((rates.kind, rates.dtype) for card in group for rates in card.measured.rates))
    ordered = sorted(group, key=lambda card: not card.is_bad)
    bad = sum(card.is_bad for card in ordered)
    shown = ordered[: bad + MOST_NORMAL]
    columns = ["machine", "device", ">ratio", "verdict", *(f">{_kind(*kind)}" for kind in kinds)]
    columns += [">°C", ">MHz", ">W", ">cap W", ">PCIe", *(("UUID", "PCI address") if uuids else ())]
    numbers = (2, *range(4, 4 + len(kinds) + 5))
    body = "".join(_card(card, kinds, numbers, uuids=uuids) for card in shown)
    more = len(ordered) - len(shown)
    note = f"<p>{count_text(more, 'more normal card')} left out; the JSON document has all.</p>" if more else ""
    heading = f"{first.verdict.name}, {bytes_text(first.info.memory_total_bytes)}{first.simulated}"
    return f"<section><h2>{escape(printable(heading))}</h2>{table(columns, body)}{note}</section>"


def _kind(kind: MeasuredKind, dtype: str) -> str:
    return f"{f'{kind.value} {dtype}'.rstrip()}, {unit(kind)}"


def _card(card: _Subject, kinds: Sequence[tuple[MeasuredKind, str]], numbers: Sequence[int], *, uuids: bool) -> str:
    rates = {(one.kind, one.dtype): median_rate(one) for one in card.measured.rates}
    readings = card.measured.readings or LoadReadings()
    lanes = MISSING if readings.pcie_width is None else f"{readings.pcie_generation or ''}x{readings.pcie_width}"
    cells = [
        card.verdict.machine,
        card.verdict.device,
        MISSING if card.verdict.ratio is None else f"{card.verdict.ratio:.3f}",
        _verdict(card.verdict),
        *(number_text(rates.get(kind)) for kind in kinds),
        _text(readings.temperature_c),
        _text(readings.sm_clock_mhz),
        _text(readings.power_w),
        _text(readings.power_cap_w),
        lanes,
        *((card.info.uuid or MISSING, card.info.bus_id or MISSING) if uuids else ()),
    ]
    return table_row(map(printable, cells), numbers=numbers, simulated=card.verdict.simulated, marked=card.is_bad)


def _verdict(verdict: CardVerdict) -> str:
    why = verdict.why or verdict.cause
    return verdict.verdict.value if why is None else f"{verdict.verdict.value}: {why.value}"


def _together(report: CheckReport) -> str:
    """What groups of cards reached, each kind and size in one line; those that failed by name."""
    if not report.groups:
        return ""
    kinds: dict[tuple[str, int, bool], list[float]] = {}
    for group in report.groups:
        if group.rate is not None:
            kinds.setdefault((group.kind.value, len(group.cards), group.simulated), []).append(group.rate)
    rows = "".join(
        table_row(
            (
                f"{kind} of {count_text(cards, 'card')}{' (simulated)' if simulated else ''}",
                f"{len(rates):,}",
                *map(number_text, (min(rates), statistics.median(rates), max(rates))),
            ),
            numbers=(1, 2, 3, 4),
            simulated=simulated,
        )
        for (kind, cards, simulated), rates in kinds.items()
    )
    failures = [
        f"{group.kind.value} of {_some(map(key_text, group.cards))}: {group.failure}"
        for group in report.groups
        if group.failure
    ]
    failed = "".join(f"<li>{escape(printable(failure))}</li>" for failure in failures[:MOST_NAMES])
    more = len(failures) - MOST_NAMES
    failed += f"<li>{more:,} more failed; the JSON document has all.</li>" if more > 0 else ""
    made = table(("GB/s", ">measured", ">least", ">median", ">most"), rows) if rows else ""
    return f"<section><h2>Cards together</h2>{made}{f'<ul>{failed}</ul>' if failed else ''}</section>"


def _method(report: CheckReport) -> str:
    """How a verdict is reached, and how often it is wrong."""
    alarms = f"{100 * report.verdict.family_wise:.1f}"
    return (
        "<section><h2>Method</h2><p>Each card is compared with the median of equal cards, measured at the same time,"
        " and with its own earlier runs where there are any; it is slow if it lies at least 3 % below, and further than"
        f" chance explains. The limits are set so that in {alarms} % of the checks of healthy fleets any card is called"
        " slow, provided that healthy cards differ by a normal distribution; a card that is slow by nature, without a"
        " fault, is called slow too.</p></section>"
    )
