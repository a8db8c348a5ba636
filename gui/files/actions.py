"""Actions about files: models, tensors, checkpoints. Main thread only; a dialog's module is loaded when it is first
opened."""

from __future__ import annotations

from functools import partial

from devexplorer.core.files.kinds import SUFFIXES
from devexplorer.gui.actions import FILE, ActionSpec, WindowContext
from devexplorer.gui.files.files_of_window import files_of
from devexplorer.gui.files.opening import ANSWERS, load_tensors

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
                   workspaces.new, workspaces.why_not_new, "Ctrl+N", menu=FILE),
        ActionSpec("open", "Open…", "Workspaces, models, tensors, recordings, snapshots: any number at once",
                   partial(_open_files, context), key="Ctrl+O", menu=FILE),
        ActionSpec("save_workspace", "Save workspace", "Write everything to its workspace file", workspaces.save,
                   c.why_no_engine, "Ctrl+S", menu=FILE),
        ActionSpec("save_workspace_as", "Save workspace as…", "Write everything to another workspace file",
                   workspaces.save_as, c.why_no_engine, menu=FILE),
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
    from devexplorer.gui.files.load_file import CheckpointDialog

    model = context.selection.model()
    if model is None:
        return
    context.ask(CheckpointDialog(context.state, model, context.window), ANSWERS)


def _save(context: WindowContext, targets: tuple[str, ...]) -> None:
    from devexplorer.gui.files.save_file import SaveFileDialog

    far = context.far
    dialog = SaveFileDialog(context.state, targets, context.window, far)
    if far is not None:
        dialog.here_wanted.connect(lambda command, place: far.save(place, command))
    context.ask(dialog)
