"""What a session hands out at each beat. Main thread; no Qt, no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import Event

if TYPE_CHECKING:
    from devexplorer.core.session.past import Past
    from devexplorer.core.session.state import State

MOST_EVENTS = 400
"""Per beat, so that a flood of events cannot freeze the window."""


class PollResult(NamedTuple):
    """What happened since the last beat."""

    events: list[Event]
    catalog: Catalog | None
    """The devices, when something about them changed."""
    state: State | None = None
    """What is known from now on, instead of everything before: a recording was wound to another moment, or a connection
    was made."""
    continues: bool = False
    """That state is of the same machine: its curves, its log and its alerts go on."""
    away: str = ""
    """Why nothing can be changed there now, one sentence; empty: it can."""
    past: tuple[Past, ...] = ()
    """What was read before the events, where nobody of ours was there."""
    more: bool = False
    """More events wait for the next beat."""
