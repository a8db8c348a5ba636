"""The CPU as a device, without torch: what it is (`CpuFacts`), how it is doing (`CpuReader`). Any one thread at a time.

Memory is the system's, or that of the control group (container, systemd slice) where its limit is lower.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from devexplorer.core.base import bytes_text
from devexplorer.core.devices.cpu_busy import CpuBusy
from devexplorer.core.devices.kept_file import KeptFile
from devexplorer.core.records import DeviceInfo, DeviceSample, Problem


class MemoryLimit(NamedTuple):
    """A control group's limit on memory."""

    limit_bytes: int
    group: Path
    """The folder of the group that sets it: its usage is read there too."""
    version: int
    """1 or 2 of the cgroup interface."""


class CpuFacts(NamedTuple):
    """What the CPU is; does not change while the process runs."""

    name: str
    logical_cores: int
    """Cores that this process may run on."""
    physical_bytes: int
    """Memory of the machine."""
    limit: MemoryLimit | None
    """Set where the process may use less than that."""

    @property
    def memory_total_bytes(self) -> int:
        """Memory that the process may use."""
        return self.limit.limit_bytes if self.limit is not None else self.physical_bytes

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Says where the memory limit comes from, when there is one."""
        if self.limit is None:
            return ()
        reason = (
            f"memory is limited to {bytes_text(self.limit.limit_bytes)} of {bytes_text(self.physical_bytes)} "
            f"by the control group {self.limit.group}"
        )
        return (Problem(reason, device="cpu", field="memory_total_bytes"),)


def cpu_facts(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> CpuFacts:
    """Ask the system. Never fails: a name that cannot be found becomes the architecture's."""
    physical = _memory_bytes(KeptFile(proc / "meminfo"), b"MemTotal:", "total")
    limit = _memory_limit(proc, cgroup)
    if limit is not None and limit.limit_bytes >= physical:
        limit = None
    return CpuFacts(_brand(proc), _cores(), physical, limit)


class CpuReader:
    """Reads memory and utilization of the CPU. One thread calls `read`: utilization is counted between two calls."""

    def __init__(self, facts: CpuFacts | None = None, percent: Callable[[], float | None] | None = None) -> None:
        self._percent = percent if percent is not None else CpuBusy()
        self.facts = facts if facts is not None else cpu_facts()
        self._primed = percent is None
        self._meminfo = KeptFile(Path("/proc/meminfo"))

    def used_bytes(self) -> int | None:
        """Memory in use that cannot be given to another process at once (page cache is left out).

        The machine's total minus available; in a limited control group that group's usage minus its inactive file pages
        (what `docker stats` shows).
        """
        limit = self.facts.limit
        if limit is None:
            return max(self.facts.physical_bytes - self._available_bytes(), 0)
        usage, field = (
            ("memory.current", "inactive_file")
            if limit.version == 2
            else ("memory.usage_in_bytes", "total_inactive_file")
        )
        used = _number(limit.group / usage)
        if used is None:
            return None
        cached = _keyed(limit.group / "memory.stat", field) or 0
        return max(used - cached, 0)

    def free_bytes(self) -> int | None:
        """Bytes that new tensors can take: what the machine has available, and what the control group leaves."""
        available = self._available_bytes()
        if self.facts.limit is None:
            return available
        used = self.used_bytes()
        return available if used is None else max(min(available, self.facts.limit.limit_bytes - used), 0)

    def info(self, threads: int | None = None) -> DeviceInfo:
        """The record of the device with the memory in use now."""
        return DeviceInfo(
            id="cpu",
            kind="cpu",
            name=self.facts.name,
            memory_total_bytes=self.facts.memory_total_bytes,
            memory_used_bytes=self.used_bytes(),
            threads=threads,
        )

    def read(self, now: float) -> DeviceSample:
        """One reading, stamped `now` (unix seconds). Utilization: all cores since the last call, or since this was
        made."""
        percent = self._percent()  # psutil's first call, say, has nothing to compare with and answers 0
        utilization, self._primed = (percent if self._primed else None), True
        return DeviceSample(
            device="cpu",
            time_unix_s=now,
            memory_used_bytes=self.used_bytes(),
            memory_total_bytes=self.facts.memory_total_bytes,
            utilization_percent=utilization,
        )

    def _available_bytes(self) -> int:
        """Memory that programs can still take."""
        return _memory_bytes(self._meminfo, b"MemAvailable:", "available")


def _memory_bytes(meminfo: KeptFile, label: bytes, psutil_name: str) -> int:
    """Bytes of one of the first lines of Linux's file, else psutil's answer.

    It is read ten times a second: straight from the file for a tenth of what psutil's whole answer costs.
    """
    number = meminfo.start().partition(label)[2].split()[:1]
    if number and number[0].isdigit():
        return int(number[0]) * 1024
    import psutil

    return int(getattr(psutil.virtual_memory(), psutil_name))


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _brand(proc: Path) -> str:
    if sys.platform == "darwin":
        import subprocess  # the only system on which a program has to be asked

        try:
            answer = subprocess.run(
                ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
                capture_output=True,
                text=True,
                timeout=2,
                check=True,
            )
            return answer.stdout.strip() or _architecture()
        except (OSError, subprocess.SubprocessError):
            return _architecture()
    try:
        with (proc / "cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                label, _, value = line.partition(":")
                if label.strip().lower() in ("model name", "hardware", "cpu model") and value.strip():
                    return " ".join(value.split())
    except OSError:
        pass  # not Linux
    return platform.processor() if " " in platform.processor() else _architecture()


def _architecture() -> str:
    return f"{platform.machine() or 'unknown'} CPU"


def _memory_limit(proc: Path, cgroup: Path) -> MemoryLimit | None:
    """The lowest limit among this process's group and all groups around it (each of them counts)."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    result: list[MemoryLimit] = []
    for line in lines:
        hierarchy, controllers, path = [*line.split(":", 2), "", ""][:3]
        if hierarchy == "0":
            root, name, version = cgroup, "memory.max", 2
        elif "memory" in controllers.split(","):
            root, name, version = cgroup / "memory", "memory.limit_in_bytes", 1
        else:
            continue
        # Inside a container the path can be the host's, which does not exist here: its group is then the root.
        own = root.joinpath(*PurePosixPath(path).parts[1:])
        for group in (own, *own.parents):
            limit = _number(group / name)
            if limit is not None:
                result.append(MemoryLimit(limit, group, version))
            if group == root:
                break
    return min(result, default=None)


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None  # version 2 writes "max" for no limit


def _keyed(path: Path, key: str) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return int(value)
    return None
