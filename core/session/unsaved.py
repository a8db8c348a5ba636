"""Whether the workspace holds work that would be lost with the window: what is in no file, and Build would not make
again. Main thread; no Qt."""

from __future__ import annotations

from devexplorer.core.records import BuildModel, Command, Rebuilt, RunModelCode, UndoState, WorkspaceFile
from devexplorer.core.session.jobs import steps_of


class Unsaved:
    """`State` passes on what it hears. The engine numbers the contents of the workspace (`UndoState.contents`), so an
    Undo that brings back what was saved is no change."""

    def __init__(self) -> None:
        self.contents = 0
        """What the workspace holds, as the engine numbers it."""
        self._kept = {0}
        """Contents that the file has, before and after the code of its models ran; while there is no file, those that
        are sample models as they were built."""
        self._as_built = True
        """There is no file yet."""
        self._was_changed = False

    @property
    def changed(self) -> bool:
        """Whether the contents are neither in a file nor sample models as they were built."""
        return self.contents not in self._kept

    def follow(self, event: UndoState, command: Command | None, file: WorkspaceFile | None) -> None:
        """A command has ended; `file` is the last that was saved or opened, maybe by that command."""
        if command is not None and not self.changed and all(map(self._is_harmless, steps_of(command))):
            self._kept.add(event.contents)
        self.contents = event.contents
        if file is not None and file.request == event.request:
            self._kept = set() if file.copy else {event.contents}
            self._as_built = False

    def _is_harmless(self, command: Command) -> bool:
        if isinstance(command, RunModelCode):
            return not command.again
        return self._as_built and isinstance(command, BuildModel)

    def engine_lost(self) -> None:
        """The next engine begins with other numbers."""
        self._was_changed = self.changed
        self.contents = 0
        self._kept.clear()
        self._as_built = False

    def rebuilt(self, event: Rebuilt) -> None:
        """The workspace is what it was, as far as that could be."""
        if not self._was_changed and not event.lost:
            self._kept = {self.contents}
