"""The history of the machine that is shown. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal

from devexplorer.gui.actions import WindowContext


def history_of(context: WindowContext) -> HistoryRoom:
    """That of this window."""
    return context.findChild(HistoryRoom) or HistoryRoom(context)


class HistoryRoom(QObject):
    """`source` is a `StoreThread`, or what asks one on another machine."""

    opened = Signal(object)
    """The `source`."""
    changed = Signal()
    """Runs were added, tagged or deleted."""
    problem_changed = Signal(str)
    """What is wrong with the history; empty when nothing is."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self.source: Any = None
        self.problem = ""
        context.session_started.connect(self._open)
        context.beaten.connect(self._beat)
        if context.session is not None:
            self._open(context.session)

    def _open(self, session: Any) -> None:
        source = session.listener("history")
        source.on_change = partial(self._changed, source)
        source.on_notice = lambda notice, failed: self._context.banner.say(notice, error=failed)
        self.source = source
        self.opened.emit(source)
        self._show_problem()

    def _changed(self, source: object) -> None:
        if source is self.source:
            self.changed.emit()

    def _show_problem(self) -> None:
        self.problem = self.source.problem or ""
        self.problem_changed.emit(self.problem)

    def _beat(self) -> None:
        for machine in (self._context.machine, *self._context.unseen):
            if machine.session is not None:
                source: Any = machine.session.listener("history")
                if source.deliver() and source is self.source:
                    self._show_problem()
