"""What a window and a host say to each other, over the link of `core.machines.host.wire`. Frozen records in two
tagged unions.

A host is the session of another machine. What has a number (`Numbered`) arrives once and in order, also when the
connection breaks in between; everything else concerns one connection, or is a reading that may be lost.
"""

from __future__ import annotations

import msgspec

from devexplorer.core.machines.questions import (
    FindModels,
    ListFolder,
    ListRuns,
    PlaceCopy,
    Question,
    ReadFile,
    RecogniseFiles,
    SaveCopy,
    WriteScript,
)
from devexplorer.core.records.base import Numbered as Numbered
from devexplorer.core.records.base import Record
from devexplorer.core.records.benchmark import StoredRun
from devexplorer.core.records.devices import DeviceInfo, Problem
from devexplorer.core.records.environments import FindPythons, ProbePython, PythonProbed, PythonsFound
from devexplorer.core.records.messages import Command, Event
from devexplorer.core.records.past import PastEvents, PastReadings

PROTOCOL = 1
"""Of everything in this file. A window and a host of different protocols do not talk to each other."""
ZLIB = "zlib"
"""The feature: what follows the `Hello` is one zlib stream in each direction."""
BEGIN = "begin"
"""The feature of a host: a benchmark can wait for `BeginBenchmark`."""
SENT_TO = "sent-to"
"""The feature of a host: files can be saved for the machine of the window (`sent_to`, `WorkspaceArrived`)."""


class Hello(Record, tag="Hello"):
    """The first record in each direction, never compressed. Its fields keep their meaning in every protocol."""

    protocol: int = PROTOCOL
    devexplorer: str = ""
    """The version that speaks."""
    features: tuple[str, ...] = ()
    client: str = ""
    """Of the window: the same as long as it runs. A host repeats it."""
    session: str = ""
    """Of the host: the same as long as it runs. A window says which one it knows."""
    received: int = 0
    """The last number that has arrived from the other side."""
    resumes: bool = False
    """Of the host: it goes on behind what the window has received. Otherwise it counts from 1 again, and begins with a
    snapshot."""
    machine: str = ""
    """Of the host: its host name. Of the window: who and where, for other windows."""
    problem: str = ""
    """Why this is the last record, one line; empty: it is not."""
    now_unix_s: float = 0.0
    """Of the host: its clock. 0: not said."""


# --- about one connection, in both directions


class Received(Record, tag="Received"):
    """Everything up to this number has arrived, and so many bytes of this connection."""

    number: int
    stream_bytes: int


class Ping(Record, tag="Ping"):
    """Answered at once."""

    sent_unix_s: float


class Pong(Record, tag="Pong"):
    """Answers `Ping`."""

    sent_unix_s: float
    """That of the `Ping`, by the clock of who sent it."""
    here_unix_s: float
    """When it arrived, by the clock of who answers."""
    dropped: int = 0
    """Readings that were not sent because the link was too slow, so far."""


# --- from the window to the host


class Do(Numbered, tag="Do"):
    """A command for the engine; its `request` is one of those that `Control` granted."""

    command: Command


class TakeOver(Numbered, tag="TakeOver"):
    """This window wants to send commands, in place of the one that does."""


class Ask(Numbered, tag="Ask"):
    """A question to the host; answered with one `Reply`."""

    id: int
    """Chosen by the window, unique in it."""
    question: Question


ToHost = Received | Ping | Pong | Do | TakeOver | Ask


# --- from the host to the window


class Happened(Numbered, tag="Happened"):
    """An event of the session. Number 0: a reading."""

    event: Event


class DevicesChanged(Numbered, tag="DevicesChanged"):
    """The devices of that machine."""

    devices: tuple[DeviceInfo, ...]
    problems: tuple[Problem, ...] = ()


class SessionAction(msgspec.Struct, frozen=True):
    """One action of the session, with its Python."""

    title: str
    words: str
    code: str
    time_unix_s: float


class ActionsChanged(Numbered, tag="ActionsChanged"):
    """The session's actions: the first `keep` of those that were known, then these."""

    keep: int
    added: tuple[SessionAction, ...]


class Control(Numbered, tag="Control"):
    """Whether this window's commands are carried out, from now on."""

    granted: bool
    generation: int = 0
    """Where granted: the requests of its commands are above `generation << 32`."""
    holder: str = ""
    """Who has it instead: host name and user of that window's machine; `away`: that window is not connected now."""
    away: bool = False


class RecordingChanged(Numbered, tag="RecordingChanged"):
    """The recording on that machine; an empty path: nothing is recorded."""

    path: str = ""
    started_unix_s: float = 0.0


class EngineChoice(Numbered, tag="EngineChoice"):
    """What the engine of that machine runs in."""

    python: str
    visible_devices: str | None = None


class HistoryChanged(Numbered, tag="HistoryChanged"):
    """The runs of that machine's history are others; `problem`: what does not work there, one line."""

    problem: str = ""


class SnapshotBegin(Numbered, tag="SnapshotBegin"):
    """All that is known follows, in place of everything that was said before."""


class SnapshotEnd(Numbered, tag="SnapshotEnd"):
    """The snapshot is complete."""


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


class Text(Record, tag="Text"):
    """A text."""

    text: str


class Done(Record, tag="Done"):
    """It was done."""

    words: str = ""
    """What there is to say about it."""


Result = Folder | FileKinds | ModelsFound | Chunk | RunPage | PythonsFound | PythonProbed | Text | Done

ANSWERED_WITH: dict[type[Question], type[Result]] = {
    ListFolder: Folder,
    RecogniseFiles: FileKinds,
    FindModels: ModelsFound,
    ReadFile: Chunk,
    ListRuns: RunPage,
    FindPythons: PythonsFound,
    ProbePython: PythonProbed,
    WriteScript: Text,
    SaveCopy: Text,
    PlaceCopy: Text,
}
"""All other questions: with `Done`."""


class Reply(Numbered, tag="Reply"):
    """Answers `Ask`."""

    to: int
    result: Result | None = None
    problem: str = ""
    """Why there is no result, one line."""


class Goodbye(Numbered, tag="Goodbye"):
    """The host ends."""

    reason: str


ToWindow = (
    Received
    | Ping
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
