"""What carrying out a command returns. Any thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devexplorer.core.base import BadInput, DevExplorerError, ProgressMonitor
from devexplorer.core.records import Answer, Command, Event, Fact, MoveReport, ObjectSnapshot, Offer

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command did."""

    answer: Answer
    changed: tuple[ObjectSnapshot, ...] = ()
    """New and changed objects as they are now."""
    removed: tuple[str, ...] = ()
    report: MoveReport | None = None
    """Of a move, a copy or an undo."""
    side_effects: tuple[str, ...] = ()
    """What a replay of the command would not repeat, in short phrases."""
    events: tuple[Event, ...] = ()
    """Further events; they are sent before the answer, under the command's number."""
    devices_changed: bool = False
    """The list of devices is another one now."""
    undid: Command | None = None
    """The command that was undone."""
    redid: Command | None = None
    """The command that was carried out again."""


class Refused(BadInput):
    """A `BadInput` with facts and offers, which `core.commands.refusals` shows."""

    def __init__(self, *findings: str, facts: tuple[Fact, ...] = (), offers: tuple[Offer, ...] = ()) -> None:
        super().__init__(*findings)
        self.facts, self.offers = facts, offers


class StepFailed(DevExplorerError):
    """One of several `Steps` failed; what those before it did is taken back."""

    def __init__(self, error: DevExplorerError, command: Command, before: tuple[Command, ...]) -> None:
        super().__init__(str(error))
        self.error, self.command, self.before = error, command, before


Handler = Callable[["Workspace", Any, ProgressMonitor], CommandResult]
"""Carries out one command; raises `DevExplorerError` when nothing could be done. It reports its changes to
`Workspace.changed`."""
