"""Copy to › another machine: the selected tensors and models (their state dicts) go through this window to a machine
that it knows, with progress and a cancel. Main thread; nothing waits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QDialog, QMenu, QProgressBar

from devexplorer.core.base import object_name
from devexplorer.core.machines.window.link import link_of
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.widgets import EDGE_PX, ElidedLabel, hbox, push_button, vbox

if TYPE_CHECKING:
    from devexplorer.core.machines.window.file_copying import Copying, FileCopying
    from devexplorer.core.records import Command
    from devexplorer.core.session.machine import Machine

WIDTH_PX = 420
LATE_MS = 150
"""What takes less needs no dialog."""
MENU = "copy to machines"
"""Object name of the submenu."""


class Copies(QObject):
    """`offer` the other machines in a menu; each choice starts a copy."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self._room = room_of(context)
        self._loading: list[tuple[Copying, Machine, int]] = []
        """What has arrived and is being loaded there: with that machine, and the command."""
        self._room.beaten.connect(self._look)

    def offer(self, menu: QMenu) -> None:
        """List the other machines at the end of a menu; nothing where there is none."""
        for known in menu.findChildren(QMenu, MENU):
            menu.removeAction(known.menuAction())
            known.deleteLater()
        others = [machine for machine in self._room.machines if machine is not self._room.shown]
        if not others:
            return
        more = menu.addMenu("Another machine")
        more.setObjectName(MENU)
        more.setToolTipsVisible(True)
        for machine in others:
            line = more.addAction(machine.name.replace("&", "&&"), partial(self.start, machine))
            reason = _why_not(machine)
            line.setEnabled(reason is None)
            line.setToolTip(reason or f"Send the selection to {machine.name}; models as their state dicts")

    def start(self, target: Machine) -> None:
        """Copy what is selected to this machine."""
        from devexplorer.core.machines.window.file_copying import Copying  # with the first copy

        names = tuple(dict.fromkeys(map(object_name, self._context.controller.selection())))
        session = target.session
        if not names or session is None:
            return
        dialog = CopyDialog(self._context)

        def load(command: Command) -> None:
            self._loading.append((copying, target, session.send(command)))

        copying = Copying(names, self._room.end_of(self._room.shown), self._room.end_of(target), load, dialog.refresh)
        dialog.follow(copying)
        dialog.over.connect(partial(self._say, copying))
        dialog.show()
        copying.start()

    def _say(self, copying: Copying) -> None:
        if copying.stage != "sent":
            self._hint(copying.words)

    def _look(self) -> None:
        """Say what has become of those that arrived: what it is called there is seen nowhere else on this machine."""
        for loading in tuple(self._loading):
            copying, target, request = loading
            shown = self._context.machine is target and self._context.state.recording is None
            state = self._context.state if shown else target.aside
            done = next((done for done in reversed(state.done) if done.command.request == request), None)
            link = link_of(target)
            if done is None and (link is None or link.live):
                continue
            self._loading.remove(loading)
            answer = None if done is None else done.answer
            if answer is not None and answer.failed:
                self._hint(f"{copying.what} arrived on {target.name} and was not loaded: {answer.words}")
            elif not shown:  # there the inspector says it
                name = answer.subject if answer is not None else None
                called = f" as {name}" if name is not None and (name,) != copying.names else ""
                words = f"{copying.what} was copied to {target.name}{called}" if done is not None else copying.words
                self._hint(words)

    def _hint(self, words: str) -> None:
        self._context.hint(f"{words.rstrip('.')}.")


class CopyDialog(QDialog):
    """How far a copy is; closes by itself at its end."""

    over = Signal()

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context.window)
        self._stir = context.stirred.emit
        self.setFixedWidth(WIDTH_PX)
        self._copying: FileCopying | None = None
        self._waits_for = ""
        self.words = ElidedLabel()
        self.bar = QProgressBar(textVisible=False)
        self.cancel_button = push_button("Cancel", self.reject)
        vbox(self.words, self.bar, hbox(None, self.cancel_button), margins=EDGE_PX, spacing=EDGE_PX, parent=self)
        self._late = QTimer(self, singleShot=True, interval=LATE_MS)
        self._late.timeout.connect(self.show)

    def follow(self, copying: FileCopying, title: str = "") -> None:
        """Show this one."""
        self._copying = copying
        self.setWindowTitle(title or f"Copy to {copying.target.name}")
        self.refresh()

    def show_late(self) -> None:
        """Show it if it is not over soon."""
        self._late.start()

    def wait_for(self, machine: str) -> None:
        """Nothing goes on until this machine is connected again; empty: it is."""
        if machine != self._waits_for:
            self._waits_for = machine
            self.refresh()

    def refresh(self) -> None:
        """Show how far it is."""
        copying = self._copying
        if copying is None:
            return
        self._stir()  # what is asked is answered at the next beat
        waits = f"{copying.what}: waiting for the connection to {self._waits_for}"
        self.words.set_full_text(waits if self._waits_for and not copying.over else copying.words)
        self.bar.setRange(0, 0 if copying.done is None else 1000)
        if copying.done is not None:
            self.bar.setValue(int(copying.done * 1000))
        if copying.over:
            self._copying = None
            self._late.stop()
            self.over.emit()
            self.accept()
            self.deleteLater()

    def reject(self) -> None:
        """Leave it."""
        if self._copying is not None:
            self._copying.cancel()


def _why_not(machine: Machine) -> str | None:
    link = link_of(machine)
    if link is not None and not link.live:
        return f"{machine.name} is not connected."
    if link is not None and link.watching:
        return f"{link.holder or 'Another window'} controls {machine.name}."
    return None if machine.session is not None else f"Nothing is known of {machine.name} yet."
