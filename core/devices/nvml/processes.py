"""Who uses a card: process lists of NVML joined with what the system says about each process. Sampler threads.

NVML's process numbers are the host's. In a container with its own numbers they mean other processes, so names,
users and command lines are left out, and an empty list is "not visible from here".
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from devexplorer.core.devices.nvml.query import (
    CardState,
    Query,
    QueryRunner,
    nvmlDeviceGetProcessUtilization,
    running_processes,
)
from devexplorer.core.devices.nvml_card import Card, ProcessFacts, ProcessLoad
from devexplorer.core.devices.plausible import MOST_BYTES
from devexplorer.core.records import ProcessUse

HIDDEN = "this is a container with its own process numbers: processes outside are not visible from here"

_FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of Linux's initial pid namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h)."""

_COMPUTE = Query("processes", running_processes("Compute", 3), running_processes("Compute", 2), expected=True)
_GRAPHICS = Query("graphics_processes", running_processes("Graphics", 3), running_processes("Graphics", 2))


@cache  # a process keeps its numbers, and asking takes as long as ten calls of the driver
def in_pid_namespace() -> bool:
    """Whether this process has process numbers of its own (a container), which NVML's are not."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return os.stat(Path("/proc/self/ns/pid")).st_ino != _FIRST_PID_NAMESPACE
    except OSError:
        return False


def merged(
    lists: Iterable[tuple[str, Iterable[Any] | None]], capacity_bytes: int | None
) -> dict[int, tuple[tuple[str, ...], int | None]]:
    """Process number -> kinds and memory in bytes, of NVML's lists by kind.

    Numbers of 0 and below, or beyond 31 bits, are what a structure of another version looks like, and are left out;
    memory beyond the card's is not known.
    """
    most = capacity_bytes if capacity_bytes is not None else MOST_BYTES
    use: dict[int, tuple[tuple[str, ...], int | None]] = {}
    for kind, result in lists:
        for process in result or ():
            pid, memory = int(process.pid), process.usedGpuMemory
            if not 0 < pid < 2**31:
                continue
            if memory is not None and not 0 <= memory <= most:
                memory = None
            kinds, before = use.get(pid, ((), None))
            known = [size for size in (before, memory) if size is not None]
            use[pid] = (kinds if kind in kinds else (*kinds, kind), max(known) if known else None)
    return use


def busy_percent(samples: Iterable[Any], seen: int, field: str = "smUtil") -> tuple[dict[int, float], int]:
    """Process number -> mean SM (or memory) utilization of the samples after `seen`, and the newest time stamp
    (microseconds)."""
    result: dict[int, list[int]] = defaultdict(list)
    newest = seen
    for sample in samples:
        share = int(getattr(sample, field))
        if int(sample.timeStamp) > seen and 0 <= share <= 100:
            result[int(sample.pid)].append(share)
            newest = max(newest, int(sample.timeStamp))
    return {pid: sum(values) / len(values) for pid, values in result.items()}, newest


def cpu_percent(load: ProcessLoad, before: tuple[float, float] | None, now_s: float) -> float | None:
    """Share of one core since `before`, (monotonic seconds, seconds of CPU); None at the first reading, and where the
    number is another process by now."""
    if load.cpu_s is None or before is None or now_s <= before[0] or load.cpu_s < before[1]:
        return None
    return 100 * (load.cpu_s - before[1]) / (now_s - before[0])


def read_processes(
    runner: QueryRunner,
    state: CardState,
    card: Card,
    facts: Callable[[int], ProcessFacts],
    hidden: bool,
    load_of: Callable[[int], ProcessLoad],
    now_s: float,
) -> tuple[ProcessUse, ...] | None:
    """Who uses the card, by process number (`nvidia-smi --query-compute-apps`, the graphics ones, `nvidia-smi pmon`).

    None, with a problem, where that is not visible from here. `hidden`: this is a container with its own numbers.
    A process is looked up once, as long as it stays; what it uses of the machine at each reading, `now_s` by a
    monotonic clock. Raises `CardLostError` and `NvmlGoneError`.
    """
    lists = (("compute", runner.ask(state, _COMPUTE)), ("graphics", runner.ask(state, _GRAPHICS)))
    if all(result is None for _, result in lists):
        return None
    use = merged(lists, card.memory_total_bytes)
    if hidden and not use:
        runner.set_missing(state, _COMPUTE, HIDDEN, problem=True)
        return None
    known, state.known_processes = state.known_processes, {}
    if not hidden:
        for pid in use:
            who = known.get(pid)
            state.known_processes[pid] = who if who is not None and who.name is not None else facts(pid)
    busy: dict[int, float] = {}
    moving: dict[int, float] = {}
    if use:
        since = state.processes_seen
        query = Query("process_utilization", lambda n, h: nvmlDeviceGetProcessUtilization(n, h, since))
        samples = list(runner.ask(state, query) or ())
        moving, _ = busy_percent(samples, since, "memUtil")
        busy, state.processes_seen = busy_percent(samples, since)
    rows = []
    seen, state.cpu_seen = state.cpu_seen, {}
    for pid, (kinds, memory) in sorted(use.items()):
        who = state.known_processes.get(pid, ProcessFacts())
        load = ProcessLoad() if hidden else load_of(pid)
        cpu = cpu_percent(load, seen.get(pid), now_s)
        if load.cpu_s is not None:
            state.cpu_seen[pid] = now_s, load.cpu_s
        rows.append(
            ProcessUse(
                pid, who.name, memory, who.user, who.command, ", ".join(kinds), busy.get(pid), moving.get(pid),
                cpu, load.memory_bytes, load.running_s,
            )
        )  # fmt: skip
    return tuple(rows)
