"""What the doctor found in a few words, the same wherever it is said. Pure functions, any thread; no torch."""

from __future__ import annotations

from devexplorer.core.formats import count_text
from devexplorer.core.records.doctor import Diagnosis


def verdict(diagnosis: Diagnosis) -> str:
    """`1 error, 2 warnings, 1 note`, `no problem`, `no problem, the forward not checked`."""
    errors = sum(one.severity == "error" for one in diagnosis.problems)
    counts = ((errors, "error"), (len(diagnosis.problems) - errors, "warning"), (len(diagnosis.notes), "note"))
    said = [] if diagnosis.problems else ["no problem"]
    said += [count_text(number, noun) for number, noun in counts if number]
    unchecked = list(dict.fromkeys(one.what for one in diagnosis.unchecked))
    if unchecked:
        said.append(f"{unchecked[0] if len(unchecked) == 1 else count_text(len(unchecked), 'thing')} not checked")
    return ", ".join(said)
