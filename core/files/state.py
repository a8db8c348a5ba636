"""What a window knows of files: what was asked about them, which one the workspace is that of, and whether the
workspace holds work that would be lost with the window: what is in no file, and Build would not make again. Main
thread; no Qt."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from devexplorer.core.base import handles
from devexplorer.core.feature import FeatureState
from devexplorer.core.files.records import (
    CheckpointCompared,
    CheckpointComparison,
    FileContents,
    FileListed,
    RunModelCode,
    WorkspaceFile,
)
from devexplorer.core.records import (
    BuildModel,
    Command,
    JobEnded,
    JobStarted,
    ObjectSnapshot,
    Offer,
    Rebuilt,
    Undid,
    UndoState,
)
from devexplorer.core.session import Change, State, steps_of


class _Safe(NamedTuple):
    """What would not be lost."""

    file: WorkspaceFile | None
    contents: frozenset[int]
    as_built: bool


class FilesState(FeatureState):
    """The engine numbers the contents of the workspace (`UndoState.contents`), so an Undo that brings back what was
    saved is no change."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        super().__init__(objects)
        self.comparison: CheckpointComparison | None = None
        self.listed: FileContents | None = None
        """The file that was looked into last."""
        self.workspace_file: WorkspaceFile | None = None
        """What the workspace was saved to or opened from last."""
        self.contents = 0
        """What the workspace holds, as the engine numbers it."""
        self._safe = frozenset({0})
        """Contents that the file has, before and after the code of its models ran; while there is no file, those that
        are sample models as they were built."""
        self._as_built = True
        """There is no file yet."""
        self._before: dict[int, _Safe] = {}
        """What it was before another workspace took its place, by the number of that command."""
        self.was_changed = False
        """Whether they were `changed` when the engine was lost."""
        self._running: dict[int, Command] = {}

    @property
    def changed(self) -> bool:
        """Whether the contents are neither in a file nor sample models as they were built."""
        return self.contents not in self._safe

    @property
    def unsaved_work(self) -> bool:
        """Whether closing the window would lose what could be saved."""
        return bool(self.objects) and self.changed

    @property
    def lost_anyway(self) -> tuple[str, ...]:
        """What closing the window would lose though everything is saved: what a workspace file cannot hold."""
        file = self.workspace_file
        return () if file is None or self.changed or not self.objects else file.lost

    @handles(CheckpointCompared)
    def _compared(self, event: CheckpointCompared) -> Change:
        self.comparison = event.comparison
        return Change.LABORATORY

    @handles(FileListed)
    def _file_listed(self, event: FileListed) -> Change:
        self.listed = event.contents
        return Change.LABORATORY

    @handles(WorkspaceFile)
    def _in_file(self, event: WorkspaceFile) -> Change:
        """The workspace was saved, or another one took its place. A file that is on its way to another machine holds
        nothing yet: it could be lost."""
        if not event.on_its_way:
            if event.opened:
                self._before[event.request] = _Safe(self.workspace_file, self._safe, self._as_built)
            self.workspace_file = event
            if event.contents is not None:
                self._safe, self._as_built = frozenset({event.contents}), False
        return Change.LABORATORY

    @handles(Undid)
    def _undid(self, event: Undid) -> Change | None:
        """The workspace may be that of another file now."""
        if (before := self._before.pop(event.of, None)) is None:
            return None
        self.workspace_file = None if before.file is None else replace(before.file, opened=False)
        self._safe, self._as_built = before.contents, before.as_built
        return Change.LABORATORY

    @handles(JobStarted)
    def _job_started(self, event: JobStarted) -> None:
        if event.command is not None:
            self._running[event.request] = event.command

    @handles(JobEnded)
    def _job_ended(self, event: JobEnded) -> None:
        self._running.pop(event.request, None)

    @handles(UndoState)
    def _follow(self, event: UndoState) -> None:
        """A command has ended, maybe one that saved or opened the file."""
        command = self._running.get(event.request)
        if command is not None and not self.changed and all(map(self._is_harmless, steps_of(command))):
            self._safe |= {event.contents}
        self.contents = event.contents
        if (file := self.workspace_file) is not None and file.request == event.request:
            same = frozenset(() if file.copy else {event.contents})
            self._safe = same if file.contents is None else self._safe | same
            self._as_built = not file.path and not file.copy and file.sent_from is None

    def _is_harmless(self, command: Command) -> bool:
        if isinstance(command, RunModelCode):
            return not command.again
        return self._as_built and isinstance(command, BuildModel)

    def forget_all(self) -> None:
        """The next engine begins with other numbers."""
        self.was_changed = self.changed
        self.contents = 0
        self._safe = frozenset()
        self._as_built = False
        self._before.clear()
        self._running.clear()
        if self.workspace_file is not None:  # whatever it could not hold is lost now
            self.workspace_file = replace(self.workspace_file, opened=False, lost=())

    @handles(Rebuilt)
    def _rebuilt(self, event: Rebuilt) -> None:
        """The workspace is what it was, as far as that could be."""
        if not self.was_changed and not event.lost:
            self._safe = frozenset({self.contents})


def offers(state: State, target: str, second: str = "") -> tuple[Offer, ...]:
    """A selected model whose files have changed since it was made of them can be rebuilt."""
    model = state.objects.get(target)
    if second or model is None or not model.outdated:
        return ()
    from devexplorer.core.isolation.model_source import parse  # when first needed

    place = parse(model.source or "").place_name
    return (Offer(f"Rebuild {target} from {place}", RunModelCode(target=target, again=True)),)
