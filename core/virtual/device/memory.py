"""How much memory tensors take on a virtual GPU: the rules of PyTorch's CUDA caching allocator, without the memory; its
snapshot, with the Python stack of each block. Any thread; no torch.

A stack is kept as torch's own snapshots have it: innermost first, one `(file, line, function)` per frame. Left out is
what says nothing about the caller's code: the virtual device itself, torch's dispatch and the `__call__` of modules
(layers and optimizers stay), and what starts the engine's jobs.

The rules and constants are those of `c10/cuda/CUDACachingAllocator.cpp` (default settings: no expandable segments, no
limit on splitting, one stream):

- a request is rounded up to 512 B; up to 1 MiB it comes from the small pool, above from the large one;
- the smallest free block that is large enough is taken;
- without one, a segment is reserved: 2 MiB for the small pool, 20 MiB for requests below 10 MiB, else the request
  rounded up to 2 MiB;
- what is left of a block becomes a free block when it is at least 512 B (small pool) or more than 1 MiB (large pool);
- a freed block merges with its free neighbours; its segment stays reserved;
- when the device is full, every wholly free segment is given back, and the reservation tried once more.

Thread-safe. Storages die on any thread, also in a garbage collection that starts inside this very module: `free`
therefore never waits for the lock; it leaves the block on a list that the next holder of the lock works through.

The keys are those of `THCPModule_memorySnapshot` (torch/csrc/cuda/Module.cpp, torch 2.13), so that torch's own tools
read it (`torch.cuda._memory_viz`, pytorch.org/memory_viz). `allocator_settings` has one key more, which says that it is
simulated.
"""

from __future__ import annotations

import sys
import threading
import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from devexplorer.core.base import Clock, bytes_text

if TYPE_CHECKING:
    from devexplorer.core.virtual.device.machine import VirtualGpu


Frame = tuple[str, int, str]
Stack = tuple[Frame, ...]

MOST_FRAMES = 64
"""Deeper stacks lose their outermost frames."""

_SKIPPED = ("devexplorer.core.virtual", "devexplorer.core.observe", "torch", "importlib", "contextlib")
_KEPT = ("torch.nn", "torch.optim")
_SKIPPED_AFTER_ALL = ("torch.nn.modules.module",)
_OUTSIDE = ("devexplorer.core.commands", "devexplorer.core.engine", "threading")
"""From here on outwards nothing is of interest."""


def current_stack() -> Stack:
    """The stack of the calling thread, trimmed as the module's docstring says."""
    result: list[Frame] = []
    frame = sys._getframe(1)
    while frame is not None and len(result) < MOST_FRAMES:
        kind = _kind(frame.f_globals.get("__name__") or "")
        if kind == "outside":
            break
        if kind == "kept":
            result.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back  # type: ignore[assignment]  # None at the end, which ends the loop
    return tuple(result)


def current_line() -> Stack:
    """Of the calling thread, the innermost frame that is neither torch's nor the virtual device's, alone; empty where
    there is none. A tenth of what the whole stack costs."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__") or ""
        if _kind(module) == "kept" and not _within(module, _KEPT):
            return ((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name),)
        frame = frame.f_back
    return ()


@lru_cache(maxsize=4096)
def _kind(module: str) -> str:
    """What a stack does with a frame of this module: `kept`, `skipped`, or `outside`, where it ends."""
    if _within(module, _OUTSIDE):
        return "outside"
    if _within(module, _SKIPPED) and (not _within(module, _KEPT) or _within(module, _SKIPPED_AFTER_ALL)):
        return "skipped"
    return "kept"


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


# A counter of an allocator, with the fields that `memory_stats` reports. Guarded by the allocator's lock; no torch.


class Counter:
    """Current and peak value, total added and removed."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        """Increase the current value."""
        self.current += amount
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current

    def take(self, amount: int) -> None:
        """Decrease the current value."""
        self.current -= amount
        self.freed += amount

    def as_dict(self) -> dict[str, int]:
        """Values under torch's names."""
        return {"current": self.current, "peak": self.peak, "allocated": self.allocated, "freed": self.freed}


MIN_BLOCK = 512
"""kMinBlockSize: every block is a multiple of it."""
SMALL_SIZE = 1 << 20
"""kSmallSize: the largest request of the small pool, and what a large block must have left over to be split."""
SMALL_BUFFER = 2 << 20
"""kSmallBuffer: a segment of the small pool."""
LARGE_BUFFER = 20 << 20
"""kLargeBuffer: a segment for requests below MIN_LARGE_ALLOC."""
MIN_LARGE_ALLOC = 10 << 20
"""kMinLargeAlloc: from here on a request has its own segment."""
ROUND_LARGE = 2 << 20
"""kRoundLarge: what such a segment is rounded up to."""


TRACE_ENTRIES = 20_000
"""Recorded allocations and frees that are kept, the newest; torch keeps all of them by default."""


class OutOfDeviceMemoryError(MemoryError):
    """The device is full. `str(error)` is the message in CUDA's wording."""


class Block:
    """A piece of a segment. `address` is unique on its device, and 512-byte aligned."""

    __slots__ = ("address", "cached", "free", "next", "previous", "requested", "size", "small", "stack")

    def __init__(self, address: int, size: int, small: bool) -> None:
        self.address = address
        self.size = size
        self.small = small
        self.free = True
        self.cached = False
        """Used by `footprint` only: a copy of a block that is free now."""
        self.previous: Block | None = None
        self.next: Block | None = None
        self.requested = 0
        """What was asked for, before rounding; 0 while the block is free."""
        self.stack: Stack | None = None
        """Where it was asked for; None: not recorded."""

    @property
    def whole_segment(self) -> bool:
        """Whether this block is a segment that is not split."""
        return self.previous is None and self.next is None


def round_up(nbytes: int) -> int:
    """Size of the block that a request asks for."""
    return max(MIN_BLOCK, -(-nbytes // MIN_BLOCK) * MIN_BLOCK)


def segment_size(size: int) -> int:
    """Size of the segment that is reserved for a block of `size`."""
    if size <= SMALL_SIZE:
        return SMALL_BUFFER
    if size < MIN_LARGE_ALLOC:
        return LARGE_BUFFER
    return -(-size // ROUND_LARGE) * ROUND_LARGE


class MemoryFigures(NamedTuple):
    """Bytes of one moment, with the names of `AllocatorSample`."""

    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    """The most that was allocated at one time."""
    largest_free_block_bytes: int
    """The largest cached block."""
    segments: int
    """How many pieces were taken from the device."""
    context_bytes: int
    """What the context takes, which the first request creates."""

    @property
    def used(self) -> int:
        """What nvidia-smi would show: reserved, and the context."""
        return self.reserved_bytes + self.context_bytes


def worst_case_bytes(sizes: Iterable[int]) -> int:
    """Bytes that requests of these sizes take in the worst case, however the cache is split; `footprint` says it
    exactly, and slowly.

    Blocks of the small pool fill at least half of each of its segments but the last one; every other request may need
    its own segment.
    """
    small = large = 0
    for nbytes in sizes:
        size = round_up(nbytes)
        if size <= SMALL_SIZE:
            small += size
        else:
            large += segment_size(size) + SMALL_SIZE  # what a cached block may have left over without being split
    return large + (2 * small + SMALL_BUFFER if small else 0)


class BlockCopy(NamedTuple):
    """A block as it was at one moment."""

    address: int
    size: int
    requested: int
    is_free: bool
    in_small_pool: bool
    stack: Stack | None


class AllocatorEvent(NamedTuple):
    """Something that the allocator did while it recorded; `action` in torch's words."""

    action: str
    """`alloc`, `free_requested`, `free_completed`, `segment_alloc`, `segment_free`, `oom`."""
    address: int
    """For `oom` the bytes that the device had free."""
    size: int
    time_us: int
    """Unix time. Of a free: when the allocator heard of it."""
    stack: Stack | None = None
    """Only of allocations: storages die in finalizers, wherever those happen to run."""


class CachingAllocator:
    """The allocator of one device with `capacity_bytes`, of which the context takes `context_bytes` for itself."""

    def __init__(
        self, capacity_bytes: int, context_bytes: int = 0, index: int = 0, *, clock: Clock = time.time
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.context_bytes = context_bytes
        self.index = index
        self._has_context = False
        self._lock = threading.Lock()
        self._freed: deque[Block] = deque()
        self._pools: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}
        """small? -> free blocks by (size, address)."""
        self._segments: dict[int, Block] = {}
        """Address -> first block of a segment. Splitting and merging keep the block with the lower address, so that it
        stays the first."""
        self._clock = clock
        self._recording = self._noting = False
        self._trace: deque[AllocatorEvent] = deque(maxlen=TRACE_ENTRIES)
        self._next_address = (index + 1) << 44  # apart from the other devices' addresses
        self._allocated, self._allocation_count = Counter(), Counter()
        """Of blocks in use: their bytes and how many there are."""
        self._reserved_bytes, self._segment_count = Counter(), Counter()
        """Of segments: their bytes and how many there are."""
        self._retries = self._out_of_memory_count = 0

    def allocate(self, nbytes: int) -> Block:
        """Take a block for `nbytes`; a request of 0 bytes takes nothing but creates the context. Raises
        `OutOfDeviceMemoryError`."""
        self._has_context = True
        if nbytes <= 0:
            return Block(0, 0, small=True)
        size = round_up(nbytes)
        stack: Stack | None = None
        if self._recording:
            stack = current_stack()
        elif self._noting:
            stack = current_line()
        with self._held():
            block = self._find_cached(size) or self._reserve(size, stack)
            self._split(block, size)
            block.free, block.requested, block.stack = False, nbytes, stack
            self._trace_event("alloc", block.address, nbytes, stack)
            self._allocated.add(block.size)
            self._allocation_count.add(1)
        return block

    def free(self, block: Block) -> None:
        """Give a block back. Never waits, may be called from a finalizer on any thread."""
        if block.size == 0:
            return
        self._freed.append(block)
        if self._lock.acquire(blocking=False):
            try:
                self._process_freed()
            finally:
                self._lock.release()

    def empty_cache(self) -> None:
        """Give every wholly free segment back to the device."""
        with self._held():
            self._release_segments()

    def reset_peak(self) -> None:
        """Let the peaks start again from what is allocated now."""
        with self._held():
            for counter in self._counters().values():
                counter.peak = counter.current

    def reset_accumulated(self) -> None:
        """Let the sums of what came and went start again."""
        with self._held():
            self._retries = self._out_of_memory_count = 0
            for counter in self._counters().values():
                counter.allocated = counter.freed = 0

    def statistics(self) -> dict[str, Any]:
        """Everything that is counted, under torch's names. What this allocator does not tell apart (its two pools) is
        left out."""
        with self._held():
            counted = {name: {"all": counter.as_dict()} for name, counter in self._counters().items()}
            calls = {
                "num_device_alloc": self._segment_count.allocated,
                "num_device_free": self._segment_count.freed,
                "num_sync_all_streams": 0,
            }
            return {**counted, **calls, "num_alloc_retries": self._retries, "num_ooms": self._out_of_memory_count}

    def _counters(self) -> dict[str, Counter]:
        return {
            "allocated_bytes": self._allocated,
            "allocation": self._allocation_count,
            "reserved_bytes": self._reserved_bytes,
            "segment": self._segment_count,
        }

    @property
    def allocated_bytes(self) -> int:
        """In blocks that are in use."""
        with self._held():
            return self._allocated.current

    @property
    def reserved_bytes(self) -> int:
        """In segments."""
        with self._held():
            return self._reserved_bytes.current

    @property
    def peak_allocated_bytes(self) -> int:
        """The most that was allocated at one time."""
        with self._held():
            return self._allocated.peak

    @property
    def free_bytes(self) -> int:
        """What is not in blocks in use: not yet reserved, or cached. Fragmentation can keep a single request from
        having all of it."""
        with self._held():
            return self.capacity_bytes - self.context_bytes - self._allocated.current

    def figures(self) -> MemoryFigures:
        """Everything that is counted, of one moment."""
        with self._held():
            return MemoryFigures(
                self._allocated.current,
                self._reserved_bytes.current,
                self._allocated.peak,
                self._largest_free(),
                len(self._segments),
                self.context_bytes if self._has_context else 0,
            )

    def record(self, on: bool) -> None:
        """Keep the stack of each new block and what the allocator does, or keep no more of it. Starting again starts
        afresh."""
        with self._held():
            if on and not self._recording:
                self._trace.clear()
            self._recording = on

    def note_lines(self, on: bool) -> None:
        """Keep the line of code with each new block, also while nothing is recorded."""
        self._noting = on

    def blocks_and_trace(self) -> tuple[list[list[BlockCopy]], list[AllocatorEvent]]:
        """The blocks of every segment by address, and what was recorded, of one moment."""
        with self._held():
            return [self._blocks_of(first) for _, first in sorted(self._segments.items())], list(self._trace)

    def footprint(self, sizes: Iterable[int]) -> int:
        """Bytes of `free_bytes` that requests of these sizes would use up now: cached blocks taken, plus new
        segments."""
        trial = CachingAllocator(1 << 62)
        with self._held():
            for small, pool in self._pools.items():
                for size, address, _ in pool:
                    copy = Block(address, size, small)
                    copy.cached = True
                    trial._pools[small].append((size, address, copy))
        before = trial._cached_bytes()
        for size in sizes:
            trial.allocate(size)
        return before - trial._cached_bytes() + trial._reserved_bytes.current

    def _cached_bytes(self) -> int:
        return sum(size for pool in self._pools.values() for size, _, block in pool if block.cached)

    def _largest_free(self) -> int:
        return max((pool[-1][0] for pool in self._pools.values() if pool), default=0)

    @staticmethod
    def _blocks_of(first: Block) -> list[BlockCopy]:
        blocks: list[BlockCopy] = []
        block: Block | None = first
        while block is not None:
            blocks.append(BlockCopy(block.address, block.size, block.requested, block.free, block.small, block.stack))
            block = block.next
        return blocks

    def _trace_event(self, action: str, address: int, size: int, stack: Stack | None = None) -> None:
        if self._recording:
            self._trace.append(AllocatorEvent(action, address, size, int(self._clock() * 1e6), stack))

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self._lock:
            self._process_freed()
            yield

    def _process_freed(self) -> None:
        while self._freed:
            block = self._freed.popleft()
            self._allocated.take(block.size)
            self._allocation_count.take(1)
            self._trace_event("free_requested", block.address, block.requested)
            self._trace_event("free_completed", block.address, block.requested)
            block.free, block.requested, block.stack = True, 0, None
            for neighbour in (block.previous, block.next):
                if neighbour is not None and neighbour.free:
                    self._forget(neighbour)
                    block = self._merged(block, neighbour)
            insort(self._pools[block.small], (block.size, block.address, block))

    def _find_cached(self, size: int) -> Block | None:
        pool = self._pools[size <= SMALL_SIZE]
        place = bisect_left(pool, (size, 0))
        return pool.pop(place)[2] if place < len(pool) else None

    def _reserve(self, size: int, stack: Stack | None) -> Block:
        wanted = segment_size(size)
        limit = self.capacity_bytes - self.context_bytes
        if self._reserved_bytes.current + wanted > limit:
            self._retries += 1
            self._release_segments()
        if self._reserved_bytes.current + wanted > limit:
            self._out_of_memory_count += 1
            self._trace_event("oom", limit - self._reserved_bytes.current, size, stack)
            raise OutOfDeviceMemoryError(self._out_of_memory_message(wanted))
        self._reserved_bytes.add(wanted)
        self._segment_count.add(1)
        block = self._segments[self._next_address] = Block(self._next_address, wanted, small=size <= SMALL_SIZE)
        self._next_address += wanted
        self._trace_event("segment_alloc", block.address, wanted, stack)
        return block

    def _split(self, block: Block, size: int) -> None:
        left = block.size - size
        if left < MIN_BLOCK if block.small else left <= SMALL_SIZE:
            return
        rest = Block(block.address + size, left, block.small)
        rest.cached = block.cached
        rest.previous, rest.next = block, block.next
        if block.next is not None:
            block.next.previous = rest
        block.next, block.size = rest, size
        insort(self._pools[rest.small], (rest.size, rest.address, rest))

    def _forget(self, block: Block) -> None:
        pool = self._pools[block.small]
        del pool[bisect_left(pool, (block.size, block.address))]

    @staticmethod
    def _merged(block: Block, neighbour: Block) -> Block:
        first, second = (block, neighbour) if block.address < neighbour.address else (neighbour, block)
        first.size += second.size
        first.next = second.next
        if second.next is not None:
            second.next.previous = first
        first.free = True
        return first

    def _release_segments(self) -> None:
        for small, pool in self._pools.items():
            for size, address, block in pool:
                if block.whole_segment:
                    self._reserved_bytes.take(size)
                    self._segment_count.take(1)
                    self._segments.pop(address, None)  # a trial of `footprint` knows only free blocks
                    self._trace_event("segment_free", address, size)
            self._pools[small] = [entry for entry in pool if not entry[2].whole_segment]

    def _out_of_memory_message(self, wanted: int) -> str:
        """The message of CUDACachingAllocator.cpp, with `vgpu` for CUDA."""
        reserved, allocated = self._reserved_bytes.current, self._allocated.current
        used = reserved + self.context_bytes
        return (
            f"vgpu out of memory. Tried to allocate {bytes_text(wanted)}. GPU {self.index} has a total capacity of"
            f" {bytes_text(self.capacity_bytes)} of which {bytes_text(self.capacity_bytes - used)} is free. Including"
            f" non-PyTorch memory, this process has {bytes_text(used)} memory in use. Of the allocated memory"
            f" {bytes_text(allocated)} is allocated by PyTorch, and"
            f" {bytes_text(reserved - allocated)} is reserved by PyTorch but unallocated."
        )


POOL = (0, 0)
"""The id of the shared pool."""

Frames = Callable[[Stack | None], list[dict[str, Any]]]


def snapshot(gpu: VirtualGpu) -> dict[str, Any]:
    """Segments, blocks and what was recorded, as plain values; equal stacks are one list, so that a pickle holds them
    once."""
    known: dict[Stack, list[dict[str, Any]]] = {}

    def frames(stack: Stack | None) -> list[dict[str, Any]]:
        if stack is None:
            return []
        if stack not in known:
            known[stack] = [{"filename": file, "line": line, "name": name} for file, line, name in stack]
        return known[stack]

    segments, events = gpu.memory.blocks_and_trace()
    traces: list[list[dict[str, Any]]] = [[] for _ in range(gpu.index)]
    return {
        "segments": [_segment(gpu.index, blocks, frames) for blocks in segments],
        "device_traces": [*traces, [_event(event, frames) for event in events]],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
            "simulated": f"{gpu.id}, {gpu.profile.name}",
        },
        "external_annotations": [],
    }


def _segment(device: int, blocks: list[BlockCopy], frames: Frames) -> dict[str, Any]:
    used = [block for block in blocks if not block.is_free]
    size = sum(block.size for block in blocks)
    allocated = sum(block.size for block in used)
    return {
        "device": device,
        "address": blocks[0].address,
        "total_size": size,
        "allocated_size": allocated,
        "active_size": allocated,
        "requested_size": sum(block.requested for block in used),
        "stream": 0,
        "segment_type": "small" if blocks[0].in_small_pool else "large",
        "segment_pool_id": POOL,
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": "inactive" if block.is_free else "active_allocated",
                "frames": frames(block.stack),
            }
            for block in blocks
        ],
    }


def _event(event: AllocatorEvent, frames: Frames) -> dict[str, Any]:
    return {
        "action": event.action,
        "device_free" if event.action == "oom" else "addr": event.address,
        "size": event.size,
        "stream": 0,
        "time_us": event.time_us,
        "frames": frames(event.stack),
        "pool_id": POOL,
    }
