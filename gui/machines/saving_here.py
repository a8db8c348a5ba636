"""A file that the machine shown writes for this one: written there by a command or a question, brought here, with
progress and a cancel. Main thread; nothing waits."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from devexplorer.core.base import printable
from devexplorer.core.machines.window.bringing import Bringing, Written
from devexplorer.core.records import Cancel, Save, SaveWorkspace, SentFrom
from devexplorer.core.session import State
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.machines.copies import CopyDialog
from devexplorer.gui.machines.room import MachineRoom

if TYPE_CHECKING:
    from devexplorer.core.machines.window.machines import FarMachine
    from devexplorer.gui.forms.far_side import Saving


Begin = Callable[[str, Written], None]
"""Has a file written to this path there; `Written` gets nothing, or one sentence that says what went wrong."""


class WritingCommand:
    """A command to the engine there."""

    def __init__(self, machine: FarMachine, command: Saving, place: Path, whole: Callable[[str], None]) -> None:
        """`whole` gets the path there as soon as the file is."""
        self._machine, self._command, self._place, self._whole = machine, command, place, whole
        self.request = 0
        """The number that it was sent with; 0: it was not."""
        self._path = ""
        self._written: Written | None = None

    def begin(self, path: str, written: Written) -> None:
        """See `Begin`."""
        known_as = SentFrom(machine=platform.node(), path=str(self._place))
        command = replace(self._command, path=path, sent_to=known_as)
        if isinstance(command, Save | SaveWorkspace):
            command = replace(command, overwrite=True)  # the copy; about the file here the dialog asked
        self._path, self._written = path, written
        self.request = self._machine.session.send(command)
        if not self.request:
            self._end(self._machine.session.why_not())

    def look(self, state: State) -> None:
        """The state of that machine has changed."""
        if self._written is None:
            return
        done = next((one for one in reversed(state.done) if one.command.request == self.request), None)
        if done is not None and done.ok:
            self._whole(self._path)
            self._end("")
        elif done is not None:
            self._end(done.answer.words if done.answer is not None else "The engine ended before the file was written.")
        elif not self._machine.session.is_running(self.request):
            self._end(f"The connection to {self._machine.name} broke before the file was written.")

    def leave(self) -> None:
        """The user does not want it any more."""
        if self._written is not None and self.request:
            self._written = None
            self._machine.session.send(Cancel(job=self.request))

    def _end(self, problem: str) -> None:
        written, self._written = self._written, None
        if written is not None:
            written(problem)


class SavingHere:
    """`start`, then `look` at every change of the state."""

    def __init__(
        self,
        context: WindowContext,
        room: MachineRoom,
        machine: FarMachine,
        place: Path,
        write: Begin,
        over: Callable[[SavingHere], None],
        command: WritingCommand | None,
        *,
        keep: bool,
    ) -> None:
        """`over` is called at the end. `command`: what writes it, where that is one. `keep`: the copy there stays."""
        self._context, self._machine, self._command, self._over = context, machine, command, over
        self._dialog = CopyDialog(context)
        name = place.name.encode(errors="replace").decode()  # a name that is no text cannot cross the link
        self.name = printable(name)
        """Of the file."""
        ends = room.end_of(machine), room.end_of(room.machines[0])
        self._bringing = Bringing(str(place), name, *ends, write, self._dialog.refresh, keep=keep)
        self._dialog.follow(self._bringing, f"Save {self.name} on this machine")
        self._dialog.over.connect(self._end)

    @property
    def saved(self) -> bool:
        """Whether the file is in its place."""
        return self._bringing.stage == "sent"

    def start(self) -> None:
        """Begin."""
        self._dialog.show_late()
        self._bringing.start()

    def show(self) -> None:
        """Show how far it is."""
        if not self._bringing.over:
            self._dialog.show()

    def look(self) -> None:
        """Follow what writes, and say when nothing comes because there is no connection."""
        if self._command is not None:
            on_show = self._context.machine is self._machine and self._context.state.recording is None
            self._command.look(self._context.state if on_show else self._machine.aside)
        if not self._bringing.over:
            self._dialog.wait_for("" if self._machine.link.live else self._machine.name)

    def _end(self) -> None:
        bringing = self._bringing
        if bringing.stage == "cancelled":
            if self._command is not None:
                self._command.leave()
            self._context.hint(f"{self.name} was not saved.")
        elif bringing.stage == "failed":
            self._context.hint(f"{self.name} could not be saved on this machine. {bringing.problem}")
        else:
            self._context.hint(f"{bringing.words}.")
        self._over(self)
