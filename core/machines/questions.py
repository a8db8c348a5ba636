"""What a window can ask a host that is no command for the engine: files, runs, recordings, the engine itself. Frozen
records; each is answered in a `Reply`."""

from __future__ import annotations

from devexplorer.core.records.base import Record
from devexplorer.core.records.environments import FindPythons, ProbePython


class ListFolder(Record, tag="ListFolder"):
    """The files in a folder; answered with `Folder`."""

    path: str = ""
    """`~` at its beginning is the home folder; empty: where the host was started."""


class RecogniseFiles(Record, tag="RecogniseFiles"):
    """What files are; answered with `FileKinds`."""

    paths: tuple[str, ...]


class FindModels(Record, tag="FindModels"):
    """The classes and functions of a Python file that make models; answered with `ModelsFound`."""

    path: str


class ReadFile(Record, tag="ReadFile"):
    """A piece of a regular file; answered with `Chunk`."""

    path: str
    offset: int = 0
    count: int = 1 << 18


class WriteFile(Record, tag="WriteFile"):
    """The next piece of a file, which appears under its name when it is whole; answered with `Done`."""

    path: str
    offset: int
    """Where it belongs: 0 begins the file again."""
    data: bytes
    sha256: str = ""
    """With the last piece: of the whole file, in hexadecimal."""
    overwrite: bool = False
    size_bytes: int = 0
    """With the first piece: of the whole file, so that room is looked for; 0: not said."""


class ListRuns(Record, tag="ListRuns"):
    """The newest benchmark runs of that machine's history; answered with `RunPage`."""

    kind: str | None = None
    text: str = ""
    limit: int = 200


class TagRuns(Record, tag="TagRuns"):
    """Give runs their tags, instead of those they have; answered with `Done`."""

    tags: tuple[tuple[int, tuple[str, ...]], ...]


class DeleteRuns(Record, tag="DeleteRuns"):
    """Forget runs for good; answered with `Done`."""

    ids: tuple[int, ...]


class ExportRuns(Record, tag="ExportRuns"):
    """Write runs to a file of that machine (`csv`, `json`, `html`); answered with `Done`."""

    kind: str
    path: str
    ids: tuple[int, ...]
    names: bool = False
    """Also of the machine and of other people's processes."""


class ImportRuns(Record, tag="ImportRuns"):
    """Take over the runs of a JSON file of that machine; answered with `Done`."""

    path: str


class StartRecording(Record, tag="StartRecording"):
    """Record on that machine from now on; answered with `Done`."""

    path: str
    overwrite: bool = False


class StopRecording(Record, tag="StopRecording"):
    """Answered with `Done`."""


class RestartEngine(Record, tag="RestartEngine"):
    """End the engine, even one that hangs, and start another; answered with `Done`."""


class SetVisibleDevices(Record, tag="SetVisibleDevices"):
    """Start another engine with this CUDA_VISIBLE_DEVICES; answered with `Done`."""

    value: str | None
    """None: as inherited."""


class SetPython(Record, tag="SetPython"):
    """Start another engine, in this Python of that machine; answered with `Done`."""

    path: str


class SetHidden(Record, tag="SetHidden"):
    """Whether this window shows something else: readings once a second are enough then. Answered with `Done`."""

    hidden: bool


class WriteScript(Record, tag="WriteScript"):
    """The session as Python, with what lets a window repeat it; answered with `Text`."""

    notebook: bool = False


class SaveCopy(Record, tag="SaveCopy"):
    """Save objects to a new file for another machine; answered with `Text`, its path. `ForgetCopy` removes it."""

    targets: tuple[str, ...]


class PlaceCopy(Record, tag="PlaceCopy"):
    """Where a file of this name from another machine is to be written; answered with `Text`, a path. The file stays
    until the host ends: what is loaded from it is loaded again after a crash of the engine."""

    name: str = ""


class ForgetCopy(Record, tag="ForgetCopy"):
    """Remove a file of `SaveCopy` or `PlaceCopy`, or end the saving; answered with `Done`."""

    path: str = ""
    """Empty: end the saving."""


class WorkspaceArrived(Record, tag="WorkspaceArrived"):
    """The file that `SaveWorkspace.sent_to` named is whole on this window's machine; answered with `Done`."""

    request: int
    """Of that command."""


Question = (
    ListFolder
    | RecogniseFiles
    | FindModels
    | ReadFile
    | WriteFile
    | ListRuns
    | TagRuns
    | DeleteRuns
    | ExportRuns
    | ImportRuns
    | StartRecording
    | StopRecording
    | RestartEngine
    | SetVisibleDevices
    | SetPython
    | SetHidden
    | FindPythons
    | ProbePython
    | WriteScript
    | SaveCopy
    | PlaceCopy
    | ForgetCopy
    | WorkspaceArrived
)
