"""What NVML lists (`Card`), and who a process is: name, user and command line, each for itself, as text that every
encoder takes, and what it has used of the machine. Any thread.

On Linux straight from /proc, for a fifth of what psutil's answer costs; elsewhere psutil's.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One NVIDIA card, or one MIG instance of a card, as NVML enumerates it.

    Listing the cards again gives an equal record as long as nothing of importance changed.
    """

    index: int
    """What nvidia-smi counts (`index`); a MIG instance has its card's."""
    uuid: str | None
    """`GPU-…` or `MIG-…` (`uuid`); None for a card that is too broken to say."""
    name: str
    """Of a MIG instance with its profile, where the driver says it: `NVIDIA A100-SXM4-40GB MIG 1g.5gb`."""
    named: bool = True
    """Whether the driver told the name; else it is made of the card's number."""
    mig_instance: int | None = None
    """Number of the MIG instance within its card; None for a card itself."""
    mig_profile: str | None = None
    """`1g.5gb`: seventh parts of the chip and gigabytes; None for a card itself."""
    gpu_instance_id: int | None = None
    """What nvidia-smi calls its GPU instance (`GI`); None for a card itself."""
    parent_key: str | None = None
    """`key` of the card that a MIG instance is a part of."""
    bus_id: str | None = None
    """`pci.bus_id`"""
    memory_total_bytes: int | None = None
    """`memory.total`"""
    memory_used_bytes: int | None = None
    """`memory.used` when the card was first listed"""
    memory_shared: bool = False
    """True where the card has no memory of its own (GB10, Jetson): the figures are the system's."""
    compute_capability: str | None = None
    """`compute_cap`"""
    driver_version: str | None = None
    """`driver_version`"""
    cuda_version: str | None = None
    """The newest CUDA that the driver supports, as the head of nvidia-smi's table shows it."""
    ecc: bool | None = None
    """`ecc.mode.current`"""
    compute_mode: str | None = None
    """`compute_mode`"""
    mig: bool | None = None
    """`mig.mode.current`"""
    broken: str | None = None
    """Why nothing can be read from it."""

    @property
    def key(self) -> str:
        """What identifies it: the UUID, or its place where there is none (two handles of one card compare unequal)."""
        return self.uuid or f"index {self.index}"

    @property
    def nvml_id(self) -> str:
        """The device id `nvml:N`, by which problems name it."""
        return f"nvml:{self.index}"


class ProcessLoad(NamedTuple):
    """What a process has used until now; None where it is gone, or the system does not tell."""

    cpu_s: float | None = None
    memory_bytes: int | None = None
    running_s: float | None = None


class ProcessFacts(NamedTuple):
    """What the system says about a process; None where it is gone or belongs to another user."""

    name: str | None = None
    user: str | None = None
    command: str | None = None


COMMAND_CHARACTERS = 400
_COMM = 15
"""Characters of a name that Linux keeps; a longer one is completed from the command line."""


def process_facts(pid: int, proc: Path = Path("/proc")) -> ProcessFacts:
    """What the system says about a process; nothing of one that is gone, and what belongs to other users is None."""
    if not sys.platform.startswith("linux"):
        return _by_psutil(pid)
    folder = proc / str(pid)
    name = _bytes(folder / "comm")
    if name is None:
        return ProcessFacts()
    words = [word for word in (_bytes(folder / "cmdline") or b"").split(b"\0") if word]
    name = name.strip()
    if len(name) >= _COMM and words and (longer := os.path.basename(words[0])).startswith(name):
        name = longer
    return ProcessFacts(_readable(name), _user(folder), _shortened(_readable(b" ".join(words))) if words else None)


def process_load(pid: int, proc: Path = Path("/proc")) -> ProcessLoad:
    """Seconds of CPU, resident memory, and how long it runs."""
    if not sys.platform.startswith("linux"):
        return _load_by_psutil(pid)
    stat, uptime = _bytes(proc / str(pid) / "stat"), _bytes(proc / "uptime")
    if stat is None:
        return ProcessLoad()
    try:
        fields = stat[stat.rindex(b")") + 2 :].split()  # a name may hold blanks and brackets; from field 3 of proc(5)
        ticks = os.sysconf("SC_CLK_TCK")
        cpu_s = (int(fields[11]) + int(fields[12])) / ticks
        memory = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        running_s = None if uptime is None else float(uptime.split()[0]) - int(fields[19]) / ticks
    except (ValueError, IndexError):
        return ProcessLoad()
    if running_s is not None and running_s < 0:  # some containers count the time since their own start
        running_s = None
    return ProcessLoad(cpu_s, memory, running_s)


def _load_by_psutil(pid: int) -> ProcessLoad:
    import psutil

    try:
        used = psutil.Process(pid).as_dict(("cpu_times", "memory_info", "create_time"))  # None: may not be read
    except (psutil.Error, OSError, ValueError):
        return ProcessLoad()
    times, memory, created = used["cpu_times"], used["memory_info"], used["create_time"]
    return ProcessLoad(
        None if times is None else times.user + times.system,
        None if memory is None else memory.rss,
        None if created is None else max(time.time() - created, 0.0),
    )


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _readable(text: bytes) -> str:
    """Bytes that are no UTF-8 become marks: neither JSON nor a recording can hold them."""
    return text.decode("utf-8", "replace")


def _shortened(command: str) -> str:
    return command if len(command) <= COMMAND_CHARACTERS else command[: COMMAND_CHARACTERS - 1] + "…"


def _user(folder: Path) -> str | None:
    try:
        number = folder.stat().st_uid
    except OSError:
        return None
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)  # a user without a name


def _by_psutil(pid: int) -> ProcessFacts:
    import psutil

    try:
        facts = psutil.Process(pid).as_dict(("name", "username", "cmdline"))  # what may not be read is None
    except (psutil.Error, OSError, ValueError, KeyError):
        return ProcessFacts()
    words = facts["cmdline"]
    texts = (facts["name"], facts["username"], " ".join(words) if words else None)
    name, user, command = (
        None if text is None else _readable(text.encode("utf-8", "surrogateescape")) for text in texts
    )
    return ProcessFacts(name, user, None if command is None else _shortened(command))
