"""The button of the toolbar that says which machine is shown, with the menu of machines. Main thread only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QPushButton

from devexplorer.gui.actions import MACHINE, ActionSpec, WindowContext, fill_menu, refresh
from devexplorer.gui.machines.actions import reconnect
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.machines.words import age_text, alarm_words, state_words, why

ALONE = "Machine"
NAME_PX = 132
"""Of the name of the machine shown, at most."""
TIP = "The machine that this window shows: connect to others, switch between them (Ctrl+Shift+M)"
MOST_KNOWN = 8


class MachineMenu(QObject):
    """Fills the menu of `button` whenever it is opened, and has the button name the machine shown."""

    def __init__(
        self,
        context: WindowContext,
        button: QPushButton,
        say: Callable[[str, bool], None],
        specs: Sequence[ActionSpec],
        actions: dict[str, QAction],
    ) -> None:
        """`say` shows the name in the button, and whether it is needed."""
        super().__init__(button)
        self._context, self._button, self._say = context, button, say
        self._specs = [spec for spec in specs if spec.menu == MACHINE]
        self._actions = actions
        self._room = room_of(context)
        button.menu().aboutToShow.connect(self._fill)
        self._room.changed.connect(self._name)
        self._name()
        self._fill()

    def _name(self) -> None:
        """Say which machine is shown once there are several."""
        shown, several = self._room.shown, len(self._room.machines) > 1
        name = shown.name[:1].upper() + shown.name[1:] if shown.is_here else shown.name
        link = shown.link
        sign = "" if link is None or (link.live and not link.watching) else f"{state_words(link)[0]} "
        others = (machine for machine in self._room.machines if machine is not shown)
        alarmed = [f"{machine.name}: {alarm_words(machine.aside)}" for machine in others if alarm_words(machine.aside)]
        words = ALONE
        if several:
            words = f"{sign}{name}{' ✕' if alarmed else ''}"
        short = self._button.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, NAME_PX)
        self._say(f"{short} ▾".replace("&", "&&"), several)
        spoken = ", ".join((f"Machine: {shown.name}", *alarmed))
        self._button.setAccessibleName(spoken if several else ALONE)
        state = "" if link is None else f"{shown.name}: {state_words(link)[2:]}. {why(link)}".rstrip()
        self._button.setToolTip("\n".join(filter(None, (state, *alarmed, TIP))))

    def _fill(self) -> None:
        menu = self._button.menu()
        menu.clear()
        group = QActionGroup(menu)
        for machine in self._room.machines:
            link = machine.link
            state = "" if link is None else state_words(link)
            age = "" if link is None or link.live else age_text(link.reading_age_s)
            now = self._context.state if machine is self._room.shown else machine.aside
            about = ", ".join(filter(None, (state, age and f"readings {age} old", alarm_words(now))))
            line = menu.addAction(f"{machine.name}\t{about}".replace("&", "&&"), partial(self._room.show, machine))
            line.setCheckable(True)
            line.setChecked(machine is self._room.shown)
            line.setActionGroup(group)
            line.setToolTip(why(link))
        known = self._room.known[:MOST_KNOWN]
        if known:
            again = menu.addMenu("Connect again")
            for one in known:
                again.addAction(one.host.replace("&", "&&"), partial(reconnect, self._context, one.host))
        menu.addSeparator()
        refresh(self._specs, self._actions)
        fill_menu(menu, MACHINE, self._specs, self._actions)
