"""What benchmarks measured, as tables for people. Main thread."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from devexplorer.core.base.formats import MISSING
from devexplorer.core.benchmark.history.condition_rows import all_conditions
from devexplorer.core.benchmark.kinds import kind_of
from devexplorer.core.cli.bench.run import Finished
from devexplorer.core.cli.terminal.output import table
from devexplorer.core.records.benchmark import Conditions

READINGS = ("SM clock", "memory clock", "power", "power cap", "temperature", "clocks limited by", "other processes")
"""Conditions that are printed with a result, where they are known; `--json` has all."""


def print_results(out: Console, finished: Sequence[Finished]) -> None:
    """The tables of runs of one kind, then the conditions of each that has some."""
    kind = kind_of(finished[0].result)
    for runs in [finished] if kind.one_table else [[run] for run in finished]:
        listing = table(*kind.columns)
        for run in runs:
            for row in kind.rows(*run):
                listing.add_row(*row)
        out.print(listing)
        if summary := "\n".join(filter(None, (kind.summary(*run) for run in runs))):
            out.print(summary, markup=False)
    for run in finished:
        if line := conditions_text(run.conditions):
            out.print(line, style="dim", markup=False)


def conditions_text(conditions: Conditions) -> str:
    """Readings of the run's span in one line; empty where there were none."""
    known = [
        f"{row.label} {row.value}"
        for row in all_conditions(conditions)
        if row.label in READINGS and row.value != MISSING
    ]
    return f"{conditions.device}: {', '.join(known)}" if known else ""
