"""Which file the workspace is that of, and whether it holds work that would be lost with the window: what is in no
file, and Build would not make again. Main thread; no Qt."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from devexplorer.core.records import BuildModel, Command, Rebuilt, RunModelCode, UndoState, WorkspaceFile
from devexplorer.core.session.jobs import steps_of


class _Kept(NamedTuple):
    """What would not be lost."""

    file: WorkspaceFile | None
    contents: frozenset[int]
    as_built: bool


class Unsaved:
    """`State` passes on what it hears. The engine numbers the contents of the workspace (`UndoState.contents`), so an
    Undo that brings back what was saved is no change."""

    def __init__(self) -> None:
        self.file: WorkspaceFile | None = None
        """What the workspace was saved to or opened from last."""
        self.contents = 0
        """What the workspace holds, as the engine numbers it."""
        self._kept = frozenset({0})
        """Contents that the file has, before and after the code of its models ran; while there is no file, those that
        are sample models as they were built."""
        self._as_built = True
        """There is no file yet."""
        self._before: dict[int, _Kept] = {}
        """What it was before another workspace took its place, by the number of that command."""
        self.was_changed = False
        """Whether they were `changed` when the engine was lost."""

    @property
    def changed(self) -> bool:
        """Whether the contents are neither in a file nor sample models as they were built."""
        return self.contents not in self._kept

    @property
    def lost(self) -> tuple[str, ...]:
        """What the workspace holds and its file, which has everything else, cannot."""
        return () if self.changed or self.file is None else self.file.lost

    def in_file(self, event: WorkspaceFile) -> None:
        """The workspace was saved, or another one took its place. A file that is on its way to another machine holds
        nothing yet: it could be lost."""
        if event.on_its_way:
            return
        if event.opened:
            self._before[event.request] = _Kept(self.file, self._kept, self._as_built)
        self.file = event
        if event.contents is not None:
            self._kept, self._as_built = frozenset({event.contents}), False

    def undid(self, of: int) -> bool:
        """A command was undone; returns whether the workspace is that of another file now."""
        if (before := self._before.pop(of, None)) is None:
            return False
        self.file = None if before.file is None else replace(before.file, opened=False)
        self._kept, self._as_built = before.contents, before.as_built
        return True

    def follow(self, event: UndoState, command: Command | None) -> None:
        """A command has ended, maybe one that saved or opened the file."""
        if command is not None and not self.changed and all(map(self._is_harmless, steps_of(command))):
            self._kept |= {event.contents}
        self.contents = event.contents
        if (file := self.file) is not None and file.request == event.request:
            same = frozenset(() if file.copy else {event.contents})
            self._kept = same if file.contents is None else self._kept | same
            self._as_built = not file.path and not file.copy and file.sent_from is None

    def _is_harmless(self, command: Command) -> bool:
        if isinstance(command, RunModelCode):
            return not command.again
        return self._as_built and isinstance(command, BuildModel)

    def engine_lost(self) -> None:
        """The next engine begins with other numbers."""
        self.was_changed = self.changed
        self.contents = 0
        self._kept = frozenset()
        self._as_built = False
        self._before.clear()
        if self.file is not None:  # whatever it could not hold is lost now
            self.file = replace(self.file, opened=False, lost=())

    def rebuilt(self, event: Rebuilt) -> None:
        """The workspace is what it was, as far as that could be."""
        if not self.was_changed and not event.lost:
            self._kept = frozenset({self.contents})
