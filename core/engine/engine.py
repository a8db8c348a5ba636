"""The engine: commands in, events out. Owns torch, the workspace and the benchmarks; the same object runs in a child
process (the application), in this process (tests, command line) and wherever else it is given commands.

Threads: `submit` may be called from any thread; work happens on the jobs thread, one command at a time, blocks of
benchmarks that use the CPU between commands; accelerators alone are measured on bench threads; the sampler reads
the allocators ten times a second.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import msgspec

from devexplorer.core.base import (
    BadInput,
    Cancelled,
    Clock,
    DevExplorerError,
    LinkError,
    ProgressMonitor,
    RollbackFailed,
    first_line,
    typed_line,
)
from devexplorer.core.commands.handlers import add_gpus
from devexplorer.core.commands.refusals import refusal, with_rebuilding
from devexplorer.core.commands.registry import REGISTRY, dispatch, title_of
from devexplorer.core.devices import accelerator
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.nvml.library import free_bytes
from devexplorer.core.devices.torch_devices import TorchBackend, torch_facts
from devexplorer.core.engine.benchmarks import Benchmarks, given_inputs, model_copy
from devexplorer.core.engine.link import Joiner, over_the_link
from devexplorer.core.feature import named
from devexplorer.core.models.samples import recipes
from devexplorer.core.records import (
    AddVirtual,
    Answer,
    BeginBenchmark,
    Cancel,
    Command,
    EngineDevices,
    EngineReady,
    Event,
    EventSink,
    JobEnded,
    JobProgress,
    JobStarted,
    Log,
    Moved,
    ObjectChanged,
    ObjectRemoved,
    ObjectSnapshot,
    Redid,
    Row,
    RowsChanged,
    SideEffects,
    StartBenchmark,
    Steps,
    StopBenchmark,
    Undid,
)
from devexplorer.core.virtual import backend as virtual
from devexplorer.core.virtual.device.machine import VirtualMachine, topology
from devexplorer.core.workspace import CommandResult, Workspace

# Compares each object's snapshot with the one sent before, so that only differences are sent. Runs on the jobs
# thread.

SMALL = 100
"""An object with at most this many rows is sent whole."""


class SnapshotDiffer:
    """Holds the last snapshot sent of each object. A new engine starts empty, as does the window after it lost one."""

    def __init__(self) -> None:
        self._last: dict[str, ObjectSnapshot] = {}

    def news(self, snapshot: ObjectSnapshot, request: int) -> ObjectChanged | RowsChanged:
        """The event to send: only the rows that differ if they are fewer than half and no path changed, else the whole
        snapshot."""
        before = self._last.get(snapshot.name)
        self._last[snapshot.name] = snapshot
        places = None if before is None else _different(before.rows, snapshot.rows)
        if places is None:
            return ObjectChanged(request=request, snapshot=snapshot)
        rest = _without_rows(snapshot)
        rows = snapshot.rows
        return RowsChanged(
            request=request, name=snapshot.name, places=places, rows=tuple([rows[index] for index in places]), rest=rest
        )

    def knows(self, name: str, outdated: tuple[str, ...]) -> bool:
        """Whether the last snapshot sent of the object says this about its files, or none was sent yet."""
        before = self._last.get(name)
        return before is None or before.outdated == outdated

    def forget(self, name: str) -> None:
        """The object was removed; another one of that name is new."""
        self._last.pop(name, None)


def _different(before: tuple[Row, ...], now: tuple[Row, ...]) -> tuple[int, ...] | None:
    """Indexes of the rows that differ; None where a whole snapshot is better."""
    if len(now) <= SMALL or len(before) != len(now):
        return None
    places: list[int] = []
    for index, (old, new) in enumerate(zip(before, now, strict=True)):
        if old is not new and old != new:
            if (old.path, old.kind, old.depth) != (new.path, new.kind, new.depth) or 2 * len(places) + 2 >= len(now):
                return None
            places.append(index)
    return tuple(places)


def _without_rows(snapshot: ObjectSnapshot) -> ObjectSnapshot:
    return msgspec.structs.replace(snapshot, rows=())


# Reads allocators, and devices that cannot be read from outside the engine, ten times a second. On its own thread,
# `allocator-sampler`.


class AllocatorSampler:
    """`read` sends one reading of everything; `start` does so every `interval_s` seconds until `stop`."""

    def __init__(self, send: EventSink, registry: DeviceRegistry, workspace: Workspace, clock: Clock) -> None:
        self._send, self._registry, self._workspace, self._clock = send, registry, workspace, clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._complaints: dict[str, str] = {}

    def start(self, interval_s: float) -> None:
        """Read from a thread."""
        self._thread = threading.Thread(target=self._run, args=(interval_s,), name="allocator-sampler", daemon=True)
        self._thread.start()

    def stop(self, deadline_s: float) -> bool:
        """End the thread; False when it is stuck in a driver call."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(max(deadline_s, 0))
        return self._thread is None or not self._thread.is_alive()

    def read(self) -> None:
        """One reading of each device; a failure is logged once and does not affect the others."""
        for device in self._registry.usable():
            try:
                self._read(device)
            except Exception as error:  # on a real card any call can fail at any time
                complaint = f"{device} could not be read: {error}"
                if self._complaints.get(device) != complaint:
                    self._complaints[device] = complaint
                    self._send(Log(level="warning", text=complaint, time_unix_s=self._clock()))

    def _read(self, device: str) -> None:
        now, backend = self._clock(), self._registry.backend(device)
        allocator, reading = backend.readings(device, now)
        if allocator is not None:
            held = self._workspace.holdings()
            self._send(
                msgspec.structs.replace(
                    allocator, workspace_bytes=held.totals.get(device, 0), objects=held.objects.get(device, ())
                )
            )
        if reading is not None:
            self._send(reading)

    def _run(self, interval_s: float) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self.read()
            due = max(due + interval_s, time.monotonic())  # a late reading is not followed by a burst
            self._stop.wait(due - time.monotonic())


SAMPLING_SECONDS = 0.1
WATCH_SECONDS = 1.0
"""Between two looks at the files that models were made of, while nothing is done."""


class Engine:
    """Feed it with `submit`, listen through `send` (called from several threads), end it with `close`."""

    def __init__(
        self,
        send: EventSink,
        *,
        virtual_spec: str | None = None,
        visible_devices: str | None = None,
        sampling_seconds: float | None = SAMPLING_SECONDS,
        watch_seconds: float = WATCH_SECONDS,
        clock: Clock = time.time,
        on_poisoned: Callable[[], None] = lambda: None,
    ) -> None:
        """`sampling_seconds=None`: no sampling thread. Raises `BadInput` for a wrong `virtual_spec`.

        `visible_devices` is a CUDA_VISIBLE_DEVICES that was chosen for this engine: virtual GPUs obey it, as CUDA does
        when it was set before torch was imported (`core.engine.__main__` sets it). None: as
        inherited. `on_poisoned` is called after an error that makes CUDA unusable for the rest of the process.
        """
        self.send = send
        self.clock = clock
        self._on_poisoned = on_poisoned
        self.registry = DeviceRegistry([TorchBackend(free_of=free_bytes)], visible_devices)
        self._virtual_unavailable = virtual.unsupported()
        if virtual_spec is not None:
            add_gpus(self.registry, virtual_spec)
        self.workspace = Workspace(self.registry, explain=next(iter(named("explains")), None))
        self._differ = SnapshotDiffer()
        copied, given = partial(model_copy, self.workspace), partial(given_inputs, self.workspace)
        self.benchmarks = Benchmarks(send, self.registry, clock, copied, self._end_if_poisoned, given)
        self._queue: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._waiting_runs: set[int] = set()
        """Benchmarks waiting in the queue, which stopping reaches too."""
        self._closing = threading.Event()
        self._jobs = threading.Thread(target=self._work, name="jobs", daemon=True)
        self.allocator_sampler = AllocatorSampler(send, self.registry, self.workspace, clock)
        self._sampling_seconds, self._watch_seconds = sampling_seconds, watch_seconds

    def start(self) -> None:
        """Announce the devices, then itself, so that nobody takes it for one without GPUs, and start the threads."""
        facts = torch_facts()
        beside = virtual.beside_cards(self.registry.infos())
        if self.registry.visible_devices is not None:
            facts["cuda_visible_devices"] = self.registry.visible_devices
        self._send_devices()
        self.send(
            EngineReady(
                **facts,
                pid=os.getpid(),
                virtual_unavailable=self._virtual_unavailable,
                virtual_beside=beside,
                recipes={name: recipe.summary for name, recipe in recipes().items()},
            )
        )
        self._jobs.start()
        if self._sampling_seconds is not None:
            self.allocator_sampler.start(self._sampling_seconds)

    def submit(self, command: Command) -> None:
        """Take one command. Beginning, stopping and cancelling take effect at once, everything else in its turn."""
        match command:
            case StartBenchmark(request=request):
                self._waiting_runs.add(request)
            case BeginBenchmark(run=run, at_unix_s=at_unix_s):
                self.benchmarks.begin(run, at_unix_s)
            case StopBenchmark(run=run):
                self._cancelled |= self._waiting_runs if run is None else self._waiting_runs & {run}
                self.benchmarks.stop(run)
            case Cancel(job=job):
                self._cancelled.add(job)
                self.benchmarks.stop(job)
        self._queue.put(command)

    def close(self, deadline_s: float = 2.0) -> bool:
        """Stop everything and join the threads until the deadline; False when one still computes."""
        end = time.monotonic() + deadline_s
        self._closing.set()
        self._queue.put(None)
        joined = self.benchmarks.join(deadline_s)
        if self._jobs.is_alive():
            self._jobs.join(max(end - time.monotonic(), 0))
        return self.allocator_sampler.stop(end - time.monotonic()) and joined and not self._jobs.is_alive()

    @property
    def machine(self) -> VirtualMachine | None:
        """The virtual GPUs; None before there are any."""
        return next((backend for backend in self.registry.backends if isinstance(backend, VirtualMachine)), None)

    def _send_devices(self, request: int = 0) -> None:
        """Announce the devices, and for virtual ones what NVML reports for real cards: details and topology."""
        self.send(EngineDevices(request=request, devices=self.registry.infos(), problems=self.registry.problems()))
        if (machine := self.machine) is not None:
            self.send(topology([(gpu.id, gpu.profile) for gpu in machine.gpus]))
            for gpu in machine.gpus:
                self.send(gpu.details(self.clock()))

    def _progress(self, request: int) -> ProgressMonitor:
        """Reports the progress of one command, at most ten times a second, and whether it was cancelled."""
        latest = 0.0

        def report(done: float, text: str, part: str = "", /) -> None:
            nonlocal latest
            now = time.monotonic()
            if now - latest >= 0.1:
                latest = now
                self.send(JobProgress(request=request, done=done, text=text, part=part))

        return ProgressMonitor(report, lambda: request in self._cancelled or self._closing.is_set())

    # --- the jobs thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        if self.machine is not None:
            virtual.warm_up()
        self._carry_out_all()
        self.benchmarks.end()

    def _carry_out_all(self) -> None:
        while not self._closing.is_set():
            watched = any(self.workspace.extras(name).files for name in self.workspace.names)
            waits_s = [self._watch_seconds] if watched else []
            if (begins_in_s := self.benchmarks.begins_in_s) is not None:
                waits_s.append(begins_in_s)
            try:
                command = self._queue.get(not self.benchmarks.stepping, min(waits_s, default=None))
            except queue.Empty:
                self._idle()
                continue
            if command is None:
                return
            try:
                self._carry_out(command)
            except Exception as error:  # a bug in reporting one command must not end the thread
                self._log(command, error)
                self._ended(command.request, ok=False)
                self._end_if_poisoned(error)

    def _idle(self) -> None:
        """Between commands."""
        if self.benchmarks.stepping:
            self.benchmarks.step()
        else:
            with suppress(Exception):  # the next command fails the same way, and says so
                self._send_outdated()

    def _carry_out(self, command: Command) -> None:
        request = command.request
        if request in self._cancelled:
            self._cancelled.discard(request)
            self._waiting_runs.discard(request)
            self._failed(command, Cancelled("cancelled before it began"))
            return
        self.send(JobStarted(request=request, title=title_of(command), time_unix_s=self.clock(), command=command))
        result: CommandResult | None = None
        try:
            if isinstance(command, StartBenchmark):
                self.benchmarks.start(command)  # the run reports its own end
                if request in self._cancelled:
                    self.benchmarks.stop(request)
                return
            if not isinstance(command, BeginBenchmark | StopBenchmark | Cancel):  # those took effect when they arrived
                result = dispatch(self.workspace, command, self._progress(request))
        except BaseException as error:  # also a model that calls sys.exit: the jobs thread outlives everything
            self._failed(
                command, error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
            )
            return
        finally:
            self._cancelled.discard(request)
            self._waiting_runs.discard(request)
        fault: Exception | None = None
        if result is not None:
            try:
                self._send_result(command, result)
            except Exception as error:  # a bug, or CUDA's error of work before; the change itself is complete
                fault = error
                self._log(command, error)
                self._send_objects(request)
        self._ended(request, ok=True)
        if fault is not None:
            self._end_if_poisoned(fault)

    def _send_result(self, command: Command, result: CommandResult) -> None:
        """Send everything that a command changed, then its answer."""
        request = command.request
        if result.devices_changed:
            self._send_devices(request)
        for snapshot in result.changed:
            self.send(self._differ.news(snapshot, request))
        for name in result.removed:
            self._differ.forget(name)
            self.send(ObjectRemoved(request=request, name=name))
        self._send_outdated(request)
        for event in result.events:
            self.send(msgspec.structs.replace(event, request=request))
        if result.undid is not None:
            self.send(Undid(request=request, of=result.undid.request))
        if result.redid is not None:
            self.send(Redid(request=request, command=result.redid))
        if result.side_effects:
            self.send(SideEffects(request=request, effects=result.side_effects))
        if result.report is not None:
            undoes = result.undid is not None
            self.send(Moved(request=request, report=result.report, time_unix_s=self.clock(), undoes=undoes))
        self._answer(command, result.answer)
        self.send(msgspec.structs.replace(self.workspace.history.state(), request=request))
        if result.devices_changed and self.machine is not None:
            virtual.warm_up()

    def _send_objects(self, request: int) -> None:
        """Send what has changed in any object, and what can be undone."""
        for name in self.workspace.names:
            self.send(self._differ.news(self.workspace.snapshot(name), request))
        self.send(msgspec.structs.replace(self.workspace.history.state(), request=request))

    def _send_outdated(self, request: int = 0) -> None:
        """Send models whose files have changed meanwhile, whatever the command was about; none of their code runs."""
        for name in self.workspace.names:
            if not self._differ.knows(name, self.workspace.extras(name).outdated):
                self.send(self._differ.news(self.workspace.snapshot(name), request))

    def _answer(self, command: Command, answer: Answer) -> None:
        """Send the answer; it is about the same part of the subject as the command."""
        about = command.commands[-1] if isinstance(command, Steps) else command
        targets = getattr(about, "targets", None) or (getattr(about, "target", None) or "",)
        name, _, path = targets[0].partition(":")
        part = path if len(targets) == 1 and name == answer.subject else ""
        possible = tuple(offer for offer in answer.offers if type(offer.command) in REGISTRY)  # its feature may be out
        answer = msgspec.structs.replace(answer, request=command.request, part=part, offers=possible)
        self.send(msgspec.structs.replace(answer, time_unix_s=self.clock()))

    def _failed(self, command: Command, error: Exception) -> None:
        """Report the error; the workspace has already rolled back, as far as that was possible."""
        if not (isinstance(error, DevExplorerError) or accelerator.is_out_of_memory(error)):
            self._log(command, error)
        if isinstance(error, RollbackFailed):
            self._send_objects(command.request)
        self._send_outdated(command.request)
        self._answer(command, with_rebuilding(self.workspace, refusal(error, command), command))
        self._ended(command.request, ok=False)
        self._end_if_poisoned(error)

    def _log(self, command: Command, error: Exception) -> None:
        trace = "".join(traceback.format_exception(error)).rstrip()
        text = f"{typed_line(error)}\n{trace}"  # a line in the status bar has room for the first
        self.send(Log(request=command.request, level="error", text=text, time_unix_s=self.clock()))

    def _end_if_poisoned(self, error: Exception) -> None:
        if accelerator.is_sticky(error):
            text = f"{first_line(error)}; CUDA cannot be used any more in this process, only in a new engine"
            self.send(Log(level="error", text=text, time_unix_s=self.clock()))
            self._on_poisoned()

    def _ended(self, request: int, *, ok: bool) -> None:
        self.send(JobEnded(request=request, ok=ok, time_unix_s=self.clock()))


class LocalEngine:
    """A context manager around an `Engine`; `events` holds everything that came and was not asked for yet."""

    def __init__(self, virtual_spec: str | None = None, *, sampling_seconds: float | None = None) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._joiner = Joiner()
        self.engine = Engine(self._receive, virtual_spec=virtual_spec, sampling_seconds=sampling_seconds)
        self._requests = 0

    def _receive(self, event: Event) -> None:
        """Through the link's encoding, so that what could not cross it does not pass here either."""
        try:
            for arrived in over_the_link(event, self._joiner):
                self._events.put(arrived)
        except (LinkError, TypeError, ValueError, OverflowError) as error:  # a bug; the job continues
            text = f"{type(event).__name__} could not be sent: {error}"
            self._events.put(Log(level="error", text=text, time_unix_s=time.time()))

    def __enter__(self) -> LocalEngine:
        self.engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def send(self, command: Command) -> int:
        """Send a command; returns its request number."""
        self._requests += 1
        self.engine.submit(msgspec.structs.replace(command, request=self._requests))
        return self._requests

    def events(self, request: int, timeout_s: float | None = None) -> Iterator[Event]:
        """Every event as it comes, until the command has ended; raises `queue.Empty` when nothing comes for
        `timeout_s`."""
        while True:
            event = self._events.get(timeout=timeout_s)
            yield event
            if isinstance(event, JobEnded) and event.request == request:
                return

    def run(self, command: Command, timeout_s: float | None = 60.0) -> list[Event]:
        """Send a command and wait until it has ended."""
        return list(self.events(self.send(command), timeout_s))

    def demand(self, command: Command) -> list[Event]:
        """As `run`, and raise `BadInput` with the engine's words when it was refused or failed."""
        events = self.run(command, None)
        for event in events:
            if isinstance(event, Answer) and event.failed:
                raise BadInput(
                    event.words, virtual_helps=any(isinstance(offer.command, AddVirtual) for offer in event.offers)
                )
        return events
