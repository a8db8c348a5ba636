"""`devexplorer bench`: measures, shows progress on a terminal, prints tables or one JSON document, and keeps every run
in the history.

Main thread. The first Ctrl-C stops the run after its block and keeps what was measured (exit code 130; after SIGTERM
143), a second one ends all at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pkgutil import resolve_name
from typing import Any

from rich.console import Console

from devexplorer.core.base import MISSING
from devexplorer.core.benchmark.condition_rows import all_conditions
from devexplorer.core.benchmark.kind import benchmark_document, kind_of
from devexplorer.core.cli.bench.arguments import specs
from devexplorer.core.cli.bench.beside import Beside
from devexplorer.core.cli.bench.run import BenchOutcome, Finished, run_all
from devexplorer.core.cli.terminal.common_arguments import of_features
from devexplorer.core.cli.terminal.findings import TerminalFindings
from devexplorer.core.cli.terminal.output import console, print_document, quiet_stdout, table
from devexplorer.core.cli.terminal.refusal import refuse
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import BenchSpec, Conditions

CANNOT_RUN, WRONG_VALUES = 2, 1
READINGS = ("SM clock", "memory clock", "power", "power cap", "temperature", "throttled by", "other processes")
"""Conditions that are printed with a result, where they are known; `--json` has all."""


def bench(arguments: argparse.Namespace, nvml: Nvml | None = None) -> int:
    """Run the benchmarks one device after the other and print what was measured; `nvml` replaces the real one in
    tests."""
    findings = TerminalFindings()
    wanted = specs(arguments, findings)
    keepers = [
        resolve_name(f"devexplorer.core.{keeper.run}")(arguments, findings) for keeper in of_features("BENCH_KEEPERS")
    ]
    if (
        not findings.check_virtual(arguments.virtual) or not wanted
    ):  # it is not known which devices there would be, or what to check
        findings.demand_none()
    outcome = _measured(arguments, wanted, findings, keepers, nvml)
    if outcome.finished:
        if arguments.json:
            print_document(**benchmark_document(outcome.finished))
        else:
            _print_results(console(), outcome.finished)
    for failure in outcome.failures:
        refuse(failure)
    if outcome.interrupted:
        return outcome.interrupted
    if outcome.failures:
        return CANNOT_RUN
    return WRONG_VALUES if any(finished.result.verified is False for finished in outcome.finished) else 0


def _measured(
    arguments: argparse.Namespace,
    wanted: Sequence[BenchSpec],
    findings: TerminalFindings,
    keepers: Sequence[Any],
    nvml: Nvml | None,
) -> BenchOutcome:
    from devexplorer.core.engine.benchmarks import model_copy
    from devexplorer.core.engine.local import LocalEngine
    from devexplorer.core.models.guard import staying

    with ExitStack() as stack:
        if any(kind_of(spec).runs_own_code(spec) for spec in wanted):
            stack.enter_context(quiet_stdout())  # code of the user's may print at any time
            stack.enter_context(staying())
        engine = stack.enter_context(LocalEngine(arguments.virtual))
        # code that is named on the command line is meant to run
        engine.engine.benchmarks.resolve = partial(model_copy, engine.engine.workspace, own_code=True)
        infos = engine.engine.registry.infos()
        named = [findings.checked(partial(kind_of(spec).canonical, spec), spec) for spec in wanted]
        complete = [kind_of(spec).on_devices(spec, infos) for spec in named]
        # every device is checked before the first minute is spent
        checked = [findings.checked(partial(engine.engine.benchmarks.check, spec), spec) for spec in complete]
        findings.demand_none()
        for keeper in keepers:
            stack.callback(keeper.close)

        def keep(finished: Finished) -> None:
            if not arguments.no_store:
                for keeper in keepers:
                    keeper.keep(*finished)

        beside = stack.enter_context(Beside(infos, checked, nvml))
        terminal = console()
        return run_all(
            engine,
            list(dict.fromkeys(checked)),  # two names of one device are one run
            beside,
            keep,
            terminal=terminal if terminal.is_terminal and not arguments.json else None,
        )


def _print_results(out: Console, finished: Sequence[Finished]) -> None:
    """The tables of runs of one kind, then the conditions of each that has some."""
    kind = kind_of(finished[0].result)
    for runs in [finished] if kind.one_table else [[run] for run in finished]:
        listing = table(*kind.columns)
        for run in runs:
            for row in kind.rows(*run):
                listing.add_row(*row)
        out.print(listing)
        if summary := "\n".join(filter(None, (kind.summary(*run) for run in runs))):
            out.print(summary)
    for run in finished:
        if line := _conditions_text(run.conditions):
            out.print(line, style="dim")


def _conditions_text(conditions: Conditions) -> str:
    """Readings of the run's span in one line; empty where there were none."""
    known = [
        f"{row.label} {row.value}"
        for row in all_conditions(conditions)
        if row.label in READINGS and row.value != MISSING
    ]
    return f"{conditions.device}: {', '.join(known)}" if known else ""
