"""`devexplorer fleet check`: measures all cards and prints a line each, or one JSON document. Main thread; the check
and the source of the machines have threads of their own, which end with it."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable
from contextlib import ExitStack

from devexplorer.core.base import MISSING, BadInput, Unavailable, list_text, parse_dtype, printable
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.cli.startup import say
from devexplorer.core.cli.stopping import Stopping
from devexplorer.core.cli.terminal import Line, cell_len, is_styled, print_document, waiting
from devexplorer.core.fleet.check.fleet_check import CheckReport, FleetCheck
from devexplorer.core.fleet.check.plan import CheckPlan, measured_cards, parse_kinds, within_budget
from devexplorer.core.fleet.commands.choosing import measured
from devexplorer.core.fleet.commands.gathering import CLOSE_S, gather
from devexplorer.core.fleet.commands.lines import GAP, SIMULATED
from devexplorer.core.fleet.records import Verdict
from devexplorer.core.fleet.report.document import check_document, failures, interrupted_line, key_text
from devexplorer.core.fleet.report.files import report_file, write_check
from devexplorer.core.fleet.report.history import TABLE, as_row, fleet_name, former, kept, stored_checks
from devexplorer.core.fleet.report.verdict_text import group_lines, line
from devexplorer.core.fleet.source import MeasuringSource
from devexplorer.core.fleet.stored import StoredCheck
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.history.store import Store

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
            raise Unavailable(_nothing(cards))
        plan = within_budget(plan, measured_cards(cards.cards))
        history = ending.enter_context(Store())
        before = former(stored_checks(history.rows(TABLE)), measured_cards(cards.cards), plan, fleet_name(source))
        report = _run(FleetCheck(source, cards.cards, plan, before, cards), source, cards, stopping)
        if not report.cancelled:
            _keep(history, kept(report, fleet_name(source)))
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
        _print(report)
    if report.cancelled:
        return stopping.exit_code
    verdicts = {card.verdict for card in report.verdict.cards}
    if verdicts & {Verdict.SLOW, Verdict.FAILED} or report.slow_links or report.slow_machines:
        return 1
    return 0 if Verdict.NORMAL in verdicts else 2


def _keep(history: Store, check: StoredCheck) -> None:
    try:
        history.add_row(TABLE, as_row(check))
    except Unavailable as error:
        say(f"the check is not in the history: {error}")


def _dtypes(texts: Iterable[str]) -> list[str]:
    return [text if text == "tf32" else parse_dtype(text) for text in texts] or list(CheckPlan().dtypes)


def _nothing(cards: FleetTable) -> str:
    away = [f"{machine.name}: {machine.problem}" for machine in cards.machines.values() if machine.problem]
    why = f" ({'; '.join(map(printable, away))})" if away else ""
    return f'no GPU can be measured{why}; try it with --nodes 4 --virtual "8x NVIDIA H100 80GB HBM3"'


def _run(running: FleetCheck, source: MeasuringSource, cards: FleetTable, stopping: Stopping) -> CheckReport:
    with waiting(ends=False) as monitor:
        running.start()
        until: float | None = None
        while running.report is None:
            events = source.drain()
            cards.apply(events)
            running.beat(events)
            if running.step is not None:
                monitor.report(running.done, f"{running.step.kind.value} {running.step.dtype}".strip())
            if not events:
                stopping.wait(BEAT_S)
            if stopping.asked and until is None:
                until = time.monotonic() + SETTLE_S
                running.cancel()
            if until is not None and time.monotonic() > until:
                raise BadInput("the check did not end in time")
    return running.report


# --- what is shown


def _print(report: CheckReport) -> None:
    if sys.stdout is None:  # the shell closed it
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    styled = is_styled()
    lines = check_lines(report, width)
    sys.stdout.write("".join(f"{line.ansi() if styled else line.plain}\n" for line in lines))


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
    lines = [f"slow between {key_text(a)} and {key_text(b)}" for a, b in report.slow_links]
    lines += [f"{machine} slows down what all machines do together" for machine in report.slow_machines]
    lines += group_lines(report.verdict.groups)
    lines += failures(report)
    if report.cancelled:
        lines.append(interrupted_line(report))
    if report.left_out:
        names = list_text([kind.value for kind in report.left_out])
        lines.append(f"left out, for the budget of {report.plan.budget_s:g} s: {names}")
    slow, failed = len(report.verdict.slow), len(report.verdict.failed)
    also = f", {failed} failed" if failed else ""
    return [*lines, f"{slow or 'no'} slow card{'' if slow == 1 else 's'} of {len(report.verdict.cards)}{also}"]
