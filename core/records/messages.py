"""What goes over the link: commands to the engine, events from it. Plain frozen records with tags.

`request` is chosen by the sender, unique per command; events that answer a command repeat it, 0 means none.
Ending: every command is answered by exactly one `JobEnded`, after everything else that it caused.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from devexplorer.core.records.base import BaseCommand, BaseEvent, Record
from devexplorer.core.records.benchmark import (
    BeginBenchmark,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchReady,
    BenchStarted,
    StartBenchmark,
    StopBenchmark,
)
from devexplorer.core.records.devices import AllocatorSample, DeviceDetails, DeviceInfo, DeviceSample, Problem, Topology
from devexplorer.core.records.doctor import Checked
from devexplorer.core.records.objects import MoveReport, ObjectSnapshot, Row

if TYPE_CHECKING:
    Command = BaseCommand
    Event = Record
else:

    class Command(ABC):  # noqa: B024 - only to be recognised
        """Any command, of the kernel or of a feature: `core.feature` decodes what is declared so."""

    class Event(ABC):  # noqa: B024
        """Any event, the same way."""

    Command.register(BaseCommand)
    Event.register(Record)


class BuildModel(BaseCommand, tag="BuildModel"):
    """Build a sample model of the zoo, in the given device and dtype."""

    recipe: str
    """Name in the zoo: `mlp`, `vgg16-bn`, …"""
    name: str | None = None
    """Name in the workspace; None: the recipe's, with a number when taken."""
    device: str = "cpu"
    dtype: str | None = None
    seed: int = 0
    """Seed of the initial values, so that a rebuilt model has the same ones."""


class NewTensor(BaseCommand, tag="NewTensor"):
    """Create a named tensor."""

    name: str | None = None
    fill: str = "ones"
    """`ones`, `zeros`, `rand`, `randn`, `arange`, `text` (values in `text`), `file` (a .npy file named in `text`)."""
    shape: tuple[int, ...] = ()
    text: str = ""
    dtype: str | None = None
    device: str = "cpu"
    requires_grad: bool = False
    fall_back: bool = False
    """Use the CPU, and say so, when there is no such device (the tutorial's `try_gpu`)."""
    seed: int = 0


class Move(BaseCommand, tag="Move"):
    """Move (or copy) objects or parts of models to one device, all or none."""

    targets: tuple[str, ...]
    """`name`, or `name:path` for a submodule."""
    device: str
    """Empty, where nothing is copied: only the dtype changes, and each tensor stays on its device."""
    dtype: str | None = None
    copy: bool = False
    optimizer: bool = False
    """Let the optimizer's state of models follow its parameters."""


class Undo(BaseCommand, tag="Undo"):
    """Take back the newest change of the workspace."""


class Redo(BaseCommand, tag="Redo"):
    """Carry out again what was undone last."""


class Remove(BaseCommand, tag="Remove"):
    """Remove objects from the workspace and free what they held."""

    names: tuple[str, ...]


class Forward(BaseCommand, tag="Forward"):
    """Run a model, or a part of it (`name:path`), on a workspace tensor, or on a sample input made on its device."""

    target: str
    input: str | None = None
    output: str | None = None
    """Name for the result in the workspace; None: the result is described and dropped."""


class Backward(BaseCommand, tag="Backward"):
    """Forward, sum, backward: fills the gradients of a model."""

    target: str
    input: str | None = None


class EditElement(BaseCommand, tag="EditElement"):
    """Set one element of a tensor in place (`name`, or `name:path` of a parameter or buffer)."""

    target: str
    index: tuple[int, ...]
    value: float


class Combine(BaseCommand, tag="Combine"):
    """`result = left + right` (or `-`, `*`, `@`) for two workspace tensors."""

    left: str
    right: str
    operator: str = "+"
    name: str | None = None


class AddVirtual(BaseCommand, tag="AddVirtual"):
    """Add virtual GPUs, numbered on from those that are there."""

    spec: str
    """`[Nx ]PROFILE[, ...]`"""


class SetThreads(BaseCommand, tag="SetThreads"):
    """Set the number of CPU threads that torch uses for one operation."""

    threads: int


class Cancel(BaseCommand, tag="Cancel"):
    """Cancel a job that waits or runs, at its next step."""

    job: int


class Steps(BaseCommand, tag="Steps"):
    """Carry out commands in order, all or none, as one step of Undo; a `Combine` takes copies made before it. Not for
    what the engine itself carries out (benchmarks, Undo, Redo, Cancel). `title` names them: "the session of a.py"."""

    commands: tuple[Command, ...]
    title: str = ""


class MoveOptimizer(BaseCommand, tag="MoveOptimizer"):
    """Move the optimizer's state to where the parameters are that it belongs to."""

    target: str


KERNEL_COMMANDS: tuple[type[BaseCommand], ...] = (
    BuildModel,
    NewTensor,
    Move,
    Undo,
    Redo,
    Remove,
    Forward,
    Backward,
    EditElement,
    Combine,
    StartBenchmark,
    BeginBenchmark,
    StopBenchmark,
    AddVirtual,
    SetThreads,
    Cancel,
    Steps,
)


class Fact(msgspec.Struct, frozen=True):
    """One line of the inspector: a label and its value, ready to be read."""

    label: str
    value: str


class Offer(msgspec.Struct, frozen=True):
    """A way out that takes one click: what the button says and what it sends."""

    label: str
    command: Command


class EngineReady(BaseEvent, tag="EngineReady"):
    """The engine is up: what torch says about itself. Sent once, first."""

    pid: int
    python_version: str
    torch_version: str
    cuda_version: str | None
    """The CUDA version this torch was built with; None: a build without CUDA."""
    cuda_available: bool
    cuda_device_count: int
    cuda_visible_devices: str | None
    threads: int
    virtual_unavailable: str | None
    """Why virtual GPUs cannot work with this torch; None: they can."""
    recipes: dict[str, str]
    """Sample models: name -> one line of description."""
    default_dtype: str = "float32"
    virtual_beside: str | None = None
    """Why they have to be in an engine of their own: this one can use CUDA cards. None: they can be in this one."""
    read_only: str = ""
    """Why nothing can be done there, a sentence without full stop: it is no engine of ours. Empty: it is one."""
    moves: bool = False
    """Its models can be moved nevertheless."""


class EngineDevices(BaseEvent, tag="EngineDevices"):
    """Every device that the engine's torch knows, also the CPU and virtual GPUs; NVML's are joined by the receiver."""

    devices: tuple[DeviceInfo, ...]
    problems: tuple[Problem, ...] = ()


class ObjectChanged(BaseEvent, tag="ObjectChanged"):
    """A new or changed object."""

    snapshot: ObjectSnapshot
    following: int = 0
    """On the link only: rows that are still to come in `RowsFollow`."""


class RowsChanged(BaseEvent, tag="RowsChanged"):
    """A known object of which only some rows are different: the same paths, in the order of the last snapshot sent."""

    name: str
    places: tuple[int, ...]
    """Indexes into the rows."""
    rows: tuple[Row, ...]
    """The rows there now."""
    rest: ObjectSnapshot
    """Everything else of the object as it is now; its `rows` are empty."""
    following: int = 0
    """On the link only: rows that are still to come in `RowsFollow`."""


class RowsFollow(BaseEvent, tag="RowsFollow"):
    """More rows of an `ObjectChanged` or `RowsChanged` that was too long for one frame. On the link only: its reader
    joins them."""

    name: str
    rows: tuple[Row, ...]


class ObjectRemoved(BaseEvent, tag="ObjectRemoved"):
    """An object that is gone."""

    name: str


class Moved(BaseEvent, tag="Moved"):
    """A move that succeeded."""

    report: MoveReport
    time_unix_s: float
    undoes: bool = False
    """True when this move was the undo of another."""


class Answer(BaseEvent, tag="Answer"):
    """What happened, in words: the inspector shows it."""

    title: str
    words: str
    facts: tuple[Fact, ...] = ()
    code: str = ""
    """The Python that does the same."""
    subject: str | None = None
    """The object that it is about."""
    part: str = ""
    """The path of the part of it that it is about, for windows of earlier versions; empty: all of it."""
    failed: bool = False
    cancelled: bool = False
    """It came to nothing because the user ended it."""
    offers: tuple[Offer, ...] = ()
    time_unix_s: float = 0.0


class Kept(BaseEvent):
    """What the workspace holds is kept outside the engine: it was saved, or opened from there."""

    again: Command
    """What brings it back."""


class SideEffects(BaseEvent, tag="SideEffects"):
    """What the command did that a replay would not repeat, in short phrases ("running statistics changed by a forward
    pass")."""

    effects: tuple[str, ...]


class UndoState(BaseEvent, tag="UndoState"):
    """What Undo and Redo would do now; None: nothing."""

    title: str | None
    kept_bytes: int
    """Memory that is kept alive for Undo."""
    redo_title: str | None = None
    budget_bytes: int = 0
    """The most that is kept; the oldest changes leave first."""
    command: Command | None = None
    """The command that Undo would take back."""
    contents: int = 0
    """A number for what the workspace holds: while one engine runs, the same number means the same contents."""


class Undid(BaseEvent, tag="Undid"):
    """An Undo reverted the command with the number `of`."""

    of: int


class Redid(BaseEvent, tag="Redid"):
    """A Redo carried out the command again that was undone last; what Undo takes back now has the Redo's number."""

    command: Command


class JobStarted(BaseEvent, tag="JobStarted"):
    """A command began."""

    title: str
    time_unix_s: float
    command: Command | None = None


class JobProgress(BaseEvent, tag="JobProgress"):
    """A command goes on: `done` from 0 to 1; `part` is what is worked on, as commands address it, where it is known."""

    done: float
    text: str = ""
    part: str = ""


class JobEnded(BaseEvent, tag="JobEnded"):
    """A command is over."""

    ok: bool
    time_unix_s: float


class Log(BaseEvent, tag="Log"):
    """A line for the log: the engine's own, or what user code printed."""

    level: str
    """`info`, `warning`, `error`, `output` (printed by user code)."""
    text: str
    time_unix_s: float


class EngineLost(BaseEvent, tag="EngineLost"):
    """The engine process ended; `cannot_start`: in its Python it would do so again; `asked`: another was chosen."""

    reason: str
    will_restart: bool
    time_unix_s: float
    cannot_start: bool = False
    asked: bool = False


class EnginePaused(BaseEvent, tag="EnginePaused"):
    """Somebody stopped the engine process (SIGSTOP, Ctrl-Z of a shell), or let it continue."""

    paused: bool


class Rebuilt(BaseEvent, tag="Rebuilt"):
    """After a restart: what came back, and what did not, with its reason: `y: the result of an addition`."""

    restored: tuple[str, ...]
    lost: tuple[str, ...]


KERNEL_EVENTS: tuple[type[Record], ...] = (
    EngineReady,
    EnginePaused,
    EngineDevices,
    ObjectChanged,
    RowsChanged,
    RowsFollow,
    ObjectRemoved,
    Moved,
    Answer,
    BenchPreparing,
    BenchReady,
    BenchStarted,
    BenchPoint,
    BenchEnded,
    SideEffects,
    UndoState,
    Undid,
    Redid,
    JobStarted,
    JobProgress,
    JobEnded,
    Log,
    EngineLost,
    Rebuilt,
    DeviceSample,
    DeviceDetails,
    Topology,
    AllocatorSample,
)
KERNEL_RESULTS = (Checked,)
"""Events that hold results about objects."""

EventSink = Callable[[Event], None]
"""Takes events, on whichever thread they come."""
