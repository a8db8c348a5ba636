"""What a window and a host say to each other, over the link of `core.machines.host.wire`. Frozen records in two
tagged unions. Times in what a host says are its own until `core.machines.window.uplink` has shifted them.

A host is the session of another machine. Every connection begins with a snapshot of it, what happens follows. Records
arrive in order, readings may be left out.
"""

from __future__ import annotations

import msgspec

from devexplorer.core.environments.records import Environment, Probe
from devexplorer.core.machines.greeting import Greeting
from devexplorer.core.records.base import Record
from devexplorer.core.records.benchmark import StoredRun
from devexplorer.core.records.devices import DeviceInfo, Problem
from devexplorer.core.records.messages import Command, Event

PROTOCOL = 3
"""Of everything in this file. A window and a host of different protocols do not talk to each other."""


class Hello(Record, tag="Hello"):
    """The first record in each direction, never compressed. Its fields keep their meaning in every protocol."""

    protocol: int = PROTOCOL
    devexplorer: str = ""
    """The version that speaks."""
    client: str = ""
    """Of the window: the same as long as it runs. A host repeats it."""
    session: str = ""
    """Of the host: the same as long as it runs."""
    machine: str = ""
    """Of the host: its host name. Of the window: who and where, for other windows."""
    problem: str = ""
    """Why this is the last record, one line; empty: it is not."""
    now_unix_s: float = 0.0
    """Of the host: its clock. So is what follows."""
    pid: int = 0
    since_unix_s: float = 0.0
    python: str = ""
    """What its engine runs in."""
    clients: int = 0
    """Windows that are connected."""
    busy: tuple[str, ...] = ()
    """What keeps it from ending when nobody is connected."""


# --- about the connection, in both directions


class Ping(Record, tag="Ping"):
    """Answered at once."""

    sent_s: float
    """By a clock of who sends it."""


class Pong(Record, tag="Pong"):
    """Answers `Ping`."""

    sent_s: float
    """That of the `Ping`."""
    here_unix_s: float
    """When it arrived, by the clock of who answers."""
    dropped: int = 0
    """Readings that were not sent because the link was too slow, so far."""


# --- questions of a window that are no commands for the engine: files, runs, recordings, the engine itself


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


class FindPythons(Record, tag="FindPythons"):
    """The Python environments of that machine; answered with `PythonsFound`."""

    folder: str = "~"
    """Where the user works."""
    path: str = ""
    """Only the one that this names, an interpreter or the folder of an environment."""


class ProbePython(Record, tag="ProbePython"):
    """What an interpreter of that machine has, which is started for it; answered with `PythonProbed`."""

    path: str


class ListScripts(Record, tag="ListScripts"):
    """The observed scripts of this user that run on that machine; answered with `ScriptsFound`."""


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
    | ListScripts
    | WriteScript
    | SaveCopy
    | PlaceCopy
    | ForgetCopy
    | WorkspaceArrived
)


# --- from the window to the host


class Do(Record, tag="Do"):
    """A command for the engine; its `request` is one of those that `Control` granted."""

    command: Command


class TakeOver(Record, tag="TakeOver"):
    """This window wants to send commands, in place of the one that does."""


class HostQuestion(Record, tag="Ask"):
    """A question to the host; answered with one `Reply`."""

    id: int
    """Chosen by the window, ascending."""
    question: Question


ToHost = Ping | Pong | Do | TakeOver | HostQuestion


# --- from the host to the window


class Happened(Record, tag="Happened"):
    """An event of the session."""

    event: Event


class DevicesChanged(Record, tag="DevicesChanged"):
    """The devices of that machine."""

    devices: tuple[DeviceInfo, ...]
    problems: tuple[Problem, ...] = ()


class SessionAction(msgspec.Struct, frozen=True):
    """One action of the session, with its Python."""

    title: str
    words: str
    code: str
    time_unix_s: float


class ActionsChanged(Record, tag="ActionsChanged"):
    """The session's actions: the first `keep` of those that were known, then these."""

    keep: int
    added: tuple[SessionAction, ...]


class Control(Record, tag="Control"):
    """Whether this window's commands are carried out, from now on."""

    granted: bool
    generation: int = 0
    """Where granted: the requests of its commands are above `generation << 32`."""
    holder: str = ""
    """Who has it instead: host name and user of that window's machine; `away`: that window is not connected now."""
    away: bool = False


class RecordingChanged(Record, tag="RecordingChanged"):
    """The recording on that machine; an empty path: nothing is recorded."""

    path: str = ""
    started_unix_s: float = 0.0


class EngineChoice(Record, tag="EngineChoice"):
    """What the engine of that machine runs in."""

    python: str
    visible_devices: str | None = None


class HistoryChanged(Record, tag="HistoryChanged"):
    """The runs of that machine's history are others; `problem`: what does not work there, one line."""

    problem: str = ""


class SnapshotBegin(Record, tag="SnapshotBegin"):
    """All that is known follows, in place of everything that was said before."""


class SnapshotEnd(Record, tag="SnapshotEnd"):
    """The snapshot is complete."""

    running: tuple[int, ...] = ()
    """The requests of windows' commands that have not ended."""


class PastMark(msgspec.Struct, frozen=True):
    """A line in the plots: when something was done."""

    time_unix_s: float
    text: str
    device: str | None = None
    kind: str = ""


class PastEvents(Record, tag="PastEvents"):
    """Marks of what was done, the oldest first."""

    marks: tuple[PastMark, ...] = ()


class PastReadings(Record, tag="PastReadings"):
    """What was read of a device, as means of steps that are longer the longer ago they were."""

    device: str
    start_unix_s: float
    after_s: bytes
    """Seconds of each step after the start, ascending: little-endian float32."""
    metrics: tuple[str, ...]
    values: bytes
    """A little-endian float32 for each metric and step, metric by metric, NaN where nothing is known."""


class FolderEntry(msgspec.Struct, frozen=True, array_like=True):
    """One file or folder."""

    name: str
    is_folder: bool = False
    size_bytes: int = 0
    modified_unix_s: float = 0.0


class Folder(Record, tag="Folder"):
    """What is in a folder."""

    path: str
    """The whole path."""
    entries: tuple[FolderEntry, ...]
    """Folders first, then files, by name."""
    left_out: int = 0
    """So many more there are."""


class FileKindFound(msgspec.Struct, frozen=True):
    """What a file is, or why it cannot be opened."""

    path: str
    kind: str | None
    reason: str = ""


class FileKinds(Record, tag="FileKinds"):
    """Answers `RecogniseFiles`, in the same order."""

    files: tuple[FileKindFound, ...]


class ModelFound(msgspec.Struct, frozen=True):
    """Something in a file that makes a model."""

    name: str
    is_class: bool
    needs: tuple[str, ...] = ()
    guesses: tuple[str, ...] = ()


class ModelsFound(Record, tag="ModelsFound"):
    """Answers `FindModels`."""

    models: tuple[ModelFound, ...]


class Chunk(Record, tag="Chunk"):
    """A piece of a file."""

    data: bytes
    size_bytes: int
    """Of the whole file."""
    sha256: str = ""
    """With the last piece: of the whole file, in hexadecimal."""


class RunPage(Record, tag="RunPage"):
    """Answers `ListRuns`."""

    runs: tuple[StoredRun, ...]
    count: int
    """Of all that match."""


class PythonsFound(Record, tag="PythonsFound"):
    """Answers `FindPythons`."""

    environments: tuple[Environment, ...]


class PythonProbed(Record, tag="PythonProbed"):
    """Answers `ProbePython`."""

    probe: Probe


class ScriptsFound(Record, tag="ScriptsFound"):
    """Answers `ListScripts`."""

    scripts: tuple[Greeting, ...]


class Text(Record, tag="Text"):
    """A text."""

    text: str


class Done(Record, tag="Done"):
    """It was done."""

    words: str = ""
    """What there is to say about it."""


Result = Folder | FileKinds | ModelsFound | Chunk | RunPage | PythonsFound | PythonProbed | ScriptsFound | Text | Done

ANSWERED_WITH: dict[type[Question], type[Result]] = {
    ListFolder: Folder,
    RecogniseFiles: FileKinds,
    FindModels: ModelsFound,
    ReadFile: Chunk,
    ListRuns: RunPage,
    FindPythons: PythonsFound,
    ProbePython: PythonProbed,
    ListScripts: ScriptsFound,
    WriteScript: Text,
    SaveCopy: Text,
    PlaceCopy: Text,
}
"""All other questions: with `Done`."""


class Reply(Record, tag="Reply"):
    """Answers `HostQuestion`."""

    to: int
    result: Result | None = None
    problem: str = ""
    """Why there is no result, one line."""


class Goodbye(Record, tag="Goodbye"):
    """The host ends."""

    reason: str
    for_good: bool = False
    """What it showed is over: there will be no other one."""


ToWindow = (
    Ping
    | Pong
    | Happened
    | DevicesChanged
    | ActionsChanged
    | Control
    | RecordingChanged
    | EngineChoice
    | HistoryChanged
    | SnapshotBegin
    | SnapshotEnd
    | PastEvents
    | PastReadings
    | Reply
    | Goodbye
)
