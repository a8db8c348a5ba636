"""The frozen records that cross threads and processes, and nothing else. No thread, no torch, no Qt.

Units are in the field names; `None` means "not available", never 0. The home of each family:

- `devices`:   what a device is (`DeviceInfo`) and one reading of it (`DeviceSample`, `AllocatorSample`)
- `objects`:   what is where (`ObjectSnapshot`, `Row`), what a move did (`MoveReport`)
- `benchmark`: what to measure (`BenchSpec`) and what was measured (`BenchPoint`, `BenchResult`)
- `messages`:  what goes over the link: `Command` in, `Event` out

They are msgspec structs rather than dataclasses: just as frozen and slotted, and they carry the tag that a union needs
on the link.
"""

from devexplorer.core.records.base import BaseCommand, BaseEvent, Record, SentFrom
from devexplorer.core.records.benchmark import (
    BaseResult,
    BaseSpec,
    BeginBenchmark,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchReady,
    BenchResult,
    BenchSpec,
    BenchStarted,
    Conditions,
    MatmulResult,
    MatmulSpec,
    Spread,
    StartBenchmark,
    StopBenchmark,
    StoredRun,
)
from devexplorer.core.records.devices import (
    Affinity,
    AllocatorSample,
    Calibration,
    CalibrationFactor,
    DeviceDetails,
    DeviceInfo,
    DeviceSample,
    NvLink,
    ObjectUse,
    PeerLink,
    Problem,
    ProcessUse,
    Topology,
)
from devexplorer.core.records.doctor import (
    ApplyPatch,
    Check,
    Checked,
    CodeLines,
    Diagnosis,
    DoctorRequest,
    Finding,
    NoGradient,
    Unchecked,
    Uncompiled,
)
from devexplorer.core.records.messages import (
    AddVirtual,
    Answer,
    Backward,
    BuildModel,
    Cancel,
    Combine,
    Command,
    EditElement,
    EngineDevices,
    EngineLost,
    EnginePaused,
    EngineReady,
    Event,
    EventSink,
    Fact,
    Forward,
    JobEnded,
    JobProgress,
    JobStarted,
    Kept,
    Log,
    Move,
    Moved,
    MoveOptimizer,
    NewTensor,
    ObjectChanged,
    ObjectRemoved,
    Offer,
    Rebuilt,
    Redid,
    Redo,
    Remove,
    RowsChanged,
    RowsFollow,
    SetThreads,
    SideEffects,
    Steps,
    Undid,
    Undo,
    UndoState,
)
from devexplorer.core.records.objects import CastError, Hop, MoveReport, ObjectSnapshot, Row
