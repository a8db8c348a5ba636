"""Whether the workspace holds work that would be lost with the window: what is in no file, and Build would not make
again. Main thread; no Qt."""

from __future__ import annotations

from devexplorer.core.records import BuildModel, Command, Rebuilt, UndoState, WorkspaceFile


class Unsaved:
    """`State` passes on what it hears. The engine numbers the contents of the workspace (`UndoState.contents`), so an
    Undo that brings back what was saved is no change."""

    def __init__(self) -> None:
        self.contents = 0
        """What the workspace holds, as the engine numbers it."""
        self._saved: int | None = 0
        """What the file holds, or the empty workspace of the start; None: no number that the engine gives."""
        self._samples = {0}
        """Contents that are sample models as they were built, while there is no file."""
        self._was_changed = False

    @property
    def changed(self) -> bool:
        """Whether the contents are neither in a file nor sample models as they were built."""
        return self.contents != self._saved and self.contents not in self._samples

    def follow(self, event: UndoState, command: Command | None, file: WorkspaceFile | None) -> None:
        """A command has ended; `file` is the last that was saved or opened, maybe by that command."""
        if isinstance(command, BuildModel) and self.contents in self._samples:
            self._samples.add(event.contents)
        self.contents = event.contents
        if file is not None and file.request == event.request:
            self._saved = None if file.copy else event.contents
            self._samples.clear()

    def engine_lost(self) -> None:
        """The next engine begins with other numbers."""
        self._was_changed = self.changed
        self._saved, self.contents = None, 0
        self._samples.clear()

    def rebuilt(self, event: Rebuilt) -> None:
        """The workspace is what it was, as far as that could be."""
        if not self._was_changed and not event.lost:
            self._saved = self.contents
