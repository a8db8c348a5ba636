"""What can be done about a selected model whose file a patch has changed: check it again. Main thread of the window; no
Qt, no torch."""

from __future__ import annotations

from devexplorer.core.base import object_name
from devexplorer.core.records import ApplyPatch, Check, Offer
from devexplorer.core.session import State


def offers(state: State, target: str, second: str = "") -> tuple[Offer, ...]:
    """Until the model was checked again."""
    if second:
        return ()
    for done in reversed(state.done):
        if isinstance(done.command, ApplyPatch) and done.ok and done.command.again.target == target:
            return (Offer(f"Check {target} again", done.command.again),)
        if isinstance(done.command, Check) and done.ok and object_name(done.command.target) == target:
            return ()
    return ()
