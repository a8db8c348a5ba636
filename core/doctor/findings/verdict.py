"""What the doctor found in a few words, the same wherever it is said. Pure functions, any thread; no torch."""

from __future__ import annotations

from devexplorer.core.base.formats import count_text
from devexplorer.core.records.doctor import Diagnosis


def verdict(diagnosis: Diagnosis) -> str:
    """`1 error, 2 warnings, 1 note`, `no problem`, `no problem, the forward not checked`."""
    errors = sum(item.severity == "error" for item in diagnosis.problems)
    counts = ((errors, "error"), (len(diagnosis.problems) - errors, "warning"), (len(diagnosis.notes), "note"))
    parts = [] if diagnosis.problems else ["no problem"]
    parts += [count_text(number, noun) for number, noun in counts if number]
    unchecked = list(dict.fromkeys(item.what for item in diagnosis.unchecked))
    if unchecked:
        parts.append(f"{unchecked[0] if len(unchecked) == 1 else count_text(len(unchecked), 'thing')} not checked")
    return ", ".join(parts)


REASONS = {
    "cut": "cut off",
    "library": "cut off in a library",
    "copy": "in a copy",
    "updated": "updated by forward",
    "frozen": "frozen",
    "unused": "unused",
    "output": "not part of the output",
    "unknown": "unexplained",
}
"""`NoGradient.reason` in words."""


def without_gradient(diagnosis: Diagnosis) -> str:
    """`6 parameters (4 cut off, 2 frozen)`: those that a backward gave no gradient; empty where all have one, or it is
    unknown."""
    counts: dict[str, int] = {}
    for item in diagnosis.no_gradient:
        counts[item.reason] = counts.get(item.reason, 0) + len(item.parameters)
    if not counts:
        return ""
    listed = ", ".join(f"{counts[reason]:,} {words}" for reason, words in REASONS.items() if reason in counts)
    return f"{count_text(sum(counts.values()), 'parameter')} ({listed})"
