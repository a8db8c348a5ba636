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

import errno
import ipaddress
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from torch import distributed

from devexplorer.core.allreduce.kind import AllReduceResult, AllReduceRow, AllReduceSpec, ring_seconds
from devexplorer.core.allreduce.messages import CPU_RANKS, DTYPES, Order, RankReply, Setup
from devexplorer.core.base import Clock, Unavailable, bytes_text, item_bytes, list_text, module_command, parse_seconds
from devexplorer.core.benchmark.kind import exact
from devexplorer.core.benchmark.spec import Checks
from devexplorer.core.benchmark.statistics import Samples, block_length, spread
from devexplorer.core.benchmark.timing import Runner
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.isolation.worker import SPARE_SECONDS, exit_text, has_ended, reap
from devexplorer.core.records import BenchPoint, Spread
from devexplorer.core.virtual.device.machine import VirtualMachine

# The ranks of one engine: their processes, what they are told and what they answer.

RANK = "devexplorer.core.allreduce.rank"
LOOPBACK = "127.0.0.1"
ASK_MS = 50
"""Between two looks whether the run was stopped."""
GRACE_SECONDS = 1.0
"""For the other ranks to say what they have seen, after the first has failed; and to end, when they are asked to."""
START_SECONDS = 30.0
"""For the processes to import torch."""
QUIET = {"TORCH_CPP_LOG_LEVEL": "FATAL", "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING": "0"}
"""In the environment of a rank, where the user has nothing else there."""


def listen(address: str, port: int) -> socket.socket:
    """Where the ranks meet; port 0: any that is free. Raises `Unavailable` in one line."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise Unavailable(f"{address} cannot be found: {error.strerror}") from None
    if _is_loopback(str(place[0])) and not _is_loopback(address) and address != "localhost":
        listener.close()
        raise Unavailable(
            f"{address} is {place[0]} on this machine itself, where no other reaches it; give its address in"
            " the network"
        )
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        why = "is no address of this machine" if error.errno == errno.EADDRNOTAVAIL else error.strerror
        raise Unavailable(f"rank 0 cannot listen at {address}:{port}: {why}") from None
    return listener


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class Ranks:
    """A context of processes, one a setup; the first use is `wait`, until they have found each other."""

    def __init__(
        self, setups: Sequence[Setup], listener: socket.socket | None, *, module: str = RANK, limit_seconds: float
    ) -> None:
        """`listener` goes to rank 0, if that is one of these."""
        self._limit = limit_seconds
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._readable: dict[int, int] = {}
        self._data: dict[int, bytearray] = {}
        try:
            for setup in setups:
                self._start(setup, listener if setup.rank == 0 else None, module)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise Unavailable(f"no process could be started for a rank: {error}") from None
            raise
        finally:
            if listener is not None:
                listener.close()

    def _start(self, setup: Setup, listener: socket.socket | None, module: str) -> None:
        readable, writable = os.pipe()
        self._readable[setup.rank], self._data[setup.rank] = readable, bytearray()
        passed = [writable] if listener is None else [writable, listener.fileno()]
        try:
            process = self._processes[setup.rank] = subprocess.Popen(
                module_command(module, str(writable)),
                stdin=subprocess.PIPE,
                stdout=2,  # standard output may be a document
                stderr=2,
                pass_fds=passed,
                start_new_session=True,
                env=QUIET | dict(os.environ),
            )
        finally:
            os.close(writable)
        first = replace(setup, listener=None if listener is None else listener.fileno())
        _write(process, msgspec.json.encode(first))

    def tell(self, order: Order) -> None:
        """Give all of them the same order; `wait` for what they answer."""
        line = msgspec.json.encode(order)
        for process in self._processes.values():
            _write(process, line)

    def meet(self, stopped: Callable[[], bool]) -> bool:
        """Wait until they have found all others; False when the run was stopped before. Raises what `wait` raises."""
        longest = START_SECONDS + 2 * self._limit  # for what they import, then for each other
        return self._answers(stopped, longest, late=longest) is not None

    def wait(self, stopped: Callable[[], bool]) -> dict[int, RankReply] | None:
        """The reply of every rank; None when the run was stopped before. Raises `Unavailable`, in one line, when one of
        them fails, ends or stays silent, or when another engine has ended the run."""
        replies = self._answers(stopped, self._limit + SPARE_SECONDS, late=self._limit)
        over = next((reply for reply in (replies or {}).values() if reply.kind == "over"), None)
        if over is not None:
            raise Unavailable(over.text or "another engine of this all-reduce has stopped it")
        return replies

    def _answers(self, stopped: Callable[[], bool], seconds: float, late: float) -> dict[int, RankReply] | None:
        """After `late` seconds it is a rank that says nothing that holds up the others."""
        began = time.monotonic()
        replies: dict[int, RankReply] = {}
        while len(replies) < len(self._processes):
            if stopped():
                return None
            replies |= self._read(self._readable.keys() - replies.keys(), ASK_MS)
            failed, spent = any(reply.kind == "failed" for reply in replies.values()), time.monotonic() - began
            if failed or spent > seconds:
                raise Unavailable(self._why(replies, late=spent > late))
        return replies

    def _read(self, ranks: set[int], milliseconds: int) -> dict[int, RankReply]:
        """What some of these ranks have answered within that time; of one that has ended, that it failed."""
        waiting = select.poll()
        by_descriptor = {self._readable[rank]: rank for rank in ranks}
        for descriptor in by_descriptor:
            waiting.register(descriptor, select.POLLIN)
        replies = {}
        for descriptor, _ in waiting.poll(milliseconds):
            rank = by_descriptor[descriptor]
            data = self._data[rank]
            piece = os.read(descriptor, 1 << 16)
            data += piece
            line, newline, rest = data.partition(b"\n")
            if newline:
                self._data[rank] = bytearray(rest)
                replies[rank] = _reply(bytes(line))
            elif not piece:
                replies[rank] = RankReply(kind="failed")
        return replies

    def _why(self, replies: Mapping[int, RankReply], *, late: bool) -> str:
        """What went wrong, in one line: of all that failed, the rank whose failure is not that of another. `late`: the
        time for an answer is over."""
        replies, end = dict(replies), time.monotonic() + GRACE_SECONDS
        while len(replies) < len(self._processes) and time.monotonic() < end:
            replies |= self._read(self._readable.keys() - replies.keys(), ASK_MS)
        failed = {rank: reply.text for rank, reply in replies.items() if reply.kind == "failed"}
        ended = next((rank for rank, text in failed.items() if not text), None)
        silent = sorted(self._processes.keys() - replies.keys())
        if silent and (late or not failed):  # the others gave up waiting for these, and may have ended for that
            names = list_text([f"rank {rank}" for rank in silent])
            return f"{names} did not answer within {self._limit:g} s and {'was' if len(silent) == 1 else 'were'} ended"
        if ended is not None:
            process = self._processes[ended]
            while not has_ended(process) and time.monotonic() < end:
                time.sleep(ASK_MS / 1e3)  # its descriptors are closed; the process ends next
            return f"rank {ended} ended its process {exit_text(reap(process))}"
        rank, text = next(iter(failed.items()))
        return f"rank {rank}: {text}"

    def end(self, *, wrong: bool = False) -> None:
        """Let the ranks of every engine end after what they do now, then close."""
        self.tell(Order(kind="end", wrong=wrong))
        going, end = set(self._processes), time.monotonic() + GRACE_SECONDS
        while going and time.monotonic() < end:  # a block that was interrupted is answered first
            going -= {rank for rank, reply in self._read(going, ASK_MS).items() if reply.kind in ("over", "failed")}
        self.close()

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._processes.values():
            if process.returncode is None:
                reap(process)
        for descriptor in self._readable.values():
            os.close(descriptor)
        self._processes, self._readable = {}, {}


def _write(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(line + b"\n")
        process.stdin.flush()
    except (BrokenPipeError, ValueError):
        pass  # it has ended; `wait` says how


def _reply(line: bytes) -> RankReply:
    try:
        return msgspec.json.decode(line, type=RankReply)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return RankReply(kind="failed", text="it wrote something else than an answer")


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
