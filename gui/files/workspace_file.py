"""Saves the workspace to a file and opens it again; asks before the code of a model from such a file runs. Main thread
only."""

from __future__ import annotations

from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from PySide6.QtCore import QObject, Signal

from devexplorer.core.base import BadInput
from devexplorer.core.records import OpenWorkspace, RunModelCode, SaveWorkspace
from devexplorer.core.session import Change, Settings
from devexplorer.gui.actions import WindowContext

if TYPE_CHECKING:
    from devexplorer.core.records import WorkspaceFile

SUFFIX = "devexplorer"
LAYOUT = ("layout", "span_s", "left_plot", "right_plot")
"""Fields of `Settings` that a workspace file has."""


class WorkspaceFiles(QObject):
    """`save`, `save_as`, `open`; knows which file the workspace is that of."""

    layout_opened = Signal(object)
    """The layout of a file that was opened (`Settings` with its fields)."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self._seen: WorkspaceFile | None = None
        self._questions: deque[str] = deque()
        context.state_changed.connect(self._follow)

    @property
    def path(self) -> Path | None:
        """The file that the workspace was saved to or opened from last."""
        event = self._context.state.workspace_file
        return None if event is None else Path(event.path)

    def save(self) -> None:
        """Save to that file; ask for one where there is none."""
        if self.path is None:
            self.save_as()
        else:
            self._save(self.path)

    def save_as(self) -> None:
        """Ask where to, then save."""
        name = self.path.name if self.path is not None else f"workspace.{SUFFIX}"
        self._context.save_file("Save the workspace", name, {SUFFIX: "DevExplorer workspaces"}, self._save)

    def _save(self, path: Path) -> None:
        settings = msgspec.to_builtins(self._context.current_settings())
        layout = msgspec.json.encode({name: settings[name] for name in LAYOUT}).decode()
        self._context.controller.send(SaveWorkspace(path=str(path), overwrite=True, layout=layout))  # the dialog asked

    def open(self, path: Path) -> None:
        """Open a workspace file; the engine's answer offers to replace what is here."""
        self._context.controller.send(OpenWorkspace(path=str(path)))

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
            code = describe(*item.stored)
        except BadInput as error:
            self._context.hint(f"{name}: {error}")
            self._next()
            return
        run = partial(self._context.controller.send, RunModelCode(target=name))
        if not code.own_code:
            run()
            self._next()
            return
        from devexplorer.gui.files.trust import TrustDialog

        dialog = TrustDialog(code, self._context.window)
        dialog.remember.hide()  # somebody else may have written the file: each is asked about
        dialog.allowed.connect(lambda _remember: run())
        dialog.finished.connect(self._next)
        self._context.open_dialog(dialog)

    def _follow(self, changes: Change) -> None:
        event = self._context.state.workspace_file
        if not changes & Change.LABORATORY or event is self._seen:
            return
        self._seen = event
        name = "" if event is None else f": {Path(event.path).name}"
        self._context.window.setWindowTitle(f"DevExplorer{name}")
        if event is not None and event.opened:
            self._show_layout(event.layout)
            self.ask()

    def _show_layout(self, text: str) -> None:
        try:
            saved = msgspec.json.decode(text or "{}", type=dict[str, Any])
            fields = {name: saved[name] for name in LAYOUT if name in saved}
            now = msgspec.to_builtins(self._context.current_settings())
            settings = msgspec.convert({name: fields.get(name, now[name]) for name in LAYOUT}, Settings)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            self._context.hint("The layout in the file is damaged; the window stays as it is.")
            return
        self.layout_opened.emit(settings)
