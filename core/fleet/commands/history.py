"""`devexplorer fleet history`: the checks of fleets that were made, newest last. Main thread."""

from __future__ import annotations

import argparse
from typing import Any

from devexplorer.core.base import list_text
from devexplorer.core.base.times import moment_text
from devexplorer.core.cli.terminal.findings import Findings
from devexplorer.core.cli.terminal.output import console, print_document, table
from devexplorer.core.cli.terminal.refusal import say
from devexplorer.core.fleet.report.history import TABLE, stored_checks
from devexplorer.core.fleet.stored import StoredCheck
from devexplorer.core.history.store import Store

DEFAULT = 20


def history(arguments: argparse.Namespace) -> int:
    """Print them; returns 2 where the history cannot be read."""
    findings = Findings()
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
    for check in checks:
        cards = f"{check.cards} (simulated)" if check.simulated else str(check.cards)
        slow, failed = (list_text(list(names)) if names else "" for names in (check.slow, check.failed))
        rows.add_row(str(check.id), moment_text(check.started_unix_s), cards, ", ".join(_kinds(check)), slow, failed)
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
