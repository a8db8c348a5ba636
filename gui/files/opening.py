"""Opens files of any kind that were dropped on the window or chosen: each by what it is. Main thread only.

Looking at them can wait for a disk or a network, so a thread does it; `show` takes the result. A recording and a
snapshot are shown at once; models and tensors need their dialogs, which open one after the other.
"""

from __future__ import annotations

import os.path
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QDialog

from devexplorer.core.base import BadInput, count_text, list_text, sentence
from devexplorer.core.feature import opener
from devexplorer.core.files.kinds import MODEL, RECORDING, SCRIPT, SNAPSHOT, TENSORS, WORKSPACE, FileKind, recognise
from devexplorer.core.files.records import ListFile, OpenModel
from devexplorer.core.files.state import FilesState
from devexplorer.core.records import AddVirtual, Command, SetThreads, Steps
from devexplorer.core.session import Change, steps_of
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.files.models import ModelOpener
from devexplorer.gui.files.recent import remember_file
from devexplorer.gui.files.workspace_file import WorkspaceFiles
from devexplorer.gui.forms.far_side import CopiedFile, FarSide

if TYPE_CHECKING:
    from devexplorer.core.files.script import SavedSession

ANSWERS = Change.LABORATORY | Change.ANSWER | Change.JOBS
"""What brings the answers that dialogs about files wait for."""
SENT = (SNAPSHOT, TENSORS, WORKSPACE)
"""Files that the engine reads from wherever they are."""


class Opening(QObject):
    """`open` any number of files; what cannot be opened gets one line."""

    def __init__(self, context: WindowContext, models: ModelOpener, workspaces: WorkspaceFiles) -> None:
        super().__init__(context)
        self._context, self._models, self._workspaces = context, models, workspaces
        self._waiting: deque[Callable[[], QDialog]] = deque()
        self._dialog: QDialog | None = None
        context.files_chosen.connect(self.open)
        context.far_files_chosen.connect(self._open_far)

    def open(self, paths: Iterable[Path]) -> None:
        """Open each by what it is, as soon as that is known."""
        files, far = tuple(paths), self._context.far
        look = recognise if far is None else partial(_recognise_to_send, far.name)
        self._context.in_background("recognise", lambda: [look(path) for path in files], self.show)

    def _open_far(self, paths: Sequence[Path]) -> None:
        """The same of the machine that is shown."""
        far = self._context.far
        if far is not None:
            far.recognise(paths, partial(self._show_far, far))

    def _show_far(self, far: FarSide, files: Sequence[FileKind]) -> None:
        if far is self._context.far:
            for file in files:
                if file.kind is not None:
                    remember_file(self._context, file.path)
            known = [file if file.kind else file._replace(reason=f"On {far.name}: {file.reason}") for file in files]
            self._open_known(known, far)

    def show(self, files: Sequence[FileKind]) -> None:
        """Open files of this machine that were recognised."""
        far = self._context.far
        for file in files:
            if file.kind not in (None, RECORDING):
                of = far.name if far is not None and file.kind == WORKSPACE else ""
                remember_file(self._context, file.path.absolute(), here=True, of=of)
        self._open_known(files)

    def _open_known(self, files: Sequence[FileKind], far: FarSide | None = None) -> None:
        """`far`: the machine that they are on; None: this one."""
        shown = self._context.far
        lines = [file.reason for file in files if file.kind is None]
        recordings = [file.path for file in files if file.kind == RECORDING]
        others = [file for file in files if file.kind not in (None, RECORDING)]
        reason = self._context.controller.why_no_engine() if others else None
        if reason is not None:
            lines.append(reason)
        else:
            for file in others:
                if far is not None and file.kind == SCRIPT:
                    far.bring(file.path, self._repeat)
                elif far is None and shown is not None and file.kind == MODEL:
                    self._waiting.append(partial(self._place_model, shown, file.path))
                elif far is None and shown is not None and file.kind in SENT:
                    shown.send(file.path, partial(self._open_sent, file.kind))
                else:
                    self._open_one(file.kind, file.path)
        if recordings:
            if far is None:
                self._show_recording(recordings[0])
            else:
                far.bring(recordings[0], self._show_recording)
            if len(recordings) > 1:
                more = count_text(len(recordings) - 1, "other recording")
                lines.append(
                    f"{recordings[0].name} is shown; only one recording can be at a time, so {more} stayed closed."
                )
        refused = next((file.path for file in files if file.kind is None), None)
        live = far is None and self._context.controller.why_no_engine() is None
        if refused is not None and live and self._context.state.part(FilesState).listed is not None:
            # the inspector still tells of a file that was looked into: the engine's refusal takes its place
            self._context.controller.send(ListFile(path=str(refused)))
        if len(lines) > 1:
            lines[0] += f" {count_text(len(lines) - 1, 'more file')} could not be opened either."
        if lines:
            self._context.hint(lines[0])
        self._next()

    def _show_recording(self, file: Path | CopiedFile) -> None:
        if (open_file := opener(RECORDING)) is not None:
            open_file(self._context, file, None)

    def _open_one(self, kind: str | None, path: Path) -> None:
        """Open what the machine shown can read there."""
        if (open_file := opener(kind)) is not None:
            open_file(self._context, path, None)
        elif kind == WORKSPACE:
            self._workspaces.open(path)
        elif kind == SCRIPT:
            repeat_session(self._context, path)
        elif kind == MODEL:
            self._waiting.append(partial(self._models.open, path))
        elif kind == TENSORS:
            self._waiting.append(partial(load_tensors, self._context, path))

    def _open_sent(self, kind: str | None, file: CopiedFile) -> None:
        """Open a file of this machine that has arrived on the one shown."""
        reason = self._context.controller.why_no_engine()
        if reason is not None:
            file.remove()
            self._context.hint(f"{file.path.name} was not opened. {reason}")
        elif (open_file := opener(kind)) is not None:
            open_file(self._context, file.path, file.origin)
        elif kind == WORKSPACE:
            self._workspaces.open(file)
        else:
            self._waiting.append(partial(load_tensors, self._context, file))
            self._next()

    def _place_model(self, far: FarSide, path: Path) -> QDialog:
        """Code is named by its place, in workspaces and scripts too: the user says where on that machine it is to
        be."""

        def chosen(place: Path) -> None:
            far.send(path, lambda _: arrived(place), place)

        def arrived(place: Path) -> None:
            self._waiting.append(partial(self._models.open, place))
            self._next()

        return self._context.save_file(f"Put {path.name}", path.name, {path.suffix[1:]: "Model files"}, chosen)

    def _repeat(self, script: CopiedFile) -> None:
        repeat_session(self._context, script.path, script.remove)

    def _next(self) -> None:
        if self._dialog is None and self._waiting:
            self._dialog = self._waiting.popleft()()
            self._dialog.finished.connect(self._closed)

    def _closed(self, _code: int) -> None:
        self._dialog = None
        self._next()


def load_tensors(context: WindowContext, file: Path | CopiedFile | None = None) -> QDialog:
    """Choose tensors of a file; `file`: of this one. A copy is removed when nothing is loaded from it."""
    from devexplorer.gui.files.tensor_files import LoadFileDialog

    dialog = LoadFileDialog(context.state, context.window)
    context.ask(dialog, ANSWERS)
    if isinstance(file, Path):
        dialog.file.set_path(str(file))
    elif file is not None:
        dialog.file.set_sent(file)
        dialog.rejected.connect(file.remove)
    return dialog


def _recognise_to_send(far: str, path: Path) -> FileKind:
    """What a file of this machine is that is to be opened on another one. Any thread."""
    from devexplorer.core.isolation.model_classes import beside  # when there is another machine

    file = recognise(path)
    if file.kind == TENSORS and (path.suffix == ".json" or os.path.isdir(path)):
        reason = f"{path.name} is a checkpoint in several files: put its folder on {far}, then open it there."
        return FileKind(path, None, reason)
    if file.kind != MODEL or not (names := beside(path)):
        return file
    reason = (
        f"{path.name} imports {list_text(names)} beside it: put their folder on {far}, then open {path.name} there."
    )
    return FileKind(path, None, reason)


def repeat_session(context: WindowContext, path: Path, was_read: Callable[[], None] = lambda: None) -> None:
    """Read the script on a thread, then repeat it on the machine shown; one line where that cannot be."""
    machine = context.machine

    def ask(saved: SavedSession | str) -> None:
        was_read()
        if machine is not context.machine:
            return
        if isinstance(saved, str):
            context.hint(saved)
            return
        if saved.left_out:
            number = count_text(saved.left_out, "command")
            context.hint(f"{number} of {path.name} left out: of a newer version, or of features that are not here.")
        _ask(context, path, saved.commands)

    context.in_background("recognise", partial(_read, path), ask)


def _read(path: Path) -> SavedSession | str:
    from devexplorer.core.files.script import commands_of  # when first needed

    try:
        return commands_of(path)
    except BadInput as error:
        return sentence(str(error))


def _ask(context: WindowContext, path: Path, commands: tuple[Command, ...]) -> None:
    """Ask about the folder of each model; when all were allowed, repeat."""
    from devexplorer.core.isolation.model_source import describe
    from devexplorer.gui.files.questions import ask_to_run

    models = [step for one in commands for step in steps_of(one) if isinstance(step, OpenModel)]
    try:
        runs = [describe(model.source, model.folder, context.machine.name) for model in models]
    except BadInput as error:
        context.hint(sentence(str(error)))
        return
    go: Callable[[], object] = partial(_repeat, context, path, commands)
    for code in {code.folder: code for code in reversed(runs)}.values():
        go = partial(ask_to_run, context, code, go)
    go()


def _repeat(context: WindowContext, path: Path, commands: tuple[Command, ...]) -> None:
    """What it needs first; virtual GPUs that are here stand for those of the session. The rest is all or none."""
    has_virtual = any(device.info.simulated for device in context.state.devices.values())
    changes = []
    for command in commands:
        if not isinstance(command, AddVirtual | SetThreads):
            changes.append(command)
        elif not (has_virtual and isinstance(command, AddVirtual)):
            context.controller.send(command)
    if changes:
        context.controller.send(Steps(commands=tuple(changes), title=f"the session of {path.name}"))
