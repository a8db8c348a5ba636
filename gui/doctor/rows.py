"""What the doctor says as rows of a table: problems, what was not checked, notes; and all of it in one line. Main
thread."""

from __future__ import annotations

from typing import Final

from devexplorer.core.base import MISSING, count_text, sentence
from devexplorer.core.doctor.findings.rules import RULES, passes, verdict
from devexplorer.core.records import Diagnosis, Finding, Unchecked
from devexplorer.gui.objects.findings import findings_of, place_text, words_of
from devexplorer.gui.widgets import severity_tone
from devexplorer.gui.widgets.table import Cell, Column, TableRow

COLUMNS: Final = (
    Column("severity"),
    Column("rule", "What kind of finding it is"),
    Column("path", "Module, parameter or attribute"),
    Column("place", "File and line that are to blame"),
    Column("what is wrong"),
)
RULE, PATH, PLACE = 1, 2, 3
SIGNS: Final = {"error": "✕", "warning": "△", "note": "•", "not checked": "○"}
"""Before the word, so that it is never the colour alone."""

FINDING, UNCHECKED = "finding", "not checked"
"""The first part of a row's key; the second is the number."""


def title_of(rule: str) -> str:
    """The words for a rule."""
    return RULES[rule].title if rule in RULES else rule


def table_rows(diagnosis: Diagnosis) -> list[TableRow]:
    """Problems first, then what was not checked, then notes."""
    result = [_finding(number, finding) for number, finding in enumerate(findings_of(diagnosis))]
    unchecked = [_unchecked(number, item) for number, item in enumerate(diagnosis.unchecked)]
    problems = len(diagnosis.problems)
    return [*result[:problems], *unchecked, *result[problems:]]


def _finding(number: int, finding: Finding) -> TableRow:
    title = title_of(finding.rule)
    summary = RULES[finding.rule].summary if finding.rule in RULES else ""
    times = f"  × {finding.count:,}" if finding.count > 1 else ""
    return TableRow(
        (FINDING, number),
        (
            Cell(f"{SIGNS.get(finding.severity, '')} {finding.severity}", severity_tone(finding.severity)),
            Cell(title, "", "\n".join((title, summary)).rstrip()),
            Cell(finding.path or MISSING, "", finding.path or "the model itself"),
            Cell(place_text(finding) or MISSING, "dim", full_place(finding)),
            Cell(f"{finding.message}{times}", "", words_of(finding)),
        ),
    )


def _unchecked(number: int, unchecked: Unchecked) -> TableRow:
    place = place_text(unchecked)
    return TableRow(
        (UNCHECKED, number),
        (
            Cell(f"{SIGNS['not checked']} not checked", "dim"),
            Cell(unchecked.what, "", unchecked.what),
            Cell(MISSING, "dim"),
            Cell(place or MISSING, "dim", full_place(unchecked)),
            Cell(sentence(str(unchecked.reason)), "soft", sentence(str(unchecked.reason))),
        ),
    )


def full_place(thing: Finding | Unchecked) -> str:
    """`/home/ada/net.py, line 12`."""
    return f"{thing.file}, line {thing.line}" if thing.file else "no line is to blame"


def sign_of(diagnosis: Diagnosis) -> str:
    """`error`, `warning`, `not checked`, or `clean`."""
    severities = {finding.severity for finding in diagnosis.problems}
    for severity in ("error", "warning"):
        if severity in severities:
            return severity
    return "not checked" if diagnosis.unchecked else "clean"


def all_of_it(diagnosis: Diagnosis) -> str:
    """`1 error, 1 note; 41 operations watched on vgpu:0 (simulated)`, or `No problem; …`."""
    said = verdict(diagnosis)
    where = f"{diagnosis.device} (simulated)" if diagnosis.simulated else diagnosis.device
    return f"{said[:1].upper()}{said[1:]}; {count_text(diagnosis.operations, 'operation')} watched on {where}"


def circumstances(diagnosis: Diagnosis) -> str:
    """`Tesla T4 · inputs 8x3x32x32 · forward in evaluation mode`."""
    inputs = f"inputs {diagnosis.inputs}" if diagnosis.inputs else ""
    return " · ".join(filter(None, (diagnosis.device_name, inputs, passes(diagnosis) if diagnosis.operations else "")))
