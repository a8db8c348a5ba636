"""A command that the session has sent to the engine, and what came back about it. Main thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from devexplorer.core.records import Answer, Command


@dataclass(slots=True)
class Sent:
    """A command in progress, and the engine's events about it so far."""

    command: Command
    created: list[str] = field(default_factory=list)
    """Objects that it created or changed."""
    effects: tuple[str, ...] = ()
    answer: Answer | None = None
    again: Command | None = None
    """What brings back a workspace that was saved or opened."""
    unchanged: bool = False
    """Everything was at its destination already."""
    redone: bool = False
    """It was a Redo; `command` is what it carried out again."""
