"""What a window asks of the machine that it shows, when that is another one. Protocols and values; loaded with the
window."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from devexplorer.core.machines.questions import Question
    from devexplorer.core.records import SentFrom
    from devexplorer.core.records.base import BaseCommand

    Saving = BaseCommand

THIS_MACHINE = "this machine"
Answered = Callable[[Any], None]
"""Gets the result of the question, or one line (str) that says why there is none."""


class FarSide(Protocol):
    """A machine that can be asked about its files."""

    @property
    def name(self) -> str:
        """What the machine is called in the window."""

    @property
    def why_not_here(self) -> str:
        """Why it cannot write files for this machine, one sentence; empty: it can."""

    def ask(self, question: Question, then: Answered) -> None:
        """Ask; `then` is called at a later beat."""


class Wanted(Enum):
    """What is asked for."""

    FILE, FILES, FOLDER, SAVE = range(4)


class Found(NamedTuple):
    """What is at a path."""

    kind: Literal["file", "folder", "nothing", "unknown"]
    words: str
    """Why it is no file."""


class CopiedFile(NamedTuple):
    """A copy of a file of another machine."""

    path: Path
    """Where it is now."""
    origin: SentFrom
    """Where the file is that people know."""
    remove: Callable[[], None]
    """It is of no more use."""

    @property
    def name(self) -> str:
        """What it is called, with its machine."""
        return f"{self.path.name} on {self.origin.machine}"
