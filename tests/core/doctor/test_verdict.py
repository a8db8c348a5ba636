"""The summary line of a diagnosis."""

from __future__ import annotations

import subprocess
import sys

import pytest

from devexplorer.core.doctor.findings.rules import verdict
from devexplorer.core.records import Diagnosis, Finding, Unchecked


def found(severity: str) -> Finding:
    return Finding(rule="hidden-sync", path="", file="", line=0, message="It waits.", fix="Do not.", severity=severity)


def not_checked(*things: str) -> tuple[Unchecked, ...]:
    return tuple(Unchecked(what=thing, reason="Nobody knows.") for thing in things)


@pytest.mark.parametrize(
    ("problems", "notes", "unchecked", "words"),
    [
        ((), 0, (), "no problem"),
        (("error",), 0, (), "1 error"),
        (("error", "error", "warning"), 1, (), "2 errors, 1 warning, 1 note"),
        ((), 2, (), "no problem, 2 notes"),
        ((), 0, ("the forward",), "no problem found; not checked: the forward"),
        ((), 0, ("a stream", "a stream"), "no problem found; not checked: a stream"),
        ((), 1, ("a stream", "the forward"), "no problem found, 1 note; 2 items not checked"),
        (("warning",), 0, ("a stream", "the forward"), "1 warning; 2 items not checked"),
    ],
)
def test_it_counts_what_there_is(problems: tuple[str, ...], notes: int, unchecked: tuple[str, ...], words: str) -> None:
    said = verdict(
        Diagnosis(
            target="net",
            device="vgpu:0",
            problems=tuple(map(found, problems)),
            notes=(found("note"),) * notes,
            unchecked=not_checked(*unchecked),
        )
    )
    assert said == words


def test_whoever_asks_for_the_words_needs_no_torch() -> None:
    code = (
        "import sys, devexplorer.core.doctor.findings.rules, devexplorer.core.isolation.source_location;"
        " sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
