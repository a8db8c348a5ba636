"""The button at the bottom that records and stops recording, and says how long and how much. Main thread only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QPushButton

from devexplorer.core.base import Clock, bytes_text, elapsed_text
from devexplorer.gui.widgets import Role, font, set_look

if TYPE_CHECKING:
    from devexplorer.core.machines.window.remote_session import FarRecording
    from devexplorer.core.recording.recorder import Recorder


class RecordButton(QPushButton):
    """A click triggers `record`, or `stop` while it records; `refresh` twice a second with what records now."""

    def __init__(self, record: QAction, stop: QAction, clock: Clock = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._recorder: Recorder | FarRecording | None = None
        self._since = 0.0
        self.setProperty("look", "quiet")
        self.setFont(font(Role.LABEL))
        self.clicked.connect(lambda: (record if self._recorder is None else stop).trigger())
        self.refresh(None)

    def refresh(self, recorder: Recorder | FarRecording | None) -> None:
        """Show what records now; None: nothing does."""
        if recorder is not None and recorder.problem is not None:
            recorder = None  # it has ended by itself, and the banner says why
        if recorder != self._recorder:
            far_s = time.time() - recorder.started_unix_s if isinstance(recorder, tuple) else 0.0
            self._recorder, self._since = recorder, self._clock() - far_s
            set_look(self, "" if recorder is None else "error")  # with text beside it: never colour alone
        if recorder is None:
            text, tip = "● Record", "Write every reading to a file that can be replayed (Ctrl+R)"
        else:
            size = "" if recorder.bytes_written is None else f"  {bytes_text(recorder.bytes_written)}"
            text = f"■ Stop recording  {elapsed_text(self._clock() - self._since)}{size}"
            tip = f"Everything is recorded to {recorder.path}"
        if text != self.text():
            self.setText(text)
            self.setToolTip(tip)
            self.setAccessibleName("Stop recording" if recorder is not None else "Record")
