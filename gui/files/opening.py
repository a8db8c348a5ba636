"""Opens files of any kind that were dropped on the window or chosen: each by what it is. Main thread only.

Looking at them can wait for a disk or a network, so a thread does it; `show` takes the result. A recording and a
snapshot are shown at once; models and tensors need their dialogs, which open one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QDialog

from devexplorer.core.base import count_text
from devexplorer.core.files.kinds import MODEL, RECORDING, SCRIPT, SNAPSHOT, TENSORS, WORKSPACE, FileKind, recognise
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.files.actions import load_tensors
from devexplorer.gui.files.models import ModelOpener
from devexplorer.gui.files.session_script import repeat_session
from devexplorer.gui.files.workspace_file import WorkspaceFiles


class Opening(QObject):
    """`open` any number of files; what cannot be opened gets one line."""

    def __init__(self, context: WindowContext, models: ModelOpener, workspaces: WorkspaceFiles) -> None:
        super().__init__(context)
        self._context, self._models, self._workspaces = context, models, workspaces
        self._waiting: deque[Callable[[], QDialog]] = deque()
        self._dialog: QDialog | None = None
        context.files_chosen.connect(self.open)

    def open(self, paths: Iterable[Path]) -> None:
        """Open each by what it is, as soon as that is known."""
        files = tuple(paths)
        self._context.in_background("recognise", lambda: [recognise(path) for path in files], self.show)

    def show(self, files: Sequence[FileKind]) -> None:
        """Open files that were recognised."""
        lines = [file.reason for file in files if file.kind is None]
        recordings = [file.path for file in files if file.kind == RECORDING]
        others = [file for file in files if file.kind not in (None, RECORDING)]
        for file in others:
            self._context.remember_file(file.path.absolute())
        reason = self._context.controller.why_no_engine() if others else None
        if reason is not None:
            lines.append(reason)
        else:
            for file in others:
                if file.kind == SNAPSHOT:
                    self._context.controller.open_snapshot(path=str(file.path))
                elif file.kind == WORKSPACE:
                    self._workspaces.open(file.path)
                elif file.kind == SCRIPT:
                    repeat_session(self._context, file.path)
                elif file.kind == MODEL:
                    self._waiting.append(partial(self._models.open, file.path))
                elif file.kind == TENSORS:
                    self._waiting.append(partial(load_tensors, self._context, file.path))
        if recordings:
            self._context.replay_chosen.emit(recordings[0])
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

    def _next(self) -> None:
        if self._dialog is None and self._waiting:
            self._dialog = self._waiting.popleft()()
            self._dialog.finished.connect(self._closed)

    def _closed(self, _code: int) -> None:
        self._dialog = None
        self._next()
