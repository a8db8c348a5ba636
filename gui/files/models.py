"""Opens the user's own models: asks what, and says that its code will run; asks before it runs again. Main thread only.

To open a model is to let the code of its folder run until the window is closed; folders that are trusted are allowed
for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QDialog
from shiboken6 import isValid

from devexplorer.core.files.records import Load, LoadCheckpoint, OpenedModels, OpenModel, RecentModels, RunModelCode
from devexplorer.core.session import Change
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.files.recent import MOST_RECENT, remember_file

if TYPE_CHECKING:
    from devexplorer.core.isolation.model_classes import Candidate
    from devexplorer.gui.files.open_model import OpenModelDialog


class ModelOpener(QObject):
    """`open` shows the dialog. Remembers which models were opened, and the one that could not be."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self._failed: OpenModel | None = None
        """What could not be opened last: the dialog starts with it."""
        self._done_count = 0
        """How many commands had ended when the recent models were brought up to date."""
        self._allowed: set[str] = set()
        """Folders whose code was opened from the dialog, which says what it runs."""
        context.follow(Change.JOBS, self._remember)
        context.machine_shown.connect(self._forget)
        context.controller.asks[RunModelCode] = self._ask_to_rebuild

    @property
    def recent(self) -> tuple[OpenModel, ...]:
        """Models of this machine that were opened, the newest first, with what was chosen then."""
        if self._context.far is not None:
            return ()
        remembered = self._context.settings.of_features
        opened: OpenedModels = remembered.get("opened_models", ())
        earlier: RecentModels = remembered.get("recent_models", ())
        known = {(item.source, item.folder) for item in opened}
        older = (OpenModel(source=one[0], folder=one[1]) for one in earlier if one not in known)
        return (*opened, *older)[:MOST_RECENT]

    def open(self, path: Path | None = None) -> QDialog:
        """Choose a model; `path`: in this file, with what was chosen when it was opened last."""
        from devexplorer.gui.files.open_model import OpenModelDialog  # when first opened

        dialog = OpenModelDialog(self._context.state, self.recent, self._context.window)
        dialog.file_chosen.connect(partial(self._look_into, dialog))
        before = self._failed
        if path is not None:
            of_path = [one for one in (before, *self.recent) if one is not None and _file_of(one) == path.absolute()]
            before = of_path[0] if of_path else None
        if before is not None:
            dialog.show_choices(before)
        elif path is not None:
            dialog.show_file(path)
        dialog.command_requested.connect(self._open_chosen)
        return self._context.open_dialog(dialog, about_machine=True)

    def _look_into(self, dialog: OpenModelDialog, path: Path) -> None:
        from devexplorer.core.isolation.model_classes import candidates

        def show(found: Sequence[Candidate]) -> None:
            if isValid(dialog):  # it can have been closed since
                dialog.show_candidates(path, found)

        if self._context.far is not None:
            self._context.far.models_in(path, show)
        else:
            self._context.in_background("recognise", partial(candidates, path), show)

    def rebuild(self) -> None:
        """Build the selected model again from its file."""
        self._context.controller.send(RunModelCode(target=self._context.selection.the_model(), again=True))

    def why_no_rebuild(self) -> str | None:
        """Reason when the selected model was not made by code of the user's."""
        reason = self._context.selection.why_no_model()
        if reason is not None or self._context.selection.model_has("folder"):
            return reason
        return "This model was not opened from a Python file or module."

    def _open_chosen(self, command: OpenModel) -> None:
        from devexplorer.core.isolation.model_source import describe  # when first needed

        code = describe(command.source, command.folder, self._context.machine.name)
        self._allowed.add(trust_of(self._context, code.folder))
        self._context.controller.send(command)

    def _ask_to_rebuild(self, command: RunModelCode, run: Callable[[RunModelCode], object]) -> None:
        """Models of a workspace file were asked about by who sends this."""
        item = self._context.state.objects.get(command.target)
        send = partial(run, command)
        if not command.again or item is None or item.source is None:
            send()
        else:
            from devexplorer.core.isolation.model_source import describe  # when first needed
            from devexplorer.gui.files.questions import ask_to_run

            code = describe(item.source, item.folder, self._context.machine.name)
            if trust_of(self._context, code.folder) in self._allowed:
                send()
            else:
                ask_to_run(self._context, code, send)

    def _forget(self) -> None:
        """What was done on the machine that is shown now was noted, or is not."""
        self._done_count, self._failed = self._context.state.done_count, None

    def _remember(self) -> None:
        """Note the models and files that were opened since; one that could not be opened is not offered again."""
        state = self._context.state
        new = min(state.done_count - self._done_count, len(state.done))
        self._done_count = state.done_count
        for done in list(state.done)[len(state.done) - new :] if new > 0 else ():
            if done.ok and isinstance(done.command, Load | LoadCheckpoint) and done.command.sent_from is None:
                remember_file(self._context, Path(done.command.path).absolute())
            if not isinstance(done.command, OpenModel):
                continue
            command = replace(done.command, request=0, name=None)
            self._failed = None if done.ok else command
            if done.ok and (path := _file_of(command)) is not None:
                remember_file(self._context, path)
            if done.ok and self._context.far is None:
                source = command.source, command.folder
                others = (item for item in self.recent if (item.source, item.folder) != source)
                self._context.remember(opened_models=(command, *others)[:MOST_RECENT], recent_models=())


def _file_of(command: OpenModel) -> Path | None:
    """The Python file or notebook that a model is opened from; None where it is no file."""
    from devexplorer.core.isolation.model_source import CODE_SUFFIXES  # when first needed

    path = Path(command.folder, command.source.partition("?")[0].rpartition(":")[0])
    return path.absolute() if path.suffix in CODE_SUFFIXES else None


def trust_of(context: WindowContext, folder: str) -> str:
    """A folder of the machine shown, as it is remembered where its code may run."""
    return folder if context.far is None else f"{context.far.name}:{folder}"
