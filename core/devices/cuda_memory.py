"""What torch's CUDA allocator says beyond its counters: its largest free block, recording, snapshots. Engine process,
any of its threads.

Nothing here creates a CUDA context: what needs one waits until there is one.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from devexplorer.core.base import Clock

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
