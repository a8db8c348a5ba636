"""Saves the workspace to a file, opens it again, begins a new one; asks before work is lost, and before the code of a
model from such a file runs. Main thread only."""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from PySide6.QtCore import QObject

from devexplorer.core.base import BadInput, count_text
from devexplorer.core.files.records import NewWorkspace, OpenWorkspace, RunModelCode, SaveWorkspace, WorkspaceFile
from devexplorer.core.files.state import FilesState
from devexplorer.core.session import Change, FinishedCommand, Settings
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.files.recent import SUFFIX, recent_files, remember_file

if TYPE_CHECKING:
    from devexplorer.gui.files.questions import LossQuestion, SaveQuestion
    from devexplorer.gui.forms.far_side import CopiedFile

LAYOUT = ("layout", "splitters", "span_s", "left_plot", "right_plot", "monitor_plots")
"""Fields of `Settings` that a workspace file has."""
ALWAYS = "Someone else may have written a workspace file: its code is asked about each time, whatever the folder."


class Loss(NamedTuple):
    """What would lose work, as the questions about it say it."""

    doing: str
    accept: str
    """The button that does it."""
    discard: str
    """What Discard does."""
    left: Callable[[], None] | None = None
    """Called when it is not done."""


class WorkspaceFiles(QObject):
    """`new`, `open`, `save`, `save_as`; knows which file the workspace is that of."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self._seen: WorkspaceFile | None = None
        self._arranged: WorkspaceFile | None = None
        """What was opened last: it comes into sight again when a recording is closed."""
        self._questions: deque[str] = deque()
        self._question: SaveQuestion | LossQuestion | None = None
        self._lose = False
        """The user does not want what is not saved."""
        self._when_saved: Callable[[], object] | None = None
        """What waits for the workspace to be saved."""
        self._when_arrived: tuple[int, Callable[[], object]] | None = None
        """What waits for the file of this `SaveWorkspace`, which was for this machine."""
        self._copies: dict[str, CopiedFile] = {}
        """The workspace of each other machine as it was saved here last, there."""
        self._saved_before: FinishedCommand | None = None
        context.follow(Change.JOBS | Change.UNDO | Change.OBJECTS | Change.LABORATORY, self._follow)
        context.machine_shown.connect(self._machine_shown)

    @property
    def _files(self) -> FilesState:
        return self._context.state.part(FilesState)

    @property
    def path(self) -> Path | None:
        """The file that the workspace was saved to or opened from last."""
        event = self._files.workspace_file
        return None if event is None or not event.path else Path(event.path)

    @property
    def here(self) -> Path | None:
        """The file of this machine that has the workspace of the one shown, which is another one.

        What that one says is not enough to write a file here: the user has chosen this file for that machine before.
        """
        event, far = self._files.workspace_file, self._context.far
        if far is None or event is None or event.sent_from is None or event.sent_from.machine != platform.node():
            return None
        known = (file.path for file in recent_files(self._context) if file.of == far.name)
        return next((path for path in known if str(path) == event.sent_from.path), None)

    @property
    def _name(self) -> str:
        """Of that file, or of the one of another machine that has it; empty: there is none."""
        event = self._files.workspace_file
        if event is None or event.sent_from is None:
            return "" if self.path is None else self.path.name
        return PurePath(event.sent_from.path).name

    def save(self, saved: Callable[[], object] | None = None) -> None:
        """Save to that file; ask for one where there is none. `saved` is called once that is done."""
        if self.path is not None:
            self._save(self.path, saved)
        elif self.here is not None:
            self._save_here(self.here, saved)
        else:
            self.save_as(saved)

    def save_as(self, saved: Callable[[], object] | None = None) -> None:
        """Ask where to, then save."""
        name = self._name or f"workspace.{SUFFIX}"

        def chosen(path: Path) -> None:
            self._save(path, saved)

        def here(path: Path) -> None:
            self._save_here(path.absolute(), saved)

        self._context.save_file("Save the workspace", name, {SUFFIX: "DevExplorer workspaces"}, chosen, here=here)

    def layout(self) -> str:
        """That of the window, for a file."""
        settings = msgspec.to_builtins(self._context.current_settings())
        return msgspec.json.encode({name: settings[name] for name in LAYOUT}).decode()

    def _save(self, path: Path, saved: Callable[[], object] | None = None) -> None:
        if saved is not None:
            self._when_saved, self._saved_before = saved, self._last_save()
        command = SaveWorkspace(path=str(path), overwrite=True, layout=self.layout())  # the dialog asked
        self._context.controller.send(command)

    def _save_here(self, place: Path, saved: Callable[[], object] | None = None) -> None:
        """Have the machine shown, which is another one, write it for this one."""
        far = self._context.far
        if far is None:
            return

        def written(copy: CopiedFile) -> None:
            """After a crash of the engine there the workspace begins with this copy; the one before is of no more
            use."""
            before, self._copies[far.name] = self._copies.get(far.name), copy
            if before is not None:
                before.remove()

        def arrived(request: int) -> None:
            remember_file(self._context, place, of=far.name)
            self._when_arrived = None if saved is None else (request, saved)

        command = SaveWorkspace(path="", layout=self.layout())
        far.save(place, command, written=written, arrived=arrived)

    def why_not_new(self) -> str | None:
        """Reason when a new workspace would be as this one is."""
        state = self._context.state
        new = None if state.objects or self._name else "The workspace is new: it has no objects and no file."
        return self._context.controller.why_no_engine() or new

    def new(self) -> None:
        """Begin with nothing, and without a file."""
        loss = Loss("starting a new workspace", "Start", "Discard removes every object without saving.")
        self._replace(NewWorkspace(), loss)

    def open(self, file: Path | CopiedFile) -> None:
        """Open a workspace file in place of what is here. A copy is removed when it is not opened after all."""
        path, origin, left = (file, None, None) if isinstance(file, Path) else (file.path, file.origin, file.remove)
        loss = Loss(f"opening {path.name}", "Open", "Discard replaces what is here without saving.", left)
        self._replace(OpenWorkspace(path=str(path), replace=True, sent_from=origin), loss)

    def _replace(self, command: NewWorkspace | OpenWorkspace, loss: Loss) -> None:
        go = partial(self._context.controller.send, command)
        if self._none(loss, go, partial(self._replace, command, loss)):
            go()

    # --- what would be lost

    def may_close(self) -> bool:
        """Whether nothing would be lost; if something would, the user is asked, and the window closes itself after the
        answer."""
        loss = Loss("closing", "Close", "Discard closes the window without saving.")
        return self._lose or self._none(loss, self._close_anyway, self._context.window.close)

    def _close_anyway(self) -> None:
        self._lose = True
        self._context.window.close()

    def _none(self, loss: Loss, go: Callable[[], object], saved: Callable[[], object]) -> bool:
        """Whether nothing would be lost. Else the user is asked: `go` does it all the same, `saved` tries again once
        everything is saved. While it is being saved there is nothing to ask yet."""
        state, files, window = self._context.state, self._files, self._context.window
        if state.running(SaveWorkspace) is not None:
            self._when_saved, self._saved_before = saved, self._last_save()
            self._context.hint("The workspace is being saved first.")
            return False
        if not (files.unsaved_work or files.lost_anyway):
            return True
        if self._question is not None:
            return False
        from devexplorer.gui.files.questions import LossQuestion, SaveQuestion  # when first needed

        question: SaveQuestion | LossQuestion
        if files.unsaved_work:
            words = f"{count_text(len(state.objects), 'object')} not saved to a file."
            if self._name:
                words = f"{self._name} does not have the latest changes."
            question = SaveQuestion(f"Save before {loss.doing}?", words, loss.discard, window)
            question.accepted.connect(partial(self.save, saved))
            question.discarded.connect(go)
        else:
            question = LossQuestion(f"{loss.accept} anyway?", loss.accept, files.lost_anyway, window)
            question.accepted.connect(go)
        self._question = question
        question.finished.connect(self._answered)
        if loss.left is not None:
            question.rejected.connect(loss.left)
        self._context.open_dialog(question, about_machine=True)
        return False

    def _answered(self) -> None:
        self._question = None

    def _last_save(self) -> FinishedCommand | None:
        done = self._context.state.done
        return next((item for item in reversed(done) if isinstance(item.command, SaveWorkspace)), None)

    # --- models whose code has not run

    def stored(self) -> list[str]:
        """Models that have only their tensors, and a source."""
        objects = self._context.state.objects
        return [name for name, item in objects.items() if item.stored is not None and item.stored[0]]

    def why_no_code(self) -> str | None:
        """Reason when there is no such model."""
        return self._context.controller.why_no_engine() or (
            None if self.stored() else "Every model here has its code, or no source is known."
        )

    def ask(self) -> None:
        """Ask about each model whether its code may run."""
        self._questions = deque(self.stored())
        self._next()

    def _next(self, *_: Any) -> None:
        if not self._questions:
            return
        name = self._questions.popleft()
        item = self._context.state.objects.get(name)
        if item is None or item.stored is None:
            self._next()
            return
        from devexplorer.core.isolation.model_source import describe  # when first needed

        try:
            code = describe(*item.stored, self._context.machine.name)
        except BadInput as error:
            self._context.hint(f"{name}: {error}")
            self._next()
            return
        run = partial(self._context.controller.send, RunModelCode(target=name))
        if not code.own_code:
            run()
            self._next()
            return
        from devexplorer.gui.files.questions import TrustDialog

        dialog = TrustDialog(code, self._context.window, always=ALWAYS)
        dialog.allowed.connect(lambda _remember: run())
        dialog.finished.connect(self._next)
        self._context.open_dialog(dialog, about_machine=True)

    def _follow(self) -> None:
        if self._files.workspace_file is not self._seen:
            self._file_changed()
        self._context.window.setWindowModified(self._files.unsaved_work)
        if (then := self._when_saved) is not None and (saved := self._last_save()) is not self._saved_before:
            self._when_saved = None  # if it failed, the answer says why, and everything stays
            if saved is not None and saved.ok:
                then()

    def _file_changed(self) -> None:
        event = self._seen = self._files.workspace_file
        path, arrived = self.path, self._when_arrived
        if path is not None:
            remember_file(self._context, path)
        self._show_title()
        if event is not None and arrived is not None and event.request == arrived[0]:
            self._when_arrived = None
            arrived[1]()
        if event is not None and event.opened and self._context.far is not None:
            self._copies.pop(self._context.far.name, None)  # an Undo of the opening could want it
        if event is not None and event.opened and event is not self._arranged:
            self._arranged = event
            self._show_layout(event.layout)
            self.ask()

    def _machine_shown(self) -> None:
        """Its file was opened before: the window stays as it is."""
        self._seen = self._arranged = self._files.workspace_file
        self._when_saved = self._when_arrived = None
        self._show_title()

    def _show_title(self) -> None:
        """Of which machine the window is, and which file it has open."""
        machine = self._context.machine
        name = "DevExplorer" if machine.is_here else f"DevExplorer on {machine.name}"
        self._context.window.setWindowTitle(f"{name}: {self._name}[*]" if self._name else f"{name}[*]")

    def _show_layout(self, text: str) -> None:
        try:
            saved = msgspec.json.decode(text or "{}", type=dict[str, Any])
            fields = {name: saved[name] for name in LAYOUT if name in saved}
            now = msgspec.to_builtins(self._context.current_settings())
            settings = msgspec.convert({name: fields.get(name, now[name]) for name in LAYOUT}, Settings)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._context.hint("The layout in the file is damaged; the window stays as it is.")
            return
        self._context.layout_opened.emit(settings)
