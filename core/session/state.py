"""What the window knows: devices, objects, timelines, runs, markers, log. Lives on the main thread; no Qt, no torch.

`State.apply(event)` is the only way in and answers which parts changed, so that panels redraw only those.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from devexplorer.core.base import MISSING, count_text, handles, objects_text, sentence
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.feature import FeatureState, LastingState, Trouble, benchmark_kinds, named
from devexplorer.core.records import (
    AddVirtual,
    AllocatorSample,
    Answer,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    Check,
    DeviceDetails,
    DeviceInfo,
    DeviceSample,
    EngineLost,
    EnginePaused,
    EngineReady,
    Event,
    Fact,
    JobEnded,
    JobProgress,
    JobStarted,
    Log,
    Moved,
    MoveReport,
    ObjectChanged,
    ObjectRemoved,
    Offer,
    Problem,
    Rebuilt,
    Row,
    RowsChanged,
    Steps,
    Topology,
    UndoState,
)
from devexplorer.core.records.base import BaseEvent
from devexplorer.core.session.journal import FinishedCommand, Job, Run
from devexplorer.core.session.poll import Change as Change
from devexplorer.core.session.query_results import QueryResults
from devexplorer.core.session.row_table import RowTables
from devexplorer.core.session.settings import Settings
from devexplorer.core.telemetry.history import THROUGHPUT, History, device_row
from devexplorer.core.telemetry.memory_breakdown import ContextEstimator, MemoryParts, memory_parts


class Marker(NamedTuple):
    """A vertical line in both plots."""

    time_unix_s: float
    text: str
    device: str | None
    kind: str = ""
    """`move`, `cast`, `copy`; empty for anything else."""


def marker_text(report: MoveReport) -> str:
    """`mlp → vgpu:0`, `mlp copied to vgpu:0`, `x cast to float16`; a cast that was undone is `x cast back`."""
    names = objects_text(report.objects)
    if report.kind == "cast":
        return f"{names} cast {f'to {report.dtype}' if report.dtype else 'back'}"
    there = f"copied to {report.destination}" if report.kind == "copy" else f"→ {report.destination}"
    return f"{names} {there}{f', {report.dtype}' if report.dtype else ''}"


LOG_LINES = 2000
LEFT_S = 120.0
"""A device that disappeared this long ago is dropped with its history, which takes a megabyte; a restarted engine
brings its devices back sooner."""
OTHER_PYTHON = "Choose another one with “Python environment…”, or start with “devexplorer --python PATH”."
COMMANDS = 1000
MARKERS = 200
P = TypeVar("P", bound=FeatureState)


class State(QueryResults):
    """Everything that the window shows. Feed it events with `apply`, read its attributes, change none of them."""

    def __init__(self, parts: Iterable[type[FeatureState]] | None = None) -> None:
        """`parts`: what features know; None: of all of them."""
        super().__init__()
        self.devices: dict[str, Device] = {}
        self.problems: tuple[Problem, ...] = ()
        self.row_tables = RowTables()
        """Structure and sums of the objects' rows: `row_tables.of(snapshot)`."""
        self.runs: dict[int, Run] = {}
        self.jobs: dict[int, Job] = {}
        self.done: deque[FinishedCommand] = deque(maxlen=COMMANDS)
        """Finished commands, the newest last."""
        self.done_count = 0
        """Finished commands since the start."""
        self.markers: deque[Marker] = deque(maxlen=MARKERS)
        self.log: deque[Log] = deque(maxlen=LOG_LINES)
        self.answer: Answer | None = None
        self.engine: EngineReady | None = None
        """None while the engine starts or after it was lost."""
        self.engine_words = "engine: starting"
        self.cannot_start = False
        """The engine cannot start in its Python: another one has to be chosen."""
        self.undo = UndoState(title=None, kept_bytes=0)
        self.topologies: dict[str, Topology] = {}
        """By source: `nvml`, `virtual`."""
        self.recording: str | None = None
        """Description of the recording that is shown instead of this machine; nothing can be changed then."""
        self.machine = ""
        """The name of the machine that this is about; empty: this one."""
        self.away = ""
        """Why nothing can be changed on the machine that this is about, one sentence; empty: it can."""
        self._known: dict[str, Device] = {}
        self._welcomed: Answer | None = None
        self._next_colour = 0
        self._parts: dict[type[FeatureState], FeatureState] = {}
        self.settings = Settings()
        """What features follow."""
        self._listening: dict[type, list[FeatureState]]
        """Parts by the events that they handle."""
        self.take_parts([kind(self.objects) for kind in (named("state") if parts is None else parts)])

    def part(self, kind: type[P]) -> P:
        """What a feature knows; it says by which class."""
        return cast(P, self._parts[kind])

    def take_parts(self, parts: Iterable[FeatureState]) -> None:
        """These in place of those of the same kinds."""
        self._parts |= {type(part): part for part in parts}
        self._listening = {}
        for kind, part in self._parts.items():
            for event in kind.handled_types():
                self._listening.setdefault(event, []).append(part)

    @property
    def lasting(self) -> tuple[LastingState, ...]:
        """Those parts that follow from all readings."""
        return tuple(part for part in self._parts.values() if isinstance(part, LastingState))

    def exchange(self, other: State) -> Change:
        """Swap contents with another state: a recording is opened, wound or closed. Everything is redrawn."""
        self.__dict__, other.__dict__ = other.__dict__, self.__dict__
        self.follow(other.settings)
        return ~Change.NOTHING

    def follow(self, settings: Settings) -> None:
        """What the user has chosen holds for every machine, and for recordings."""
        self.settings = settings
        for part in self._parts.values():
            part.follow(settings)

    def row_of(self, target: str) -> Row | None:
        """The row of `name` or `name:path`; None when it is gone."""
        name, _, path = target.partition(":")
        snapshot = self.objects.get(name)
        if snapshot is None or not snapshot.rows:
            return None
        if not path:
            return snapshot.rows[0]
        index = self.row_tables.of(snapshot).place(path)
        return None if index is None else snapshot.rows[index]

    def troubles(self) -> list[Trouble]:
        """What features find wrong with devices."""
        return [trouble for part in self._parts.values() for trouble in part.troubles()]

    def past(self) -> Iterator[BaseEvent]:
        """Events that tell a window that comes later what features know."""
        for part in self._parts.values():
            yield from part.past()

    def go_on_from(self, old: State) -> None:
        """Keep the past of the same machine: its curves, colours and runs, lines of its log, what features know."""
        self.machine = old.machine
        fresh, before = self.devices, set(map(id, old.devices.values()))
        self._known, self._next_colour, self.devices = old._known, old._next_colour, old.devices
        for kind, part in self._parts.items():
            part.go_on_from(old.part(kind))
        self.done, self.done_count = old.done, old.done_count
        self.set_catalog(Catalog(tuple(device.info for device in fresh.values()), self.problems))
        for name, device in self.devices.items():
            now = fresh[name]
            device.sample, device.allocator = now.sample or device.sample, now.allocator
            device.details = now.details or device.details
            if id(device) not in before:
                device.history, device.throughput = now.history, now.throughput
        self.runs = {run.run: run for run in old.runs.values() if run.ended} | self.runs
        self._put_before(self.log, old.log)
        self._put_before(self.markers, old.markers)

    @staticmethod
    def _put_before(lines: deque[Any], older: deque[Any]) -> None:
        newer = [line for line in lines if not older or line.time_unix_s > older[-1].time_unix_s]
        lines.clear()
        lines.extend((*older, *newer))

    def look_of(self, device: str) -> tuple[int, bool]:
        """Palette index of a device, and whether it is simulated; those of the CPU for one that is gone."""
        known = self.devices.get(device)
        return (-1, False) if known is None else (known.colour, known.info.simulated)

    @property
    def usable_devices(self) -> list[str]:
        """Ids of the devices that tensors can be put on, in the order of the cards."""
        return [device.info.id for device in self.devices.values() if device.info.usable]

    @property
    def active_runs(self) -> list[Run]:
        """Runs that have not ended."""
        return [run for run in self.runs.values() if not run.ended]

    @property
    def models(self) -> list[str]:
        """Names of the models in the workspace."""
        return [name for name, snapshot in self.objects.items() if snapshot.kind == "model"]

    def running(self, command: type) -> Job | None:
        """The command of this type that is under way."""
        return next((job for job in self.jobs.values() if isinstance(job.command, command)), None)

    def set_catalog(self, catalog: Catalog) -> Change:
        """Take over a new list of devices; histories of devices that stay are kept."""
        # By UUID where there is one: a card that was nvml:0 until the engine had looked is still the same card as
        # cuda:0.
        # Devices that left are remembered: virtual GPUs come back a moment after a new engine has announced itself
        # without them.
        self._known |= {device.info.uuid or name: device for name, device in self.devices.items()}
        self._forget_those_that_left(catalog)
        self.devices = {}
        for info in catalog.devices:
            device = self._known.get(info.uuid or info.id)
            if device is None:
                device = Device(info, -1 if info.kind == "cpu" else self._next_colour)
                self._next_colour += info.kind != "cpu"
            device.info = info
            self.devices[info.id] = device
        self.problems = catalog.problems
        change = Change.DEVICES | self._welcome()
        for part in self._parts.values():
            change |= part.devices_changed(catalog) or Change.NOTHING
        return change

    def _forget_those_that_left(self, catalog: Catalog) -> None:
        here = {info.uuid or info.id for info in catalog.devices}
        read = {key: device.history.latest_unix_s for key, device in self._known.items()}
        newest = max((time_s for time_s in read.values() if not math.isnan(time_s)), default=math.nan)
        for key, time_s in read.items():
            if key not in here and newest - time_s > LEFT_S:
                del self._known[key]

    def apply(self, event: Event) -> Change:
        """Take over one event; returns what changed. Events without a handler concern only the session."""
        change = self.handle(event) or Change.NOTHING
        for part in self._listening.get(type(event), ()):
            if (more := part.handle(event)) is not None:  # seldom: arithmetic of flags is slow
                change |= more
        return cast(Change, change)

    @handles(AllocatorSample)
    def _allocator(self, sample: AllocatorSample) -> Change:
        if sample.device in self.devices:
            self.devices[sample.device].allocator = sample
            self.devices[sample.device].context.see_allocator(sample)
        return Change.SAMPLES

    @handles(DeviceDetails)
    def _details(self, details: DeviceDetails) -> Change:
        if details.device in self.devices:
            self.devices[details.device].details = details
        return Change.DETAILS

    @handles(Topology)
    def _topology(self, topology: Topology) -> Change:
        self.topologies[topology.source] = topology
        return Change.DETAILS

    @handles(ObjectChanged)
    def _object_changed(self, event: ObjectChanged) -> Change:
        self.objects[event.snapshot.name] = event.snapshot
        return Change.OBJECTS

    @handles(ObjectRemoved)
    def _object_removed(self, event: ObjectRemoved) -> Change:
        self.objects.pop(event.name, None)
        self.forget(event.name)
        for part in self._parts.values():
            part.forget(event.name)
        self.row_tables.keep(self.objects)
        return Change.OBJECTS

    @handles(Answer)
    def _answered(self, answer: Answer) -> Change:
        if answer.title:  # else it is to nothing that the user did
            self.answer = answer
        if answer.request in self.jobs:
            self.jobs[answer.request].answer = answer
        return Change.ANSWER

    @handles(Moved)
    def _moved(self, event: Moved) -> Change:
        report = event.report
        if event.request in self.jobs:
            self.jobs[event.request].report = report
        if report.already_there:
            return Change.NOTHING
        self.markers.append(Marker(event.time_unix_s, marker_text(report), report.destination, report.kind))
        return Change.MARKERS

    @handles(UndoState)
    def _undo_state(self, event: UndoState) -> Change:
        self.undo = event
        return Change.UNDO

    @handles(JobStarted)
    def _job_started(self, event: JobStarted) -> Change:
        self.jobs[event.request] = Job(event.request, event.title, event.time_unix_s, command=event.command)
        return Change.JOBS

    @handles(JobProgress)
    def _job_progress(self, event: JobProgress) -> Change:
        if (job := self.jobs.get(event.request)) is not None:
            job.done, job.text, job.part = event.done, event.text, event.part
        return Change.JOBS

    @handles(Log)
    def _logged(self, line: Log) -> Change:
        self.log.append(line)
        return Change.LOG

    @handles(EngineReady)
    def _engine_ready(self, event: EngineReady) -> Change:
        self.engine = event
        self.engine_words, self.cannot_start = "engine ready", False
        return Change.ENGINE | self._welcome()

    @handles(EnginePaused)
    def _engine_paused(self, event: EnginePaused) -> Change:
        ready = "engine ready" if self.engine is not None else "engine: starting"
        self.engine_words = "engine paused (SIGSTOP)" if event.paused else ready
        return Change.ENGINE

    @handles(JobEnded)
    def _job_ended(self, event: JobEnded) -> Change:
        job = self.jobs.pop(event.request, None)
        if job is not None and job.command is not None and (job.answer is None or job.answer.title):
            steps = job.command.commands if event.ok and isinstance(job.command, Steps) else (job.command,)
            for command in steps:
                done = FinishedCommand(command, event.ok, job.answer, job.report)
                self.done.append(done)
                self.done_count += 1
                if isinstance(command, Check):
                    self.check_ended(command, done)
        return Change.JOBS

    @handles(RowsChanged)
    def _rows_changed(self, event: RowsChanged) -> Change:
        known, places = self.objects.get(event.name), event.places
        if known is None or len(places) != len(event.rows):
            return Change.NOTHING
        if places and not 0 <= min(places) <= max(places) < len(known.rows):
            return Change.NOTHING
        rows = list(known.rows)
        for place, row in zip(places, event.rows, strict=True):
            rows[place] = row
        snapshot = self.objects[event.name] = msgspec.structs.replace(event.rest, rows=tuple(rows))
        self.row_tables.changed(known, snapshot, places)
        return Change.OBJECTS

    def _welcome(self) -> Change:
        """Until the first action the inspector describes this machine."""
        if self.engine is None or not self.devices or self.answer is not self._welcomed:
            return Change.NOTHING
        self.answer = self._welcomed = this_machine(
            self.engine, [device.info for device in self.devices.values()], self.problems
        )
        return Change.ANSWER

    @handles(DeviceSample)
    def _sample(self, sample: DeviceSample) -> Change:
        device = self.devices.get(sample.device)
        if device is None:
            return Change.NOTHING
        device.sample = sample
        pid = self.engine.pid if self.engine is not None else None
        device.engine_bytes = next((use.memory_bytes for use in sample.processes or () if use.pid == pid), None)
        device.context.see_sample(sample, pid)
        parts = device.parts if device.allocator is not None else None
        device.history.append(sample.time_unix_s, device_row(sample, parts, device.allocator))
        return Change.SAMPLES

    @handles(BenchPoint)
    def _point(self, point: BenchPoint) -> Change:
        run = self.runs.get(point.run)
        device = self.devices.get(point.device)
        if run is None or device is None:
            return Change.NOTHING
        run.latest = point
        run.points += 1
        if (part := point.finished) is not None:
            with suppress(msgspec.ValidationError):  # a recording may hold anything
                kind = benchmark_kinds()[str(run.spec.__struct_config__.tag)]
                run.parts.append(msgspec.convert(part, kind.part) if isinstance(part, dict) else part)
        if point.tflops is not None:  # a copy has no throughput of this kind
            run.rated = True
            device.throughput.append(point.time_unix_s, (point.tflops,))
        return Change.SAMPLES | Change.POINTS

    @handles(BenchPreparing)
    def _bench_preparing(self, event: BenchPreparing) -> Change:
        self.runs[event.run] = Run(event.run, event.spec, event.simulated, event.datasheet_tflops)
        return Change.RUNS

    @handles(BenchStarted)
    def _bench_started(self, event: BenchStarted) -> Change:
        run = self.runs.get(event.run)
        if run is None:
            return Change.NOTHING
        run.started_unix_s = event.time_unix_s
        self.markers.append(
            Marker(event.time_unix_s, f"{run.spec.__struct_config__.tag} {run.spec.device}", run.spec.device)
        )
        return Change.RUNS | Change.MARKERS

    @handles(BenchEnded)
    def _bench_ended(self, event: BenchEnded) -> Change:
        run = self.runs.get(event.run)
        if run is not None:
            run.result, run.reason, run.ended = event.result, event.reason, True
            self._end_curve(run, event.time_unix_s)
        return Change.RUNS

    def _end_curve(self, run: Run, time_unix_s: float) -> None:
        """A gap, so that the curve does not join this run with the next."""
        if run.spec.device in self.devices:
            self.devices[run.spec.device].throughput.append(time_unix_s, (None,))

    @handles(EngineLost)
    def _lost(self, event: EngineLost) -> Change:
        self.engine = None
        self.engine_words = "engine restarting" if event.will_restart else "engine stopped"
        self.cannot_start = event.cannot_start
        self.jobs.clear()
        rebuilds = event.will_restart and bool(self.objects)
        self.objects.clear()
        self.row_tables.keep({})
        self.undo = UndoState(title=None, kept_bytes=0)
        self.forget_all()
        for part in self._parts.values():
            part.forget_all()
        for run in self.active_runs:
            run.ended, run.reason = True, event.reason
            self._end_curve(run, event.time_unix_s)
        for device in self.devices.values():
            device.allocator = None
            device.context.forget()
        asked = event.asked and event.will_restart
        level, marker = ("info", "engine restarted") if asked else ("error", "engine lost")
        self.log.append(Log(level=level, text=event.reason, time_unix_s=event.time_unix_s))
        self.markers.append(Marker(event.time_unix_s, marker, None))
        title = "The engine cannot start" if event.cannot_start else "The engine ended"
        if asked:
            title, words = "The engine is restarted", "The workspace is rebuilt." if rebuilds else ""
        elif event.will_restart:
            words = f"It is being restarted{' and the workspace rebuilt' if rebuilds else ''}."
        elif event.cannot_start:
            words = OTHER_PYTHON
        else:
            words = "It was not restarted: use “Restart engine”."
        self.answer = Answer(
            title=title,
            words=f"{event.reason} {words}".rstrip(),
            failed=not asked,
            time_unix_s=event.time_unix_s,
        )
        return ~Change.NOTHING

    @handles(Rebuilt)
    def _rebuilt(self, event: Rebuilt) -> Change:
        if not (event.restored or event.lost):
            self.answer = Answer(title="The engine was restarted", words="It runs again.")
            return Change.ANSWER
        restored = Fact("restored", ", ".join(event.restored) or "nothing")
        lost = Fact("not restored", "; ".join(event.lost) or "nothing")
        words = "The engine runs again. Sample models and tensors were made again from their recipes and moved back."
        self.answer = Answer(title="The workspace was rebuilt", words=words, facts=(restored, lost))
        return Change.ANSWER


# The welcome page: what torch and the driver report about this machine, and what is missing and why.

CODE = """import torch
torch.__version__
torch.version.cuda
torch.cuda.is_available()
torch.cuda.device_count()
[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]"""


def this_machine(engine: EngineReady, devices: Sequence[DeviceInfo], problems: Sequence[Problem]) -> Answer:
    """The first page of the inspector."""
    cards = [info for info in devices if info.kind not in ("cpu", "virtual")]
    usable = [info for info in cards if info.usable]
    virtual = [info for info in devices if info.simulated]
    facts = [
        Fact("torch", engine.torch_version),
        Fact("CUDA of this torch", engine.cuda_version or "none: a build without CUDA"),
        Fact("cuda.is_available()", str(engine.cuda_available)),
        Fact("cuda.device_count()", str(engine.cuda_device_count)),
        Fact("driver", next((info.driver_version for info in cards if info.driver_version), None) or MISSING),
        Fact(
            "CUDA_VISIBLE_DEVICES",
            "unset" if engine.cuda_visible_devices is None else engine.cuda_visible_devices or "empty",
        ),
        Fact(
            "CPU threads",
            str(next((info.threads for info in devices if info.id == "cpu" and info.threads), engine.threads)),
        ),
        Fact("Python", engine.python_version),
    ]
    offers: tuple[Offer, ...] = ()
    refused = next((sentence(info.reason) for info in cards if info.reason), "")
    if engine.read_only:
        title, words = "A running script", sentence(engine.read_only)
    elif usable or virtual:
        title = f"{count_text(len(usable or virtual), 'GPU' if usable else 'virtual GPU')} can be used"
        words = "Build a model or create a tensor, then move it: select it and press Ctrl+1, or drag it onto a card."
        if not usable:
            words += f" Virtual GPUs work like real ones; their numbers are simulated. {refused}".rstrip()
    else:
        title = "No GPU can be used here"
        words = " ".join(dict.fromkeys(sentence(problem.reason) for problem in problems if problem.device is None))
        words = words or refused or "No driver and no card was found."
        if engine.virtual_unavailable is None:
            words += " Virtual GPUs make everything work here too; their numbers are simulated."
            offers = (Offer("Add two virtual GPUs", AddVirtual(spec="2x Tesla T4")),)
    return Answer(title=title, words=words, facts=tuple(facts), code=CODE, offers=offers)


# One device as the window knows it: what it is, what was read of it last, its curves.


@dataclass
class Device:
    """One device with its latest readings and its histories."""

    info: DeviceInfo
    colour: int
    """Index into the palette; the CPU has -1. Stays with the device for the session."""
    sample: DeviceSample | None = None
    allocator: AllocatorSample | None = None
    details: DeviceDetails | None = None
    engine_bytes: int | None = None
    """Memory of the engine process as the driver reports it, if it does."""
    context: ContextEstimator = field(default_factory=ContextEstimator)
    """Estimates the share of CUDA context and libraries where the allocator does not report it."""
    history: History = field(default_factory=History)
    """Everything of `core.telemetry.history.DEVICE_METRICS`, a row per `DeviceSample`."""
    throughput: History = field(default_factory=lambda: History((THROUGHPUT,), gap_s=math.inf))
    """A row per block of a benchmark, a gap after each run."""

    @property
    def used_bytes(self) -> int | None:
        """Memory in use by all processes, from the most recent source."""
        return self.sample.memory_used_bytes if self.sample is not None else self.info.memory_used_bytes

    @property
    def total_bytes(self) -> int | None:
        """Capacity."""
        if self.sample is not None and self.sample.memory_total_bytes is not None:
            return self.sample.memory_total_bytes
        return self.info.memory_total_bytes

    @property
    def parts(self) -> MemoryParts:
        """Breakdown of the used memory, as far as it was measured."""
        driver = self.sample.memory_reserved_bytes if self.sample is not None else None
        return memory_parts(self.used_bytes, self.total_bytes, self.allocator, self.context.bytes, driver)

    @property
    def free_bytes(self) -> int | None:
        """What new tensors can take; the engine's own cache counts as free. None: not known."""
        parts = self.parts
        return None if parts.free is None else parts.free + (parts.cached or 0)
