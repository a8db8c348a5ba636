"""Copy to › another machine: the selected tensors and models (their state dicts) go through this window to a machine
that it knows, with progress and a cancel. Main thread; nothing waits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QDialog, QMenu, QProgressBar, QWidget

from devexplorer.core.base import object_name
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.machines.room import MachineRoom, room_of
from devexplorer.gui.widgets import EDGE_PX, ElidedLabel, hbox, push_button, vbox

if TYPE_CHECKING:
    from devexplorer.core.machines.file_copying import FileCopying
    from devexplorer.core.session.machine import Machine

WIDTH_PX = 420
MENU = "copy to machines"
"""Object name of the submenu."""


class Copies(QObject):
    """`offer` the other machines in a menu; each choice starts a copy."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self._room: MachineRoom = room_of(context)

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
        from devexplorer.core.machines.copying import Copying  # with the first copy

        names = tuple(dict.fromkeys(map(object_name, self._context.controller.selection())))
        session = target.session
        if not names or session is None:
            return
        dialog = CopyDialog(self._context.window)
        copying = Copying(
            names, self._room.end_of(self._room.shown), self._room.end_of(target), session.send, dialog.refresh
        )
        dialog.follow(copying)
        dialog.over.connect(partial(self._say, copying))
        dialog.show()
        copying.start()

    def _say(self, copying: FileCopying) -> None:
        self._context.hint(f"{copying.words.rstrip('.')}.")


class CopyDialog(QDialog):
    """How far a copy is; closes by itself at its end."""

    over = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setFixedWidth(WIDTH_PX)
        self._copying: FileCopying | None = None
        self.words = ElidedLabel()
        self.bar = QProgressBar(textVisible=False)
        self.cancel_button = push_button("Cancel", self.reject)
        vbox(self.words, self.bar, hbox(None, self.cancel_button), margins=EDGE_PX, spacing=EDGE_PX, parent=self)

    def follow(self, copying: FileCopying) -> None:
        """Show this one."""
        self._copying = copying
        self.setWindowTitle(f"Copy to {copying.target.name}")
        self.refresh()

    def refresh(self) -> None:
        """Show how far it is."""
        copying = self._copying
        if copying is None:
            return
        self.words.set_full_text(copying.words)
        self.bar.setRange(0, 0 if copying.done is None else 1000)
        if copying.done is not None:
            self.bar.setValue(int(copying.done * 1000))
        if copying.over:
            self._copying = None
            self.over.emit()
            self.accept()
            self.deleteLater()

    def reject(self) -> None:
        """Leave it."""
        if self._copying is not None:
            self._copying.cancel()


def _why_not(machine: Machine) -> str | None:
    link = machine.link
    if link is not None and not link.live:
        return f"{machine.name} is not connected."
    if link is not None and link.watching:
        return f"{link.holder or 'Another window'} controls {machine.name}."
    return None if machine.session is not None else f"Nothing is known of {machine.name} yet."
