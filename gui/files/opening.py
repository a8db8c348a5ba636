"""Opens files of any kind that were dropped on the window or chosen: each by what it is. Main thread only.

Looking at them can wait for a disk or a network, so a thread does it; `show` takes the result. A recording and a
snapshot are shown at once; models and tensors need their dialogs, which open one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QDialog

from devexplorer.core.base import count_text
from devexplorer.core.files.kinds import MODEL, RECORDING, SCRIPT, SNAPSHOT, TENSORS, WORKSPACE, FileKind, recognise
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.files.actions import load_tensors
from devexplorer.gui.files.models import ModelOpener
from devexplorer.gui.files.session_script import repeat_session
from devexplorer.gui.files.workspace_file import WorkspaceFiles
from devexplorer.gui.forms.far_side import CopiedFile, FarSide

BY_ENGINE = (MODEL, SNAPSHOT, TENSORS, WORKSPACE)
"""Files that the engine reads; the others are read by the window itself, on this machine."""


class Opening(QObject):
    """`open` any number of files; what cannot be opened gets one line."""

    def __init__(self, context: WindowContext, models: ModelOpener, workspaces: WorkspaceFiles) -> None:
        super().__init__(context)
        self._context, self._models, self._workspaces = context, models, workspaces
        self._waiting: deque[Callable[[], QDialog]] = deque()
        self._dialog: QDialog | None = None
        context.files_chosen.connect(self.open)
        context.far_files_chosen.connect(self._open_far)

    def open(self, paths: Iterable[Path]) -> None:
        """Open each by what it is, as soon as that is known."""
        files = tuple(paths)
        self._context.in_background("recognise", lambda: [recognise(path) for path in files], self.show)

    def _open_far(self, paths: Sequence[Path]) -> None:
        """The same of the machine that is on show."""
        from devexplorer.core.records.host import RecogniseFiles  # not for a window of this machine alone

        far = self._context.far
        if far is not None:
            question = RecogniseFiles(paths=tuple(map(str, paths)))
            far.ask(question, lambda answer: self._show_far(far, answer))

    def _show_far(self, far: FarSide, answer: Any) -> None:
        from devexplorer.core.records.host import FileKinds

        if not isinstance(answer, FileKinds):
            self._context.hint(f"The files on {far.name} could not be looked at: {answer}")
        elif far is self._context.far:
            files = [FileKind(Path(file.path), file.kind, file.reason) for file in answer.files]
            for file in files:
                if file.kind is not None:
                    self._context.remember_file(file.path)
            known = [file if file.kind else file._replace(reason=f"On {far.name}: {file.reason}") for file in files]
            self._open_known(known, far)

    def show(self, files: Sequence[FileKind]) -> None:
        """Open files of this machine that were recognised."""
        far = self._context.far
        if far is not None:
            files = [_only_here(file, far.name) if file.kind in BY_ENGINE else file for file in files]
        for file in files:
            if file.kind not in (None, RECORDING):
                self._context.remember_file(file.path.absolute(), here=True)
        self._open_known(files)

    def _open_known(self, files: Sequence[FileKind], far: FarSide | None = None) -> None:
        """`far`: the machine that they are on; None: this one."""
        lines = [file.reason for file in files if file.kind is None]
        recordings = [file.path for file in files if file.kind == RECORDING]
        others = [file for file in files if file.kind not in (None, RECORDING)]
        reason = self._context.controller.why_no_engine() if others else None
        if reason is not None:
            lines.append(reason)
        else:
            for file in others:
                if far is not None and file.kind == SCRIPT:
                    self._context.file_copies.bring(file.path, self._repeat)
                else:
                    self._open_one(file.kind, file.path)
        if recordings:
            show = self._context.replay_chosen.emit
            if far is None:
                show(recordings[0])
            else:
                self._context.file_copies.bring(recordings[0], show)
            if len(recordings) > 1:
                more = count_text(len(recordings) - 1, "other recording")
                lines.append(
                    f"{recordings[0].name} is shown; only one recording can be at a time, so {more} stayed closed."
                )
        if lines:
            self._context.hint(
                lines[0]
                if len(lines) == 1
                else f"{lines[0]} {count_text(len(lines) - 1, 'more file')} could not be opened either."
            )
        self._next()

    def _open_one(self, kind: str | None, path: Path) -> None:
        """Open what the machine on show can read there."""
        if kind == SNAPSHOT:
            self._context.controller.open_snapshot(path=str(path))
        elif kind == WORKSPACE:
            self._workspaces.open(path)
        elif kind == SCRIPT:
            repeat_session(self._context, path)
        elif kind == MODEL:
            self._waiting.append(partial(self._models.open, path))
        elif kind == TENSORS:
            self._waiting.append(partial(load_tensors, self._context, path))

    def _repeat(self, script: CopiedFile) -> None:
        repeat_session(self._context, script.path, script.remove)

    def _next(self) -> None:
        if self._dialog is None and self._waiting:
            self._dialog = self._waiting.popleft()()
            self._dialog.finished.connect(self._closed)

    def _closed(self, _code: int) -> None:
        self._dialog = None
        self._next()


def _only_here(file: FileKind, far: str) -> FileKind:
    reason = f"{file.path.name} is on this machine, and {far} is on show: copy it there, or show this machine first."
    return FileKind(file.path, None, reason)
