"""Actions about files (models, tensors, checkpoints), and the page of the session as Python. Main thread
only; a dialog's module is loaded when it is first opened."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from time import localtime, strftime
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from devexplorer.core.base import BadInput
from devexplorer.core.files.kinds import SUFFIXES
from devexplorer.core.files.records import OpenWorkspace, SaveWorkspace
from devexplorer.core.files.state import FilesState
from devexplorer.core.records import Answer
from devexplorer.core.session import Change
from devexplorer.gui.actions import FILE, ActionSpec, TabSpec, WindowContext, WorkKeeper, lazy_page
from devexplorer.gui.files.models import ModelOpener
from devexplorer.gui.files.opening import ANSWERS, Opening, load_tensors
from devexplorer.gui.files.recent import RecentMenu
from devexplorer.gui.files.workspace_file import WorkspaceFiles

if TYPE_CHECKING:
    from devexplorer.core.files.autosave import Autosave, FoundCopy
    from devexplorer.core.session.session import Session
    from devexplorer.gui.files.session_code import SessionPanel


def _connect(context: WindowContext, page: SessionPanel) -> None:
    page.save_requested.connect(partial(save_as, context))
    page.set_source(context.session)
    context.session_started.connect(page.set_source)


def save_as(context: WindowContext) -> None:
    """As a script or a notebook, by the extension."""
    formats = {"py": "Python script", "ipynb": "Jupyter notebook"}
    context.save_file(
        "Save the session as Python", "session.py", formats, partial(save_session, context), by_window=True
    )


def save_session(context: WindowContext, path: Path) -> None:
    """The session as a script, or as a notebook where the name ends so."""
    far, notebook = context.far, path.suffix == ".ipynb"
    if far is not None:
        far.script(notebook=notebook, then=partial(_write, context, path))
    elif context.session is not None:
        files = context.session.listener("files")
        _write(context, path, files.notebook() if notebook else files.script(to_repeat=True))


def _write(context: WindowContext, path: Path, text: str) -> None:
    """Save it without waiting for a disk."""
    from devexplorer.core.files.script import write  # when it is asked for

    session = context.shown.session

    def work() -> Answer:
        words, failed = f"{path} does again what was done and not undone here.", False
        try:
            write(path, text)
        except BadInput as error:
            words, failed = str(error), True
        return Answer(title="The session is saved as Python", words=words, failed=failed, time_unix_s=time.time())

    if session is not None:
        context.in_background("script", work, session.put)


TAB = TabSpec(
    "session", lazy_page("devexplorer.gui.files.session_code:SessionPanel", _connect),
    redraw=Change.JOBS | Change.ENGINE,
    action="Session as Python", tooltip="Everything that was done, as a script or a notebook", menu=FILE, section=3,
    order=170,
)  # fmt: skip


ALL_KINDS = f"Workspaces, models, tensors, recordings, snapshots ({' '.join(f'*{suffix}' for suffix in SUFFIXES)})"


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the menu."""
    files = files_of(context)
    models, workspaces, copy = files.models, files.workspaces, files.copy
    c, selection = context.controller, context.selection

    def why_nothing_to_save() -> str | None:
        return c.why_no_engine() or (None if context.state.objects else "The workspace is empty.")

    def save_selection() -> None:
        _save(context, tuple(target for target, _ in selection.rows()))

    return [
        ActionSpec("new_workspace", "New workspace", "Remove every object and begin without a file; devices stay",
                   workspaces.new, workspaces.why_not_new, "Ctrl+N", menu=FILE,
                   asks=Change.OBJECTS | Change.LABORATORY | Change.ENGINE),
        ActionSpec("open", "Open…", "Workspaces, models, tensors, recordings, snapshots: any number at once",
                   partial(_open_files, context), key="Ctrl+O", menu=FILE),
        ActionSpec("save_workspace", "Save workspace", "Write everything to its workspace file", workspaces.save,
                   c.why_no_engine, "Ctrl+S", menu=FILE),
        ActionSpec("save_workspace_as", "Save workspace as…", "Write everything to another workspace file",
                   workspaces.save_as, c.why_no_engine, menu=FILE),
        ActionSpec("save_session", "Save session as Python…", "Everything that was done, as a script or a notebook",
                   partial(save_as, context), c.why_no_engine, menu=FILE),
        ActionSpec("restore_copy", "Restore unsaved work", "Open the copy of a session that ended unexpectedly",
                   copy.restore, copy.why_none, menu=FILE),
        ActionSpec("run_code", "Run its code…", "Build models that came from a workspace file without their code",
                   workspaces.ask, workspaces.why_no_code, menu=FILE),
        ActionSpec("open_model", "Open a model…", "Your own model: a Python file, a notebook, a module,"
                   " torchvision, transformers",
                   models.open, c.why_no_engine, "Ctrl+Shift+O", menu=FILE, section=1),
        ActionSpec("rebuild", "Rebuild from its file", "Build the selected model again from its file as it is now; it"
                   " keeps its values", models.rebuild, models.why_no_rebuild, menu=FILE, section=1),
        ActionSpec("load", "Load tensors…", "Tensors of a safetensors or .pt file, onto any device",
                   partial(load_tensors, context), c.why_no_engine, menu=FILE, section=1),
        ActionSpec("checkpoint", "Load a checkpoint…", "Values of a file into the selected model",
                   partial(_load_checkpoint, context), selection.why_no_model, menu=FILE, section=1),
        ActionSpec("save", "Save selection…", "Write the tensors of the selected objects to a file",
                   save_selection, c.why_no_selection,
                   "Ctrl+Shift+S", menu=FILE, section=1),
        ActionSpec("save_all", "Save all tensors…", "Write the tensors of every object to one file",
                   partial(_save, context, ()),
                   why_nothing_to_save, menu=FILE, section=1),
    ]  # fmt: skip


def _open_files(context: WindowContext) -> None:
    kinds = f"{ALL_KINDS};;All files (*)"
    context.choose_files("Open", kinds, context.files_chosen.emit, several=True, far=context.far_files_chosen.emit)


def _load_checkpoint(context: WindowContext) -> None:
    from devexplorer.gui.files.tensor_files import CheckpointDialog

    model = context.selection.model()
    if model is None:
        return
    context.ask(CheckpointDialog(context.state, model, context.window), ANSWERS)


def _save(context: WindowContext, targets: tuple[str, ...]) -> None:
    from devexplorer.gui.files.tensor_files import SaveFileDialog

    far = context.far
    dialog = SaveFileDialog(context.state, targets, context.window, far)
    if far is not None:
        dialog.here_wanted.connect(lambda command, place: far.save(place, command))
    context.ask(dialog)


# What a window has for files: they are opened and saved, and work is not lost with it.


class FilesOfWindow(QObject):
    """Its parts; `files_of` a context has them."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self.models = ModelOpener(context)
        self.workspaces = WorkspaceFiles(context)
        self.opening = Opening(context, self.models, self.workspaces)
        self.copy = context.work = UnsavedCopy(context, self.workspaces)
        self.recent = RecentMenu(context)


def files_of(context: WindowContext) -> FilesOfWindow:
    """Those of this window."""
    found = context.findChild(FilesOfWindow)
    return found if isinstance(found, FilesOfWindow) else FilesOfWindow(context)


def begin(context: WindowContext) -> None:
    """The window takes files, and lists the last ones in its menu."""
    context.window.setAcceptDrops(True)  # what is dragged within the window is for the device cards
    save = next(action for action in context.file_menu.actions() if action.objectName() == "save_workspace")
    context.file_menu.insertMenu(save, files_of(context).recent)


# Keeps a copy of unsaved work for the case that the window crashes, offers the one that a crashed window has left,
# and asks before work is lost. Main thread only; the engine writes the copy.

ABOUT = "unsaved work"
"""What the line in the status bar is about while it offers the copy."""


class UnsavedCopy(QObject, WorkKeeper):
    """`offer` a copy; it stays where it is until it was opened, or is discarded."""

    def __init__(self, context: WindowContext, workspaces: WorkspaceFiles) -> None:
        super().__init__(context)
        self._context, self._workspaces = context, workspaces
        self.autosave: Autosave | None = None
        self._left: FoundCopy | None = None
        """The copy, until it is offered."""
        self.found: FoundCopy | None = None
        """The copy, until it was opened or discarded."""
        context.banner.action_chosen.connect(lambda about: self.restore() if about == ABOUT else None)
        context.banner.dismissed.connect(lambda about: self.discard() if about == ABOUT else None)
        context.follow(Change.LABORATORY, self._follow)

    def keep_copies(self, session: Session, folder: Path | None = None) -> None:
        from devexplorer.core.files.autosave import Autosave, discard  # psutil: loaded behind the window

        context = self._context

        def remove(path: Path) -> None:
            context.in_background("autosave", partial(discard, path), lambda _: None)

        def found(found: FoundCopy | None) -> None:
            self._left = found

        self.autosave = Autosave(
            lambda: context.shown.live_state,
            session.send_aside,
            session.put,
            remove,
            self._workspaces.layout,
            folder,
        )
        context.in_background("autosave", self.autosave.look, found)
        context.beaten.connect(self._beat)

    def make_way(self) -> None:
        if self.autosave is not None:
            self.autosave.make_way()

    def _beat(self) -> None:
        """Copy what should be, offer what was found."""
        if self.autosave is not None:
            self.autosave.beat()
        state = self._context.state
        is_shown = self._context.machine.is_here and state.recording is None
        if self._left is not None and state.engine is not None and is_shown:
            self.offer(self._left)
            self._left = None

    def copy(self) -> bool:
        return self.autosave is not None and self.autosave.copy()

    def may_close(self) -> bool:
        shown = self._context.shown
        state, files = shown.live_state, shown.live_state.part(FilesState)
        if not (files.unsaved_work or files.lost_anyway or state.running(SaveWorkspace)):
            return True
        self._context.others.show(shown.here)  # the question is about it
        shown.back()
        return self._workspaces.may_close()

    def end(self, *, unasked: bool) -> None:
        if self.autosave is not None:
            state = self._context.shown.live_state
            unsaved = state.part(FilesState).unsaved_work
            self.autosave.end(keep=state.engine is None or (unasked and unsaved))

    # --- the copy that was left

    def offer(self, found: FoundCopy) -> None:
        """Say that there is a copy."""
        self.found = found
        when = strftime("%Y-%m-%d %H:%M", localtime(found.saved_unix_s))
        self._context.banner.say(
            f"The last session ended unexpectedly. A copy of its unsaved work was kept at {when}.",
            about=ABOUT, action="Restore", dismiss="Discard",
        )  # fmt: skip
        self._context.redraw(Change.ENGINE)  # it can be restored

    def why_none(self) -> str | None:
        """Reason when there is nothing to restore."""
        why = None if self.found is not None else "There is no copy of unsaved work."
        if why is None and not self._context.machine.is_here:
            why = "The copy is of this machine: show this machine first."
        return self._context.controller.why_no_engine() or why

    def restore(self) -> None:
        """Open the copy. Where that fails, the action in the menu File tries again."""
        if (why := self.why_none()) is not None and self.found is not None:
            self._context.hint(why)
        elif self.found is not None:
            self._hide()
            self._context.controller.send(OpenWorkspace(path=str(self.found.path), copy=True))

    def discard(self) -> None:
        """Remove the copy."""
        if self.found is not None and self.autosave is not None:
            self.autosave.remove(self.found.path)
            self.found = None

    def _hide(self) -> None:
        if self._context.banner.about == ABOUT:
            self._context.banner.clear()

    def _follow(self) -> None:
        event = self._context.state.part(FilesState).workspace_file
        if event is None or self.found is None or self.autosave is None:
            return
        again = event.again
        if event.opened and isinstance(again, OpenWorkspace) and again.path == str(self.found.path):
            self._hide()
            self.autosave.restored, self.found = self.found.path, None
