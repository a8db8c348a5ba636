"""The other machines of a window: the button with their menu; adds them to what goes on behind it, and says how the
link of the one shown stands. Main thread only."""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QFrame, QMenu

from devexplorer.core.base import joined, printable
from devexplorer.core.files.records import Save, SaveWorkspace
from devexplorer.core.machines.window.link import (
    CANCEL,
    REMOVE,
    TAKE_OVER,
    age_text,
    alarm_words,
    bar_words,
    link_of,
    link_words,
    moment_words,
    old_text,
    rates_words,
    state_words,
    why,
)
from devexplorer.core.records import Cancel, Command, SentFrom
from devexplorer.core.session.machine import Machine
from devexplorer.gui.actions import MACHINE, OtherMachines, WindowContext, fill_menu, refresh
from devexplorer.gui.forms.far_side import CopiedFile, FarSide
from devexplorer.gui.machines.actions import reconnect
from devexplorer.gui.machines.copies import Copies, CopyDialog
from devexplorer.gui.machines.room import MachineRoom, room_of
from devexplorer.gui.widgets import ElidedLabel, Sign, hbox, push_button, show_text

if TYPE_CHECKING:
    from devexplorer.core.machines.window.file_copying import FileCopying
    from devexplorer.core.machines.window.machines import FarMachine
    from devexplorer.gui.forms.far_side import Saving
    from devexplorer.gui.machines.side import Side
    from devexplorer.gui.shell.main_window import MainWindow

ALONE = "Machine"
NAME_PX = 132
"""Of the name of the machine shown, at most."""
TIP = "The machine that this window shows: connect to others, switch between them (Ctrl+Shift+M)"
MOST_KNOWN = 8


class MachineMenu(QObject):
    """Adds the button, fills its menu whenever that is opened, and has it name the machine shown."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._context, self._toolbar = window.context, window.toolbar
        self._button = self._toolbar.add_machine_button()
        # the pages first
        self._specs = sorted((spec for spec in window.specs if spec.menu == MACHINE), key=lambda spec: bool(spec.key))
        self._actions = window.actions_by_id
        self._room = room_of(window.context)
        self._button.menu().aboutToShow.connect(self._fill)
        self._room.changed.connect(self._name)
        self._name()
        self._fill()

    def _name(self) -> None:
        """Say which machine is shown once there are several."""
        shown, several = self._room.shown, len(self._room.machines) > 1
        name = shown.name[:1].upper() + shown.name[1:] if shown.is_here else shown.name
        link = link_of(shown)
        sign = "" if link is None or (link.live and not link.watching) else f"{state_words(link)[0]} "
        others = (machine for machine in self._room.machines if machine is not shown)
        alarmed = [f"{machine.name}: {alarm_words(machine.aside)}" for machine in others if alarm_words(machine.aside)]
        words = ALONE
        if several:
            words = f"{sign}{name}{' ✕' if alarmed else ''}"
        short = self._button.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, NAME_PX)
        self._toolbar.name_machine(f"{short} ▾".replace("&", "&&"), several)
        spoken = ", ".join((f"Machine: {shown.name}", *alarmed))
        self._button.setAccessibleName(spoken if several else ALONE)
        state = "" if link is None else f"{shown.name}: {state_words(link)[2:]}. {why(link)}".rstrip()
        self._button.setToolTip(joined("\n", state, *alarmed, TIP))

    def _fill(self) -> None:
        menu = self._button.menu()
        menu.clear()
        group = QActionGroup(menu)
        for machine in self._room.machines:
            link = link_of(machine)
            state = "" if link is None else state_words(link)
            age = "" if link is None or link.live else age_text(link.reading_age_s)
            now = self._context.state if machine is self._room.shown else machine.aside
            about = joined(", ", state, age and f"readings {age} old", alarm_words(now))
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

    def show_link(self, machine: FarMachine | None, leave: Callable[[FarMachine], None]) -> None:
        """What is to be said about the machine shown; None: it is this one."""
        words = button = ""
        if machine is not None:
            words, button = bar_words(machine.name, machine.link, machine.now(), late=machine.is_late)
            session = machine.session
            acts: dict[str, Callable[[], None]] = {
                CANCEL: session.disconnect,
                TAKE_OVER: session.take_over,
                REMOVE: partial(leave, machine),
            }
            self._act = acts.get(button, session.reconnect)
        self.words.set_full_text(words)
        show_text(self.button, button)
        if self.isHidden() == bool(words):
            self.setVisible(bool(words))


class MachinesOfWindow(OtherMachines):
    """Besides the menu, what the first of them loads is made with it: the bar, how each is asked."""

    def __init__(self, context: WindowContext) -> None:
        self._context = context
        window = self._window = cast("MainWindow", context.window)
        self._room = room_of(window.context)
        self._room.on_first, self._room.on_change = self._begin, self._changed
        self._files = FileCopies(window.context)
        self._copies = Copies(window.context)
        window.hidden_changed.connect(self.set_hidden)
        MachineMenu(window)
        self._sides: dict[Machine, Side] = {}
        self._hidden = False
        self.bar: MachineBar

    def _begin(self) -> None:
        self.bar = MachineBar()
        self._context.add_bar(self.bar)
        self._room.beaten.connect(self._beat)

    def _changed(self) -> None:
        from devexplorer.gui.machines.side import Side

        self._sides = {
            machine: self._sides.get(machine) or Side(self._context, machine, self._files)
            for machine in self._room.others
        }
        self._context.shown.set_machines(self._room.machines)
        self.set_hidden(self._hidden)
        self._context.machines_changed.emit()

    # --- what the window asks

    def side(self, machine: Machine) -> FarSide | None:
        return self._sides.get(machine)

    def connected(self, name: str) -> Machine | None:
        return next((machine for machine in self._room.others if machine.name == name and machine.link.live), None)

    def show(self, machine: Machine) -> None:
        self._room.show(machine)

    def takes(self, command: Command) -> bool:
        return self._room.takes(command)

    def offer(self, menu: QMenu) -> None:
        self._copies.offer(menu)

    def keeps_open(self) -> bool:
        return self._files.keeps_open()

    def set_hidden(self, hidden: bool) -> None:
        """Of machines that are not looked at a reading a second is enough."""
        self._hidden = hidden
        for machine in self._room.others:
            machine.session.set_hidden(hidden or machine is not self._context.machine)

    def _beat(self) -> None:
        """Keep the links, and say what is not as it looks."""
        context, window = self._context, self._window
        replays = context.shown.instead is not None
        far = next((one for one in self._room.others if one is context.machine and not replays), None)
        self.bar.show_link(far, self._room.leave)
        link = far.link if far is not None and far.is_late else None
        age = ("", "")
        if link is not None and link.reading_age_s is not None:
            age = f"{old_text(link.reading_age_s)} ago", moment_words(link, context.now())
        context.age = age[0]
        for panel in (window.devices, window.workbench):
            panel.set_age(*age)
        words = ("", "") if far is None else (f"{far.name}: {link_words(far.link)}", rates_words(far.link))
        window.status.show_machine(far, *words, self._instead_of_engine(), age[0])
        window.axis.set_still(replays or link is not None, age[0])

    def _instead_of_engine(self) -> str:
        """What the status bar says while no engine starts: this window has none here, or a host is not reached yet."""
        shown = self._context.machine
        for machine in self._room.others if shown.session is None else (shown,):
            if (link := link_of(machine)) is not None and link.state == "connecting":
                return f"connecting to {machine.name}"
        return "engine: not started" if shown.session is None else ""

    def close(self, deadline_s: float) -> None:
        """End the connections; what runs there goes on."""
        self._room.close(deadline_s)


def begin(context: WindowContext) -> None:
    """The window can show other machines."""
    context.others = MachinesOfWindow(context)


# Files that are opened or saved where they are not: those of this machine are sent to the one shown, those of that
# one are brought here. One after the other, with progress and a cancel. Main thread; nothing waits.

Then = Callable[[CopiedFile], object]
Written = Callable[[str], None]
"""Gets nothing when the file is whole, or one sentence that says what went wrong."""
Begin = Callable[[str, Written], None]
"""Has a file written to this path there; `Written` gets nothing, or one sentence that says what went wrong."""


class FileCopies(QObject):
    """`send` or `bring` a file to open it: what was asked for gets its copy, unless another machine is shown by then.
    `save` or `fetch` what the machine shown writes for this one: it arrives whichever is shown."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self._room = room_of(context)
        self._waiting: deque[Callable[[], None]] = deque()
        self._copying: FileCopying | SavingHere | None = None
        self._saves: list[SavingHere] = []
        """Those that wait or are under way, in their order."""
        self._closes = False
        """The window closes once everything is saved."""
        self.folders: dict[str, str] = {}
        """Where the last file was chosen on each machine."""
        self._room.beaten.connect(self._look)

    def send(self, path: Path, then: Then, place: Path | None = None) -> None:
        self._queue(partial(self._begin, self._room.here, self._room.shown, path, then, place))

    def bring(self, path: Path, then: Then) -> None:
        self._queue(partial(self._begin, self._room.shown, self._room.here, path, then))

    def save(
        self,
        place: Path,
        command: Saving,
        *,
        written: Then | None = None,
        arrived: Callable[[int], object] = lambda request: None,
    ) -> None:
        from devexplorer.core.machines.records import WorkspaceArrived

        machine = self._shown_far()

        def saved(request: int) -> None:
            arrived(request)
            if isinstance(command, SaveWorkspace):
                machine.ask(WorkspaceArrived(request=request), answered)

        def answered(answer: object) -> None:
            if isinstance(answer, str):
                words = f"{place.name} is saved, but {machine.name} does not know that it is. {answer}"
                self._context.hint(words)

        def whole(path: str) -> None:
            if written is not None:
                origin = SentFrom(machine=platform.node(), path=str(place))
                written(CopiedFile(Path(path), origin, self._forgets(machine, path)))

        self._save(machine, place, saved, command=command, whole=whole, keep=written is not None)

    def fetch(self, place: Path, write: Callable[[str, Callable[[str], None]], None]) -> None:
        self._save(self._shown_far(), place, lambda request: None, write=write)

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
        from devexplorer.core.machines.records import ForgetCopy

        ask = self._room.end_of(machine).ask
        return lambda: ask(ForgetCopy(path=path), lambda _: None)

    def _save(self, machine: FarMachine, place: Path, arrived: Callable[[int], object], **how: Any) -> None:
        """`how`: see `SavingHere`."""

        def over(saving: SavingHere) -> None:
            self._saves.remove(saving)
            self._copying = None
            if saving.saved:
                arrived(saving.request)
            self._closes = self._closes and saving.saved
            if self._closes and not self._saves:
                self._context.window.close()
            self._next()

        def begin() -> None:
            self._copying = saving
            saving.start()

        saving = SavingHere(self._context, self._room, machine, place, over, **how)
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


class SavingHere:
    """A file that another machine writes for this one: `start`, then `look` at every change of the state."""

    def __init__(
        self,
        context: WindowContext,
        room: MachineRoom,
        machine: FarMachine,
        place: Path,
        over: Callable[[SavingHere], None],
        *,
        write: Begin | None = None,
        command: Saving | None = None,
        whole: Callable[[str], None] = lambda path: None,
        keep: bool = False,
    ) -> None:
        """`over` is called at the end. `write` has it written, or else this `command` to the engine there; `whole` gets
        the path there as soon as the file is. `keep`: the copy there stays."""
        from devexplorer.core.machines.window.file_copying import Bringing  # with the first one

        self._context, self._machine, self._place, self._over = context, machine, place, over
        self._command, self._whole = command, whole
        self.request = 0
        """The number that the command was sent with; 0: it was not."""
        self._path = ""
        self._written: Written | None = None
        """Told once the command has written; None: it has ended."""
        self._dialog = CopyDialog(context)
        name = place.name.encode(errors="replace").decode()  # a name that is no text cannot cross the link
        self.name = printable(name)
        """Of the file."""
        ends = room.end_of(machine), room.end_of(room.here)
        self._bringing = Bringing(str(place), name, *ends, write or self._send, self._dialog.refresh, keep=keep)
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
        if self._written is not None:
            self._follow()
        if not self._bringing.over:
            self._dialog.wait_for("" if self._machine.link.live else self._machine.name)

    def _send(self, path: str, written: Written) -> None:
        assert self._command is not None
        known_as = SentFrom(machine=platform.node(), path=str(self._place))
        command = replace(self._command, path=path, sent_to=known_as)
        if isinstance(command, Save | SaveWorkspace):
            command = replace(command, overwrite=True)  # the copy; about the file here the dialog asked
        self._path, self._written = path, written
        self.request = self._machine.session.send(command)
        if not self.request:
            self._say(self._machine.session.why_not())

    def _follow(self) -> None:
        is_shown = self._context.machine is self._machine and self._context.state.recording is None
        state = self._context.state if is_shown else self._machine.aside
        done = next((one for one in reversed(state.done) if one.command.request == self.request), None)
        if done is not None and done.ok:
            self._whole(self._path)
            self._say("")
        elif done is not None:
            self._say(done.answer.words if done.answer is not None else "The engine ended before the file was written.")
        elif not self._machine.session.is_running(self.request):
            self._say(f"The connection to {self._machine.name} broke before the file was written.")

    def _say(self, problem: str) -> None:
        written, self._written = self._written, None
        if written is not None:
            written(problem)

    def _end(self) -> None:
        bringing = self._bringing
        if bringing.stage == "cancelled":
            if self._written is not None and self.request:
                self._written = None
                self._machine.session.send(Cancel(job=self.request))
            self._context.hint(f"{self.name} was not saved.")
        elif bringing.stage == "failed":
            self._context.hint(f"{self.name} could not be saved on this machine. {bringing.problem}")
        else:
            self._context.hint(f"{bringing.words}.")
        self._over(self)
