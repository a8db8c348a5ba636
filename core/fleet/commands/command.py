"""`devexplorer fleet`: every card of every machine, as a table or as one JSON document for each reading. Main thread;
the source of the machines has threads of its own, which end with it."""

from __future__ import annotations

import argparse
import itertools
import math
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from devexplorer.core.alerts.rules import DEFAULT_RULES
from devexplorer.core.base import list_text
from devexplorer.core.base.formats import moment_text
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.cli.startup import refuse, say
from devexplorer.core.cli.stopping import Stopping
from devexplorer.core.cli.terminal import console, is_styled, print_document, table
from devexplorer.core.exporter.watching import belongs_to_a_port, parse_port
from devexplorer.core.fleet.alerts import FleetAlerts, Raised
from devexplorer.core.fleet.commands.check import check
from devexplorer.core.fleet.commands.choosing import chosen
from devexplorer.core.fleet.commands.document import fleet_document
from devexplorer.core.fleet.commands.gathering import CLOSE_S, DRAIN_S, gather
from devexplorer.core.fleet.commands.lines import fleet_lines
from devexplorer.core.fleet.report.history import TABLE, stored_checks
from devexplorer.core.fleet.source import FleetSource
from devexplorer.core.fleet.stored import StoredCheck
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.history.store import Store
from devexplorer.core.watch.command import renews


def fleet(arguments: argparse.Namespace) -> int:
    """Print the fleet; returns the exit code: 2 where no machine could be reached."""
    if arguments.word == "check":
        return check(arguments)
    if arguments.word == "history":
        return history(arguments)
    findings = TerminalFindings()
    interval = findings.seconds(arguments.interval, "--interval") or 1.0
    count = findings.count(arguments.count, "--count")
    port = findings.parsed(arguments.prometheus, parse_port, None)
    findings.parsed(arguments.address, partial(belongs_to_a_port, arguments), None)
    source = chosen(arguments, interval, findings)
    silent = port is not None and count is None and not arguments.json
    if count is None and port is None:
        count = 1
    cards = FleetTable()
    with ExitStack() as ending:
        serve = None if port is None else _serving(port, arguments.address, ending)
        ending.callback(source.close, CLOSE_S)
        stopping = ending.enter_context(Stopping())
        source.start()
        if not gather(source, cards, stopping):
            return stopping.exit_code
        alerts = _Alerts(cards)
        show: Show
        if silent:
            show = _nothing
        elif arguments.json:
            show = alerts.print_document
        else:
            show = _lines(count, ending)
        for tick in range(count) if count is not None else itertools.count():
            if tick and not _follow(source, cards, stopping, interval, alerts.look):
                return stopping.exit_code
            if serve is not None:
                serve(cards, alerts.raised)
            show(cards)
    if not any(machine.state == "connected" for machine in cards.machines.values()):
        return refuse("no machine of the fleet could be reached")
    return 0


def _follow(
    source: FleetSource, cards: FleetTable, stopping: Stopping, seconds: float, look: Callable[[], object]
) -> bool:
    until = time.monotonic() + seconds
    while not stopping.wait(min(DRAIN_S, max(until - time.monotonic(), 0.0))):
        cards.apply(source.drain())
        look()
        if time.monotonic() >= until:
            return True
    return False


# --- what is shown

LOOK_S = 1.0
Show = Callable[[FleetTable], None]


def _nothing(cards: FleetTable) -> None:
    """Who serves to Prometheus looks there."""


def _serving(port: int, address: str | None, ending: ExitStack) -> Callable[[FleetTable, Sequence[Raised]], None]:
    from devexplorer.core.exporter.prometheus import serving
    from devexplorer.core.fleet.commands.exporting import fleet_figures

    served = serving(port, address, ending)

    def put(cards: FleetTable, raised: Sequence[Raised]) -> None:
        served.machines = fleet_figures(cards, raised)

    return put


class _Alerts:
    """By the rules that a window begins with."""

    def __init__(self, cards: FleetTable) -> None:
        self._cards, self._alerts, self._due_s = cards, FleetAlerts(DEFAULT_RULES), -math.inf
        self.look()

    def look(self) -> None:
        """Once a second, however often it is called."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = max(self._due_s + LOOK_S, now_s)
            self._alerts.look(self._cards, time.time())

    @property
    def raised(self) -> list[Raised]:
        """Everything that is."""
        return self._alerts.raised

    def print_document(self, cards: FleetTable) -> None:
        """The fleet with its alerts."""
        print_document(**fleet_document(cards, self.raised, time.time()))
        if sys.stdout is not None:
            sys.stdout.flush()


def _lines(count: int | None, ending: ExitStack) -> Show:
    """On a terminal in place of those before, where there is more than one reading."""
    if count != 1 and renews():
        from devexplorer.core.cli.renewing import Renewing

        terminal = ending.enter_context(Renewing(console()))
        return lambda cards: terminal.show(line.rich() for line in fleet_lines(cards, *terminal.room()))
    styled = is_styled()
    width = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None

    def write(cards: FleetTable) -> None:
        if sys.stdout is not None:  # the shell closed it
            lines = fleet_lines(cards, width)
            sys.stdout.write("".join(f"{line.ansi() if styled else line.plain}\n" for line in lines))
            sys.stdout.flush()

    return write


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
        cards = f"{stored.cards} (simulated)" if stored.simulated else str(stored.cards)
        slow, failed = (list_text(list(names)) if names else "" for names in (stored.slow, stored.failed))
        rows.add_row(str(stored.id), moment_text(stored.started_unix_s), cards, ", ".join(_kinds(stored)), slow, failed)
    console().print(rows)
    return 0


def _kinds(check: StoredCheck) -> list[str]:
    return list(dict.fromkeys(f"{median.kind.value} {median.dtype}".rstrip() for median in check.medians))


def _document(check: StoredCheck) -> dict[str, Any]:
    return {
        "id": check.id,
        "started_unix_s": check.started_unix_s,
        "ended_unix_s": check.ended_unix_s,
        "simulated": check.simulated,
        "in_turn": check.in_turn,
        "soaked": check.soaked,
        "cards": check.cards,
        "slow": check.slow,
        "failed": check.failed,
        "rates": [
            {
                "machine": median.machine,
                "device": median.device,
                "name": median.name,
                "uuid": median.uuid,
                "kind": median.kind.value,
                "dtype": median.dtype or None,
                "median": median.median,
                "simulated": median.simulated,
            }
            for median in check.medians
        ],
    }
