"""What is said of a fleet and of its check: one line above the grid, the facts of what is selected. Main thread; only
reads."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator

from devexplorer.core.base import MISSING, bytes_text, count_text, list_text, sentence
from devexplorer.core.fleet.check.fleet_check import CheckReport
from devexplorer.core.fleet.report.document import interrupted_line
from devexplorer.core.fleet.report.verdict_text import cause_text, group_lines, line, ratio_text
from devexplorer.core.fleet.window.watched_fleet import WatchedFleet
from devexplorer.core.records import Fact
from devexplorer.core.records.fleet import CardVerdict, LoadReadings, Verdict
from devexplorer.core.records.fleet_events import MachineState
from devexplorer.gui.machines.words import STATES, age_text

NAMED = 3
"""Cards that a sentence names."""


def counted(fleet: WatchedFleet, hits: int, *, filtered: bool) -> str:
    """What there is, and what is not as it should be."""
    table = fleet.table
    cards = sum(card.info.kind != "cpu" for card in table.cards)
    states = Counter(machine.state for machine in table.machines.values())
    parts = [count_text(len(table.machines), "machine"), count_text(cards, "card")]
    if cards and all(card.info.simulated for card in table.cards if card.info.kind != "cpu"):
        parts[-1] += ", simulated"
    if filtered:
        parts.append(f"{hits:,} match")
    away: tuple[MachineState, ...] = ("connecting", "reconnecting", "lost")
    parts += [f"{states[state]} {'not connected' if state == 'lost' else state}" for state in away if states[state]]
    return " · ".join(parts)


def why_empty(fleet: WatchedFleet) -> str:
    """Why no card is on show."""
    if fleet.problem:
        return f"{fleet.problem[:1].upper()}{fleet.problem[1:].rstrip('.')}."
    if any(machine.state == "connecting" for machine in fleet.table.machines.values()):
        return "Connecting…"
    if not fleet.table.machines:
        return "Looking for machines…"
    return "No machine here has a card. Simulate a fleet, or choose hosts or a cluster, with the button at the left."


def summary(report: CheckReport) -> tuple[str, bool]:
    """What came of a check, and whether anything is wrong."""
    cards = report.verdict.cards
    found = {verdict: [card for card in cards if card.verdict is verdict] for verdict in Verdict}
    slow, failed = found[Verdict.SLOW], found[Verdict.FAILED]
    total = count_text(len(cards), "simulated card" if any(card.simulated for card in cards) else "card")
    parts = []
    if slow:
        worst = sorted(slow, key=lambda card: card.ratio or 0.0)
        parts.append(f"{len(slow)} of {total} {'is' if len(slow) == 1 else 'are'} slow: {_named(worst)}.")
    if failed:
        parts.append(f"{len(failed)} of {total} failed: {_named(failed)}.")
    for a, b in report.slow_links[:NAMED]:
        parts.append(f"Slow between {'/'.join(a)} and {'/'.join(b)}.")
    if report.slow_machines:
        parts.append(f"Slow together with any other machine: {list_text(list(report.slow_machines[:NAMED]))}.")
    wrong = bool(parts)
    if not wrong:
        parts.append(f"None of {total} is slow." if found[Verdict.NORMAL] else f"Nothing can be said of {total}.")
    if found[Verdict.UNKNOWN] and found[Verdict.NORMAL]:
        parts.append(f"Of {len(found[Verdict.UNKNOWN])} nothing can be said.")
    parts += group_lines(report.verdict.groups)[:1]
    if report.cancelled:
        parts.insert(0, sentence(interrupted_line(report)))
    return " ".join(parts), wrong


def _named(cards: list[CardVerdict]) -> str:
    names = []
    for card in cards[:NAMED]:
        ratio = "" if card.ratio is None or card.why is not None else f" at {100 * card.ratio:.1f} %"
        names.append(f"{card.machine}/{card.device}{ratio}")
    more = f" and {len(cards) - NAMED} more" if len(cards) > NAMED else ""
    return ", ".join(names) + more


def facts(fleet: WatchedFleet, key: object) -> tuple[str, tuple[Fact, ...]]:
    """The name of what is selected, and what is known of it."""
    if isinstance(key, tuple):
        row = fleet.table.row(*key)
        if row is not None:
            return "/".join(key), tuple(_of_card(fleet, row))
    elif isinstance(key, str) and key in fleet.table.machines:
        return key, tuple(_of_machine(fleet, key))
    return "", ()


def _of_machine(fleet: WatchedFleet, name: str) -> Iterator[Fact]:
    machine = fleet.table.machines[name]
    yield Fact("state", STATES[machine.state])
    if machine.problem:
        yield Fact("problem", machine.problem)
    if machine.rack:
        yield Fact("rack", machine.rack)
    if machine.simulated:
        yield Fact("simulated", "yes")
    for problem in fleet.table.problems.get(name, ()):
        yield Fact(problem.device or "problem", problem.reason)


def _of_card(fleet: WatchedFleet, row: int) -> Iterator[Fact]:
    card, sample = fleet.table.cards[row], fleet.table.samples[row]
    yield Fact("model", f"{card.info.name}{', simulated' * card.info.simulated}")
    key = (card.machine, card.info.id)
    verdict = fleet.verdicts.get(key)
    if verdict is not None:
        yield from _of_verdict(verdict)
        measured = next(
            (one for one in fleet.report.measurements if (one.machine, one.device) == key), None
        ) if fleet.report is not None else None  # fmt: skip
        if measured is not None and measured.readings is not None:
            yield from _under_load(measured.readings)
    for raised in fleet.alerts.of(row):
        yield Fact("alarm" if raised.is_alarm else "notice", raised.text)
    for problem in fleet.table.problems.get(card.machine, ()):
        if problem.device == card.info.id:
            yield Fact("problem", problem.reason)
    machine = fleet.table.machines.get(card.machine)
    if machine is not None:
        yield Fact("machine", f"{STATES[machine.state]}{f': {machine.problem}' if machine.problem else ''}")
        if machine.rack:
            yield Fact("rack", machine.rack)
    if card.info.uuid:
        yield Fact("UUID", card.info.uuid)
    if sample is None:
        yield Fact("readings", "none yet")
        return
    yield Fact("memory", f"{bytes_text(sample.memory_used_bytes)} of {bytes_text(sample.memory_total_bytes)}")
    if sample.throttle_reasons:
        yield Fact("throttled", ", ".join(sample.throttle_reasons))
    corrected = MISSING if sample.ecc_corrected is None else f"{sample.ecc_corrected:,}"
    uncorrected = MISSING if sample.ecc_uncorrected is None else f"{sample.ecc_uncorrected:,}"
    yield Fact("ECC errors", f"{corrected} corrected, {uncorrected} not")
    yield Fact("reading", age_text(max(time.time() - sample.time_unix_s, 0.0)))


def _of_verdict(verdict: CardVerdict) -> Iterator[Fact]:
    yield Fact("verdict", line(verdict))
    for one in verdict.comparisons:
        limit = "" if one.slow_below is None else f"; slow below {100 * one.slow_below:.1f} %"
        yield Fact("slow" if one.slow else "compared", f"{ratio_text(one)}{limit}")
    for cause in verdict.causes:
        yield Fact("cause", f"{cause_text(cause)}, strength {100 * cause.strength:.0f} %")


def _under_load(readings: LoadReadings) -> Iterator[Fact]:
    """What was read while it was measured."""
    values = (
        (readings.temperature_c, "°C"), (readings.sm_clock_mhz, "MHz"), (readings.power_w, "W"),
    )  # fmt: skip
    parts = [f"{value:,.0f} {unit}" for value, unit in values if value is not None and not math.isnan(value)]
    if readings.pcie_width is not None:
        parts.append(f"×{readings.pcie_width} lanes")
    if parts:
        yield Fact("under load", ", ".join(parts))
    if readings.throttled:
        yield Fact("held down", ", ".join(f"{why} {100 * share:.0f} %" for why, share in readings.throttled.items()))
