"""`devexplorer fleet`: every card of every machine, as a table or as one JSON document for each reading. Main thread;
the source of the machines has threads of its own, which end with it."""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack

from devexplorer.core.cli.fleet.check import check
from devexplorer.core.cli.fleet.choosing import chosen
from devexplorer.core.cli.fleet.document import fleet_document, fleet_tables
from devexplorer.core.cli.fleet.gathering import CLOSE_S, DRAIN_S, gather
from devexplorer.core.cli.terminal.findings import Findings
from devexplorer.core.cli.terminal.output import console, print_document
from devexplorer.core.cli.terminal.refusal import refuse
from devexplorer.core.cli.terminal.stopping import Stopping
from devexplorer.core.fleet.source import FleetSource
from devexplorer.core.fleet.table import FleetTable


def fleet(arguments: argparse.Namespace) -> int:
    """Print the fleet; returns the exit code: 2 where no machine could be reached."""
    if arguments.word == "check":
        return check(arguments)
    findings = Findings()
    interval = findings.seconds(arguments.interval, "--interval") or 1.0
    count = findings.count(arguments.count, "--count") or 1
    source = chosen(arguments, interval, findings)
    cards = FleetTable()
    with ExitStack() as ending:
        ending.callback(source.close, CLOSE_S)
        stopping = ending.enter_context(Stopping())
        source.start()
        if not gather(source, cards, stopping):
            return stopping.exit_code
        for tick in range(count):
            if tick and not _follow(source, cards, stopping, interval):
                return stopping.exit_code
            _show(cards, json=arguments.json)
    if not any(machine.state == "connected" for machine in cards.machines.values()):
        return refuse("no machine of the fleet could be reached")
    return 0


def _follow(source: FleetSource, cards: FleetTable, stopping: Stopping, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not stopping.wait(min(DRAIN_S, max(until - time.monotonic(), 0.0))):
        cards.apply(source.drain())
        if time.monotonic() >= until:
            return True
    return False


def _show(cards: FleetTable, *, json: bool) -> None:
    if json:
        print_document(**fleet_document(cards, time.time()))
        return
    out = console()
    for listing in fleet_tables(cards):
        out.print(listing)
