"""Actions about machines: connecting, the one shown, the Python of its engine. Main thread only; a dialog's module is
loaded when it is first opened."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.base import BadInput, sentence
from devexplorer.core.machines.window.link import link_of, state_words
from devexplorer.core.session import Change
from devexplorer.gui.actions import MACHINE, ActionSpec, WindowContext
from devexplorer.gui.machines.room import room_of

if TYPE_CHECKING:
    from argparse import Namespace

    from devexplorer.gui.machines.approach import Approach, ConnectDialog, OfferedMachine


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the menu."""
    room = room_of(context)
    room.asked.connect(partial(ask, context))

    def why_not_far() -> str | None:
        return None if link_of(room.shown) is not None else "This machine is shown: there is nothing to disconnect."

    def why_not_lost() -> str | None:
        link = link_of(room.shown)
        return why_not_far() if link is None else link.why_not_again(room.shown.name)

    def why_no_take_over() -> str | None:
        link = link_of(room.shown)
        watches = link is not None and link.live and link.watching
        return None if watches else "This window controls what it shows."

    return [
        ActionSpec("connect", "Connect…", "Show a server in this window, over your own ssh", partial(connect, context),
                   menu=MACHINE),
        ActionSpec("reconnect", "Reconnect", "Try to reach the shown machine again",
                   lambda: reconnect(context, room.shown.name), why_not_lost, menu=MACHINE, section=1,
                   asks=Change.ENGINE),
        ActionSpec("take_over", "Take over", "Control the shown machine from this window, which only watches it now",
                   room.take_over, why_no_take_over, menu=MACHINE, section=1, asks=Change.ENGINE),
        ActionSpec("disconnect", "Disconnect", "Leave the shown machine; what runs there goes on",
                   lambda: room.leave(room.shown), why_not_far, menu=MACHINE, section=1, asks=Change.ENGINE),
        ActionSpec("switch_machine", "Switch machine…", "Show another machine in this window, by its first letters",
                   partial(switch, context), key="Ctrl+Shift+M", menu=MACHINE, section=2),
    ]  # fmt: skip


def switch(context: WindowContext) -> None:
    """Choose the machine that is shown."""
    from devexplorer.gui.actions.palette import CommandPalette, PaletteChoice  # when it is asked for

    room = room_of(context)
    choices = [
        PaletteChoice(machine.name, "shown" if machine is room.shown else state_words(link_of(machine)), True,
               partial(room.show, machine))
        for machine in room.machines
    ]  # fmt: skip
    choices += [
        PaletteChoice(one.host, "○ Not connected", True, partial(reconnect, context, one.host)) for one in room.known
    ]
    choices.append(PaletteChoice("Connect…", "another machine", True, partial(connect, context)))
    context.open_dialog(CommandPalette(choices, context.window, "Machines", "Which machine?"))


# --- connecting


def connect(context: WindowContext, host: str = "", python: str = "") -> ConnectDialog:
    """Choose a machine; `host`: begin to connect to this one."""
    from devexplorer.gui.machines.approach import BEFORE, ConnectDialog, OfferedMachine

    room = room_of(context)
    before = [OfferedMachine(one.host, BEFORE, one.python) for one in room.known]
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


def _show_configured(dialog: ConnectDialog, before: list[OfferedMachine], hosts: tuple[str, ...]) -> None:
    from shiboken6 import isValid

    from devexplorer.gui.machines.approach import CONFIGURED, OfferedMachine

    if isValid(dialog):  # closed since
        known = {one.host for one in before}
        dialog.show_known([*before, *(OfferedMachine(host, CONFIGURED) for host in hosts if host not in known)])


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
        link = link_of(room.find(host))
        if link is not None and link.live:
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
    """A machine that is being reconnected, or a script there, waits for a password or the like."""
    from devexplorer.gui.machines.approach import AskDialog

    room = room_of(context)
    dialog = AskDialog(approach, context.window)

    def close_when_over() -> None:
        link = link_of(room.find(approach.name))
        if link is None or link.state not in ("connecting", "reconnecting"):
            dialog.accept()

    room.changed.connect(close_when_over)
    dialog.finished.connect(lambda: room.changed.disconnect(close_when_over))
    context.open_dialog(dialog)


# --- a window that begins on another machine

HERE = "this machine"
"""What the line in the status bar is about that offers to start it."""


def begin_there(context: WindowContext, arguments: Namespace) -> None:
    """Connect to the machine that was named; nothing is started here until this machine is shown."""
    from devexplorer.core.machines.ssh.hosts import checked

    banner, here = context.banner, context.machine

    def offer() -> None:
        if context.machine.session is None:  # the user has given up connecting: nothing is shown
            words = "No machine is shown: connect to one, or start the engine of this machine."
            banner.say(words, about=HERE, action="Start this machine")

    def start(about: str) -> None:
        if about == HERE:
            context.shown.show(here)

    def withdraw() -> None:
        if banner.about == HERE:
            banner.clear()

    banner.action_chosen.connect(start)
    context.session_started.connect(withdraw)
    context.machine_shown.connect(withdraw)
    connect(context, checked(arguments.ssh), arguments.python or "").finished.connect(offer)
