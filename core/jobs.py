"""Commands on their way, and those that are over, as the window knows them. Main thread; no Qt, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from devexplorer.core.records.messages import Answer, Command
from devexplorer.core.records.objects import MoveReport


@dataclass
class Job:
    """A command that is being carried out."""

    request: int
    title: str
    started_unix_s: float
    done: float | None = None
    text: str = ""
    command: Command | None = None
    answer: Answer | None = None
    report: MoveReport | None = None


class Done(NamedTuple):
    """A command that is over."""

    command: Command
    ok: bool
    answer: Answer | None
    """The last thing that was said about it."""
    report: MoveReport | None
    """Of a move."""
