"""A check of a fleet as lines of text: a card a line, then what concerns several. Pure functions, any thread."""

from __future__ import annotations

import textwrap

from devexplorer.core.base import MISSING, list_text, printable
from devexplorer.core.cli.terminal.lines import Line, cell_len
from devexplorer.core.fleet.check.fleet_check import CheckReport
from devexplorer.core.fleet.commands.lines import GAP, SIMULATED
from devexplorer.core.fleet.report.document import failures, interrupted_line, key_text
from devexplorer.core.fleet.report.verdict_text import group_lines, line

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
