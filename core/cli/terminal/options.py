"""Values of options that several commands take, checked one by one. No torch, main thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from devexplorer.core.base.errors import BadInput
from devexplorer.core.benchmark.spec import parse_count, parse_seconds
from devexplorer.core.cli.terminal.findings import Findings
from devexplorer.core.models.source import parse

AUTOCAST = ("float16", "bfloat16")
"""What `torch.autocast` can compute products in."""


def count(text: str | None, option: str, findings: Findings) -> int | None:
    """A whole number above 0; None where it was not given or is something else."""
    return None if text is None else findings.checked(partial(parse_count, text, option), None)


def seconds(text: str | None, option: str, findings: Findings) -> float | None:
    """A duration in seconds; None where it was not given or is something else."""
    return None if text is None else findings.checked(partial(parse_seconds, text, option), None)


def one_of(text: str | None, known: Sequence[str], option: str, findings: Findings) -> str | None:
    """`text` when it is one of these; None where it was not given or is something else."""

    def check() -> str | None:
        if text is not None and text not in known:
            raise BadInput(f"there is no {option} '{text}'; there are {', '.join(filter(None, known))}")
        return text

    return findings.checked(check, None)


def target(text: str, findings: Findings) -> str:
    """A TARGET without the spaces around it. What looks like a source has to be one; sample models are known where
    torch is."""
    if ":" in text:
        findings.checked(partial(parse, text), None)
    elif not text.strip():
        findings.add("no model is named; write a sample model as lenet, or a source as path/to/file.py:factory")
    _demand_unicode(text, "the target", findings)
    return text.strip()


def current_folder(findings: Findings) -> str:
    """The folder whose modules can be imported."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        findings.add("the current folder does not exist any more; change to another one")
        return ""
    _demand_unicode(folder, "the current folder", findings)
    return folder


def _demand_unicode(text: str, what: str, findings: Findings) -> None:
    """Names travel to other processes and into documents as UTF-8; one in other bytes cannot."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        findings.add(
            f"{what} {text!a} is not UTF-8 here; rename it, or set LC_ALL=C.UTF-8 where the locale knows no such"
            " letters"
        )
