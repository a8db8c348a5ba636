"""The all-reduce benchmark: every rank's tensor is replaced by the sum over all ranks, in place; how fast, by size, and
whether each rank has the right values.

Runs on the thread that runs the benchmark; `ranks` has the processes. Bandwidths are those of nccl-tests
(doc/PERFORMANCE.md of NVIDIA/nccl-tests): algorithm bandwidth is bytes over seconds, bus bandwidth that times
2·(n-1)/n. A block begins at a barrier, and its seconds are those of the slowest rank of the world. Before and after the
timed blocks of a size each rank's tensor is filled with whole numbers whose sum is exact and known, and compared with
it; the first check and two blocks are the warm-up. Engines that share a world measure the same seconds, and so decide
on the same number of iterations.

Between virtual GPUs the values are checked with processes on the CPU, on a small tensor, and the seconds are those of
`ring`, booked on each device's simulated clock: four processes at most, but one for each where ranks of other engines
take part, whose cards may be slower.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from msgspec.structs import replace
from torch import distributed

from devexplorer.core.allreduce.kind import AllReduceResult, AllReduceRow, AllReduceSpec
from devexplorer.core.allreduce.messages import CPU_RANKS, DTYPES, Order, Setup
from devexplorer.core.allreduce.ranks import LOOPBACK, RANK, Ranks, listen
from devexplorer.core.allreduce.ring import ring_seconds
from devexplorer.core.base import Clock, Unavailable, bytes_text, item_bytes, parse_seconds
from devexplorer.core.benchmark.kind import exact
from devexplorer.core.benchmark.spec import Checks
from devexplorer.core.benchmark.statistics import Samples, block_length, spread
from devexplorer.core.benchmark.timing import Runner
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.records import BenchPoint, Spread
from devexplorer.core.virtual.device.machine import VirtualMachine

MOST_RANKS = 4096
MOST_OWN_RANKS = 256


def check_allreduce(spec: AllReduceSpec, registry: DeviceRegistry) -> AllReduceSpec:
    """The specification with canonical device names, the number of its ranks, and sizes of whole elements. Raises
    `BadInput` with everything that keeps it from running; allocates nothing."""
    checks = Checks(registry)
    if not distributed.is_available() or not (distributed.is_gloo_available() or distributed.is_nccl_available()):
        checks.add("this torch was built without torch.distributed or its backends gloo and nccl, so ranks cannot meet")
    devices = checks.devices(spec.devices or ("cpu",))
    twice = next((device for device in devices if devices.count(device) > 1), None)
    if twice is not None:
        checks.add(f"{twice} is named twice; name each device once, or give the CPU a number of ranks")
    kinds = {registry.info(device).kind for device in devices}
    if other := kinds - {"cpu", "cuda", "virtual"}:
        checks.add(
            f"an all-reduce runs between CUDA devices, virtual GPUs, or processes on the CPU, not on {min(other)}"
        )
    elif len(kinds) > 1:
        checks.add(f"ranks on {' and '.join(devices)} cannot be in one world; choose devices of one kind")
    if kinds != {"cpu"}:
        ranks = len(devices)
    elif spec.ranks is None:
        ranks = CPU_RANKS
    else:
        ranks = spec.ranks
    checked = replace(spec, devices=devices, ranks=ranks)
    _check_ranks(spec, checked, kinds, checks)
    if spec.dtype not in DTYPES:
        checks.add(f"an all-reduce of {spec.dtype} is not measured; take one of {', '.join(DTYPES)}")
        checks.demand_none()
    if not spec.sizes or min(spec.sizes) < 1:
        checks.add("an all-reduce needs a size of at least 1 byte")
    each = item_bytes(spec.dtype)
    checked = replace(checked, sizes=tuple(dict.fromkeys(max(size // each, 1) * each for size in spec.sizes)))
    checks.checked(lambda: parse_seconds(spec.seconds))
    checks.checked(lambda: parse_seconds(spec.limit_seconds))
    if spec.iterations is not None and spec.iterations < 1:
        checks.add(f"{spec.iterations} iterations cannot be measured; at least 1 is needed")
    largest = max(checked.sizes, default=0)
    for device in devices:
        needed = (ranks if device == "cpu" else 1) * 2 * largest  # the tensor, and what the backend puts beside it
        checks.fits(device, needed, f"tensors of {bytes_text(largest)} with their buffers need")
    checks.demand_none()
    return checked


def _check_ranks(spec: AllReduceSpec, checked: AllReduceSpec, kinds: set[str], checks: Checks) -> None:
    own = checked.own_ranks
    if spec.ranks is not None and spec.ranks != own:
        checks.add(f"every device has one rank, so there are {own}, not {spec.ranks}; only the CPU can have several")
    if not 1 <= own <= MOST_OWN_RANKS:
        checks.add(f"{own} ranks cannot be started; from 1 to {MOST_OWN_RANKS} are possible")
    meeting = spec.rendezvous
    if meeting is None:
        if own == 1 and kinds != {"cuda"}:
            checks.add(
                "an all-reduce needs two ranks at least; name more virtual GPUs, or take the CPU and --ranks 4",
                virtual_helps=True,
            )
        return
    if not meeting.address or not 1 <= meeting.port <= 65535:
        checks.add(f"'{meeting.address}:{meeting.port}' is no place to meet; write HOST:PORT with a port up to 65535")
    if not 2 <= meeting.world_size <= MOST_RANKS:
        checks.add(f"a world of {meeting.world_size} ranks is not possible; it has from 2 to {MOST_RANKS}")
    elif not 0 <= meeting.first_rank <= meeting.world_size - own:
        last = meeting.first_rank + own - 1
        checks.add(
            f"ranks {meeting.first_rank} to {last} are not in a world of {meeting.world_size}; they count from 0 to"
            f" {meeting.world_size - 1}"
        )


def backend_of(spec: AllReduceSpec) -> str:
    """`nccl` between CUDA devices where this torch has it (for AMD's it is RCCL), else `gloo`."""
    return "nccl" if spec.device.startswith("cuda") and distributed.is_nccl_available() else "gloo"


VIRTUAL_RANKS = 4
"""Processes that check the values of virtual GPUs, at most."""
VIRTUAL_BYTES = 1 << 16
"""Of the tensor that they check, at most."""

Points = Generator[BenchPoint, None, None]


class AllReduceRun(Runner[AllReduceSpec]):
    """`module` is what a rank runs; tests let it go wrong."""

    def __init__(
        self,
        spec: AllReduceSpec,
        run: int,
        registry: DeviceRegistry,
        stop: threading.Event,
        clock: Clock = time.time,
        *,
        module: str = RANK,
    ) -> None:
        machine = registry.backend(spec.device)
        self._machine = machine if isinstance(machine, VirtualMachine) else None
        super().__init__(spec, run, clock, simulated=self._machine is not None, on_cpu=False)  # each rank has a thread
        self._stop = stop
        self._module = module
        self._backend = backend_of(spec)
        self._ranks: Ranks | None = None
        self._met = False
        self._rows: list[AllReduceRow] = []
        self._points: Points | None = None

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Start the ranks and wait until they have found each other, and those of other engines."""
        meeting = self.spec.rendezvous
        first = 0 if meeting is None else meeting.first_rank
        address, port = (LOOPBACK, 0) if meeting is None else (meeting.address, meeting.port)
        listener = listen(address, port) if first == 0 else None
        if listener is not None:
            port = listener.getsockname()[1]
        few = self.simulated and meeting is None
        own = min(self.spec.own_ranks, VIRTUAL_RANKS) if few else self.spec.own_ranks
        world = own if few else self.spec.world_size
        setups = [
            Setup(
                rank=first + number,
                world_size=world,
                address=address,
                port=port,
                listener=None,
                backend=self._backend,
                device=self.spec.devices[number] if self.spec.device.startswith("cuda") else "cpu",
                dtype=self.spec.dtype,
                limit_seconds=self.spec.limit_seconds,
                settings=self._settings,
            )
            for number in range(own)
        ]
        self._ranks = Ranks(setups, listener, module=self._module, limit_seconds=self.spec.limit_seconds)
        self._met = self._ranks.meet(stopped)

    @property
    def _settings(self) -> str:
        """What all engines of a world have to be told alike."""
        spec = self.spec
        sizes = ", ".join(bytes_text(size) for size in spec.sizes)
        most = "" if spec.iterations is None else f", {spec.iterations} iterations at most"
        how = "simulated" if self.simulated else self._backend
        return f"{spec.world_size} ranks, {how}, {spec.dtype}, {sizes}, {spec.seconds:g} s each{most}"

    def step(self) -> BenchPoint | None:
        """One block, or the end of a size; None after the last, or when it was stopped."""
        if self._points is None:  # made in `__init__`, it would keep a run that never began (Python 3.12 and newer)
            self._points = self._all()
        return next(self._points, None)

    def result(self, *, stopped: bool, failure: str | None = None) -> AllReduceResult | None:
        """The sizes that are finished; None when there is not one. Every process has ended then."""
        if self._points is not None:
            self._points.close()
        wrong = any(row.verified is False for row in self._rows)
        if self._ranks is not None and self._met and (wrong or failure is None):
            self._ranks.end(wrong=wrong)  # those of other engines end with a reason, and not with a lost connection
        elif self._ranks is not None:
            self._ranks.close()
        if not self._rows:
            return None
        return AllReduceResult(
            backend=self._backend,
            rows=tuple(self._rows),
            seconds=sum(row.seconds or 0.0 for row in self._rows),
            iterations=sum(row.iterations for row in self._rows),
            verified=not wrong,
            **self._shared(stopped, failure),
        )

    # --- one size after the other, until the run is stopped

    def _all(self) -> Points:
        for size in self.spec.sizes:
            yield from self._virtual(size) if self._machine is not None else self._one(size)
            if self._stop.is_set():
                return

    def _one(self, size: int) -> Points:
        spec, samples, iterations, spent = self.spec, Samples[float](), 0, 0.0
        self._check(size, size)
        each = self._block(size, 1)
        warm = block_length(each)
        each = self._block(size, warm) / warm
        while not self._stop.is_set() and (not iterations or spent < spec.seconds):
            length = block_length(each)
            if spec.iterations is not None:
                length = min(length, spec.iterations - iterations)
            seconds = self._block(size, length)
            if not seconds:  # stopped
                return
            each = seconds / length
            samples.add([each])
            iterations, spent = iterations + length, spent + seconds
            yield self._progress(size, min(spent / spec.seconds, 1.0), each, iterations=length, seconds=seconds)
            if iterations == spec.iterations:
                break
        if self._check(size, size):
            yield self._finished(size, spread(samples.kept), iterations, spent)

    def _virtual(self, size: int) -> Points:
        assert self._machine is not None
        if not self._check(min(size, VIRTUAL_BYTES), size):
            return
        gpus = [(device, self._machine.gpu(device).profile) for device in self.spec.devices]
        seconds = ring_seconds(gpus, size, self.spec.world_size)
        if self.spec.rendezvous is not None:
            seconds = self._timed(Order(kind="block", modelled_seconds=seconds))
            if not seconds:  # stopped
                return
        for device in self.spec.devices:
            self._machine.advance(device, seconds)
        yield self._finished(size, exact(seconds), 1, seconds)

    # --- what the ranks do

    def _check(self, nbytes: int, size: int) -> bool:
        """Whether the values are right; False when the run was stopped. Raises `Unavailable` when they are wrong."""
        count = nbytes // item_bytes(self.spec.dtype)
        assert self._ranks is not None, "call prepare() first"
        self._ranks.tell(Order(kind="check", count=count))
        replies = self._ranks.wait(self._stop.is_set)
        wrong = [(rank, reply.wrong) for rank, reply in sorted((replies or {}).items()) if reply.wrong]
        if wrong:
            told = ", ".join(f"rank {rank} has {number:,} wrong values of {count:,}" for rank, number in wrong)
            reason = f"{told} after an all-reduce of {bytes_text(nbytes)}"
            self._rows.append(AllReduceRow(bytes=size, verified=False, reason=reason, simulated=self.simulated))
            raise Unavailable(reason)
        return replies is not None

    def _block(self, size: int, iterations: int) -> float:
        """Seconds of the slowest rank; 0 when the run was stopped."""
        return self._timed(Order(kind="block", count=size // item_bytes(self.spec.dtype), iterations=iterations))

    def _timed(self, order: Order) -> float:
        """The same of any block."""
        assert self._ranks is not None, "call prepare() first"
        if self._stop.is_set():
            return 0.0
        self._ranks.tell(order)
        replies = self._ranks.wait(self._stop.is_set)
        return 0.0 if replies is None else max(reply.seconds for reply in replies.values())

    # --- what is reported

    def _rates(self, size: int, seconds: Spread) -> tuple[Spread, Spread | None]:
        """Algorithm and bus bandwidth."""
        algorithm = Spread(*(size / value / 1e9 for value in (seconds.median, seconds.p80, seconds.p20)))
        world = self.spec.world_size
        factor = 2 * (world - 1) / world
        bus = Spread(algorithm.median * factor, algorithm.p20 * factor, algorithm.p80 * factor)
        return algorithm, bus if world > 1 else None

    def _progress(self, size: int, share: float, each: float, **measured: Any) -> BenchPoint:
        """A point of a size of which that share is measured."""
        algorithm, bus = self._rates(size, exact(each))
        done = min((len(self._rows) + share) / len(self.spec.sizes), 1.0)
        return self._point(bytes_text(size, 0), done=done, gb_per_s=(bus or algorithm).median, **measured)

    def _finished(self, size: int, seconds: Spread, iterations: int, spent: float) -> BenchPoint:
        algorithm, bus = self._rates(size, seconds)
        row = AllReduceRow(
            bytes=size,
            algorithm_gb_per_s=algorithm,
            bus_gb_per_s=bus,
            operation_seconds=seconds,
            iterations=iterations,
            verified=True,
            simulated=self.simulated,
            seconds=spent,
        )
        self._rows.append(row)
        return self._progress(size, 0.0, seconds.median, part=row)
