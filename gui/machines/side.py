"""The machine that is shown, as the rest of the window asks it about its files and its Pythons. Main thread; nothing
waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePosixPath
from re import findall
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QEvent, QModelIndex, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QDialog, QWidget
from shiboken6 import isValid

from devexplorer.core.base import BadInput, bytes_text, count_text, printable, sentence
from devexplorer.core.environments.records import Environment, Probe
from devexplorer.core.files.kinds import FileKind
from devexplorer.core.files.script import marked
from devexplorer.core.isolation.model_classes import Candidate
from devexplorer.core.machines.records import (
    FindModels,
    FindPythons,
    Folder,
    FolderEntry,
    ListFolder,
    ProbePython,
    PythonsFound,
    RecogniseFiles,
    Text,
    WriteScript,
)
from devexplorer.core.session.settings import KnownMachine
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.forms.far_side import THIS_MACHINE, FoundPath, WantedPath
from devexplorer.gui.forms.save_dialog import named
from devexplorer.gui.widgets import (
    Cell,
    Choice,
    Column,
    RowsTable,
    TableRow,
    check_box,
    hbox,
    holder,
    label,
    line_edit,
    numbers,
    push_button,
)

if TYPE_CHECKING:
    from devexplorer.core.machines.window.machines import FarMachine
    from devexplorer.gui.actions import WindowContext
    from devexplorer.gui.environments.python_choice import Failed, Found, Probed
    from devexplorer.gui.machines.other_machines import FileCopies


class Side:
    """See `gui.forms.far_side.FarSide`."""

    folder = "~"

    def __init__(self, context: WindowContext, machine: FarMachine, copies: FileCopies) -> None:
        self._context, self._machine, self._copies = context, machine, copies
        self.name = machine.name
        self._ask: Any = machine.session.ask
        self.send, self.bring = copies.send, copies.bring
        self.save, self.fetch = copies.save, copies.fetch

    def files(self, parent: QObject, listed: Callable[[], object]) -> FarFiles:
        known = FarFiles(self._machine, parent)
        known.listed.connect(listed)
        return known

    def choose(
        self,
        parent: QWidget,
        title: str,
        wanted: WantedPath,
        chosen: Callable[[list[Path]], object],
        *,
        folder: str | None = None,
        elsewhere: Callable[[], object] | None = None,
        **more: Any,
    ) -> QDialog:
        folders = self._copies.folders
        begin = folders.get(self.name, "") if folder is None else folder
        here_too = elsewhere is not None
        dialog = FarFileDialog(parent, title, self._machine, wanted, begin, here_too=here_too, **more)

        def accepted(paths: list[Path]) -> None:
            if folder is None:
                folders[self.name] = str(paths[0].parent)
            chosen(paths)

        dialog.chosen.connect(accepted)
        if elsewhere is not None:
            dialog.elsewhere.connect(elsewhere)
        dialog.open()
        return dialog

    def recognise(self, paths: Sequence[Path], then: Callable[[list[FileKind]], object]) -> None:
        self._ask(
            RecogniseFiles(paths=tuple(map(str, paths))),
            lambda found: then([FileKind(Path(file.path), file.kind, file.reason) for file in found.files]),
            lambda problem: self._context.hint(f"The files on {self.name} could not be looked at: {problem}"),
        )

    def models_in(self, path: Path, then: Callable[[list[Candidate]], object]) -> None:
        self._ask(
            FindModels(path=str(path)),
            lambda found: then([Candidate(one.name, one.is_class, one.needs, one.guesses) for one in found.models]),
            lambda _: then([]),
        )

    def script(self, *, notebook: bool, then: Callable[[str], object]) -> None:
        def failed(problem: str) -> None:
            self._context.banner.say(problem, error=True)

        def came(answer: Text) -> None:
            try:
                text = marked(answer.text, self.name, is_notebook=notebook)
            except BadInput as error:
                failed(sentence(str(error)))
            else:
                then(text)

        self._ask(WriteScript(notebook=notebook), came, failed)

    # --- its Pythons

    @property
    def current_python(self) -> str:
        return self._machine.link.python

    def remember_python(self, python: str) -> None:
        known = self._context.settings.machines
        machines = (KnownMachine(one.host, python) if one.host == self.name else one for one in known)
        self._context.save_settings(machines=tuple(machines))

    def find_pythons(self, folder: str, then: Found, failed: Failed) -> None:
        self._find(FindPythons(folder=folder), then, failed)

    def given_python(self, path: str, then: Callable[[Environment], None], failed: Failed) -> None:
        self._find(FindPythons(path=path), lambda found: then(found[0]), failed)

    def probe_python(self, python: str, then: Probed) -> None:
        self._ask(ProbePython(path=python), lambda said: then(said.probe), lambda problem: then(Probe(problem=problem)))

    def _find(self, question: FindPythons, then: Found, failed: Failed) -> None:
        def came(answer: PythonsFound) -> None:
            then(answer.environments) if answer.environments else failed("There is none.")

        self._ask(question, came, failed)


# Files of another machine: what a field knows of them, and the dialog that chooses some, to open or to save. Main
# thread; folders are asked for and arrive at a later beat, so that a slow machine never holds the window up.

SIZE_PX = (680, 500)
HOME = "~"
ALL = "All files (*)"


ACCEPT = {WantedPath.FOLDER: "Choose", WantedPath.SAVE: "Save"}
"""The button that ends the dialog, where it does not open files."""


class FarFiles(QObject):
    """Asks for the folder of a path when that is first looked at, and keeps the answer as long as its field exists."""

    listed = Signal()
    """More is known."""

    def __init__(self, side: FarMachine, parent: QObject) -> None:
        super().__init__(parent)
        self.side = side
        self._folders: dict[str, Folder | str | None] = {}
        """What was asked for; None: not answered yet."""

    def look(self, path: Path) -> FoundPath:
        """What is at `path`, as far as it is known."""
        folder = FoundPath("folder", f"{path} is a folder; choose a file in it.")
        if path == path.parent or path.name in ("~", ".", ".."):
            return folder
        known = self._known(path.parent)
        if known is None:
            return FoundPath("unknown", f"Looking for {path} on {self.side.name}…")
        if isinstance(known, str):
            return FoundPath("nothing", f"On {self.side.name}: {known}")
        entry = next((entry for entry in known.entries if entry.name == path.name), None)
        if entry is not None and entry.is_folder:
            return folder
        if entry is not None or known.left_out:  # whoever opens it will see
            return FoundPath("file", "")
        return FoundPath("nothing", f"There is no file {path} on {self.side.name}.")

    def has_folder(self, path: Path) -> bool:
        """Whether this folder can be listed, as far as it is known."""
        return not isinstance(self._known(path), str)

    def whole(self, path: Path) -> Path:
        """The path from the root on, once it is known."""
        known = self._folders.get(str(path.parent))
        return Path(known.path, path.name) if isinstance(known, Folder) else path

    def _known(self, folder: Path) -> Folder | str | None:
        """What is known about a folder, which is asked for the first time."""
        name = str(folder)
        if name not in self._folders:
            self._folders[name] = None
            self.side.ask(ListFolder(path=name), partial(self._take, name))
        return self._folders[name]

    def _take(self, folder: str, answer: Folder | str) -> None:
        if isValid(self):  # its dialog can have been closed since
            self._folders[folder] = answer
            self.listed.emit()


class FarFileDialog(FormDialog):
    """`chosen` carries the paths on that machine (list of Path)."""

    chosen = Signal(object)
    elsewhere = Signal()
    """The user wants a file of this machine instead."""

    def __init__(
        self,
        parent: QWidget,
        title: str,
        side: FarMachine,
        wanted: WantedPath = WantedPath.FILE,
        folder: str = "",
        kinds: str = "",
        formats: Mapping[str, str] | None = None,
        name: str = "",
        *,
        ask: bool = True,
        here_too: bool = False,
    ) -> None:
        """`folder`: to begin with. `kinds` as Qt writes filters; `formats` and `name` as `SaveDialog` takes them. `ask`
        before replacing a file. `here_too`: a file of this machine would do as well."""
        super().__init__(f"{title} on {side.name}", ACCEPT.get(wanted, "Open"), SIZE_PX[0], parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(*SIZE_PX)
        self._side, self._wanted, self._ask = side, wanted, ask
        self._asked = ""
        """The folder that is waited for; empty: none is."""
        self._folder: Folder | None = None
        self._look_for = ""
        """What to select in the folder that is waited for."""
        self._failed = ""
        """Why the path that was typed is no folder, while its folder is looked at: it may be a file."""
        self.machine = Choice("Machine", [(True, side.name, ""), (False, THIS_MACHINE, "")])
        self.machine.activated.connect(self._change_machine)
        self.up_button = push_button("Up", self._up, tip="The folder above (Alt+Up)")
        self.home_button = push_button("Home", lambda: self._list(HOME), tip=f"Your home folder on {side.name}")
        self.path = line_edit(name="Folder", placeholder="path of a folder or a file; Enter goes there")
        self.path.installEventFilter(self)
        self.hidden = check_box("Hidden files", tip="Also those whose name begins with a dot")
        self.table = RowsTable(
            (Column("name"), numbers("size"), numbers("modified")), f"Files on {side.name}", [200, 90, 150], stretched=0
        )
        self.table.installEventFilter(self)
        if wanted is WantedPath.FILES:
            self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.name = line_edit(name, name="File name")
        saves = {f"{words} (*.{suffix})": suffix for suffix, words in (formats or {}).items()}
        opens = [kind for kind in kinds.split(";;") if kind]
        self._suffixes = saves
        self.kind = Choice("Files", [(_patterns(kind), kind, "") for kind in ([*saves] or [*opens, ALL])])
        self.overwrite = check_box("replace the existing file")
        for button in (self.up_button, self.home_button):
            button.setAutoDefault(False)
        if here_too:
            self.add_row("machine", self.machine)
        self.add_row("folder", holder(hbox((self.path, 1), self.up_button, self.home_button)))
        self.add_part(self.table, 1)
        self._saving = holder(hbox(label("Name", words="dim"), (self.name, 1), self.overwrite))
        self._saving.setVisible(wanted is WantedPath.SAVE)
        self.add_part(self._saving)
        self.add_part(hbox(self.hidden, None, self.kind))
        self.kind.setVisible(wanted is not WantedPath.FOLDER)
        self._connect()
        self._list(folder or HOME)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._wanted is WantedPath.SAVE:  # the name is ready to be typed over, all but its extension
            self.name.setFocus(Qt.FocusReason.OtherFocusReason)
            self.name.setSelection(0, len(PurePosixPath(self.name.text()).stem))

    def _connect(self) -> None:
        self.hidden.toggled.connect(self._fill)
        self.kind.activated.connect(self._change_kind)
        self.table.activated.connect(self._activated)
        self.table.selected.connect(self._selected)
        self.name.textChanged.connect(self._check)
        self.overwrite.toggled.connect(self._check)

    # --- going to a folder

    def _list(self, path: str, look_for: str = "") -> None:
        """Ask what is in this folder, and select something in it."""
        self._asked, self._look_for = path, look_for
        self._check()
        self._side.ask(ListFolder(path=path), partial(self._show, path))

    def _show(self, path: str, answer: Folder | str) -> None:
        if not isValid(self) or path != self._asked:  # closed since, or another one was asked for
            return
        wanted, failed = self._look_for, self._failed
        above = PurePosixPath(path).parent
        if isinstance(answer, str) and not wanted and str(above) not in (path, "."):
            self._failed = answer
            self._list(str(above), PurePosixPath(path).name)
            return
        self._asked = self._failed = ""
        if isinstance(answer, str) or (failed and not any(entry.name == wanted for entry in answer.entries)):
            self.say(f"On {self._side.name}: {sentence(printable(failed or str(answer)))}", wrong=True)
            return
        self._folder = answer
        self.path.setText(answer.path)
        self._fill()
        self.table.scrollToTop()
        if wanted:
            self.table.select_key(wanted)

    def _up(self) -> None:
        if self._folder is not None:
            here = PurePosixPath(self._folder.path)
            self._list(str(here.parent), here.name if here != here.parent else "")

    def _fill(self) -> None:
        """The entries of the folder that are wanted."""
        if self._folder is None:
            return
        patterns = self.kind.value or ("*",)
        self.table.set_rows(
            [
                _row(entry)
                for entry in self._folder.entries
                if (self.hidden.isChecked() or not entry.name.startswith("."))
                and (
                    entry.is_folder
                    or (self._wanted is not WantedPath.FOLDER and any(fnmatch(entry.name, one) for one in patterns))
                )
            ]
        )
        self._check()

    # --- choosing

    def _entries(self) -> list[FolderEntry]:
        """The selected ones."""
        if self._folder is None:
            return []
        names = {self.table.rows[row].key for row in self.table.selected_rows}
        return [entry for entry in self._folder.entries if entry.name in names]

    def _selected(self) -> None:
        entries = self._entries()
        if self._wanted is WantedPath.SAVE and len(entries) == 1 and not entries[0].is_folder:
            self.name.setText(entries[0].name)
        self._check()

    def _activated(self, index: QModelIndex) -> None:
        """Double-click or Enter: into a folder, or this file."""
        assert self._folder is not None
        key = self.table.rows[index.row()].key
        entry = next(entry for entry in self._folder.entries if entry.name == key)
        if entry.is_folder:
            self._list(str(PurePosixPath(self._folder.path, entry.name)))
        elif self.accept_button.isEnabled():
            self._accept()

    def _change_kind(self) -> None:
        if self._suffixes:
            self.name.setText(named(self.name.text().strip(), self._suffix, self._suffixes.values()))
        self._fill()

    @property
    def _suffix(self) -> str:
        return self._suffixes[self.kind.currentText()]

    def _change_machine(self) -> None:
        if self.machine.value:
            self._check()
        else:
            self.reject()
            self.elsewhere.emit()

    def paths(self) -> list[Path]:
        """What is chosen now."""
        if self._folder is None:
            return []
        folder = Path(self._folder.path)
        entries = self._entries()
        if self._wanted is WantedPath.SAVE:
            name = named(self.name.text().strip(), self._suffix, self._suffixes.values())
            return [folder / name] if name else []
        if self._wanted is WantedPath.FOLDER:
            return [folder / entries[0].name if entries else folder]
        return [folder / entry.name for entry in entries if not entry.is_folder]

    def _check(self) -> None:
        """Say what would be chosen, or what is missing."""
        self.overwrite.setVisible(False)
        if self._asked:
            self.say(f"Reading {printable(self._asked)} on {self._side.name}…", ready=False)
        else:
            self._check_paths(self.paths())

    def _check_paths(self, paths: list[Path]) -> None:
        if self._folder is None:
            self.say("", ready=False)
        elif self._wanted is WantedPath.SAVE:
            self._check_saving(paths)
        elif not paths:
            entries = self._entries()
            self.say("" if entries else self._what_is_there(), ready=bool(entries))
        else:
            size = sum(entry.size_bytes for entry in self._entries())
            several = f"{count_text(len(paths), 'file')}, {bytes_text(size)}"
            self.say(several if self._wanted is not WantedPath.FOLDER else printable(str(paths[0])))

    def _check_saving(self, paths: list[Path]) -> None:
        assert self._folder is not None
        name = paths[0].name if paths else ""
        there = next((entry for entry in self._folder.entries if entry.name == name), None)
        self.overwrite.setVisible(there is not None and not there.is_folder and self._ask)
        if not name:
            self.say("Enter a file name.", ready=False)
        elif "/" in self.name.text():
            self.say("A file name has no slash in it; go to the folder first.", wrong=True)
        elif there is not None and there.is_folder:
            self.say(f"{printable(name)} is a folder; choose another name.", wrong=True)
        elif there is not None and self._ask and not self.overwrite.isChecked():
            self.say(f"{printable(name)} exists; tick the box to replace it.", wrong=True)
        else:
            self.say(f"Saves to {printable(name)} on {self._side.name}.")

    def _what_is_there(self) -> str:
        assert self._folder is not None
        if self._folder.left_out:
            more = count_text(self._folder.left_out, "more entry").replace("entrys", "entries")
            return f"{more} of this folder are not listed: type the path of the file, then press Enter."
        if not self.table.rows:
            return "There are no such files in this folder." if self._folder.entries else "The folder is empty."
        return ""

    def _accept(self) -> None:
        """A folder is entered; files are chosen."""
        entries, paths = self._entries(), self.paths()
        if not paths and len(entries) == 1 and self._folder is not None:
            self._list(str(PurePosixPath(self._folder.path, entries[0].name)))
        elif paths:
            self.accept()
            self.chosen.emit(paths)

    # --- keys

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Enter in the line of the path goes there, and Alt+Up or Backspace in the list goes up."""
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            key = event.key()
            if watched is self.path and key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._list(self.path.text().strip() or HOME)
                return True
            if watched is self.table and (
                key == Qt.Key.Key_Backspace
                or (key == Qt.Key.Key_Up and event.modifiers() & Qt.KeyboardModifier.AltModifier)
            ):
                self._up()
                return True
        return super().eventFilter(watched, event)


def _row(entry: FolderEntry) -> TableRow:
    name = printable(entry.name)
    modified = "" if entry.modified_unix_s <= 0 else f"{datetime.fromtimestamp(entry.modified_unix_s):%Y-%m-%d %H:%M}"
    if entry.is_folder:
        return TableRow(entry.name, (Cell(f"{name}/"), Cell(""), Cell(modified, "dim")))
    return TableRow(entry.name, (Cell(name, "", name), Cell(bytes_text(entry.size_bytes, 1)), Cell(modified, "dim")))


def _patterns(kind: str) -> tuple[str, ...]:
    """`Python (*.py *.ipynb)` -> the patterns in it."""
    return tuple(findall(r"\*[^\s()]*", kind)) or ("*",)
