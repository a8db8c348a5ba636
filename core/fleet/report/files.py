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
    interrupted_line,
    key_text,
    kind_names,
    line,
    measured_text,
    median_rate,
    together_lines,
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
_METHOD = (
    "Each card is compared with the median of equal cards, measured at the same time, and with its own earlier runs"
    " where there are any; it is slow if it lies at least 3 % below, and further than chance explains. The limits are"
    " set so that in {} % of the checks of healthy fleets any card is called slow, provided that healthy cards differ"
    " by a normal distribution; a card that is slow by nature, without a fault, is called slow too."
)
_SIMULATED = (
    "Simulated: {} of {}. Their figures come from a model with declared noise, not from a card, and simulated seconds"
    " may pass faster than real ones."
)
_READINGS = {
    "temperature_c": "temperature, °C",
    "memory_temperature_c": "memory temperature, °C",
    "sm_clock_mhz": "SM clock, MHz",
    "memory_clock_mhz": "memory clock, MHz",
    "power_w": "power, W",
    "power_cap_w": "power cap, W",
    "pcie_generation": "PCIe generation",
    "pcie_width": "PCIe lanes",
    "pcie_replays": "PCIe packets sent again",
    "ecc_corrected": "ECC errors, corrected",
    "ecc_uncorrected": "ECC errors, not corrected",
    "other_processes": "other processes",
}


def report_file(text: str) -> Path:
    """Where a report can be written. Raises `BadInput`."""
    path = Path(text)
    if path.suffix.lower() not in (".html", ".json"):
        raise BadInput(f"--report '{text}': name a file that ends in .html or .json")
    if os.path.isdir(path):
        raise BadInput(f"--report '{text}': is a folder")
    if not os.path.isdir(path.parent):
        raise BadInput(f"--report '{text}': there is no folder '{path.parent}'; make it first")
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


_Subject = tuple[CardVerdict, CardMeasurement, DeviceInfo]
"""One card."""


def check_html(report: CheckReport, *, uuids: bool = False) -> str:
    """The page."""
    subjects = list(zip(report.verdict.cards, report.measurements, report.devices, strict=True))
    groups: dict[object, list[_Subject]] = {}
    for subject in subjects:
        groups.setdefault(equals_key(subject[1]), []).append(subject)
    found = []
    tables = []
    for group in groups.values():
        group.sort(key=lambda card: card[0].verdict is Verdict.NORMAL)
        bad = sum(verdict.verdict is not Verdict.NORMAL for verdict, _, _ in group)
        usual = [measured.readings for _, measured, _ in group[bad:] if measured.readings is not None]
        found += [_found(verdict, measured, usual) for verdict, measured, _ in group[:bad][:MOST_NAMES]]
        if bad > MOST_NAMES:
            found.append(f"<p>{count_text(bad - MOST_NAMES, 'more card')} like these in the table below.</p>")
        tables.append(_equal_cards(group, bad, uuids=uuids))
    listed = _list(sentence(text) for text in together_lines(report))
    if not found and not listed:
        listed = "<p>No card and no link stands out.</p>"
    method = _METHOD.format(f"{100 * report.verdict.family_wise:.1f}")
    body = (
        _header(report),
        f"<section><h2>What was measured</h2>{_conditions(report, subjects)}</section>",
        f'<section class="found"><h2>What was found</h2>{listed}{"".join(found)}</section>',
        *tables,
        _together(report),
        f"<section><h2>Method</h2><p>{method}</p></section>",
    )
    return page("Fleet check", "".join(body), _STYLE)


def _text(text: str) -> str:
    return escape(printable(text))


def _list(texts: Iterable[str]) -> str:
    listed = "".join(f"<li>{_text(text)}</li>" for text in texts)
    return f"<ul>{listed}</ul>" if listed else ""


def _mark(simulated: bool) -> str:
    return " (simulated)" if simulated else ""


def _header(report: CheckReport) -> str:
    cards = report.verdict.cards
    found = Counter(card.verdict for card in cards)
    parts = [f"{found[verdict]:,} {verdict.value}" for verdict in Verdict if found[verdict]]
    machines = len({card.machine for card in cards})
    result = f"{count_text(len(cards), 'card')} on {count_text(machines, 'machine')}: {', '.join(parts)}."
    if report.slow_links:
        result += f" {count_text(len(report.slow_links), 'slow link')}."
    notes = ""
    if simulated := sum(card.simulated for card in cards):
        notes += f'<p class="note">{_SIMULATED.format(f"{simulated:,}", count_text(len(cards), "card"))}</p>'
    if report.cancelled:
        notes += f'<p class="note">{escape(sentence(interrupted_line(report)))}</p>'
    return (
        f'<header><h1>Fleet check</h1><p class="result">{escape(result)}</p>'
        f"<p>Measured by DevExplorer {escape(devexplorer.__version__)} on {moment_text(report.started_unix_s)}.</p>"
        f"{notes}</header>"
    )


def _conditions(report: CheckReport, subjects: Sequence[_Subject]) -> str:
    plan = report.plan
    cards = Counter(
        f"{info.name or verdict.name}{_mark(verdict.simulated)}, {bytes_text(info.memory_total_bytes)}"
        for verdict, _, info in subjects
    )
    measured = []
    for kind in plan.kinds:
        dtypes = " ".join(plan.dtypes) if kind in (MeasuredKind.MATMUL, MeasuredKind.MODEL) else ""
        measured.append(measured_text(kind, dtypes))
    how = "one card of a machine after the other" if plan.in_turn else "all cards at the same time"
    rows = {
        "Cards": "; ".join(f"{number:,} × {card}" for card, number in cards.items()),
        "Machines": _some(dict.fromkeys(verdict.machine for verdict, _, _ in subjects)),
        "Driver": ", ".join(sorted({info.driver_version for _, _, info in subjects if info.driver_version})),
        "Measured": f"{list_text(measured)}, {how}",
        "Each measurement": f"{seconds_text(plan.seconds)} after warm-up",
        "Begun": moment_text(report.started_unix_s),
        "Ended": moment_text(report.ended_unix_s),
    }
    if plan.soak_s:
        rows["Soak"] = f"{seconds_text(plan.soak_s)} of products before"
    if report.left_out:
        rows["Left out"] = f"{', '.join(kind_names(report.left_out))}: the time budget was too short"
    if report.start_spread_s is not None:
        rows["Started within"] = f"{1000 * report.start_spread_s:.1f} ms"
    listed = "".join(f"<dt>{name}</dt><dd>{_text(text or 'not known')}</dd>" for name, text in rows.items())
    return f"<dl>{listed}</dl>"


def _some(names: Iterable[str]) -> str:
    """The names, as far as one reads them."""
    known = list(names)
    text = ", ".join(known[:MOST_NAMES])
    return f"{text} and {len(known) - MOST_NAMES:,} more" if len(known) > MOST_NAMES else text


def _found(verdict: CardVerdict, measured: CardMeasurement, usual: Sequence[LoadReadings]) -> str:
    """A card that is not normal: its verdict, what it was compared with, its readings beside the others'."""
    simulated = verdict.simulated
    made = f"<h3>{_text(f'{verdict.machine}/{verdict.device}')}</h3><p>{_text(line(verdict))}</p>"
    rows = ""
    for one in verdict.comparisons:
        cells = (
            measured_text(one.kind, one.dtype) + _mark(simulated),
            f"{one.basis.value} ({one.others:,})",
            f"{one.ratio:.3f}",
            f"{one.slow_below:.3f}",
            "slow" if one.slow else "not slow",
        )
        rows += table_row(cells, numbers=(2, 3), simulated=simulated)
    if rows:
        made += table(("measured", "compared with", ">ratio", ">slow below", ""), rows)
    failures: dict[str, dict[str, None]] = {}
    for rates in measured.rates:
        if rates.failure:
            failures.setdefault(rates.failure, {})[rates.kind.value] = None
    made += "".join(f"<p>{_text(f'{list_text(list(kinds))}: {why}')}</p>" for why, kinds in failures.items())
    if measured.readings is None:
        return made
    rows = ""
    for field, label in _READINGS.items():
        value = getattr(measured.readings, field)
        others = [other for reading in usual if (other := getattr(reading, field)) is not None]
        if value is not None:
            median = statistics.median(others) if others else None
            rows += table_row((label, _number(value), _number(median)), numbers=(1, 2), simulated=simulated)
    made += table((f"while measured{_mark(simulated)}", ">this card", ">equal cards, median"), rows)
    shares = (measured.readings.throttled or {}).items()
    reasons = ", ".join(f"{reason} ({100 * share:.0f} % of the time)" for reason, share in shares)
    return f"{made}<p>Clocks held down: {_text(reasons) or 'no reason was reported'}.</p>"


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.0f}"


def _equal_cards(group: Sequence[_Subject], bad: int, *, uuids: bool) -> str:
    """A table of equal cards, those that are not normal first."""
    kinds = dict.fromkeys((rates.kind, rates.dtype) for _, measured, _ in group for rates in measured.rates)
    columns = ["machine", "device", ">ratio", "verdict"]
    columns += [f">{measured_text(*kind)}, {unit(kind[0])}" for kind in kinds]
    columns += [">°C", ">MHz", ">W", ">cap W", ">PCIe"]
    if uuids:
        columns += ["UUID", "PCI address"]
    numbers = [index for index, column in enumerate(columns) if column.startswith(">")]
    body = ""
    for verdict, measured, info in group[: bad + MOST_NORMAL]:
        rates = {(one.kind, one.dtype): median_rate(one) for one in measured.rates}
        readings = measured.readings or LoadReadings()
        why = verdict.why or verdict.cause
        cells = [
            verdict.machine,
            verdict.device,
            MISSING if verdict.ratio is None else f"{verdict.ratio:.3f}",
            verdict.verdict.value if why is None else f"{verdict.verdict.value}: {why.value}",
            *(number_text(rates.get(kind)) for kind in kinds),
            _number(readings.temperature_c),
            _number(readings.sm_clock_mhz),
            _number(readings.power_w),
            _number(readings.power_cap_w),
            MISSING if readings.pcie_width is None else f"{readings.pcie_generation or ''}x{readings.pcie_width}",
        ]
        if uuids:
            cells += [info.uuid or MISSING, info.bus_id or MISSING]
        marked = verdict.verdict is not Verdict.NORMAL
        body += table_row(map(printable, cells), numbers=numbers, simulated=verdict.simulated, marked=marked)
    note = ""
    if (more := len(group) - bad - MOST_NORMAL) > 0:
        note = f"<p>{count_text(more, 'more normal card')} left out; the JSON document has all.</p>"
    first, _, info = group[0]
    heading = f"{first.name}, {bytes_text(info.memory_total_bytes)}{_mark(first.simulated)}"
    return f"<section><h2>{_text(heading)}</h2>{table(columns, body)}{note}</section>"


def _together(report: CheckReport) -> str:
    """What groups of cards reached, each kind and size in one line; those that failed by name."""
    if not report.groups:
        return ""
    reached: dict[tuple[str, bool], list[float]] = {}
    failures = []
    for group in report.groups:
        if group.rate is not None:
            title = f"{group.kind.value} of {count_text(len(group.cards), 'card')}{_mark(group.simulated)}"
            reached.setdefault((title, group.simulated), []).append(group.rate)
        if group.failure:
            failures.append(f"{group.kind.value} of {_some(map(key_text, group.cards))}: {group.failure}")
    if len(failures) > MOST_NAMES:
        more = len(failures) - MOST_NAMES
        failures[MOST_NAMES:] = [f"{more:,} more failed; the JSON document has all."]
    rows = ""
    for (title, simulated), rates in reached.items():
        figures = map(number_text, (min(rates), statistics.median(rates), max(rates)))
        rows += table_row((title, f"{len(rates):,}", *figures), numbers=(1, 2, 3, 4), simulated=simulated)
    made = table(("GB/s", ">measured", ">least", ">median", ">most"), rows) if rows else ""
    return f"<section><h2>Cards together</h2>{made}{_list(failures)}</section>"
