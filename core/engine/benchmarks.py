"""Benchmark runs of the engine: those on the CPU are stepped by the jobs thread, each accelerator has a bench thread of its own.

CPU products are timed on the jobs thread alone, because a second thread that computes makes small products several times slower
(each thread that uses OpenMP brings its own team of workers).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import msgspec

from devexplorer.core.benchmark.matmul import MatmulRun, product, tf32_products, torch_dtype
from devexplorer.core.benchmark.spec import check_fits, check_limits, check_product
from devexplorer.core.benchmark.timing import (
    BlockTimer,
    CpuTimer,
    CudaTimer,
    Operation,
    SynchronisedTimer,
    VirtualTimer,
)
from devexplorer.core.devices.backend import Fleet
from devexplorer.core.errors import BadInput
from devexplorer.core.records.benchmark import MatmulSpec
from devexplorer.core.records.devices import DeviceInfo
from devexplorer.core.records.messages import BenchEnded, BenchPreparing, BenchStarted, Event, JobEnded, StartBenchmark
from devexplorer.core.virtual.backend import meta_empty
from devexplorer.core.virtual.machine import VirtualMachine

Send = Callable[[Event], None]


@dataclass
class _Active:
    """A run under way."""

    number: int
    spec: MatmulSpec
    run: MatmulRun
    stop: threading.Event = field(default_factory=threading.Event)
    started: bool = False
    ended: bool = False
    thread: threading.Thread | None = None


class Benchmarks:
    """Starts, steps and stops runs. `start`, `step` on the jobs thread; `stop` from any thread."""

    def __init__(self, send: Send, fleet: Fleet, clock: Callable[[], float] = time.time) -> None:
        self._send = send
        self._fleet = fleet
        self._clock = clock
        self._active: dict[int, _Active] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._tf32 = ExitStack()
        self._tf32_runs = 0

    @property
    def stepping(self) -> bool:
        """Whether a run on the CPU waits for its next block on the jobs thread."""
        return any(active.thread is None for active in list(self._active.values()))

    def check(self, spec: MatmulSpec) -> MatmulSpec:
        """The specification with its device's canonical name. Raises `BadInput` where it could not run now; allocates nothing."""
        device = self._fleet.choose(spec.device)
        spec = msgspec.structs.replace(spec, device=device)
        if any(active.spec.device == device for active in list(self._active.values())):
            raise BadInput(f"a benchmark is running on {device} already; stop it first, or choose another device")
        check_product(spec.dtype)
        check_limits(spec)
        _check_dtype(spec, self._fleet.info(device))
        others = {active.spec.dtype for active in list(self._active.values())} & {"float32", "tf32"}
        if spec.dtype in ("float32", "tf32") and others - {spec.dtype}:
            raise BadInput(f"tf32 is a setting of the whole process: stop the {others.pop()} run before you start one in {spec.dtype}")
        backend = self._fleet.backend(device)  # operands on a virtual GPU have no values: the host's memory does not count
        check_fits(spec, backend.device_free_bytes(device) if isinstance(backend, VirtualMachine) else backend.free_bytes(device))
        return spec

    def start(self, command: StartBenchmark) -> None:
        """Check and start one run. Raises `BadInput` before anything is allocated."""
        spec = self.check(command.spec)
        device, info = spec.device, self._fleet.info(spec.device)
        stop = threading.Event()
        timer, prepare = self._timer(device, info.kind, stop)
        datasheet = info.datasheet_tflops.get(spec.dtype)
        run = MatmulRun(spec, command.request, timer, prepare=prepare, datasheet_tflops=datasheet, clock=self._clock)
        active = _Active(command.request, spec, run, stop)
        if device != "cpu":
            active.thread = threading.Thread(target=self._run_alone, args=(active,), name=f"bench-{device}", daemon=True)
        with self._lock:
            self._active[command.request] = active
            if spec.dtype == "tf32":
                self._tf32_runs += 1
                if self._tf32_runs == 1:
                    self._tf32.enter_context(tf32_products())
        number, simulated = command.request, timer.simulated
        self._send(BenchPreparing(request=number, run=number, spec=spec, simulated=simulated, datasheet_tflops=datasheet))
        if active.thread is not None:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            active.thread.start()
            self._threads.append(active.thread)

    def _timer(self, device: str, kind: str, stop: threading.Event) -> tuple[BlockTimer, Callable[[MatmulSpec], Operation] | None]:
        if kind == "cpu":
            return CpuTimer(), None
        if kind == "virtual":
            machine = self._fleet.backend(device)
            assert isinstance(machine, VirtualMachine)
            return VirtualTimer(device, machine, stop), _meta_operands
        if kind == "cuda":
            return CudaTimer(device), None
        return SynchronisedTimer(lambda: self._fleet.backend(device).synchronize(device)), None

    def stop(self, number: int | None = None) -> None:
        """Ask one run (None: all) to end after its block."""
        for active in list(self._active.values()):
            if number in (None, active.number):
                active.stop.set()

    def join(self, deadline_s: float) -> bool:
        """Stop everything and wait for the bench threads until the deadline, those too whose run has ended and that still free memory."""
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
                    self._end(active, None)
                    return
                self._send(BenchStarted(request=active.number, run=active.number, time_unix_s=self._clock()))
                return
            point = None if active.stop.is_set() else active.run.step()
            if point is not None:
                self._send(point)
                return
            reason = None
        except Exception as error:  # out of memory, a lost card, a kernel that does not exist: the run ends, the engine goes on
            reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        self._end(active, reason)

    def _end(self, active: _Active, reason: str | None) -> None:
        result = active.run.result(stopped=active.stop.is_set())
        if result is None and reason is None:
            reason = "stopped before the first block was measured"
        now, number = self._clock(), active.number
        active.ended = True
        with self._lock:
            self._active.pop(number, None)
            if active.spec.dtype == "tf32":
                self._tf32_runs -= 1
                if self._tf32_runs == 0:
                    self._tf32.close()
        self._send(BenchEnded(request=number, run=number, time_unix_s=now, result=result, reason=reason))
        self._send(JobEnded(request=number, ok=reason is None, time_unix_s=now))


def _check_dtype(spec: MatmulSpec, info: DeviceInfo) -> None:
    """Refuse what torch would run in another dtype, or what the chip that a virtual GPU imitates has no unit for."""
    narrow = spec.dtype == "int8" or spec.dtype.startswith("float8")
    if info.kind == "virtual" and (narrow or spec.dtype == "tf32") and spec.dtype not in info.datasheet_tflops:
        known = ", ".join(info.datasheet_tflops)
        raise BadInput(f"{info.name} has no {spec.dtype} unit; it has {known}")
    major = (info.compute_capability or "").partition(".")[0]
    if spec.dtype == "tf32" and (info.kind not in ("cuda", "virtual") or (major.isdigit() and int(major) < 8)):
        raise BadInput(f"tf32 is a mode of CUDA's tensor cores since Ampere (compute capability 8.0); {spec.device} has none, take float32")


def _meta_operands(spec: MatmulSpec) -> Operation:
    """Operands without values: their memory is counted and each product pays its cost, and the CPU computes nothing."""
    dtype = torch_dtype(spec.dtype)
    a, b = meta_empty((spec.m, spec.k), dtype, spec.device), meta_empty((spec.n, spec.k), dtype, spec.device).t()
    return product(a, b, spec.dtype, partial(meta_empty, device=spec.device))[0]
