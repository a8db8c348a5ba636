"""Commands about own models, files of tensors, checkpoints and workspace files, and what answers them. Any thread.

A target is `name`, or `name:path` for a module, parameter or buffer of a model.
"""

from __future__ import annotations

import msgspec

from devexplorer.core.records import BaseCommand, BaseEvent, Kept, Record, SentFrom

# --- own models


class OpenModel(BaseCommand, tag="OpenModel"):
    """Build a model from the user's code or a library.

    `source` is one of `package.module:factory`, `path/to/file.py:factory`, `torchvision:resnet50`, `transformers:gpt2`
    or `transformers:path/to/config.json`, the last three with options behind a question mark:
    `transformers:gpt2?n_layer=2`. The window asks before it sends one that runs code of the user's; the engine tries it
    in a separate process first.
    """

    source: str
    folder: str = ""
    """The folder that is importable while it is built; empty: the engine's current one."""
    name: str | None = None
    device: str = "cpu"
    dtype: str | None = None
    seed: int = 0
    inputs: str = ""
    """Shapes of what forward gets, as `--input` takes them: `2x16:int64,4x12`; empty: a guess is made when it runs."""


class CompareCheckpoint(BaseCommand, tag="CompareCheckpoint"):
    """Say what a checkpoint would do to a model, without loading it. Answered with `CheckpointCompared`."""

    target: str
    path: str
    strip: str = ""
    """A prefix to remove from the file's keys: `module.`, as DataParallel leaves it."""


class LoadCheckpoint(BaseCommand, tag="LoadCheckpoint"):
    """Load the values of a checkpoint into a model, each to where its tensor is."""

    target: str
    path: str
    strip: str = ""
    partial: bool = False
    """Load what fits and leave the rest; without it, keys that are missing, unexpected or of another shape are a
    refusal."""
    sent_from: SentFrom | None = None


class KeyMismatch(msgspec.Struct, frozen=True):
    """A key whose shape differs."""

    key: str
    model: tuple[int, ...]
    file: tuple[int, ...]


class CheckpointComparison(Record):
    """A checkpoint compared with a model."""

    target: str
    path: str
    strip: str
    matching: int
    missing: tuple[str, ...]
    """Keys of the model that the file has not; at most a thousand are named, `missing_count` counts all."""
    unexpected: tuple[str, ...]
    """Keys of the file that the model has not."""
    mismatched: tuple[KeyMismatch, ...]
    casts: tuple[str, ...] = ()
    """Keys whose dtype would change on loading, with both dtypes."""
    missing_count: int = 0
    unexpected_count: int = 0
    mismatched_count: int = 0
    suggested_strip: str | None = None
    """A prefix that would make more keys match."""
    bytes: int = 0


class CheckpointCompared(BaseEvent, tag="CheckpointCompared"):
    """What was asked with `CompareCheckpoint`."""

    comparison: CheckpointComparison


# --- files of tensors


class Save(BaseCommand, tag="Save"):
    """Write objects to a file, whole or not at all."""

    targets: tuple[str, ...]
    """Tensors, models (their state dicts) or parts of models; empty: everything in the workspace."""
    path: str
    form: str = "safetensors"
    """`safetensors`, `pt` (a state dict, a tensor, or a dict of them, with torch.save) or `module` (a whole model with
    torch.save)."""
    named: bool = False
    """Keys begin with the name of their object, also where there is only one: `Load` makes the object again."""
    overwrite: bool = False
    sent_to: SentFrom | None = None
    """The file of another machine that this one is brought to."""


class ListFile(BaseCommand, tag="ListFile"):
    """Say what a file of tensors holds, without loading it. Answered with `FileListed`."""

    path: str
    sent_from: SentFrom | None = None


class Load(BaseCommand, tag="Load"):
    """Load tensors of a file as objects of the workspace."""

    path: str
    entries: tuple[str, ...] = ()
    """Keys to load; empty: all."""
    device: str = "cpu"
    name: str | None = None
    """Name of the one tensor; with several: the beginning of their names."""
    sent_from: SentFrom | None = None


class FileEntry(msgspec.Struct, frozen=True):
    """One tensor of a file, or one module of a workspace file."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


class FileContents(Record):
    """What a file holds."""

    path: str
    form: str
    """`safetensors`, `pt`, `pickle`, `sharded`, `workspace`, `npy`."""
    entries: tuple[FileEntry, ...]
    bytes: int
    count: int
    """Tensors in it; at most five thousand are listed."""
    saved_on: str | None = None
    """Devices on which the tensors were when they were saved, as far as the file says."""


class FileListed(BaseEvent, tag="FileListed"):
    """What was asked with `ListFile`."""

    contents: FileContents


# --- workspace files


class SaveWorkspace(BaseCommand, tag="SaveWorkspace"):
    """Write everything to one workspace file, from which `OpenWorkspace` makes it again. Answered with
    `WorkspaceFile`."""

    path: str
    overwrite: bool = False
    layout: str = ""
    """The window's layout, as text that comes back when it is opened."""
    most_bytes: int | None = None
    """Refused where its values take more; None: any size."""
    copy_of: str = ""
    """For a copy of unsaved work: the file that the workspace is saved to otherwise, if there is one."""
    copy_of_far: SentFrom | None = None
    """The same, where that file is on another machine."""
    sent_to: SentFrom | None = None
    """The file of another machine that this one is brought to."""


class OpenWorkspace(BaseCommand, tag="OpenWorkspace"):
    """Make the workspace what it was when the file was saved. Runs no code of the file's: models of the user's own
    have their tensors, and wait for `RunModelCode`. Answered with `WorkspaceFile`."""

    path: str
    replace: bool = False
    """Remove what is here; without it, anything here is a refusal."""
    virtual: bool = False
    """Take virtual GPUs for cards that are missing here; without it, the CPU."""
    stamp: str = ""
    """Only if the file has this stamp; empty: whatever it has."""
    code: tuple[str, ...] = ()
    """Models whose code may run: it has run in this session before."""
    copy: bool = False
    """It is a copy of unsaved work: the workspace is still that of the file which `SaveWorkspace.copy_of` named."""
    sent_from: SentFrom | None = None
    """The workspace has no file on this machine then."""


class NewWorkspace(BaseCommand, tag="NewWorkspace"):
    """Remove every object and begin without a file; the devices stay. Answered with `WorkspaceFile`, without a
    path."""


class RunModelCode(BaseCommand, tag="RunModelCode"):
    """Build a model that came from a workspace file and let it have its tensors. The window asks before it sends one
    that runs code of the user's."""

    target: str
    again: bool = False
    """It was opened from the user's code: build it again, and let it have what fits of the former one."""


class WorkspaceFile(Kept, tag="WorkspaceFile"):
    """A file holds the workspace as it is now: it was saved there, or opened from there; or it is new, and has none."""

    path: str
    """Empty: the workspace has no file of its own."""
    copy: bool = False
    """What was opened is a copy of unsaved work, which `path` does not have."""
    again: OpenWorkspace | NewWorkspace
    """What brings it back."""
    sent_from: SentFrom | None = None
    """The file of another machine that has it; `path` is empty."""
    opened: bool = False
    """It took the place of what was here; an Undo brings that back, with its file."""
    layout: str = ""
    """Of the window, in a file that was opened."""
    lost: tuple[str, ...] = ()
    """What the workspace holds and the file cannot, in phrases: `the graph that computed y`."""
    on_its_way: bool = False
    """It was saved for another machine (`sent_to`) and has not arrived there: the same event without this follows once
    it has."""
    contents: int | None = None
    """With what was on its way: the contents that it has (`UndoState.contents`); None: those of now."""


# --- what the window remembers


class FarFile(msgspec.Struct, frozen=True):
    """A file of another machine."""

    machine: str
    path: str
    here: bool = False
    """The file is on this machine, and holds the workspace of that one."""


RecentFiles = tuple[str | FarFile, ...]
"""Files of any kind that were opened or saved last, the newest first; a path is one of this machine."""
OpenedModels = tuple[OpenModel, ...]
"""Models that were opened last, with every choice; the newest first."""
RecentModels = tuple[tuple[str, str], ...]
"""The same as earlier versions kept them: source and folder of `OpenModel`."""
TrustedFolders = tuple[str, ...]
"""Folders whose Python may run when a model is opened from there."""
