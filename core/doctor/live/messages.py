"""What the doctor's answer says in words. Pure functions, any thread."""

from __future__ import annotations

import os
from collections.abc import Sequence

from devexplorer.core.base import count_text, quoted, variable
from devexplorer.core.doctor.findings.rules import RULES, passes, verdict, without_gradient
from devexplorer.core.records import Answer, Diagnosis, DoctorRequest, Fact, Finding

MOST_SAID = 3
"""Problems that the words tell; the tree and the doctor's panel show all."""


def answer(name: str, diagnosis: Diagnosis, request: DoctorRequest | None) -> Answer:
    """The answer to a check; not failed, whatever was found: it was checked."""
    return Answer(
        title=f"{name}: {verdict(diagnosis)}",
        words=_words(diagnosis),
        facts=tuple(_facts(diagnosis)),
        code=_code(name, diagnosis, request),
        subject=name,
    )


def _words(diagnosis: Diagnosis) -> str:
    simulated = f" (a simulated {diagnosis.device_name})" if diagnosis.simulated else ""
    if diagnosis.inputs:
        parts = [
            f"The doctor rebuilt it in a separate process, moved it to {diagnosis.device}{simulated} and watched"
            f" {passes(diagnosis)}."
        ]
    else:
        parts = [f"The doctor looked at it for {diagnosis.device}{simulated}; nothing of it ran."]
    if not diagnosis.problems and not diagnosis.unchecked:
        parts.append("Every tensor is where it should be.")
    parts += [sentence(item) for item in diagnosis.problems[:MOST_SAID]]
    more = len(diagnosis.problems) - MOST_SAID
    if more > 0:
        parts.append(f"The Doctor tab lists {count_text(more, 'more problem')}.")
    parts += [f"Not checked: {item.what}; {item.reason}" for item in diagnosis.unchecked]
    return " ".join(parts)


def sentence(finding: Finding) -> str:
    """What is wrong and what would be right, with the line."""
    where = f"{os.path.basename(finding.file)}, line {finding.line}: " if finding.line else ""
    return f"{where}{finding.message} {finding.fix}"


def _facts(diagnosis: Diagnosis) -> list[Fact]:
    facts = [
        Fact("device", f"{diagnosis.device}, {diagnosis.device_name}{' (simulated)' if diagnosis.simulated else ''}")
    ]
    if diagnosis.inputs:
        facts.append(Fact("inputs", diagnosis.inputs))
    facts.append(Fact("watched", count_text(diagnosis.operations, "operation")))
    for severity, plural in (("error", "errors"), ("warning", "warnings")):
        count = sum(item.severity == severity for item in diagnosis.problems)
        facts.append(
            Fact(
                plural, _titles([item for item in diagnosis.problems if item.severity == severity]) if count else "none"
            )
        )
    if diagnosis.notes:
        facts.append(Fact("notes", _titles(diagnosis.notes)))
    if diagnosis.no_gradient:
        facts.append(Fact("without a gradient", without_gradient(diagnosis)))
    if diagnosis.uncompiled:
        facts.append(
            Fact("examined as written, without", ", ".join(dict.fromkeys(item.what for item in diagnosis.uncompiled)))
        )
    if diagnosis.unchecked:
        facts.append(Fact("not checked", ", ".join(dict.fromkeys(item.what for item in diagnosis.unchecked))))
    return facts


def _titles(findings: Sequence[Finding]) -> str:
    counts: dict[str, int] = {}
    for item in findings:
        counts[item.rule] = counts.get(item.rule, 0) + 1
    return ", ".join(
        f"{count} × {RULES[rule].title}" if count > 1 else RULES[rule].title for rule, count in counts.items()
    )


def _code(name: str, diagnosis: Diagnosis, request: DoctorRequest | None) -> str:
    """The same in your own test; in a script it prints what it finds and goes on."""
    if request is None:
        call = [variable(name), quoted(diagnosis.device)]
        given = ["allow_unchecked=True"]
    else:
        call = [quoted(request.source), quoted(request.device)]
        call += [quoted(request.inputs)] if request.inputs else []
        given = ["train=True"] if request.train else []
        given += [
            f"{key}={quoted(value)}" for key in ("folder", "virtual", "dtype") if (value := getattr(request, key))
        ]
        given += [f"seed={request.seed}"] if request.seed else []
    lines = [
        "from devexplorer import assert_placement_clean",
        "",
        "try:",
        f"    assert_placement_clean({', '.join([*call, *given])})",
        "except AssertionError as _error:",
        "    print(_error)",
    ]
    return "\n".join(lines)
