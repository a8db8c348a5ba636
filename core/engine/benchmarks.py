"""Benchmark runs of the engine: those that compute on the CPU are stepped by the jobs thread, every other run has a
bench thread.

CPU work is timed on the jobs thread alone, also where an accelerator takes part, because a second thread that computes
makes small products several times slower (each thread that uses OpenMP brings its own team of workers). A device is
busy with one run at a time. An error during a run ends that run, with the results so far and the reason; the
engine continues."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from devexplorer.core.base import BadInput, Clock, Unavailable, python_names
from devexplorer.core.benchmark.kind import RunInputs, devices_of, kind_of
from devexplorer.core.benchmark.matmul import tf32_products
from devexplorer.core.benchmark.statistics import STOPPED_EARLY
from devexplorer.core.benchmark.timing import Runner
from devexplorer.core.devices.accelerator import is_out_of_memory
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.models import SourceRecipe, deep_copy, samples
from devexplorer.core.records import (
    BenchEnded,
    BenchPreparing,
    BenchReady,
    BenchResult,
    BenchSpec,
    BenchStarted,
    EventSink,
    JobEnded,
    StartBenchmark,
)
from devexplorer.core.workspace import Workspace

# Where a run that is warm waits until it is told to begin. `wait` on the thread of the run, everything else on any
# thread.


class StartGate:
    """Closed until `begin`; who waits leaves it early when `stop` is set and `look` was called."""

    def __init__(self, clock: Clock, stop: threading.Event, limit_s: float) -> None:
        """`clock`: the one that `begin` means. After `limit_s` without `begin` nothing is going to happen."""
        self._clock, self._stop, self._limit_s = clock, stop, limit_s
        self._until_s = time.monotonic() + limit_s
        self._due_s: float | None = None
        self._changed = threading.Event()

    def begin(self, at_unix_s: float) -> None:
        """Open at this moment; at once where that is over."""
        self._due_s = time.monotonic() + min(max(at_unix_s - self._clock(), 0.0), self._limit_s)
        self.look()

    def look(self) -> None:
        """Something has changed."""
        self._changed.set()

    @property
    def left_s(self) -> float:
        """Until the run has something to do: 0 when it may begin, is to stop, or has waited for too long."""
        if self._stop.is_set():
            return 0.0
        due_s = self._due_s
        return max((self._until_s if due_s is None else due_s) - time.monotonic(), 0.0)

    def wait(self) -> None:
        """Until then."""
        while left_s := self.left_s:
            self._changed.wait(left_s)
            self._changed.clear()

    def check(self) -> None:
        """Raises `Unavailable` when it was never told to begin."""
        if self._due_s is None and not self._stop.is_set():
            raise Unavailable(f"the run was not told to begin within {self._limit_s:.0f} s")


BEGIN_S = 60.0
"""For a run that waits to be told to begin."""
Resolve = Callable[[str], nn.Module]
"""Returns a copy of the model with that name, which the benchmark may change."""


@dataclass
class _Active:
    """A run in progress."""

    number: int
    spec: BenchSpec
    run: Runner[Any]
    stop: threading.Event
    waits: bool = False
    """After its warm-up it waits to be told to begin."""
    gate: StartGate | None = None
    """While it does."""
    thread: threading.Thread | None = None
    started: bool = False
    ended: bool = False
    devices: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.devices = devices_of(self.spec)


class Benchmarks:
    """Starts, steps and stops runs. `start`, `step` on the jobs thread; `begin`, `stop` from any thread."""

    def __init__(
        self,
        send: EventSink,
        registry: DeviceRegistry,
        clock: Clock = time.time,
        resolve: Resolve = samples.build,
        on_failure: Callable[[Exception], None] = lambda _error: None,
        inputs_of: Callable[[str], str] = lambda _target: "",
    ) -> None:
        """`resolve` and `inputs_of` (input shapes that the user gave for a model) are called on the jobs thread.

        `on_failure` is called with the error that ended a run early, after that was sent.
        """
        self._send = send
        self._registry = registry
        self._clock = clock
        self.resolve = resolve
        self._inputs_of = inputs_of
        self._on_failure = on_failure
        self._active: dict[int, _Active] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._tf32 = ExitStack()
        self._tf32_runs = 0

    @property
    def stepping(self) -> bool:
        """Whether a run on the CPU needs the jobs thread for its next block."""
        return any(active.gate is None or not active.gate.left_s for active in self._on_the_jobs_thread())

    @property
    def begins_in_s(self) -> float | None:
        """When the next of them that waits to begin needs it; None: none waits."""
        return min(
            (active.gate.left_s for active in self._on_the_jobs_thread() if active.gate is not None), default=None
        )

    def _on_the_jobs_thread(self) -> list[_Active]:
        return [active for active in list(self._active.values()) if active.thread is None]

    def check(self, spec: BenchSpec) -> BenchSpec:
        """The specification with its devices' canonical names. Raises `BadInput` where it could not run now; allocates
        nothing."""
        spec = kind_of(spec).check(spec, self._registry)
        running = list(self._active.values())
        busy = [device for device in devices_of(spec) if any(device in active.devices for active in running)]
        if busy:
            raise BadInput(
                f"a benchmark is running on {', '.join(busy)} already; stop it first, or choose another device"
            )
        mode = kind_of(spec).float32_mode(spec)
        others = {kind_of(active.spec).float32_mode(active.spec) for active in running} - {None, mode}
        if mode is not None and others:
            raise BadInput(
                f"tf32 is a setting of the whole process: stop the {others.pop()} run before you start one in {mode}"
            )
        return spec

    def start(self, command: StartBenchmark) -> None:
        """Check and start one run. Raises `BadInput` before anything is allocated."""
        spec = self.check(command.spec)
        number, stop = command.request, threading.Event()
        spec = kind_of(spec).with_inputs(spec, self._inputs_of)
        run = make_runner(spec, number, self._registry, stop, self._clock, self.resolve)
        active = _Active(number, spec, run, stop, command.waits)
        if "cpu" not in active.devices:
            active.thread = threading.Thread(
                target=self._run_alone, args=(active,), name=f"bench-{spec.device}", daemon=True
            )
        with self._lock:
            self._active[number] = active
            if kind_of(spec).float32_mode(spec) == "tf32":
                self._tf32_runs += 1
                if self._tf32_runs == 1:
                    self._tf32.enter_context(tf32_products())
        datasheet = kind_of(spec).datasheet_tflops(spec, self._registry.info(spec.device))
        self._send(
            BenchPreparing(request=number, run=number, spec=spec, simulated=run.simulated, datasheet_tflops=datasheet)
        )
        if active.thread is not None:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            active.thread.start()
            self._threads.append(active.thread)

    def begin(self, number: int, at_unix_s: float) -> None:
        """Let a run that waits begin at this moment."""
        active = self._active.get(number)
        if active is not None and (gate := active.gate) is not None:
            gate.begin(at_unix_s)

    def stop(self, number: int | None = None) -> None:
        """Ask one run (None: all) to end after its current block."""
        for active in list(self._active.values()):
            if number in (None, active.number):
                active.stop.set()
                if (gate := active.gate) is not None:
                    gate.look()

    def join(self, deadline_s: float) -> bool:
        """Stop all runs and wait for the bench threads until the deadline, including those that still free memory."""
        self.stop()
        end = time.monotonic() + deadline_s
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def step(self) -> None:
        """Run one block of every run on the CPU."""
        for active in self._on_the_jobs_thread():
            if active.gate is None or not active.gate.left_s:
                self._step(active)

    def end(self) -> None:
        """End the runs on the CPU with what they have measured: the jobs thread, which calls this, ends."""
        self.stop()
        for active in self._on_the_jobs_thread():
            if active.started:
                self._step(active)

    def _run_alone(self, active: _Active) -> None:
        while not active.ended:
            if active.gate is not None:
                active.gate.wait()
            self._step(active)

    def _step(self, active: _Active) -> None:
        try:
            if not active.started:
                active.started = True
                active.run.prepare(active.stop.is_set)
                if active.waits and not active.stop.is_set():
                    active.gate = StartGate(self._clock, active.stop, BEGIN_S)
                    self._send(BenchReady(request=active.number, run=active.number))
                    return
            elif active.gate is not None:
                gate, active.gate = active.gate, None
                gate.check()
            else:
                self._block(active)
                return
            if active.stop.is_set():
                self._end(active)
            else:
                self._send(BenchStarted(request=active.number, run=active.number, time_unix_s=self._clock()))
        except (
            BaseException
        ) as caught:  # out of memory, a lost card, a model that calls sys.exit: the run ends, the engine goes on
            error = caught if isinstance(caught, Exception) else RuntimeError(f"{type(caught).__name__}: {caught}")
            self._end(active, error)
            self._on_failure(error)

    def _block(self, active: _Active) -> None:
        """The next block, or the end."""
        point = None if active.stop.is_set() else active.run.step()
        if point is None:
            self._end(active)
        else:
            self._send(point)

    def _end(self, active: _Active, error: Exception | None = None) -> None:
        """Send the results so far, the reason for an early end, or both."""
        reason = None if error is None else (str(error).strip().splitlines() or [type(error).__name__])[0]
        stopped = active.stop.is_set()
        result: BenchResult | None = None
        try:
            result = active.run.result(stopped=stopped, failure=reason)
        except Exception as second:  # a run whose result fails must not keep its device busy
            reason = reason or (str(second).strip().splitlines() or [type(second).__name__])[0]
        if result is None and reason is None:
            reason = STOPPED_EARLY if stopped else "nothing was measured"
        now, number = self._clock(), active.number
        active.ended = True
        with self._lock:
            self._active.pop(number, None)
            if kind_of(active.spec).float32_mode(active.spec) == "tf32":
                self._tf32_runs -= 1
                if self._tf32_runs == 0:
                    self._tf32.close()
        self._send(BenchEnded(request=number, run=number, time_unix_s=now, result=result, reason=reason))
        self._send(JobEnded(request=number, ok=reason is None, time_unix_s=now))


def make_runner(
    spec: BenchSpec,
    run: int,
    registry: DeviceRegistry,
    stop: threading.Event,
    clock: Clock = time.time,
    resolve: Resolve = samples.build,
) -> Runner[Any]:
    """The runner of a checked specification. On the jobs thread, which `resolve` needs."""
    return kind_of(spec).runner(spec, RunInputs(run, registry, stop, clock, resolve))


def model_copy(workspace: Workspace, target: str, *, own_code: bool = False) -> nn.Module:
    """A copy of the workspace's model of that name, or a new model: a sample one, or of a source. On the jobs thread.

    Raises `BadInput` when there is none. The user's own code runs only with `own_code`: the caller must have asked
    for permission.
    """
    if target in workspace.names:
        model = workspace.get(target)
        if not isinstance(model, nn.Module):
            raise BadInput(f"'{target}' is a tensor; a benchmark of model steps needs a model")
        try:
            copied: nn.Module = deep_copy(model)
            return copied
        except (TypeError, NotImplementedError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            raise BadInput(f"'{target}' cannot be copied, and a benchmark must not change it: {error}") from error
    if ":" in target:
        source = parse(target)
        if source.own_code and not own_code:
            raise BadInput(
                f"'{target}' is your own code: open it first (it asks before it runs), then measure it by its name"
            )
        return SourceRecipe(source, "").make().model
    if not samples.is_known(target):
        known = (*workspace.names, *samples.recipes())
        raise BadInput(f"there is no model '{target}'; {python_names.suggestion(target, known)}")
    return samples.build(target)


def given_inputs(workspace: Workspace, target: str) -> str:
    """The input shapes that the user gave for a model of the workspace; empty if there are none."""
    return workspace.extras(target).inputs if target in workspace.names else ""
