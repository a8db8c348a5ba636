"""Everything that torch itself drives: cpu, cuda, mps, xpu and other accelerators. Engine process; its threads; no Qt.

Listing touches no device: a CUDA context costs hundreds of MiB and stays until the process ends, so CUDA's facts come
from the driver (`core.devices.cuda_driver`), and torch is asked only what it knows without one. torch's own functions
for utilization, temperature and power can read the wrong card and are not used."""

from __future__ import annotations

import os
import platform
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Clock, DoesNotFit, Unavailable, bytes_text, first_line
from devexplorer.core.base.time_limit import TimeLimitError, call_within
from devexplorer.core.devices import accelerator
from devexplorer.core.devices.backend import choose_device
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.cuda_driver import CudaDriver
from devexplorer.core.records import AllocatorSample, DeviceInfo, DeviceSample, Problem

# Whether a build of torch has code for a card, and a driver is new enough for a build. No torch, no thread.


def arch_reason(capability: str, arch_list: Sequence[str]) -> str | None:
    """Why a build with these architectures (`torch.cuda.get_arch_list`) has no code for a card; None when it has.

    Machine code (`sm_86`) runs on the same major and the same or a newer minor capability; with `a` only on exactly
    that one, with `f` within the family. PTX (`compute_86`) is compiled on the spot for any newer one.
    """
    major, minor = (int(part) for part in capability.split("."))
    for arch in arch_list:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch)
        if match is None:
            continue
        form, suffix = match.group(1), match.group(4)
        built = (int(match.group(2)), int(match.group(3)))
        if suffix == "a":
            fits = built == (major, minor)
        elif form == "sm" or suffix == "f":
            fits = built[0] == major and built[1] <= minor
        else:
            fits = built <= (major, minor)
        if fits:
            return None
    return f"needs sm_{major}{minor}, this build of torch has {', '.join(arch_list) or 'none'}"


def older(version: str, than: str | None) -> bool:
    """Whether a driver's CUDA has an older major version than torch's (minor versions are compatible)."""
    return than is not None and int(version.split(".")[0]) < int(than.split(".")[0])


LISTED_ELSEWHERE = frozenset({"vgpu", "privateuseone"})
"""Types that are listed elsewhere (`core.virtual`), and the type where no backend is registered."""

ENUMERATION_LIMIT_S = 10.0
"""How long torch may take to count devices; it asks drivers, and those can hang."""

CUDA_BLOCK_BYTES = 512
"""CUDA's caching allocator rounds every tensor up to this (kMinBlockSize in c10/cuda/CUDACachingAllocator.h)."""


class _Counters(NamedTuple):
    """Bytes in live tensors, bytes taken from the device, the most that was ever allocated, pieces taken from the
    device."""

    allocated: int
    reserved: int
    peak: int | None
    segments: int | None


def torch_facts(module: Any = torch, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What torch says about itself: the figures of `EngineReady`. Creates no context."""
    available, _ = _cuda_available(module)
    return {
        "python_version": platform.python_version(),
        "torch_version": str(module.__version__),
        "cuda_version": module.version.cuda,
        "cuda_available": available,
        "cuda_device_count": int(module.cuda.device_count()) if available else 0,
        "cuda_visible_devices": (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES"),
        "threads": int(module.get_num_threads()),
        "default_dtype": str(module.get_default_dtype()).removeprefix("torch."),
    }


class TorchBackend:
    """A `core.devices.backend.Backend` for what torch drives. The list is made once; `refresh` makes a new one.

    `free_of` says how many bytes of a CUDA card, by its UUID, are free where there is no context. Tests replace torch
    by `module` and libcuda by `driver`. Ids that are not in the list raise `BadInput`: torch takes `cpu:1` for `cpu`,
    and some accelerators take an index out of range for 0.
    """

    def __init__(
        self,
        *,
        module: Any = torch,
        driver: CudaDriver | None = None,
        cpu: CpuReader | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Clock = time.perf_counter,
        free_of: Callable[[str], int | None] = lambda _uuid: None,
    ) -> None:
        self._torch = module
        self._free_of = free_of
        self._environ = os.environ if environ is None else environ
        self._driver = driver if driver is not None else CudaDriver(environ=self._environ)
        self._cpu = cpu if cpu is not None else CpuReader()
        self._clock = clock
        self._cuda_memory = CudaMemory(module, clock)
        self._devices: tuple[DeviceInfo, ...] | None = None
        self._problems: tuple[Problem, ...] = ()
        self._unanswered: dict[tuple[str, str], str] = {}
        """(device, question) -> why it is not asked again."""

    # what there is

    def devices(self) -> tuple[DeviceInfo, ...]:
        """The CPU, CUDA devices by ordinal, other accelerators; the unusable ones with their reason."""
        devices = self._devices
        return self.refresh() if devices is None else devices

    def problems(self) -> tuple[Problem, ...]:
        """What could not be found out while listing. A problem of the field `cuda` says why there is no CUDA at all."""
        self.devices()
        return self._problems

    def refresh(self) -> tuple[DeviceInfo, ...]:
        """List the devices again, for example when a backend was registered since."""
        problems = list(self._cpu.facts.problems)
        devices = [self._cpu.info(threads=self.threads)]
        devices += self._list_cuda(problems)
        devices += self._list_others(problems)
        self._devices, self._problems = tuple(devices), tuple(problems)
        return self._devices

    def _list_cuda(self, problems: list[Problem]) -> list[DeviceInfo]:
        built = bool(self._torch.backends.cuda.is_built())
        if not built:
            if sys.platform != "darwin":  # there is no CUDA to miss
                version = self._torch.__version__
                problems.append(
                    Problem(f"this torch ({version}) is a CPU build: it cannot use CUDA devices", field="cuda")
                )
            return []
        if self._torch.version.hip:
            return self._list_rocm()
        listed = self._driver.devices()
        if self._driver.problem is not None:
            problems.append(self._driver.problem)
            return []
        count, reason = _cuda_count(self._torch)
        architectures = list(self._torch.cuda.get_arch_list())
        newest = self._driver.cuda_version()
        return [self._cuda_info(info, count, reason, architectures, newest) for info in listed]

    def _cuda_info(
        self, info: DeviceInfo, count: int, start_reason: str | None, architectures: Sequence[str], newest: str | None
    ) -> DeviceInfo:
        """What the driver lists, and whether torch can use it."""
        if (info.cuda_ordinal or 0) < count:
            capability = info.compute_capability
            reason = arch_reason(capability, architectures) if capability is not None else None
        elif start_reason is not None:
            reason = f"torch cannot start CUDA: {start_reason}"
        elif newest is not None and older(newest, self._torch.version.cuda):
            built = self._torch.version.cuda
            reason = f"the driver supports CUDA {newest}, this torch was built with {built}: update the driver"
        else:
            reason = f"torch counts {count} CUDA devices, the driver lists this one beyond them"
        return replace(info, usable=reason is None, reason=reason, cuda_version=newest)

    def _list_rocm(self) -> list[DeviceInfo]:
        """AMD cards call themselves cuda. Names and memory would take a context, so they stay unknown here."""
        count, _ = _cuda_count(self._torch)
        return [DeviceInfo(id=f"cuda:{i}", kind="cuda", name=f"ROCm device {i}", cuda_ordinal=i) for i in range(count)]

    def _list_others(self, problems: list[Problem]) -> list[DeviceInfo]:
        """mps, xpu, and what a user's package registered as torch's accelerator or PrivateUse1 backend."""
        kinds = ["mps", "xpu"]
        current = self._ask("accelerator", "current", lambda: accelerator.current(self._torch))
        private = self._ask("privateuseone", "name", lambda: self._torch._C._get_privateuse1_backend_name())
        kinds += [kind for kind in (current and current.type, private) if kind]
        devices: list[DeviceInfo] = []
        for kind in dict.fromkeys(kinds):
            if kind in LISTED_ELSEWHERE or kind in ("cpu", "cuda"):
                continue
            try:
                count = call_within(ENUMERATION_LIMIT_S, partial(_count, self._torch, kind), f"the backend '{kind}'")
            except Exception as error:  # a third-party package: it may lack anything and raise anything
                if kind not in ("mps", "xpu"):
                    problems.append(Problem(f"the backend '{kind}' cannot be listed: {first_line(error)}", field=kind))
                continue
            devices += [self._other_info(kind, index) for index in range(count)]
        for (device, field), reason in self._unanswered.items():
            if field in ("name", "memory_total_bytes") and any(info.id == device for info in devices):
                problems.append(Problem(reason, device=device, field=field))
        return devices

    def _other_info(self, kind: str, index: int) -> DeviceInfo:
        if kind == "mps":
            used, total = self._used_and_total("mps")
            return DeviceInfo(
                id="mps",
                kind="mps",
                name=f"{self._cpu.facts.name} GPU",
                memory_total_bytes=total,
                memory_used_bytes=used,
                memory_shared=True,
            )
        device = f"{kind}:{index}"
        name = self._ask(device, "name", lambda: str(self._of(kind, "get_device_name", index)))
        return DeviceInfo(
            id=device, kind=kind, name=name or f"{kind} device {index}", memory_total_bytes=self._memory_info(device)[1]
        )

    # what the engine asks while it works

    @property
    def threads(self) -> int:
        """CPU threads that torch uses for one operation."""
        return int(self._torch.get_num_threads())

    def set_threads(self, threads: int) -> None:
        """Set `threads`, on the thread that computes. `BadInput` below 1 and beyond the logical cores."""
        cores = max(self._cpu.facts.logical_cores, os.cpu_count() or 1)
        if not 1 <= threads <= cores:
            raise BadInput(f"{threads} threads are not possible; this machine has {cores} cores, so 1 to {cores} are")
        self._torch.set_num_threads(threads)
        cpu, *others = self.devices()
        self._devices = (replace(cpu, threads=threads), *others)

    def free_bytes(self, device: str) -> int | None:
        """Bytes that new tensors can take; for accelerators the free memory and what their allocator has cached.

        On a CUDA card it makes the context; raises `DoesNotFit` where there is no room for one.
        """
        kind, index = self._split(device)
        if kind in ("cpu", "mps"):
            return self._cpu.free_bytes()
        if kind == "cuda":
            try:
                free = int(self._torch.cuda.mem_get_info(index)[0])
            except RuntimeError as error:
                if accelerator.is_out_of_memory(error):
                    raise self._no_room(device) from error
                raise
            return free + int(self._torch.cuda.memory_reserved(index)) - int(self._torch.cuda.memory_allocated(index))
        free_other, _ = self._memory_info(device)
        if free_other is None:
            return None
        counters = self._allocator(kind, index)
        return free_other + (counters.reserved - counters.allocated if counters else 0)

    def footprint_bytes(self, device: str, sizes: Sequence[int]) -> int:
        """The sum of the sizes, for CUDA each rounded up to a block of 512 B.

        A new segment can take more (2 MiB at least); how much depends on what is cached, so this is a lower bound.
        """
        kind, _ = self._split(device)
        if kind != "cuda":
            return sum(sizes)
        return sum(-(-size // CUDA_BLOCK_BYTES) * CUDA_BLOCK_BYTES for size in sizes)

    def synchronize(self, device: str) -> None:
        """Wait until the device has done all its work; a device without a context has none."""
        kind, index = self._split(device)
        if kind == "cuda":
            if self._has_cuda_context(index):
                self._torch.cuda.synchronize(index)
        elif kind == "mps":
            self._torch.mps.synchronize()
        elif kind != "cpu":
            self._of(kind, "synchronize", index)

    def clock_seconds(self, device: str) -> float:
        """The wall clock."""
        self._split(device)
        return self._clock()

    def allocator_sample(self, device: str, time_unix_s: float) -> AllocatorSample | None:
        """`memory_stats` of torch's allocator; None for the CPU and for a device without a context."""
        kind, index = self._split(device)
        counters = self._allocator(kind, index)
        if counters is None:
            return None
        reserved = max(counters.reserved, counters.allocated)
        cached = reserved - counters.allocated
        largest = self._cuda_memory.largest_free_block(index, cached) if kind == "cuda" else None
        return AllocatorSample(
            device=device,
            time_unix_s=time_unix_s,
            allocated_bytes=counters.allocated,
            reserved_bytes=reserved,
            peak_allocated_bytes=counters.peak,
            largest_free_block_bytes=largest,
            segments=counters.segments,
        )

    def device_sample(self, device: str, time_unix_s: float) -> DeviceSample | None:
        """Memory of accelerators that neither NVML nor psutil watches; None for cpu and cuda."""
        kind, _ = self._split(device)
        if kind in ("cpu", "cuda"):
            return None
        used, total = self._used_and_total(device)
        return DeviceSample(device=device, time_unix_s=time_unix_s, memory_used_bytes=used, memory_total_bytes=total)

    def readings(self, device: str, time_unix_s: float) -> tuple[AllocatorSample | None, DeviceSample | None]:
        """One right after the other: a driver and an allocator cannot be asked at once."""
        return self.allocator_sample(device, time_unix_s), self.device_sample(device, time_unix_s)

    def used_bytes(self, device: str) -> int | None:
        """What all processes use; for CUDA `cudaMemGetInfo`, asked only where there is a context already."""
        kind, index = self._split(device)
        if kind != "cuda":
            return self._used_and_total(device)[0]
        if not self._has_cuda_context(index):
            return None
        free, total = self._torch.cuda.mem_get_info(index)
        return int(total) - int(free)

    def _used_and_total(self, device: str) -> tuple[int | None, int | None]:
        """Bytes of the system's memory for what shares it, else the accelerator's; not for CUDA."""
        if device in ("cpu", "mps"):
            return self._cpu.used_bytes(), self._cpu.facts.memory_total_bytes
        free, total = self._memory_info(device)
        return None if free is None or total is None else total - free, total

    def record(self, on: bool) -> tuple[str, ...]:
        """torch's CUDA allocator can; it begins with the first context."""
        able = tuple(info.id for info in self.devices() if info.kind == "cuda" and info.usable)
        if able:
            self._cuda_memory.record(on)
        return able

    def snapshot(self, device: str) -> dict[str, Any]:
        """`torch.cuda.memory._snapshot()` of one device."""
        kind, index = self._split(device)
        if kind == "cpu":
            raise Unavailable("the CPU has no caching allocator: torch frees memory there immediately")
        if kind != "cuda":
            raise Unavailable(f"torch can list the blocks of its allocator for CUDA devices, not for {device}")
        if not self._has_cuda_context(index):
            raise Unavailable(f"this engine has nothing on {device} yet; move a tensor there first")
        return self._cuda_memory.snapshot(index)

    def empty_cache(self, device: str) -> None:
        """Give cached memory back (torch can do that only for all devices of a kind at once)."""
        kind, _ = self._split(device)
        if kind == "cuda":
            if self._torch.cuda.is_initialized():
                self._torch.cuda.empty_cache()
        elif kind != "cpu":
            try:
                self._of(kind, "empty_cache")
            except Unavailable:
                pass  # a backend without a cache has nothing to give back

    # inside

    def _no_room(self, device: str) -> DoesNotFit:
        """Without a context torch does not know how much is free."""
        uuid = next(info.uuid for info in self.devices() if info.id == device)
        free = None if uuid is None else self._free_of(uuid)
        room = "" if free is None else f", {bytes_text(free)} free"
        message = f"no room for a CUDA context on {device}{room}; end other programs on it, or choose another device"
        return DoesNotFit(message, device=device, needed_bytes=0, free_bytes=free or 0)

    def _split(self, device: str) -> tuple[str, int]:
        """Kind and index of a listed device."""
        choose_device(device, [info.id for info in self.devices()])
        kind, _, index = device.partition(":")
        return kind, int(index or 0)

    def _has_cuda_context(self, index: int) -> bool:
        if not self._torch.cuda.is_initialized():
            return False
        context = self._driver.has_context(index)
        return True if context is None else context

    def _allocator(self, kind: str, index: int) -> _Counters | None:
        """What the allocator has counted, where there is one that answers."""
        if kind == "cpu":
            return None
        if kind == "mps":
            mps = self._torch.mps
            return _Counters(int(mps.current_allocated_memory()), int(mps.driver_allocated_memory()), None, None)
        if kind == "cuda":
            if not self._has_cuda_context(index):
                return None
            self._cuda_memory.follow()
            stats = self._torch.cuda.memory_stats(index)
        else:
            stats = self._ask(f"{kind}:{index}", "memory_stats", lambda: self._of(kind, "memory_stats", index))
        if not stats or "allocated_bytes.all.current" not in stats:
            return None if kind == "cuda" else self._counted(kind, index)
        peak, segments = (stats.get(key) for key in ("allocated_bytes.all.peak", "segment.all.current"))
        return _Counters(
            allocated=int(stats["allocated_bytes.all.current"]),
            reserved=int(stats.get("reserved_bytes.all.current", 0)),
            peak=None if peak is None else int(peak),
            segments=None if segments is None else int(segments),
        )

    def _counted(self, kind: str, index: int) -> _Counters | None:
        """The two figures that a backend may have without statistics."""
        device = f"{kind}:{index}"
        allocated = self._ask(device, "memory_allocated", lambda: self._of(kind, "memory_allocated", index))
        if allocated is None:
            return None
        reserved = self._ask(device, "memory_reserved", lambda: self._of(kind, "memory_reserved", index))
        return _Counters(int(allocated), int(allocated if reserved is None else reserved), None, None)

    def _memory_info(self, device: str) -> tuple[int | None, int | None]:
        """Free and total bytes of an accelerator that is neither cuda nor mps; None each where it cannot say."""
        kind, _, index = device.partition(":")
        answer = self._ask(device, "memory_total_bytes", lambda: self._of(kind, "get_memory_info", int(index or 0)))
        return (None, None) if answer is None else (int(answer[0]), int(answer[1]))

    def _of(self, kind: str, function: str, *arguments: Any) -> Any:
        return accelerator.ask(kind, function, *arguments, module=self._torch)

    def _ask(self, device: str, what: str, question: Callable[[], Any]) -> Any:
        """The answer, or None for good, with the reason, where the backend lacks the call or fails in it."""
        if (device, what) in self._unanswered:
            return None
        try:
            return question()
        except Exception as error:  # backends from anywhere raise anything; the device is listed without that figure
            self._unanswered[device, what] = first_line(error)
            return None


def _count(module: Any, kind: str) -> int:
    device_module = module.get_device_module(kind)
    return int(device_module.device_count()) if device_module.is_available() else 0


def _cuda_count(module: Any) -> tuple[int, str | None]:
    """How many CUDA devices torch can use, and why there are none."""
    available, reason = _cuda_available(module)
    return int(module.cuda.device_count()) if available else 0, reason


def _cuda_available(module: Any) -> tuple[bool, str | None]:
    """`torch.cuda.is_available()`, and what torch warned about when it is not (an old driver, say), or that it did not
    answer in time."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            available = bool(call_within(ENUMERATION_LIMIT_S, module.cuda.is_available, "torch.cuda.is_available"))
        except TimeLimitError as error:
            return False, str(error)
    reason = next((first_line(warning.message) for warning in caught), None)
    return available, None if available else reason


# What torch's CUDA allocator says beyond its counters: its largest free block, recording, snapshots.

LOOK_SECONDS = 2.0
"""Between two looks at the blocks. A look lists every block of every device, so that it costs more than all counters
together."""
REST = 100
"""So many times as long as a look took is the least pause after it: with 100,000 blocks it takes tenths of a second."""
TRACE_ENTRIES = 100_000
"""Allocations and frees that torch keeps while it records; without a limit it would keep all of them, several KB
each."""


class CudaMemory:
    """One for all CUDA devices of the process; `module` is torch, or its replacement."""

    def __init__(self, module: Any, clock: Clock = time.monotonic) -> None:
        self._torch = module
        self._clock = clock
        self._lock = threading.Lock()
        self._largest: dict[int, int] | None = {}
        """Device -> bytes at the last look; None: this allocator cannot be looked at (cudaMallocAsync, say)."""
        self._due = float("-inf")
        self._wanted = self._recording = False

    def largest_free_block(self, index: int, cached_bytes: int) -> int | None:
        """Bytes of the largest cached block, at most `LOOK_SECONDS` old; None: unknown."""
        if cached_bytes <= 0:
            return 0
        with self._lock:
            if self._largest is not None and self._clock() >= self._due:
                self._look()
            if self._largest is None or index not in self._largest:
                return None
            return min(self._largest[index], cached_bytes)  # some of it may have been taken since

    def _look(self) -> None:
        began = self._clock()
        try:
            segments = self._segments()
        except Exception:  # whatever an allocator raises that has no such list
            self._largest = None
            return
        largest = dict.fromkeys(range(int(self._torch.cuda.device_count())), 0)
        for segment in segments:
            free = (int(block["size"]) for block in segment["blocks"] if block["state"] == "inactive")
            largest[segment["device"]] = max(largest.get(segment["device"], 0), *free, 0)
        self._largest = largest
        self._due = self._clock() + max(LOOK_SECONDS, REST * (self._clock() - began))

    def _segments(self) -> Any:
        try:
            return self._torch.cuda.memory_snapshot(include_traces=False)
        except TypeError:  # an older torch brings what was recorded along
            return self._torch.cuda.memory_snapshot()

    def record(self, on: bool) -> None:
        """Record from the first context on, or stop."""
        self._wanted = on
        if self._torch.cuda.is_initialized():
            self.follow()

    def follow(self) -> None:
        """Do what `record` asked for; called when there is a context."""
        with self._lock:
            if self._wanted == self._recording:
                return
            self._recording = self._wanted
            if self._wanted:
                self._torch.cuda.memory._record_memory_history(
                    "all", context="all", stacks="python", max_entries=TRACE_ENTRIES
                )
            else:
                self._torch.cuda.memory._record_memory_history(None)

    def snapshot(self, index: int) -> dict[str, Any]:
        """`torch.cuda.memory._snapshot()`, with the segments and the trace of one device."""
        whole: dict[str, Any] = dict(self._torch.cuda.memory._snapshot())
        whole["segments"] = [segment for segment in whole["segments"] if segment["device"] == index]
        traces = whole.get("device_traces", [])
        whole["device_traces"] = [trace if number == index else [] for number, trace in enumerate(traces)]
        return whole
