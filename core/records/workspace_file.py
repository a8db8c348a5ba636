"""Commands about workspace files, and what answers them. Any thread."""

from __future__ import annotations

from devexplorer.core.records.base import BaseCommand, BaseEvent, SentFrom


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


class WorkspaceFile(BaseEvent, tag="WorkspaceFile"):
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
