"""Actions about machines: connecting, the one shown, the Python of its engine. Main thread only; a dialog's module is
loaded when it is first opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.base import BadInput, sentence
from devexplorer.gui.actions import MACHINE, ActionSpec, WindowContext
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.machines.words import state_words
from devexplorer.gui.widgets import NOT_READY, why_fixed

if TYPE_CHECKING:
    from devexplorer.gui.machines.approach import Approach
    from devexplorer.gui.machines.connect_dialog import ConnectDialog, Known


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the menu."""
    room = room_of(context)
    room.asked.connect(partial(ask, context))

    def why_not_far() -> str | None:
        return None if room.shown.link is not None else "This machine is shown: there is nothing to disconnect."

    def why_not_lost() -> str | None:
        link = room.shown.link
        return why_not_far() or (None if link is not None and not link.live else f"{room.shown.name} is connected.")

    def why_no_take_over() -> str | None:
        link = room.shown.link
        watches = link is not None and link.live and link.watching
        return None if watches else "This window controls what it shows."

    return [
        ActionSpec("connect", "Connect…", "Show a server in this window, over your own ssh", partial(connect, context),
                   menu=MACHINE),
        ActionSpec("python", "Python environment…", "Choose the Python, and with it the torch, that the engine runs in",
                   partial(choose_python, context), partial(_why_no_python, context), menu=MACHINE),
        ActionSpec("reconnect", "Reconnect", "Try to reach the shown machine again",
                   lambda: reconnect(context, room.shown.name), why_not_lost, menu=MACHINE, section=1),
        ActionSpec("take_over", "Take over", "Control the shown machine from this window, which only watches it now",
                   room.take_over, why_no_take_over, menu=MACHINE, section=1),
        ActionSpec("disconnect", "Disconnect", "Leave the shown machine; what runs there goes on",
                   lambda: room.leave(room.shown), why_not_far, menu=MACHINE, section=1),
    ]  # fmt: skip


def choices(context: WindowContext) -> list[tuple[str, str, bool, Callable[[], object]]]:
    """For a list to choose a machine from: its name, its state, whether it can be chosen, what shows it."""
    room = room_of(context)
    there: list[tuple[str, str, bool, Callable[[], object]]] = [
        (machine.name, "shown" if machine is room.shown else state_words(machine.link), True,
         partial(room.show, machine))
        for machine in room.machines
    ]  # fmt: skip
    known = [(one.host, "○ Not connected", True, partial(reconnect, context, one.host)) for one in room.known]
    return [*there, *known, ("Connect…", "another machine", True, partial(connect, context))]


def _why_no_python(context: WindowContext) -> str | None:
    return why_fixed(context.state) or (None if context.session is not None else NOT_READY)


# --- connecting


def connect(context: WindowContext, host: str = "", python: str = "") -> ConnectDialog:
    """Choose a machine; `host`: begin to connect to this one."""
    from devexplorer.gui.machines.connect_dialog import BEFORE, ConnectDialog, Known

    room = room_of(context)
    before = [Known(one.host, BEFORE, one.python) for one in room.known]
    dialog = ConnectDialog(before, [machine.name for machine in room.others], context.window)
    dialog.wanted.connect(partial(_begin, context, dialog))
    context.open_dialog(dialog)
    if host:
        dialog.choose(host, python)
        dialog.accept_button.click()
    context.in_background("ssh-config", _configured, partial(_show_configured, dialog, before))
    return dialog


def _configured() -> tuple[str, ...]:
    from devexplorer.core.machines.ssh.hosts import configured

    return configured()


def _show_configured(dialog: ConnectDialog, before: list[Known], hosts: tuple[str, ...]) -> None:
    from shiboken6 import isValid

    from devexplorer.gui.machines.connect_dialog import CONFIGURED, Known

    if isValid(dialog):  # closed since
        known = {one.host for one in before}
        dialog.show_known([*before, *(Known(host, CONFIGURED) for host in hosts if host not in known)])


def _begin(context: WindowContext, dialog: ConnectDialog, host: str, python: str) -> None:
    room = room_of(context)
    known = room.find(host)
    if known is not None:  # a second attempt
        room.leave(known)
    try:
        approach = room.connect_to(host, python)
    except BadInput as error:
        dialog.say(sentence(str(error)), wrong=True)
        return

    def close_when_connected() -> None:
        machine = room.find(host)
        if machine is not None and machine.link is not None and machine.link.live:
            dialog.connected()

    room.changed.connect(close_when_connected)
    dialog.finished.connect(lambda: room.changed.disconnect(close_when_connected))
    dialog.given_up.connect(partial(room.give_up, approach))
    dialog.follow(approach)


def reconnect(context: WindowContext, name: str) -> None:
    """Try again to reach a machine, or connect one that is remembered."""
    room = room_of(context)
    if room.find(name) is not None:
        room.reconnect(name)
        return
    known = next((one for one in room.known if one.host == name), None)
    if known is not None:
        connect(context, known.host, known.python)


def ask(context: WindowContext, approach: Approach) -> None:
    """A machine that is being reconnected waits for a password or the like."""
    from devexplorer.gui.machines.connect_dialog import AskDialog

    room = room_of(context)
    dialog = AskDialog(approach, context.window)

    def close_when_over() -> None:
        machine = room.find(approach.way.host)
        if machine is None or machine.link is None or machine.link.state not in ("connecting", "reconnecting"):
            dialog.accept()

    room.changed.connect(close_when_over)
    dialog.finished.connect(lambda: room.changed.disconnect(close_when_over))
    context.open_dialog(dialog)


# --- Python


def choose_python(context: WindowContext) -> None:
    """Choose the Python of the engine of the machine shown."""
    from devexplorer.gui.machines.python_choice import open_dialog

    open_dialog(context)
