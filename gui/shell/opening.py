"""Opens files of any kind that were dropped on the window or chosen: each by what it is. Main thread only.

Looking at them can wait for a disk or a network, so it is not done here: `recognition_wanted` asks for it, `show` takes
the result. A recording and a snapshot are shown at once; models and tensors need their dialogs, which open one after
the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from PySide6.QtCore import QMimeData, QObject, Signal
from PySide6.QtWidgets import QDialog

from devexplorer.core.base.formats import count_text
from devexplorer.core.files.kinds import MODEL, RECORDING, SNAPSHOT, TENSORS, FileKind
from devexplorer.gui.actions.controller import Controller
from devexplorer.gui.shell.laboratory_dialogs import LaboratoryDialogs


class Opening(QObject):
    """`open` any number of files; what cannot be opened gets one line."""

    recognition_wanted = Signal(object)
    """What are these files (tuple of Path)? Whoever answers calls `show`."""
    recording_chosen = Signal(object)
    """Recording to show (Path)."""

    def __init__(
        self, controller: Controller, laboratory_dialogs: LaboratoryDialogs, say: Callable[[str], None], parent: QObject
    ) -> None:
        """`say` shows one inline line."""
        super().__init__(parent)
        self._controller, self._dialogs, self._say = controller, laboratory_dialogs, say
        self._waiting: deque[Callable[[], QDialog]] = deque()
        self._open: QDialog | None = None

    def open(self, paths: Iterable[Path]) -> None:
        """Open each by what it is, as soon as that is known."""
        self.recognition_wanted.emit(tuple(paths))

    def show(self, found: Sequence[FileKind]) -> None:
        """Open files of which it is known what they are."""
        lines = [one.reason for one in found if one.kind is None]
        recordings = [one.path for one in found if one.kind == RECORDING]
        others = [one for one in found if one.kind not in (None, RECORDING)]
        reason = self._controller.why_no_engine() if others else None
        if reason is not None:
            lines.append(reason)
        else:
            for one in others:
                if one.kind == SNAPSHOT:
                    self._controller.open_snapshot(path=str(one.path))
                elif one.kind == MODEL:
                    self._waiting.append(lambda path=one.path: self._dialogs.open_model(path))  # type: ignore[misc]
                elif one.kind == TENSORS:
                    self._waiting.append(lambda path=one.path: self._dialogs.load(path))  # type: ignore[misc]
        if recordings:
            self.recording_chosen.emit(recordings[0])
            if len(recordings) > 1:
                more = count_text(len(recordings) - 1, "other recording")
                lines.append(
                    f"{recordings[0].name} is shown; only one recording can be at a time, so {more} stayed closed."
                )
        if lines:
            self._say(
                lines[0]
                if len(lines) == 1
                else f"{lines[0]} {count_text(len(lines) - 1, 'more file')} could not be opened either."
            )
        self._next()

    def _next(self) -> None:
        if self._open is None and self._waiting:
            self._open = self._waiting.popleft()()
            self._open.finished.connect(self._closed)

    def _closed(self, _code: int) -> None:
        self._open = None
        self._next()


def dropped_files(data: QMimeData) -> list[Path]:
    """The files of this machine that are dragged."""
    return [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]
