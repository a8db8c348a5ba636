"""Benchmark runs of the engine: those that compute on the CPU are stepped by the jobs thread, each other one has a
bench thread.

CPU work is timed on the jobs thread alone, also where an accelerator takes part, because a second thread that computes
makes small products several times slower (each thread that uses OpenMP brings its own team of workers). A device is
busy with one run at a time. Whatever goes wrong in the middle of a run ends that run, with what it has measured and the
reason; the engine goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import msgspec
from torch import nn

from devexplorer.core.base import python_names
from devexplorer.core.base.errors import BadInput
from devexplorer.core.benchmark.matmul import (
    MatmulRun,
    cache_flush,
    out_of_memory,
    real_product,
    tf32_products,
    virtual_product,
)
from devexplorer.core.benchmark.runner import STOPPED_EARLY, Runner, devices_of
from devexplorer.core.benchmark.spec import check_fits, check_matmul, flush_bytes
from devexplorer.core.benchmark.sweep import SweepRun, check_sweep
from devexplorer.core.benchmark.timing import timer_for
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import samples
from devexplorer.core.models.build import Recipe
from devexplorer.core.models.copies import deep_copy
from devexplorer.core.models.source import parse
from devexplorer.core.records.benchmark import (
    BandwidthSpec,
    BenchResult,
    BenchSpec,
    MatmulSpec,
    ModelSpec,
    ScalingSpec,
    SweepSpec,
)
from devexplorer.core.records.messages import BenchEnded, BenchPreparing, BenchStarted, Event, JobEnded, StartBenchmark
from devexplorer.core.virtual.device.machine import VirtualMachine
from devexplorer.core.workspace.workspace import Workspace

Send = Callable[[Event], None]
Resolve = Callable[[str], nn.Module]
"""A model by its name, for the benchmark to do with as it likes."""


@dataclass
class _Active:
    """A run under way."""

    number: int
    spec: BenchSpec
    run: Runner
    stop: threading.Event
    thread: threading.Thread | None = None
    started: bool = False
    ended: bool = False
    devices: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.devices = devices_of(self.spec)


class Benchmarks:
    """Starts, steps and stops runs. `start`, `step` on the jobs thread; `stop` from any thread."""

    def __init__(
        self,
        send: Send,
        fleet: DeviceRegistry,
        clock: Callable[[], float] = time.time,
        resolve: Resolve = samples.build,
        on_failure: Callable[[Exception], None] = lambda _error: None,
        inputs_of: Callable[[str], str] = lambda _target: "",
    ) -> None:
        """`resolve` and `inputs_of` (shapes that somebody gave for a model) are asked on the jobs thread.

        `on_failure` is told what ended a run before its time, when that has been sent.
        """
        self._send = send
        self._fleet = fleet
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
        """Whether a run on the CPU waits for its next block on the jobs thread."""
        return any(active.thread is None for active in list(self._active.values()))

    def check(self, spec: BenchSpec) -> BenchSpec:
        """The specification with its devices' canonical names. Raises `BadInput` where it could not run now; allocates
        nothing."""
        spec = checked(spec, self._fleet)
        running = list(self._active.values())
        busy = [device for device in devices_of(spec) if any(device in active.devices for active in running)]
        if busy:
            raise BadInput(
                f"a benchmark is running on {', '.join(busy)} already; stop it first, or choose another device"
            )
        mode = _float32_mode(spec)
        others = {_float32_mode(active.spec) for active in running} - {None, mode}
        if mode is not None and others:
            raise BadInput(
                f"tf32 is a setting of the whole process: stop the {others.pop()} run before you start one in {mode}"
            )
        return spec

    def start(self, command: StartBenchmark) -> None:
        """Check and start one run. Raises `BadInput` before anything is allocated."""
        spec = self.check(command.spec)
        number, stop = command.request, threading.Event()
        if isinstance(spec, ModelSpec) and not spec.inputs:
            spec = msgspec.structs.replace(spec, inputs=self._inputs_of(spec.target))
        run = make_runner(spec, number, self._fleet, stop, self._clock, self.resolve)
        active = _Active(number, spec, run, stop)
        if "cpu" not in active.devices:
            active.thread = threading.Thread(
                target=self._run_alone, args=(active,), name=f"bench-{spec.device}", daemon=True
            )
        with self._lock:
            self._active[number] = active
            if _float32_mode(spec) == "tf32":
                self._tf32_runs += 1
                if self._tf32_runs == 1:
                    self._tf32.enter_context(tf32_products())
        datasheet = _datasheet_tflops(spec, self._fleet)
        self._send(
            BenchPreparing(request=number, run=number, spec=spec, simulated=run.simulated, datasheet_tflops=datasheet)
        )
        if active.thread is not None:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            active.thread.start()
            self._threads.append(active.thread)

    def stop(self, number: int | None = None) -> None:
        """Ask one run (None: all) to end after its block."""
        for active in list(self._active.values()):
            if number in (None, active.number):
                active.stop.set()

    def join(self, deadline_s: float) -> bool:
        """Stop everything and wait for the bench threads until the deadline, those too whose run has ended and that
        still free memory."""
        self.stop()
        end = time.monotonic() + deadline_s
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def step(self) -> None:
        """Run one block of every run on the CPU."""
        for active in list(self._active.values()):
            if active.thread is None:
                self._step(active)

    def _run_alone(self, active: _Active) -> None:
        while not active.ended:
            self._step(active)

    def _step(self, active: _Active) -> None:
        try:
            if not active.started:
                active.started = True
                active.run.prepare(active.stop.is_set)
                if active.stop.is_set():
                    self._end(active)
                    return
                self._send(BenchStarted(request=active.number, run=active.number, time_unix_s=self._clock()))
                return
            point = None if active.stop.is_set() else active.run.step()
            if point is not None:
                self._send(point)
                return
        except (
            BaseException
        ) as caught:  # out of memory, a lost card, a model that calls sys.exit: the run ends, the engine goes on
            error = caught if isinstance(caught, Exception) else RuntimeError(f"{type(caught).__name__}: {caught}")
            self._end(active, error)
            self._on_failure(error)
            return
        self._end(active)

    def _end(self, active: _Active, error: Exception | None = None) -> None:
        """Send what was measured, and the reason where something went wrong: both, when a run had measured something
        before."""
        reason = None if error is None else (str(error).strip().splitlines() or [type(error).__name__])[0]
        stopped = active.stop.is_set()
        result: BenchResult | None = None
        try:
            result = active.run.result(stopped=stopped, failure=reason)
        except Exception as second:  # a run that cannot even say what it measured must not stay busy for ever
            reason = reason or (str(second).strip().splitlines() or [type(second).__name__])[0]
        if result is None and reason is None:
            reason = STOPPED_EARLY if stopped else "nothing was measured"
        now, number = self._clock(), active.number
        active.ended = True
        with self._lock:
            self._active.pop(number, None)
            if _float32_mode(active.spec) == "tf32":
                self._tf32_runs -= 1
                if self._tf32_runs == 0:
                    self._tf32.close()
        self._send(BenchEnded(request=number, run=number, time_unix_s=now, result=result, reason=reason))
        self._send(JobEnded(request=number, ok=reason is None, time_unix_s=now))


def checked(spec: BenchSpec, fleet: DeviceRegistry) -> BenchSpec:
    """The specification as it can run, with its devices' canonical names. Raises `BadInput` with everything that is
    wrong with it."""
    match spec:
        case BandwidthSpec():
            from devexplorer.core.benchmark.bandwidth import check_bandwidth

            return check_bandwidth(spec, fleet)
        case ScalingSpec():
            from devexplorer.core.benchmark.scaling import check_scaling

            return check_scaling(spec, fleet)
        case ModelSpec():
            from devexplorer.core.benchmark.model_steps import check_model

            return check_model(spec, fleet)
        case SweepSpec():
            return check_sweep(spec, fleet)
    info = fleet.info(fleet.choose(spec.device))
    # B of a float8 product is stored as its kernel wants it
    spec = msgspec.structs.replace(
        spec, device=info.id, transpose_b=spec.transpose_b or spec.dtype.startswith("float8")
    )
    check_matmul(spec, info)
    check_fits(spec, _free_bytes(spec.device, fleet), info.kind)
    return spec


def make_runner(
    spec: BenchSpec,
    run: int,
    fleet: DeviceRegistry,
    stop: threading.Event,
    clock: Callable[[], float] = time.time,
    resolve: Resolve = samples.build,
) -> Runner:
    """The run of a checked specification. On the jobs thread, which `resolve` needs: the bench thread must not look
    into the workspace."""
    match spec:
        case BandwidthSpec():
            from devexplorer.core.benchmark.bandwidth import BandwidthRun

            return BandwidthRun(spec, run, fleet, stop, clock)
        case ScalingSpec():
            from devexplorer.core.benchmark.scaling import ScalingRun

            return ScalingRun(spec, run, fleet, stop, clock)
        case ModelSpec():
            from devexplorer.core.benchmark.model_steps import ModelRun

            model = resolve(spec.target)
            return ModelRun(spec, run, fleet, stop, clock, lambda _name: model)
    kind = fleet.info(spec.device).kind
    paced = isinstance(spec, MatmulSpec) and spec.mode == "live"
    timer = timer_for(spec.device, fleet, stop, paced=paced)
    make = virtual_product if kind == "virtual" else real_product
    datasheet = _datasheet_tflops(spec, fleet)
    if isinstance(spec, MatmulSpec):
        flush = cache_flush if flush_bytes(spec, kind) else None
        return MatmulRun(spec, run, timer, make=make, flush=flush, datasheet_tflops=datasheet, clock=clock)
    free, flush = partial(_free_bytes, spec.device, fleet), None if kind in ("cpu", "virtual") else cache_flush
    return SweepRun(
        spec, run, timer, kind=kind, make=make, flush=flush, free_bytes=free, datasheet_tflops=datasheet, clock=clock
    )


def model_copy(workspace: Workspace, target: str, *, own_code: bool = False) -> nn.Module:
    """A copy of the workspace's model of that name, or a new model: a sample one, or of a source. On the jobs thread.

    Raises `BadInput` when there is none. Code of the user's runs only with `own_code`: whoever asks must have asked
    them.
    """
    if target in workspace.names:
        found = workspace.get(target)
        if not isinstance(found, nn.Module):
            raise BadInput(f"'{target}' is a tensor; a benchmark of model steps needs a model")
        try:
            made: nn.Module = deep_copy(found)
            return made
        except (TypeError, NotImplementedError, RuntimeError) as error:
            if out_of_memory(error):
                raise
            raise BadInput(f"'{target}' cannot be copied, and a benchmark must not change it: {error}") from error
    if ":" in target:
        source = parse(target)
        if source.own_code and not own_code:
            raise BadInput(
                f"'{target}' is code of your own: open it first, which asks before it runs, then measure it by its name"
            )
        return Recipe(source, "").make().model
    known = samples.recipes()
    if target.strip().lower().replace("_", "-") not in known:
        raise BadInput(f"there is no model '{target}'; {python_names.suggestion(target, (*workspace.names, *known))}")
    return samples.build(target)


def given_inputs(workspace: Workspace, target: str) -> str:
    """The shapes that somebody gave for a model of the workspace; empty where nobody has."""
    return workspace.extras(target).inputs if target in workspace.names else ""


def _free_bytes(device: str, fleet: DeviceRegistry) -> int | None:
    """What operands can take. Those on a virtual GPU have no values: the host's memory does not count."""
    backend = fleet.backend(device)
    return backend.device_free_bytes(device) if isinstance(backend, VirtualMachine) else backend.free_bytes(device)


def _float32_mode(spec: BenchSpec) -> str | None:
    """Which of the two meanings of float32 products the run needs, if any; parameters of a model can be float32."""
    if isinstance(spec, ModelSpec):
        return "float32"
    dtype = getattr(spec, "dtype", None)
    return dtype if dtype in ("float32", "tf32") else None


def _datasheet_tflops(spec: BenchSpec, fleet: DeviceRegistry) -> float | None:
    """Of one device; what runs on several has no such line."""
    return (
        fleet.info(spec.device).datasheet_tflops.get(spec.dtype) if isinstance(spec, MatmulSpec | SweepSpec) else None
    )
