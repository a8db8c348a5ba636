"""The words behind a name in the object tree: what is out of the ordinary about a row, and what that means. Main
thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from devexplorer.core.records import Finding, ObjectSnapshot, Row
from devexplorer.gui.objects.findings import tally, told


class Badge(NamedTuple):
    """A word or two behind the name; a warning comes with a triangle, an error with a cross."""

    words: str
    warning: bool
    meaning: str = ""
    """A sentence for the tooltip."""
    error: bool = False


_MIXED: Final = Badge("mixed", True, "mixed: its tensors are on more than one device")
_UNREGISTERED: Final = Badge(
    "not registered", True, "not registered: .to(), parameters() and state_dict() do not see it"
)
_LAZY: Final = Badge("uninitialised", False, "uninitialised: a lazy parameter gets its shape in the first forward")
_FROZEN: Final = Badge(
    "frozen", False, "frozen: it requires no gradient, so training does not change it; other parameters here do train"
)
_STATE: Final = Badge("state", False, "state: the optimizer keeps it for the parameter that it is below")
_HOPS: Final = Badge("hops", False, "hops: its parts fetch what they are given to their own devices")


def badges(row: Row, snapshot: ObjectSnapshot | None = None, *, trains: bool = False) -> tuple[Badge, ...]:
    """What is out of the ordinary about this row. `snapshot`: for an object's own row; `trains`: a parameter of the
    object is trainable."""
    result = []
    if row.kind == "module" and len(row.devices) > 1:
        result.append(_MIXED)
    if snapshot is not None:
        if snapshot.dispatched is not None:
            result.append(Badge("dispatched", True, f"dispatched: {snapshot.dispatched}"))
        if snapshot.outdated:
            files = ", ".join(os.path.basename(file) for file in snapshot.outdated)
            meaning = f"former code: {files} changed after it was built; Rebuild from its file, in its menu, uses it"
            result.append(Badge("former code", True, meaning))
        if snapshot.hops:
            result.append(_HOPS)
        if snapshot.optimizer is not None:
            result.append(Badge(snapshot.optimizer.partition(",")[0], False, f"optimizer: {snapshot.optimizer}"))
    if not row.registered:
        result.append(_UNREGISTERED)
    if not row.initialised:
        result.append(_LAZY)
    if row.kind == "state":
        result.append(_STATE)
    elif trains and row.kind == "parameter" and row.requires_grad is False:
        result.append(_FROZEN)
    if row.tied_to is not None:
        result.append(
            Badge(f"tied to {row.tied_to}", False, f"tied to {row.tied_to}: the very same one under another name")
        )
    return tuple(result)


def doctor_badge(findings: Sequence[Finding]) -> Badge:
    """What the doctor found about a row and in it: how much, as bad as the worst of it."""
    worst = {finding.severity for finding in findings}
    return Badge(tally(findings), "warning" in worst and "error" not in worst, told(findings), error="error" in worst)
