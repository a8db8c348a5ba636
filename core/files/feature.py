"""Files: own models, tensors of files, checkpoints, workspace files, and the session as Python. Data; any thread."""

from __future__ import annotations

import os
from functools import partial

from devexplorer.core.base import objects_text
from devexplorer.core.feature import CommandSpec, Feature
from devexplorer.core.files import records as rec


def _loading(command: rec.Load) -> str:
    sent = command.sent_from
    if sent is None:
        return "loading a file"
    name = os.path.basename(sent.path)
    return f"copying {os.path.splitext(name)[0] if sent.objects else name} from {sent.machine}"


_changing = partial(CommandSpec, undoable=True, replayed=True)

FEATURE = Feature(
    commands=(
        _changing(
            rec.OpenModel,
            lambda c: f"opening {os.path.basename(c.source)}",
            "No model was opened",
            "files.own_models:open_model",
            names_result=True,
            verb="opening",
        ),
        CommandSpec(
            rec.Save,
            lambda c: f"saving {objects_text(c.targets) if c.targets else 'everything'}",
            "Nothing was saved",
            "files.save:save",
            verb="saving",
        ),
        CommandSpec(
            rec.SaveWorkspace,
            lambda c: f"saving {os.path.basename(c.path)}",
            "The workspace was not saved",
            "files.workspace_commands:save_workspace",
        ),
        _changing(
            rec.OpenWorkspace,
            lambda c: f"opening {os.path.basename(c.path)}",
            "The workspace was not opened",
            "files.workspace_commands:open_workspace",
            replaces=True,
            repeatable=False,
        ),
        _changing(
            rec.NewWorkspace,
            "emptying the workspace",
            "There is no new workspace",
            "files.workspace_commands:new_workspace",
            replaces=True,
            repeatable=False,
        ),
        _changing(
            rec.RunModelCode,
            "building {c.target}",
            "{c.target} was not built",
            "files.own_models:run_model_code",
            repeatable=False,
        ),
        CommandSpec(rec.ListFile, "looking into a file", "The file could not be read", "files.load:list_file"),
        _changing(rec.Load, _loading, "Nothing was loaded", "files.load:load", verb="loading"),
        CommandSpec(
            rec.CompareCheckpoint,
            "comparing a checkpoint with {c.target}",
            "The checkpoint could not be read",
            "files.into_model:compare",
        ),
        _changing(
            rec.LoadCheckpoint,
            "loading a checkpoint into {c.target}",
            "Nothing was loaded",
            "files.into_model:load_checkpoint",
            verb="loading",
        ),
    ),
    results=(rec.CheckpointCompared, rec.FileListed, rec.WorkspaceFile),
    state="core.files.state:FilesState",
    listener="core.files.script:SessionFiles",
    tab="gui.files.actions:TAB",
    actions="gui.files.actions:actions",
    offers="core.files.state:offers",
    window="gui.files.actions:begin",
    choices="gui.files.recent:choices",
    outdated="core.files.own_models:rebuilding",
    settings=(
        ("recent_files", "core.files.records:RecentFiles"),
        ("opened_models", "core.files.records:OpenedModels"),
        ("recent_models", "core.files.records:RecentModels"),
        ("trusted_folders", "core.files.records:TrustedFolders"),
    ),
)
