"""Files that are opened or saved where they are not: those of this machine are sent to the one shown, those of that
one are brought here. One after the other, with progress and a cancel. Main thread; nothing waits.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from devexplorer.core.base import printable
from devexplorer.core.records import SentFrom
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.forms.far_side import CopiedFile
from devexplorer.gui.machines.copies import CopyDialog
from devexplorer.gui.machines.room import MachineRoom, room_of

if TYPE_CHECKING:
    from devexplorer.core.machines.window.file_copying import FileCopying
    from devexplorer.core.machines.window.machines import FarMachine
    from devexplorer.core.session.machine import Machine
    from devexplorer.gui.forms.far_side import Saving
    from devexplorer.gui.machines.saving_here import Begin, SavingHere, WritingCommand

Then = Callable[[CopiedFile], None]


class FileCopies(QObject):
    """`send` or `bring` a file to open it: what was asked for gets its copy, unless another machine is shown by then.
    `save` or `fetch` what the machine shown writes for this one: it arrives whichever is shown."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self._room: MachineRoom = room_of(context)
        self._waiting: deque[Callable[[], None]] = deque()
        self._copying: FileCopying | SavingHere | None = None
        self._saves: list[SavingHere] = []
        """Those that wait or are under way, in their order."""
        self._closes = False
        """The window closes once everything is saved."""
        context.file_copies = self
        context.state_changed.connect(self._look)

    def send(self, path: Path, then: Then, place: Path | None = None) -> None:
        """Have a file of this machine on the one that is shown, at `place`, or where it is for as long as the host
        lives."""
        self._queue(partial(self._begin, self._room.machines[0], self._room.shown, path, then, place))

    def bring(self, path: Path, then: Then) -> None:
        """Have a file of the machine shown on this one."""
        self._queue(partial(self._begin, self._room.shown, self._room.machines[0], path, then))

    def save(
        self,
        place: Path,
        command: Saving,
        *,
        written: Then | None = None,
        arrived: Callable[[int], None] = lambda request: None,
    ) -> None:
        """Have that machine carry out a command that writes a file, and have the file at `place` here. `written` takes
        the copy there, which is removed at the end otherwise; `arrived` gets the number of the command."""
        from devexplorer.gui.machines.saving_here import WritingCommand  # with the first one

        machine = self._shown_far()

        def whole(path: str) -> None:
            if written is not None:
                origin = SentFrom(machine=platform.node(), path=str(place))
                written(CopiedFile(Path(path), origin, self._forgets(machine, path)))

        writing = WritingCommand(machine, command, place, whole)
        self._save(machine, place, writing.begin, writing, lambda: arrived(writing.request), keep=written is not None)

    def fetch(self, place: Path, write: Callable[[str, Callable[[str], None]], None]) -> None:
        """Have a file at `place` here that `write` has that machine write to the path that it gets; it calls the
        function when the file is whole, or with one sentence when it was not written."""
        self._save(self._shown_far(), place, write)

    def keeps_open(self) -> bool:
        """Whether something is still being saved here; the window closes once it is."""
        if self._saves:
            self._closes = True
            self._saves[0].show()
            self._context.hint(f"The window closes when {self._saves[0].name} is saved.")
        return bool(self._saves)

    def _shown_far(self) -> FarMachine:
        return next(machine for machine in self._room.others if machine is self._room.shown)

    def _forgets(self, machine: Machine, path: str) -> Callable[[], None]:
        """What removes a copy there."""
        from devexplorer.core.machines.questions import ForgetCopy

        ask = self._room.end_of(machine).ask
        return lambda: ask(ForgetCopy(path=path), lambda _: None)

    def _save(
        self,
        machine: FarMachine,
        place: Path,
        write: Begin,
        command: WritingCommand | None = None,
        arrived: Callable[[], None] = lambda: None,
        *,
        keep: bool = False,
    ) -> None:
        from devexplorer.gui.machines.saving_here import SavingHere

        def over(saving: SavingHere) -> None:
            self._saves.remove(saving)
            self._copying = None
            if saving.saved:
                arrived()
            self._closes = self._closes and saving.saved
            if self._closes and not self._saves:
                self._context.window.close()
            self._next()

        def begin() -> None:
            self._copying = saving
            saving.start()

        saving = SavingHere(self._context, self._room, machine, place, write, over, command, keep=keep)
        self._saves.append(saving)
        self._queue(begin)

    def _look(self) -> None:
        if self._saves:
            self._saves[0].look()

    def _queue(self, begin: Callable[[], None]) -> None:
        self._waiting.append(begin)
        self._next()

    def _next(self) -> None:
        if self._copying is None and self._waiting:
            self._waiting.popleft()()

    def _begin(self, source: Machine, target: Machine, path: Path, then: Then, place: Path | None = None) -> None:
        from devexplorer.core.machines.window.file_copying import FileCopying  # with the first copy

        far = target if source.is_here else source
        ends = self._room.end_of(source), self._room.end_of(target)
        dialog = CopyDialog(self._context)
        name = path.name.encode(errors="replace").decode()  # a name that is no text cannot cross the link
        arrived = partial(self._arrived, source, target, path, then)
        copying = self._copying = FileCopying(str(path), name, *ends, arrived, dialog.refresh, str(place or ""))
        dialog.follow(copying, f"Open {printable(name)} {'on' if source.is_here else 'from'} {far.name}")
        dialog.over.connect(partial(self._over, copying))
        dialog.show_late()
        copying.start()

    def _arrived(self, source: Machine, target: Machine, path: Path, then: Then, place: str) -> None:
        origin = SentFrom(machine=platform.node() if source.is_here else source.name, path=str(path))
        copied = CopiedFile(Path(place), origin, self._forgets(target, place))
        far = target if source.is_here else source
        if far is self._room.shown:
            then(copied)
        else:
            copied.remove()
            self._context.hint(f"{printable(path.name)} was not opened: {far.name} is no longer shown.")

    def _over(self, copying: FileCopying) -> None:
        self._copying = None
        name = printable(copying.what)
        if copying.stage == "cancelled":
            self._context.hint(f"{name} was not opened.")
        elif copying.stage == "failed":
            self._context.hint(f"{name} could not be copied to {copying.target.name}. {copying.problem}")
        self._next()
