"""`devexplorer fleet`: every card of every machine, as a table or as one JSON document for each reading; `devexplorer
fleet check`: measures all cards. Main thread; the check and the source of the machines have threads of their own, which
end with it."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

from devexplorer.core.alerts.rules import DEFAULT_RULES
from devexplorer.core.base import MISSING, BadInput, Unavailable, list_text, parse_dtype, printable
from devexplorer.core.base.formats import moment_text
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.cli.startup import refuse, say
from devexplorer.core.cli.stopping import Stopping
from devexplorer.core.cli.terminal import Line, cell_len, console, is_styled, print_document, table, waiting
from devexplorer.core.exporter.watching import belongs_to_a_port, parse_port
from devexplorer.core.fleet.alerts import FleetAlerts
from devexplorer.core.fleet.check.fleet_check import CheckReport, FleetCheck
from devexplorer.core.fleet.check.plan import CheckPlan, measured_cards, parse_kinds, within_budget
from devexplorer.core.fleet.commands.choosing import CLOSE_S, DRAIN_S, chosen, gather, measured
from devexplorer.core.fleet.commands.document import GAP, SIMULATED, fleet_document, fleet_lines
from devexplorer.core.fleet.events import MeasuringSource
from devexplorer.core.fleet.records import StoredCheck, Verdict
from devexplorer.core.fleet.report.document import (
    check_document,
    failures,
    interrupted_line,
    kind_names,
    line,
    measured_text,
    together_lines,
)
from devexplorer.core.fleet.report.files import report_file, write_check
from devexplorer.core.fleet.report.history import TABLE, as_row, fleet_name, former, kept, stored_checks
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.history.store import Store
from devexplorer.core.records.base import plain
from devexplorer.core.watch.command import renews

BEAT_S = 0.02
"""Between two looks; a simulated fleet waits for each."""
SETTLE_S = 10.0
"""After Ctrl-C: for what is being measured to end."""


def check(arguments: argparse.Namespace) -> int:
    """Find slow cards; returns 0 for none, 1 where one was found or failed, 2 where nothing could be measured. Ctrl-C
    ends it with what was measured until then, and the code that shells have for it."""
    findings = TerminalFindings()
    defaults = CheckPlan()
    plan = CheckPlan(
        kinds=findings.parsed(arguments.kind, parse_kinds, defaults.kinds),
        dtypes=tuple(findings.checked(lambda: _dtypes(arguments.dtype), defaults.dtypes)),
        seconds=findings.seconds(arguments.seconds, "--seconds") or defaults.seconds,
        in_turn=arguments.in_turn,
        soak_s=60 * (findings.seconds(arguments.soak, "--soak") or 0.0),
        budget_s=findings.seconds(arguments.budget, "--budget"),
    )
    file = findings.parsed(arguments.report, report_file, None)
    source = measured(arguments, findings)
    cards = FleetTable()
    with ExitStack() as ending:
        ending.callback(source.close, CLOSE_S)
        stopping = ending.enter_context(Stopping())
        source.start()
        if not gather(source, cards, stopping):
            return stopping.exit_code
        if not measured_cards(cards.cards):
            raise Unavailable(_nothing_measured(cards))
        plan = within_budget(plan, measured_cards(cards.cards))
        history = ending.enter_context(Store())
        running = FleetCheck(source, cards.cards, plan, cards)
        running.know(former(stored_checks(history.rows(TABLE)), running.cards, plan, fleet_name(source)))
        report = _run(running, source, cards, stopping)
        if not report.cancelled:
            try:
                history.add_row(TABLE, as_row(kept(report, fleet_name(source))))
            except Unavailable as error:
                say(f"the check is not in the history: {error}")
    if report.cancelled and not report.measured:
        say("interrupted before anything was measured")
        return stopping.exit_code
    if file is not None:
        write_check(file, report, uuids=arguments.uuids)
        say(f"report written to {file}")
    for machine in cards.machines.values():
        if machine.state != "connected" and machine.problem:
            say(f"{machine.name}: {machine.problem}")
    if arguments.json:
        print_document(**check_document(report, uuids=arguments.uuids))
    else:
        _write(lambda width: check_lines(report, width))
    if report.cancelled:
        return stopping.exit_code
    verdicts = {card.verdict for card in report.verdict.cards}
    if verdicts & {Verdict.SLOW, Verdict.FAILED} or report.slow_links or report.slow_machines:
        return 1
    return 0 if Verdict.NORMAL in verdicts else 2


def _dtypes(texts: Iterable[str]) -> list[str]:
    return [text if text == "tf32" else parse_dtype(text) for text in texts] or list(CheckPlan().dtypes)


def _nothing_measured(cards: FleetTable) -> str:
    away = [f"{machine.name}: {machine.problem}" for machine in cards.machines.values() if machine.problem]
    why = f" ({'; '.join(map(printable, away))})" if away else ""
    return f'no GPU can be measured{why}; try it with --nodes 4 --virtual "8x NVIDIA H100 80GB HBM3"'


def _run(running: FleetCheck, source: MeasuringSource, cards: FleetTable, stopping: Stopping) -> CheckReport:
    with waiting(ends=False) as monitor:
        running.start()
        until_s = math.inf
        while running.report is None:
            events = source.drain()
            cards.apply(events)
            running.beat(events)
            if running.step is not None:
                monitor.report(running.done, measured_text(running.step.kind, running.step.dtype))
            if not events:
                stopping.wait(BEAT_S)
            if stopping.asked and until_s == math.inf:
                until_s = time.monotonic() + SETTLE_S
                running.cancel()
            if time.monotonic() > until_s:
                raise BadInput("the check did not end in time")
    return running.report


# A check of a fleet as lines of text: a card a line, then what concerns several.

LEAST_VERDICT = 24
"""Cells in which a verdict is folded; with less it is left to the terminal."""


def check_lines(report: CheckReport, width: int | None = None) -> list[Line]:
    """`width`: cells of a line on a terminal."""
    rows = [("machine", "device", "name", "ratio", "verdict")]
    for card in report.verdict.cards:
        ratio = MISSING if card.ratio is None else f"{card.ratio:.3f}"
        name = f"{card.name}{SIMULATED if card.simulated else ''}"
        rows.append((printable(card.machine), card.device, printable(name), ratio, printable(line(card))))
    cells = [max(map(cell_len, column)) for column in zip(*rows, strict=True)][:-1]
    before = sum(cells) + GAP * len(cells)
    room = None if width is None or width - before < LEAST_VERDICT else width - before
    lines = []
    for *texts, verdict in rows:
        padded = [text + " " * (size - cell_len(text)) for text, size in zip(texts, cells, strict=True)]
        folded = [verdict] if room is None else textwrap.wrap(verdict, room)
        lines += [(" " * GAP).join([*padded, folded[0]]), *(" " * before + part for part in folded[1:])]
    return [Line(lines[0], "dim"), *map(Line, lines[1:]), *(Line(printable(text)) for text in _together(report))]


def _together(report: CheckReport) -> list[str]:
    lines = [*together_lines(report), *failures(report)]
    if report.cancelled:
        lines.append(interrupted_line(report))
    if report.left_out:
        names = list_text(kind_names(report.left_out))
        lines.append(f"left out, for the budget of {report.plan.budget_s:g} s: {names}")
    slow, failed = len(report.verdict.slow), len(report.verdict.failed)
    also = f", {failed} failed" if failed else ""
    return [*lines, f"{slow or 'no'} slow card{'' if slow == 1 else 's'} of {len(report.verdict.cards)}{also}"]


LOOK_S = 1.0
"""Between two looks at alerts, by the rules that a window begins with."""


def fleet(arguments: argparse.Namespace) -> int:
    """Print the fleet; returns the exit code: 2 where no machine could be reached."""
    if arguments.word == "check":
        return check(arguments)
    if arguments.word == "history":
        return history(arguments)
    findings = TerminalFindings()
    interval_s = findings.seconds(arguments.interval, "--interval") or 1.0
    count = findings.count(arguments.count, "--count")
    port = findings.parsed(arguments.prometheus, parse_port, None)
    findings.parsed(arguments.address, partial(belongs_to_a_port, arguments), None)
    source = chosen(arguments, interval_s, findings)
    shows = port is None or count is not None
    if port is None and count is None:
        count = 1
    cards, alerts = FleetTable(), FleetAlerts(DEFAULT_RULES)
    with ExitStack() as ending:
        served = None
        if port is not None:
            from devexplorer.core.exporter.prometheus import serving
            from devexplorer.core.fleet.commands import exporting

            served = serving(port, arguments.address, ending)
        ending.callback(source.close, CLOSE_S)
        stopping = ending.enter_context(Stopping())
        source.start()
        if not gather(source, cards, stopping):
            return stopping.exit_code
        show = _lines(count, ending)
        look_s = next_s = time.monotonic()
        shown = 0
        while shown != count:
            if time.monotonic() >= look_s:
                look_s = max(look_s + LOOK_S, time.monotonic())
                alerts.look(cards, time.time())
            if time.monotonic() >= next_s:
                if served is not None:
                    served.machines = exporting.fleet_figures(cards, alerts.raised)
                if arguments.json:
                    print_document(**fleet_document(cards, alerts.raised, time.time()))
                    if sys.stdout is not None:
                        sys.stdout.flush()
                elif shows:
                    show(cards)
                shown += 1
                next_s = time.monotonic() + interval_s
                continue
            if stopping.wait(min(DRAIN_S, max(next_s - time.monotonic(), 0.0))):
                return stopping.exit_code
            cards.apply(source.drain())
    if not any(machine.state == "connected" for machine in cards.machines.values()):
        return refuse("no machine of the fleet could be reached")
    return 0


def _lines(count: int | None, ending: ExitStack) -> Callable[[FleetTable], None]:
    """On a terminal in place of those before, where there is more than one reading."""
    if count != 1 and renews():
        from devexplorer.core.cli.renewing import Renewing

        terminal = ending.enter_context(Renewing(console()))
        return lambda cards: terminal.show(line.rich() for line in fleet_lines(cards, *terminal.room()))
    return lambda cards: _write(lambda width: fleet_lines(cards, width))


def _write(lines: Callable[[int | None], Iterable[Line]]) -> None:
    """`lines` are made for the width of the terminal, None where it is none."""
    if sys.stdout is None:  # the shell closed it
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    styled = is_styled()
    sys.stdout.write("".join(f"{line.ansi() if styled else line.plain}\n" for line in lines(width)))
    sys.stdout.flush()


# `devexplorer fleet history`: the checks of fleets that were made, newest last.

DEFAULT = 20


def history(arguments: argparse.Namespace) -> int:
    """Print them; returns 2 where the history cannot be read."""
    findings = TerminalFindings()
    count = findings.count(arguments.count, "--count") or DEFAULT
    findings.demand_none()
    with Store() as store:
        checks, problem = stored_checks(store.rows(TABLE, count)), store.problem
    if problem is not None:
        say(problem)
        return 2
    if arguments.json:
        print_document(checks=[_document(check) for check in checks])
        return 0
    rows = table(">check", "started", ">cards", "kinds", "slow", "failed")
    for stored in checks:
        kinds = dict.fromkeys(measured_text(median.kind, median.dtype) for median in stored.medians)
        rows.add_row(
            str(stored.id),
            moment_text(stored.started_unix_s),
            f"{stored.cards}{SIMULATED if stored.simulated else ''}",
            ", ".join(kinds),
            ", ".join(stored.slow),
            ", ".join(stored.failed),
        )
    console().print(rows)
    return 0


def _document(check: StoredCheck) -> dict[str, Any]:
    document: dict[str, Any] = plain(check)
    del document["medians"], document["fleet"]
    document["rates"] = [
        plain(median) | {"kind": median.kind.value, "dtype": median.dtype or None} for median in check.medians
    ]
    return document
