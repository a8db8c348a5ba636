"""The log: what the engine says and what user code prints, newest at the bottom. Plain text only; main thread."""

from __future__ import annotations

import re
from datetime import datetime

from PySide6.QtGui import QColor, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QWidget

from devexplorer.core.records import Log
from devexplorer.core.session import LOG_LINES, State
from devexplorer.gui.widgets import code_text, current_theme, theme_changed, vbox

LEAST_PX = 72
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07?|.)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Terminal colours and control characters that user code may print; a window has no use for them."""


class LogPanel(QWidget):
    """Shows `state.log`; `refresh` adds what is new."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._last: Log | None = None
        self.text = code_text("Log", "log", placeholderText="Nothing logged yet. What your models print appears here.")
        self.text.setMaximumBlockCount(LOG_LINES)  # memory stays flat however much user code prints
        self.text.setMinimumHeight(LEAST_PX)
        vbox(self.text, parent=self)
        self._follows = True
        bar = self.text.verticalScrollBar()
        bar.valueChanged.connect(self._scrolled)
        bar.rangeChanged.connect(self._grown)
        theme_changed.connect(self._write_again)

    def _write_again(self) -> None:
        self._last = None
        self.text.clear()
        self.refresh()

    def refresh(self) -> None:
        """Append the lines that came since the last call; write everything again when it is another log, that of a
        recording."""
        new = self._new_lines()
        if self._last is not None and len(new) == len(self._state.log):
            self._last = None
            self.text.clear()
        if not new:
            return
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.beginEditBlock()
        for entry in new:
            self._write(cursor, entry)
        cursor.endEditBlock()
        self._last = new[-1]

    def _scrolled(self, value: int) -> None:
        self._follows = value >= self.text.verticalScrollBar().maximum()

    def _grown(self, _lowest: int, highest: int) -> None:
        """More lines, or another size: stay at the end if the end was in view."""
        if self._follows:
            self.text.verticalScrollBar().setValue(highest)

    def _new_lines(self) -> list[Log]:
        new: list[Log] = []
        for entry in reversed(self._state.log):
            if entry is self._last:
                break
            new.append(entry)
        return new[::-1]

    def _write(self, cursor: QTextCursor, entry: Log) -> None:
        theme = current_theme()
        colour = {"error": theme.error, "warning": theme.warning, "output": theme.text}.get(entry.level, theme.soft)
        level = ""
        if entry.level == "output":
            level = "│ "  # before every line that user code printed, so that it cannot pass for ours
        elif entry.level in ("error", "warning"):
            level = f"{entry.level}: "
        time = datetime.fromtimestamp(entry.time_unix_s).strftime("%H:%M:%S")
        for number, line in enumerate(_ESCAPES.sub("", entry.text).replace("\r", "\n").rstrip("\n").split("\n")):
            if not self.text.document().isEmpty():
                cursor.insertBlock()
            cursor.insertText(f"{time}  " if number == 0 else " " * 10, _format(theme.dim))
            continued = level if number == 0 or entry.level == "output" else " " * len(level)
            cursor.insertText(continued + line, _format(colour))


def _format(colour: str) -> QTextCharFormat:
    result = QTextCharFormat()
    result.setForeground(QColor(colour))
    return result
