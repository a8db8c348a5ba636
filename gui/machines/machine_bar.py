"""The line above the panels while another machine is shown and is not as it looks: no connection, nothing that comes,
or another window that controls it. Main thread only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QFrame

from devexplorer.gui.machines.words import old_text
from devexplorer.gui.widgets import ElidedLabel, Sign, hbox, push_button, show_text

if TYPE_CHECKING:
    from devexplorer.core.machines.window.link import Link
    from devexplorer.core.machines.window.machines import FarMachine

HEIGHT_PX = 36


class MachineBar(QFrame):
    """`show_link` at each beat; hidden while all is well."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.setAccessibleName("Machine")
        self.setFixedHeight(HEIGHT_PX)
        self._act: Callable[[], None] = lambda: None
        self._sign = Sign("warning", "warning")
        self.words = ElidedLabel()
        self.button = push_button("Try now", lambda: self._act())
        hbox(self._sign, (self.words, 1), self.button, margins=(12, 0, 8, 0), parent=self)
        self.hide()

    def show_link(self, machine: FarMachine | None) -> None:
        """What is to be said about the machine shown; None: it is this one."""
        words, button, self._act = ("", "", lambda: None) if machine is None else _told(machine)
        self.words.set_full_text(words)
        show_text(self.button, button)
        if self.isHidden() == bool(words):
            self.setVisible(bool(words))


def _told(machine: FarMachine) -> tuple[str, str, Callable[[], None]]:
    link, session = machine.link, machine.session
    name, reason = machine.name, f": {link.reason.rstrip('.')}" if link.reason else ""
    age = age_text(link, machine.now())
    match link.state:
        case "connecting":
            return f"Connecting to {name}…", "Cancel", session.disconnect
        case "reconnecting":
            wait = f" The next attempt is in {link.retry_in_s:.0f} s." if link.retry_in_s else ""
            return f"Reconnecting to {name}{reason}.{wait} {age}".rstrip(), "Try now", session.reconnect
        case "lost":
            return f"Not connected to {name}{reason}. {age}".rstrip(), "Connect", session.reconnect
        case "connected" if machine.is_late:
            return f"Nothing comes from {name}. {age}", "Connect again", session.reconnect
    if link.holder is not None:
        return link.watching_words(name), "Take over", session.take_over
    return "", "", lambda: None


def age_text(link: Link, shown_unix_s: float) -> str:
    """Of what moment the readings shown are."""
    if link.reading_age_s is None:
        return ""
    moment = datetime.fromtimestamp(shown_unix_s).time().isoformat("seconds")
    return f"Showing readings from {moment}, {old_text(link.reading_age_s)} ago."
