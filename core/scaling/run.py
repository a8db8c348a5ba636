"""The scaling benchmark: the same job once per device, all at once, and then one after the other on the first device.

A job is so many products of square matrices. Runs on the thread that runs the benchmark, which computes the CPU's job,
in slices of 50 ms, and no other thread ever computes on the CPU: two would slow each other down. Each accelerator has a
thread of its own while the jobs run at once, and one for each of the jobs in turn: a thread that has computed on the
CPU before has other threads to help it than a new one, and where an accelerator is played on the CPU that decides how
fast it is. All of them start together at a barrier, with operands made and devices warm.

A job's seconds are those in which it was computed: on the wall, its slices without what the engine does between them; a
virtual GPU's are simulated, and it takes no longer to measure than a product takes to describe. At once: the longest of
the jobs. In turn: the sum of all of them on the first device, which computes its own operands again each time. Real and
virtual devices have no clock in common and are not measured together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from functools import partial

import torch
from msgspec.structs import replace

from devexplorer.core.base import Clock
from devexplorer.core.benchmark.matmul import product_maker, warm_up
from devexplorer.core.benchmark.spec import Checks, check_fits, check_matmul, free_bytes
from devexplorer.core.benchmark.statistics import BLOCK_SECONDS, block_length
from devexplorer.core.benchmark.timing import Operation, Runner, timer_for
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.records import BenchPoint, MatmulSpec
from devexplorer.core.scaling.kind import DeviceWall, ScalingResult, ScalingSpec

WARM_UP_SECONDS = 0.2
START_SECONDS = 30.0
"""For every thread to reach the barrier; only a driver that hangs takes that long."""
END_SECONDS = 5.0
"""For the threads to end after their slice when a run is stopped."""


def check_scaling(spec: ScalingSpec, registry: DeviceRegistry) -> ScalingSpec:
    """The specification with canonical device names. Raises `BadInput` with everything that keeps it from running;
    allocates nothing."""
    checks = Checks(registry)
    devices = checks.devices(spec.devices)
    twice = [device for device in dict.fromkeys(devices) if devices.count(device) > 1]
    if twice:
        checks.add(f"{twice[0]} is named twice; name each device once")
    elif len(spec.devices) < 2:
        usable = registry.usable()
        if len(usable) < 2:
            help_text = f"there is no device beside {usable[0]} here; add virtual GPUs"
        else:
            help_text = f"name them, there are {', '.join(usable)}"
        message = f"jobs on several devices at once need two of them at least; {help_text}"
        checks.add(message, virtual_helps=not any(registry.info(device).simulated for device in usable))
    checks.one_clock(devices)
    if spec.iterations < 1:
        checks.add(f"{spec.iterations} iterations cannot be measured; at least 1 is needed")
    for device in dict.fromkeys(devices):
        job = _product_of(spec, device)
        # a default for a lambda
        if checks.passes(lambda job=job: check_matmul(job, registry.info(job.device))):  # type: ignore[misc]
            checks.checked(partial(check_fits, job, free_bytes(registry, device)))
    checks.demand_none()
    return replace(spec, devices=devices)


def _product_of(spec: ScalingSpec, device: str) -> MatmulSpec:
    return MatmulSpec(device=device, dtype=spec.dtype, m=spec.size, n=spec.size, k=spec.size, seconds=None)


class _Job:
    """One device's job: who computes it calls `slice` until `left` is 0."""

    def __init__(self, spec: ScalingSpec, device: str, registry: DeviceRegistry, stop: threading.Event) -> None:
        self.device = device
        self.virtual = registry.info(device).simulated
        self.timer = timer_for(device, registry, stop, paced=False)
        self.error: Exception | None = None
        self._stop = stop
        self._operation: Operation | None = None
        self._each = 0.0
        self._wanted = spec.iterations
        self.again()

    def again(self) -> None:
        """Begin from the start."""
        self.progress = self._wanted, 0.0
        """Products that are left to compute, and the seconds of those that are computed: both of one moment, from any
        thread."""

    @property
    def left(self) -> int:
        """Products that are left to compute."""
        return self.progress[0]

    @property
    def seconds(self) -> float:
        """Of the products that are computed."""
        return self.progress[1]

    @property
    def done(self) -> int:
        """Products that are computed."""
        return self._wanted - self.left

    def prepare(self, spec: MatmulSpec, stopped: Callable[[], bool]) -> bool:
        """Make the operands and warm up; returns whether the product is right."""
        made = product_maker(simulated=self.virtual)(spec)
        self._operation = made.operation
        right = made.verify()
        self._each = warm_up(self.timer, made.operation, WARM_UP_SECONDS, BLOCK_SECONDS, stopped)
        return right

    def slice(self) -> None:
        """Compute for about 50 ms; on a virtual GPU, where only one product goes through the dispatcher, to the end."""
        assert self._operation is not None, "call prepare() first"
        count = self.left if self.virtual else min(self.left, block_length(self._each))
        start = self.timer.now()
        self.timer.block(self._operation, count)
        spent = self.timer.now() - start
        self.progress, self._each = (self.left - count, self.seconds + spent), spent / count

    def run(self, barrier: threading.Barrier, over: threading.Event) -> None:
        """The whole job, on a thread of its own."""
        torch.get_num_threads()  # a thread helps itself to every core until it has asked how many it may have
        try:
            barrier.wait(START_SECONDS)
            while (
                self.left and not over.is_set() and not self._stop.is_set()
            ):  # the engine can close without another step
                self.slice()
        except threading.BrokenBarrierError:  # another job cannot be started, or the run is over
            return
        except Exception as error:  # a lost card, out of memory: the thread that runs the benchmark raises it
            self.error = error
            barrier.abort()


class ScalingRun(Runner[ScalingSpec]):
    """A `tf32` run is driven inside `matmul.tf32_products()`."""

    def __init__(
        self,
        spec: ScalingSpec,
        run: int,
        registry: DeviceRegistry,
        stop: threading.Event,
        clock: Clock = time.time,
    ) -> None:
        self._jobs = [_Job(spec, device, registry, stop) for device in spec.devices]
        simulated = any(job.virtual for job in self._jobs)
        super().__init__(spec, run, clock, simulated=simulated, on_cpu="cpu" in spec.devices)
        self._stop = stop
        self._verified: bool | None = None
        self._walls: tuple[DeviceWall, ...] = ()
        self._parallel: float | None = None
        self._sequential: float | None = None
        self._finished = 0
        """Products of the parts that are over."""
        self._points: Generator[BenchPoint, None, None] | None = None

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Operands on every device, each product verified, each device warm."""
        right = []
        for job in self._jobs:
            if stopped():
                return
            right.append(job.prepare(_product_of(self.spec, job.device), stopped))
        self._verified = all(right)

    def step(self) -> BenchPoint | None:
        """One slice of the CPU's job, or 50 ms of the others; None at the end, or when it was stopped."""
        if self._points is None:  # made in `__init__`, it would keep a run that never began (Python 3.12 and newer)
            self._points = self._all()
        return next(self._points, None)

    def result(self, *, stopped: bool, failure: str | None = None) -> ScalingResult | None:
        """What is known; None when no job was finished. Every thread has ended by then, unless a device hangs."""
        if self._points is not None:
            self._points.close()
        if not self._walls:
            return None
        return ScalingResult(
            parallel_seconds=self._parallel,
            sequential_seconds=self._sequential,
            walls=self._walls,
            seconds=(self._parallel or 0.0) + (self._sequential or 0.0),
            iterations=self._finished,
            verified=self._verified,
            **self._shared(stopped, failure),
        )

    def _all(self) -> Generator[BenchPoint, None, None]:
        yield from self._at_once()
        if self._parallel is not None:
            yield from self._in_turn()

    def _at_once(self) -> Generator[BenchPoint, None, None]:
        own = [job for job in self._jobs if job.device == "cpu"]
        others = [job for job in self._jobs if job.device != "cpu"]
        barrier, over = threading.Barrier(len(others) + 1), threading.Event()
        threads = [
            threading.Thread(target=job.run, args=(barrier, over), name=f"scaling-{job.device}", daemon=True)
            for job in others
        ]
        text = f"{len(self._jobs)} jobs at once"
        try:
            for thread in threads:
                thread.start()
            before, first, unfinished = self._products(), self._jobs[0].progress, True
            self._pass(barrier)
            while unfinished and not self._stop.is_set():
                start = time.perf_counter()
                own_job = next((job for job in own if job.left), None)
                if own_job is not None:
                    own_job.slice()
                else:
                    for thread in threads:
                        thread.join(max(start + BLOCK_SECONDS - time.perf_counter(), 0.0))
                self._raise_failures()
                seconds = max(job.seconds for job in self._jobs) if self.simulated else time.perf_counter() - start
                unfinished = any(job.left for job in self._jobs)
                products, now = self._products(), self._jobs[0].progress
                yield self._progress(text, products - before, seconds, self._rate(first, now), products)
                before, first = products, now
        finally:
            over.set()
            barrier.abort()
            for thread in threads:
                if thread.ident is not None:  # it was started
                    thread.join(END_SECONDS)
            self._walls = tuple(DeviceWall(job.device, job.seconds) for job in self._jobs if not job.left)
            self._finished = self._products()
        self._raise_failures()
        if len(self._walls) == len(self._jobs):
            self._parallel = max(wall.seconds for wall in self._walls)

    def _pass(self, barrier: threading.Barrier) -> None:
        try:
            barrier.wait(START_SECONDS)
        except threading.BrokenBarrierError:
            self._raise_failures()
            raise

    def _raise_failures(self) -> None:
        for job in self._jobs:
            if job.error is not None:
                raise job.error

    def _products(self) -> int:
        return sum(job.done for job in self._jobs)

    def _in_turn(self) -> Generator[BenchPoint, None, None]:
        job, seconds = self._jobs[0], 0.0
        for number in range(len(self._jobs)):
            job.again()
            before = job.progress
            for now in self._alone(job):
                products = before[0] - now[0]
                self._finished += products
                text = f"job {number + 1} of {len(self._jobs)} on {job.device}"
                yield self._progress(text, products, now[1] - before[1], self._rate(before, now), self._finished)
                before = now
            if job.left:
                return
            seconds += job.seconds
        self._sequential = seconds

    def _alone(self, job: _Job) -> Generator[tuple[int, float], None, None]:
        """Compute one job where it was computed when all ran at once; its progress every 50 ms. Ends early when the run
        is stopped."""
        if job.device == "cpu" or job.virtual:
            while job.left and not self._stop.is_set():
                job.slice()
                yield job.progress
            return
        over = threading.Event()
        thread = threading.Thread(
            target=job.run, args=(threading.Barrier(1), over), name=f"in-turn-{job.device}", daemon=True
        )
        try:
            thread.start()
            going = True
            while going and not self._stop.is_set():
                thread.join(BLOCK_SECONDS)
                going = thread.is_alive()
                self._raise_failures()
                yield job.progress
        finally:
            over.set()
            if thread.ident is not None:  # it was started
                thread.join(END_SECONDS)

    def _rate(self, before: tuple[int, float], now: tuple[int, float]) -> float | None:
        """TFLOP/s of the first device alone between two moments: points are drawn as its own, not as the sum of all
        devices."""
        products, spent = before[0] - now[0], now[1] - before[1]
        return 2 * self.spec.size**3 * products / spent / 1e12 if products and spent > 0 else None

    def _progress(self, text: str, products: int, seconds: float, tflops: float | None, finished: int) -> BenchPoint:
        """A point of so many products, when `finished` are computed altogether."""
        done = finished / (2 * len(self._jobs) * self.spec.iterations)
        return self._point(text, tflops=tflops, iterations=products, seconds=seconds, done=done)
