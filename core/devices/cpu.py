"""The CPU as a device, without torch: what it is (`CpuFacts`), how it is doing (`CpuReader`), how busy its cores are
(`CpuBusy`). Any one thread at a time.

Memory is the system's, or that of the control group (container, systemd slice) where its limit is lower. How busy the
cores are is read straight from /proc/stat on Linux: psutil, which says the same, takes a sixth of the time in which
`watch --count 1` is done to import.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from devexplorer.core.base import bytes_text
from devexplorer.core.records import DeviceInfo, DeviceSample, Problem


class KeptFile:
    """`start()` is the file's beginning as it is now; nothing where there is no such file."""

    def __init__(self, path: Path) -> None:
        self._number = -1
        try:
            self._number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            pass  # not Linux

    def start(self, most: int = 256) -> bytes:
        """The first `most` bytes."""
        try:
            return os.pread(self._number, most, 0) if self._number >= 0 else b""
        except OSError:
            return b""

    def __del__(self) -> None:
        if self._number >= 0:
            os.close(self._number)


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


LEAST_S = 0.03
"""Over less time the system's clock, which ticks every 1 to 10 ms, has too few steps."""
SHORT_S = 0.5
"""In a first reading over less time what this process did is left out: its own start is not what anybody asks for."""


class CpuBusy:
    """Share of all cores that was busy since the last call, or since this was made; None where that is too short, or
    not told."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = KeptFile(stat)
        self._then = self._now()
        self._psutil = None
        if self._then is None:
            import psutil

            self._psutil = psutil
            psutil.cpu_percent()
        self._at = time.monotonic()
        self._own: float | None = time.process_time()

    def __call__(self) -> float | None:
        """The share in percent."""
        at = time.monotonic()
        passed_s = at - self._at
        if passed_s < LEAST_S:
            return None
        spent_s = time.process_time() - self._own if self._own is not None and passed_s < SHORT_S else 0.0
        self._at, self._own = at, None
        if self._psutil is not None:
            return float(self._psutil.cpu_percent())
        then, now = self._then, self._now()
        self._then = now
        if then is None or now is None or now[1] <= then[1]:
            return None
        busy, whole = now[0] - then[0], now[1] - then[1]
        if spent_s:
            busy -= (
                spent_s * whole / passed_s / max(os.cpu_count() or 1, 1)
            )  # in the file's ticks, of which a core has so many a second
        return min(max(100 * busy / whole, 0.0), 100.0)

    def _now(self) -> tuple[float, float] | None:
        """Busy and all time of all cores since the start, in the system's ticks; guests are counted among the
        others."""
        label, *numbers = self._stat.start().partition(b"\n")[0].split() or (b"",)
        try:
            values = [int(number) for number in numbers[:8]]
        except ValueError:
            return None
        if label != b"cpu" or len(values) < 5:
            return None
        whole = sum(values)
        return whole - values[3] - values[4], whole  # idle, and waiting for disks
