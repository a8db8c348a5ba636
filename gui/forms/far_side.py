"""What a window asks of the machine that it shows, when that is another one; the feature that shows other machines has
it. Protocols and values; loaded with the window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from PySide6.QtCore import QObject
    from PySide6.QtWidgets import QDialog, QWidget

    from devexplorer.core.isolation.model_classes import Candidate
    from devexplorer.core.records import SentFrom
    from devexplorer.core.records.base import BaseCommand

    Saving = BaseCommand

THIS_MACHINE = "this machine"


class WantedPath(Enum):
    """What is asked for."""

    FILE, FILES, FOLDER, SAVE = range(4)


class FoundPath(NamedTuple):
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


class KnownFiles(Protocol):
    """What is known about the files of another machine; what is not known is asked for when it is looked at."""

    def look(self, path: Path) -> FoundPath:
        """What is at `path`."""

    def has_folder(self, path: Path) -> bool:
        """Whether this folder can be listed."""

    def whole(self, path: Path) -> Path:
        """The path from the root on."""


class FarSide(Protocol):
    """Another machine. Nothing waits: answers come at a later beat."""

    name: str
    """As a sentence says it: `on NAME`."""

    def files(self, parent: QObject, listed: Callable[[], object]) -> KnownFiles:
        """What is known of its files, as long as `parent` exists; `listed` is called when it is more."""

    def choose(
        self,
        parent: QWidget,
        title: str,
        wanted: WantedPath,
        chosen: Callable[[list[Path]], object],
        *,
        folder: str | None = None,
        elsewhere: Callable[[], object] | None = None,
        **more: Any,
    ) -> QDialog:
        """Open the dialog that chooses its files. `folder`: to begin with; None: where one was chosen last.
        `elsewhere`: a file of this machine would do as well, and that chooses it. `more`: `kinds` as Qt writes filters;
        `formats`, `name` and `ask` as `SaveDialog` takes them."""

    def recognise(self, paths: Sequence[Path], then: Callable[[list[Any]], object]) -> None:
        """What these files of it are (`FileKind` of the feature `files`)."""

    def models_in(self, path: Path, then: Callable[[list[Candidate]], object]) -> None:
        """What makes models in this file."""

    def script(self, *, notebook: bool, then: Callable[[str], object]) -> None:
        """Its session as Python."""

    def send(self, path: Path, then: Callable[[CopiedFile], object], place: Path | None = None) -> None:
        """Have a file of this machine there, at `place`, or where it is for as long as the session there lives."""

    def bring(self, path: Path, then: Callable[[CopiedFile], object]) -> None:
        """Have a file of it on this machine."""

    def save(
        self,
        place: Path,
        command: Saving,
        *,
        written: Callable[[CopiedFile], object] | None = None,
        arrived: Callable[[int], object] = lambda request: None,
    ) -> None:
        """Have it carry out a command that writes a file, and have the file at `place` here. `written` takes the copy
        there, which is removed at the end otherwise; `arrived` gets the number of the command."""

    def fetch(self, place: Path, write: Callable[[str, Callable[[str], None]], None]) -> None:
        """Have a file at `place` here that `write` has it write to the path that it gets; it calls the function when
        the file is whole, or with one sentence when it was not written."""
