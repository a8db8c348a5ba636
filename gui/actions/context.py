"""What actions, tabs and dialogs share: the state, the controller, the selection, and how to ask for what only the
window or the application can do. Main thread only.

A feature gets all it needs from here, so that the window need not know the feature.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QDialog, QFileDialog, QMenu, QPushButton, QWidget

from devexplorer.core.base import object_name
from devexplorer.core.records import Command, ObjectSnapshot, Row
from devexplorer.core.session import Change, Machine, Settings, State
from devexplorer.gui.actions.controller import Controller, places_of
from devexplorer.gui.forms.far_side import FarSide, WantedPath

if TYPE_CHECKING:
    from devexplorer.core.session.session import Session
    from devexplorer.gui.forms.dialog import FormDialog
    from devexplorer.gui.plots.time_axis import TimeAxis
    from devexplorer.gui.shell.app import Shown
    from devexplorer.gui.widgets import Banner
    from devexplorer.gui.widgets.notifications import Notifications


NEWS: Final = ~(Change.SAMPLES | Change.DETAILS | Change.POINTS)
MANY_ROWS: Final = 5_000
"""Columns of larger objects are read in steps by whoever sums them up, and not here, which would hold the window up."""


def safely(redraw: Callable[..., object], *arguments: object) -> None:
    """Redraw a part: one that fails does not keep the others from it."""
    try:
        redraw(*arguments)
    except Exception:
        sys.excepthook(*sys.exc_info())


class Selection:
    """`controller` knows which targets are selected."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._read: tuple[tuple[str, ...], list[ObjectSnapshot], list[tuple[str, Row]]] = ((), [], [])
        """The rows of the selection, kept with what they were read from: every action asks, and thousands can be
        selected."""
        self._flags: set[bool] | None = None
        """What `gradient_flags` gives for the same rows."""

    def rows(self) -> list[tuple[str, Row]]:
        """The selected targets that exist, each with its row."""
        targets, objects = self._controller.selection(), list(self._controller.state.objects.values())
        if (
            targets is not self._read[0]
            or not all(map(operator.is_, objects, self._read[1]))
            or len(objects) != len(self._read[1])
        ):
            rows = [(target, row) for target in targets if (row := self._controller.row(target)) is not None]
            self._read, self._flags = (targets, objects, rows), None
        return self._read[2]

    def tensors(self) -> list[str]:
        """Selected tensors, parameters and buffers with values."""
        return [target for target, row in self.rows() if row.kind != "module" and row.initialised]

    def parameters(self) -> list[str]:
        """Selected parameters of models."""
        return [target for target, row in self.rows() if row.kind == "parameter"]

    def gradient_flags(self) -> set[bool]:
        """What `requires_grad` is of the selected tensors and parameters, and of the parameters in what is selected."""
        rows = self.rows()
        if self._flags is None:
            flags = set()
            for table, places in places_of(self._controller.state, [target for target, _ in rows]).values():
                if len(table.rows) > MANY_ROWS and not table.is_ready:
                    return {True, False}
                asked = table.inside(places) & table.kinds("parameter" if table.rows[0].kind == "module" else "tensor")
                trains = table.column("traits").where(lambda traits: bool(traits[0]))
                flags |= set(map(bool, np.unique(trains[asked])))
            self._flags = flags
        return self._flags

    def model(self) -> str | None:
        """The one model that everything selected belongs to."""
        names = {object_name(target) for target, _ in self.rows()}
        models = [name for name in names if self._controller.state.objects[name].kind == "model"]
        return models[0] if len(models) == 1 else None

    # --- why an action is disabled

    def why_no_values(self) -> str | None:
        """Reason when one tensor with values is needed."""
        return self._controller.why_no_selection() or (
            None if len(self.tensors()) == 1 else "Select one tensor, parameter or buffer with values."
        )

    def why_no_target(self) -> str | None:
        """Reason when something that can be initialised or frozen is needed."""
        if (reason := self._controller.why_no_selection()) is not None:
            return reason
        kinds = {row.kind for _, row in self.rows()}
        return (
            None
            if kinds & {"module", "parameter", "tensor"}
            else "Select a model, a part of one, a parameter or a tensor."
        )

    def why_no_one_target(self) -> str | None:
        """The same, when it has to be one."""
        return self.why_no_target() or (None if len(self.rows()) == 1 else "Select one thing only.")

    def why_no_model(self) -> str | None:
        """Reason when the selection belongs to no one model."""
        return self._controller.why_no_selection() or (
            None if self.model() is not None else "Select one model, or something in it."
        )

    def model_has(self, field: str) -> bool:
        """Whether a field of the selected model's snapshot is filled."""
        model = self.model()
        return model is not None and bool(getattr(self._controller.state.objects[model], field))

    def the_model(self) -> str:
        """The selected model, for an action that is disabled without one."""
        model = self.model()
        assert model is not None, "an action that needs a model is disabled without one"
        return model


InBackground = Callable[[str, Callable[[], Any], Callable[[Any], None]], None]


class WindowWork(NamedTuple):
    """Something that the window does itself and that takes a while."""

    title: str
    done: float
    """0 to 1."""
    cancel: Callable[[], object]


class OtherMachines:
    """What the window asks about machines other than this one; a feature that has them says more."""

    def side(self, machine: Machine) -> FarSide | None:
        """Whom to ask about its files; None: they are this window's own."""

    def connected(self, name: str) -> Machine | None:
        """The machine of this name; None: it is not connected."""

    def show(self, machine: Machine) -> None:
        """Show this one."""

    def takes(self, command: Command) -> bool:
        """Whether another machine carries out a command in place of the one shown."""
        return False

    def offer(self, menu: QMenu) -> None:
        """List the machines that the selection can be copied to, at the end of a menu."""

    def keeps_open(self) -> bool:
        """Whether something is still being brought from one: the window closes once it is here."""
        return False

    def close(self, deadline_s: float) -> None:
        """At its end."""


class WorkKeeper:
    """What the window asks about work that would be lost with it; a feature that can save it says more."""

    def keep_copies(self, session: Session, folder: Path | None = None) -> None:
        """From now on keep a copy of unsaved work there, in case the window crashes, and offer the one of a window that
        has."""

    def make_way(self) -> None:
        """The user wants something of the engine."""

    def copy(self) -> bool:
        """Make a copy now, if there is work of which there is none; returns whether one is being made."""
        return False

    def may_close(self) -> bool:
        """Whether nothing would be lost; else the user is asked."""
        return True

    def end(self, *, unasked: bool) -> None:
        """At its end; `unasked`: the user could not be asked."""


class WindowContext(QObject):
    """One per window. Attributes hold what is current; signals say when that changes."""

    targets_selected = Signal(object)
    """Other rows are selected in the tree (tuple of targets)."""
    device_selected = Signal(str)
    """Another device card is selected."""
    session_started = Signal(object)
    """The `Session`."""
    machine_shown = Signal(object)
    """Another machine is shown (`Machine`)."""
    machines_changed = Signal()
    """The list of machines, which of them is shown, or the state of a link is another."""

    stirred = Signal()
    """Something is under way that goes on with each beat: beat quickly."""
    work_changed = Signal(object)
    """What the window works on itself (`WindowWork`); None: it is over."""
    closed = Signal()
    """The window goes down: what was begun has to be given back, without waiting."""

    redraw_requested = Signal(object)
    """Show these parts of the state now: something changed them without an event (`Change`)."""
    device_requested = Signal(object)
    """Select the card of this device (its id)."""
    target_requested = Signal(str, str)
    """Select something in the tree: name of the object, path in it or near it."""
    restart_requested = Signal()
    """Restart the engine, or start one if it was given up."""
    tour_requested = Signal()
    beaten = Signal()
    """After each beat of the window."""
    file_used = Signal(object, bool)
    """A file of the machine shown was opened or saved (Path); whether it is one of this machine, whichever is shown."""
    layout_opened = Signal(object)
    """Show a layout that was saved with a file (`Settings` with its fields)."""
    files_chosen = Signal(object)
    """Files of any kind to open (list of Path), of this machine."""
    far_files_chosen = Signal(object)
    """The same of the other machine that is shown."""
    settings_changed = Signal(object)
    """What is to be remembered (`Settings`): with the layout of the last start, which is asked for at the end."""
    texts_due = Signal()
    """Live numbers are to be shown as they are now: once or twice a second."""

    def __init__(
        self,
        window: QWidget,
        state: State,
        controller: Controller,
        settings: Settings,
        hint: Callable[[str], None],
    ) -> None:
        """`hint` shows one line that goes by itself."""
        super().__init__(window)
        self.window, self.state, self.controller, self.settings = window, state, controller, settings
        self.hint = hint
        self.selection = Selection(controller)
        self.targets: tuple[str, ...] = ()
        """What is selected in the tree."""
        self.device: str | None = None
        """The device whose card is selected."""
        self.machine = Machine()
        """The machine that is shown, or that a recording hides."""
        self.unseen: tuple[Machine, ...] = ()
        """Other machines, which go on while they are not shown."""
        self.axis: TimeAxis
        """Of the plots; the window sets it, and what follows."""
        self.banner: Banner
        """The line in the status bar."""
        self.notifications: Notifications
        self.add_bar: Callable[[QWidget], object]
        """Put a line above the panels, hidden."""
        self.add_status: Callable[[QWidget], object]
        """Put something into the status bar, on the right."""
        self.file_menu: QMenu
        self.again: QPushButton
        """Beside the heading of the objects, hidden: for what brings back the last ones."""
        self.shown: Shown
        """Which machine is shown, or what in its place; the application sets it."""
        self.others = OtherMachines()
        self.work = WorkKeeper()
        self.virtual_spec: str | None = None
        """The virtual GPUs that the window was started with."""
        self.session: Session | None = None
        self.settings_folder: Path
        """Where they are remembered; the application sets it."""
        self.folder = ""
        """Where the last file was chosen."""
        self.far: FarSide | None = None
        """The machine that is shown, when that is another one: its files are chosen, not those of this machine."""
        self.age = ""
        """How old what is shown is, where it is not of this moment: `8 s ago`; empty: it is."""
        self.current_settings: Callable[[], Settings] = lambda: self.settings
        """All settings as they are now; the window sets it."""
        self.in_background: InBackground
        """Do work on a thread of this name and give its result to a function at a later beat; the work raises nothing.
        The application sets it."""
        self.show_tab: Callable[[str], QWidget]
        """Bring a tab to the front and return its page; the bottom dock sets it."""
        self._refreshed: dict[Any, Change] = {}
        self._following: list[tuple[Change, Callable[[], object]]] = []

    # --- what is current

    def select_targets(self, targets: tuple[str, ...]) -> None:
        """Rows were selected in the tree."""
        self.targets = targets
        self.targets_selected.emit(targets)

    def select_device(self, device: str) -> None:
        """A device card was selected."""
        self.device = device
        self.device_selected.emit(device)

    def set_machine(self, machine: Machine) -> None:
        """This machine is shown from now on."""
        if machine is self.machine:
            return
        self.machine = machine
        self.far = self.others.side(machine)
        if machine.session is not None:
            self.set_session(machine.session)
        self.machine_shown.emit(machine)

    def set_session(self, session: Session) -> None:
        """The session started."""
        self.session = session
        self.session_started.emit(session)

    def now(self) -> float:
        """The moment of what is shown, by this window's clock: it stands still while nothing comes."""
        return self.machine.now()

    def redraw(self, changes: Change) -> None:
        """Show these parts of the state now: something changed them without an event."""
        self.redraw_requested.emit(changes)
        self._tell(changes)

    def save_settings(self, **fields: Any) -> None:
        """Remember these fields of `Settings` for the next start."""
        before, self.settings = self.settings, msgspec.structs.replace(self.settings, **fields)
        if self.settings != before:
            self.settings_changed.emit(self.settings)

    def remember(self, **fields: Any) -> None:
        """The same of what features remember."""
        self.save_settings(of_features={**self.settings.of_features, **fields})

    # --- what changes

    def follow(self, changes: Change, redraw: Callable[[], object]) -> None:
        """Call this whenever one of these parts of the state has changed. Readings and measured blocks, which come all
        the time, are not followed."""
        self._following.append((changes, redraw))

    def refresh(self, changes: Change) -> None:
        """Let those who follow what changed, and the open dialogs that show it, redraw."""
        for dialog, shown in tuple(self._refreshed.items()):
            if changes & shown:
                dialog.refresh()
        if changes & NEWS:
            self._tell(changes)
        self.beaten.emit()

    def _tell(self, changes: Change) -> None:
        for followed, redraw in self._following:
            if changes & followed:
                safely(redraw)

    # --- dialogs

    def open_dialog(self, dialog: QDialog, redraw: Change = Change.NOTHING, *, about_machine: bool = False) -> QDialog:
        """Open a dialog without waiting for it; call its `refresh` when anything of `redraw` changes. `about_machine`:
        it is about the machine shown, which its title names where that is another one."""
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if about_machine and self.far is not None:
            title = dialog.windowTitle()
            mark = "?" if title.endswith("?") else ""
            dialog.setWindowTitle(f"{title.removesuffix(mark)} on {self.far.name}{mark}")
        if self.far is not None:
            from devexplorer.gui.forms.file_field import FileField  # below the window from the start

            for field in dialog.findChildren(FileField):
                field.set_side(self.far)
        if redraw:
            self._refreshed[dialog] = redraw
            dialog.finished.connect(self._forget_closed)
        dialog.open()
        return dialog

    def ask(self, dialog: FormDialog, redraw: Change = Change.NOTHING) -> None:
        """Open a form whose commands go to the engine."""
        dialog.command_requested.connect(self.controller.send)
        self.open_dialog(dialog, redraw, about_machine=True)

    def _forget_closed(self) -> None:
        self._refreshed = {dialog: redraw for dialog, redraw in self._refreshed.items() if dialog.isVisible()}

    def save_file(
        self,
        title: str,
        name: str,
        formats: dict[str, str],
        chosen: Callable[[Path], None],
        *,
        by_window: bool = False,
        here: Callable[[Path], None] | None = None,
    ) -> QDialog:
        """Ask where to save; `formats`: suffix and description. `by_window`: the window writes the file, and not the
        machine that it shows. `here` takes a place on this machine for what the other one writes; without it the file
        is one of that machine."""
        if self.far is None or by_window:
            return self._save_here(title, name, formats, chosen)
        elsewhere = here and partial(self._save_here, f"{title} on this machine", name, formats, here)
        return self.far.choose(
            self.window, title, WantedPath.SAVE, lambda paths: chosen(paths[0]), formats=formats, name=name,
            elsewhere=elsewhere,
        )  # fmt: skip

    def _save_here(self, title: str, name: str, formats: dict[str, str], chosen: Callable[[Path], None]) -> QDialog:
        from devexplorer.gui.forms.save_dialog import SaveDialog

        dialog = SaveDialog(self.window, title, name, formats, self.folder)
        dialog.saved.connect(self._remember_folder)
        dialog.saved.connect(chosen)
        dialog.open()
        return dialog

    def choose_files(
        self,
        title: str,
        kinds: str,
        chosen: Callable[[list[Path]], None],
        *,
        several: bool = False,
        far: Callable[[list[Path]], None] | None = None,
        by_window: bool = False,
    ) -> None:
        """Ask which file, or which files, to open; `kinds` as Qt writes filters.

        They are of the machine that the window shows; if `by_window`, which reads them, of this one. If `far`, of
        either: `far` takes those of another machine.
        """
        if self.far is not None and not by_window:
            wanted = WantedPath.FILES if several else WantedPath.FILE
            elsewhere = far and partial(self._choose_here, f"{title} on this machine", kinds, chosen, several)
            self.far.choose(self.window, title, wanted, far or chosen, kinds=kinds, elsewhere=elsewhere)
        else:
            self._choose_here(title, kinds, chosen, several)

    def _choose_here(self, title: str, kinds: str, chosen: Callable[[list[Path]], None], several: bool) -> None:
        dialog = QFileDialog(
            self.window,
            title,
            self.folder,
            kinds,
            fileMode=QFileDialog.FileMode.ExistingFiles if several else QFileDialog.FileMode.ExistingFile,
        )

        def accepted(names: list[str]) -> None:
            paths = [Path(name) for name in names]
            self._remember_folder(paths[0])
            chosen(paths)

        dialog.filesSelected.connect(accepted)
        self.open_dialog(dialog)

    def _remember_folder(self, path: Path) -> None:
        self.folder = str(path.parent)
