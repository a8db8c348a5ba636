"""The session as Python: every action with the code that does it, to copy, or to save as a script or a notebook. Main
thread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtGui import QGuiApplication, QShowEvent, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from devexplorer.core.base import count_text
from devexplorer.core.session import State
from devexplorer.core.session.journal import Action
from devexplorer.gui.widgets import (
    EDGE_PX,
    ROW_PX,
    Cell,
    Colours,
    Column,
    RowsTable,
    TableRow,
    code_text,
    hbox,
    label,
    push_button,
    splitter,
    vbox,
)

if TYPE_CHECKING:
    from devexplorer.core.session.session import Session

_COLUMNS = (Column("time"), Column("action"))


class SessionPanel(QWidget):
    """`refresh` after anything was done; `set_source` says whom to ask."""

    save_requested = Signal()

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._source: Session | None = None
        self._shown: tuple[Action, ...] | None = None
        self._places: list[int] = []
        """First line of each action in the script."""
        self.table = RowsTable(_COLUMNS, "Actions", [92, 60])
        self.table.selected.connect(self._jump)
        self.table.setMinimumHeight(2 * ROW_PX)  # it scrolls, so a low page need not
        self.text = code_text(
            "The session as Python",
            "log",
            undoRedoEnabled=False,
            lineWrapMode=QPlainTextEdit.LineWrapMode.NoWrap,
            placeholderText="Nothing was done yet. Everything that you do appears here as Python that does the same.",
        )
        self.text.setMinimumHeight(2 * ROW_PX)
        self._colours = Colours(self.text.document(), state)
        self.words = label(words="dim")
        self.copy_button = push_button("Copy", lambda: QGuiApplication.clipboard().setText(self.text.toPlainText()))
        self.save_button = push_button("Save as script or notebook…", self.save_requested)
        self._lay_out()
        self.refresh()

    def _lay_out(self) -> None:
        top = hbox((self.words, 1), self.copy_button, self.save_button, margins=(EDGE_PX, 8, EDGE_PX, 0))
        vbox(top, (splitter(self.table, self.text, sizes=(420, 560)), 1), parent=self)

    def set_source(self, source: Session | None) -> None:
        """Ask this one from now on."""
        self._source, self._shown = source, None
        self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def refresh(self) -> None:
        """Show what was done since; a hidden page waits until it is shown."""
        if not self.isVisible() and self._shown is not None:
            return
        actions = () if self._source is None else tuple(self._source.actions)
        if actions == self._shown:
            return
        self._shown = actions
        self.table.set_rows([_row(number, action) for number, action in enumerate(actions)])
        script = self._source.listener("files").script() if self._source is not None and actions else ""
        self._write(script)
        self._places = _places(script, actions)
        self.words.setText(f"{count_text(len(actions), 'action')}. Undone actions are left out." if actions else "")
        for button in (self.copy_button, self.save_button):
            button.setEnabled(bool(actions))
            button.setToolTip("" if actions else "Nothing was done yet.")
        bar = self.text.verticalScrollBar()
        bar.setValue(bar.maximum())
        self.table.scrollToBottom()

    def _write(self, script: str) -> None:
        """Show a script; only what differs from the one shown is written and coloured, and that is its end after most
        actions."""
        old, new = self.text.toPlainText().split("\n"), script.split("\n")
        most = min(len(old), len(new)) - 1
        same = next((index for index in range(most) if old[index] != new[index]), most)
        cursor = QTextCursor(self.text.document().findBlockByNumber(same))
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.insertText("\n".join(new[same:]))

    def _jump(self) -> None:
        """Show the code of the chosen action."""
        chosen = self.table.selected_key
        if isinstance(chosen, int) and chosen < len(self._places):
            self.text.verticalScrollBar().setValue(self._places[chosen])


def _row(number: int, action: Action) -> TableRow:
    time = datetime.fromtimestamp(action.time_unix_s).time().isoformat("seconds")
    return TableRow(number, (Cell(time), Cell(action.title, tip=f"{action.title}\n{action.words}")))


def _places(script: str, actions: Sequence[Action]) -> list[int]:
    """The line in which each action begins: that of its title, which is a comment there."""
    lines = script.split("\n")
    places, index = [], 0
    for action in actions:
        title = f"# {action.title}"
        index = next((line for line in range(index, len(lines)) if lines[line] == title), index)
        places.append(index)
    return places
