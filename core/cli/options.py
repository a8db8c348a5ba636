"""Values of options that several commands take, checked one by one. No torch, main thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from devexplorer.core.benchmark.spec import parse_count, parse_seconds
from devexplorer.core.cli.findings import Findings
from devexplorer.core.errors import BadInput
from devexplorer.core.workspace.models.source import parse

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
    """A TARGET without the spaces around it. What looks like a source has to be one; sample models are known where torch is."""
    if ":" in text:
        findings.checked(partial(parse, text), None)
    elif not text.strip():
        findings.add("no model is named; write a sample model as lenet, or a source as path/to/file.py:factory")
    return text.strip()
